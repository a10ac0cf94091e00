"""The grid Lambda of thresholds worth trying, from observed values alone."""

import numpy as np

from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._engine._acceptance import (
    Pairs,
    accepted_sets,
    conflict_sets,
    quality_sets,
)
from sklearn_clm.calibration._engine._distinct import distinct_sets
from sklearn_clm.calibration._engine._stopping import scores_of_prefixes
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score

# sets that are built to see which set scores occur, and similarities or qualities that are sorted
_MAX_SETS = 20_000
_MAX_VALUES = 4_000_000

_COUNTING = (get_set_score("first_k"), get_set_score("first_k_reject"))


def threshold_grid(
    data: CalibrationData, *, set_score: SetScoreLike, n_lambdas: int = 25
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds that are worth trying, taken from the values that occur in the data.

    Each dimension gets up to `n_lambdas` observed values, evenly spread over their distribution,
    and -inf and +inf. Being observed values, they decide ties as the data do. Where few values
    occur, all of them are taken. Set scores are observed on running sets, under no rejection and
    under several strengths of it, because rejection shifts their distribution. Very large data
    are thinned out at regular steps first.

    Parameters
    ----------
    data : CalibrationData
        The optimisation part: the part that the thresholds are *tested* on must be another one.
    set_score : str, callable or SetScore
        The set function F. Without rejection by similarity or quality, lambda_1 is +inf or
        lambda_2 is -inf alone. For `first_k` and `first_k_reject` lambda_3 is 1, 2, ..., K.
    n_lambdas : int, default=25
        Number of observed values in each dimension, >= 1.

    Returns
    -------
    similarity_thresholds, quality_thresholds, set_score_thresholds : ndarray
        Ascending thresholds, at most ``n_lambdas + 2`` each (K for the counting set scores).

    Raises
    ------
    ValueError
        If `n_lambdas` is less than one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, threshold_grid
    >>> data = CalibrationData([[0.2, 0.9]], np.full((1, 2, 2), 0.5), [[False, True]])
    >>> l1, l2, l3 = threshold_grid(data, set_score="max")
    >>> l1, l2
    (array([-inf,  0.5,  inf]), array([-inf,  0.2,  0.9,  inf]))
    """
    score = get_set_score(set_score)
    if not (isinstance(n_lambdas, (int, np.integer)) and n_lambdas >= 1):
        raise ValueError(f"n_lambdas must be an integer >= 1, got {n_lambdas!r}.")
    l1, l2 = np.array([np.inf]), np.array([-np.inf])
    if score.rejects_similarity:
        l1 = _between_infinities(_observed_similarities(data), n_lambdas)
    if score.rejects_quality:
        step = max(1, -(-data.quality.size // _MAX_VALUES))
        l2 = _between_infinities(data.quality[::step].ravel(), n_lambdas)
    if score in _COUNTING:
        return l1, l2, np.arange(1.0, data.k_max + 1.0)
    return l1, l2, _between_infinities(_observed_set_scores(data, score, l1, l2), n_lambdas)


def observed_quantiles(values: np.ndarray, n: int) -> np.ndarray:
    """Up to `n` distinct values that occur, evenly spread over their distribution, ascending."""
    values = np.sort(values[np.isfinite(values)])
    chosen = np.empty(0, dtype=values.dtype)
    # where quantiles coincide in a tie, the places left over go to the remaining values
    while len(chosen) < n and len(values):
        missing = n - len(chosen)
        positions = ((np.arange(missing) + 0.5) / missing * len(values)).astype(np.intp)
        new = np.unique(values[positions])
        chosen = np.union1d(chosen, new)
        values = values[~np.isin(values, new)]
    return chosen.astype(np.float64)


def _between_infinities(values: np.ndarray, n: int) -> np.ndarray:
    return np.concatenate(([-np.inf], observed_quantiles(values, n), [np.inf]))


def _observed_similarities(data: CalibrationData) -> np.ndarray:
    k = data.k_max
    later, earlier = np.tril_indices(k, -1)
    step = max(1, -(-data.n_prompts * len(later) // _MAX_VALUES))
    rows = _every(data, step).similarity
    return rows.reshape(len(rows), k * k)[:, later * k + earlier].ravel()


def _every(data: CalibrationData, step: int) -> CalibrationData:
    return data if step == 1 else data.take(np.arange(0, data.n_prompts, step))


def _observed_set_scores(
    data: CalibrationData, score: SetScore, l1: np.ndarray, l2: np.ndarray
) -> np.ndarray:
    # from rejecting nothing to rejecting nearly half by either criterion
    l1 = np.unique(l1[[len(l1) // 4, len(l1) // 2, 3 * len(l1) // 4, -1]])
    l2 = np.unique(l2[[0, len(l2) // 4, len(l2) // 2]])
    step = max(1, -(-data.n_prompts * len(l1) * len(l2) // _MAX_SETS))
    thinned = _every(data, step)
    quality = thinned.quality
    conflicts = conflict_sets(np.asarray(thinned.similarity), l1)
    pairs = Pairs.of_grid(len(l1), len(l2))
    words = accepted_sets(quality_sets(quality, l2), conflicts, pairs)
    sets = distinct_sets(words, data.k_max)
    of_set = np.take(np.ascontiguousarray(quality.T), sets.prompt, axis=1)
    prefixes = np.flatnonzero(sets.new_prefixes())
    return scores_of_prefixes(score, of_set, sets.accepted, prefixes)
