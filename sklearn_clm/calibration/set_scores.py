"""Set scores F (section 5): confidence in a whole set."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from sklearn_clm.calibration.checks import as_array, noting_arguments


@dataclass(frozen=True)
class SetScore:
    """A set score F in the forms the package needs.

    Parameters
    ----------
    name : str
        How it is called in messages and tables.
    of_set : callable (quality of shape (m,), n_samples) -> float
        F of one set: the qualities of its accepted members in draw order, and the draws so far.
    running : callable (quality, accepted) -> array, or None
        F of all prefixes of many prompts: `quality` and boolean `accepted` of shape (n, K) give an
        array of shape (n, K), whose column j is F of the draws accepted up to j.
    of_sets : callable (quality, accepted) -> array, or None
        F of m sets at once: two such arrays of shape (m, K) give one of shape (m,). It takes the
        place of `of_set` where `running` is not known.
    rejects_quality, rejects_similarity : bool, default=True
        Whether thresholds on quality and on similarity are searched.
    counts_draws : bool, default=False
        Whether F depends on the number of draws alone, so that sampling can stop at a rejected
        draw. `running` must be given.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.scoring import SetScore
    >>> def best_two(quality, n_samples):
    ...     return float(np.sort(quality)[-2:].sum())
    >>> SetScore("best_two", best_two).of_set(np.array([0.5, 0.125, 0.25]), n_samples=4)
    0.75
    """

    name: str
    of_set: Callable[[np.ndarray, int], float]
    running: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    of_sets: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    rejects_quality: bool = True
    rejects_similarity: bool = True
    counts_draws: bool = False


SetScoreLike = str | Callable[..., Any] | SetScore


def _running_max(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    scores = np.where(accepted, quality, -np.inf)
    # draw by draw over all rows: accumulate() takes row by row, which is several times slower
    for j in range(1, scores.shape[1]):
        np.maximum(scores[:, j], scores[:, j - 1], out=scores[:, j])
    return scores


def _sum_in_draw_order(quality: np.ndarray, n_samples: int) -> float:
    # np.sum and sum() round otherwise than a running sum, and would tie otherwise
    return float(reduce(add, quality.tolist()))


def _running_sum(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    scores = np.where(accepted, quality, 0.0)
    # +inf and -inf in one set sum to NaN, at which sampling never stops
    with np.errstate(invalid="ignore"):
        for j in range(1, scores.shape[1]):
            scores[:, j] += scores[:, j - 1]
    return scores


def _running_size(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    return np.cumsum(accepted, axis=1, dtype=np.float64)


def _running_draws(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(1.0, accepted.shape[1] + 1.0), accepted.shape)


_SET_SCORES = {
    "first_k": SetScore(
        "first_k",
        lambda quality, n_samples: float(len(quality)),
        _running_size,
        rejects_quality=False,
        rejects_similarity=False,
    ),
    "first_k_reject": SetScore(
        "first_k_reject",
        lambda quality, n_samples: float(n_samples),
        _running_draws,
        rejects_quality=False,
        counts_draws=True,
    ),
    "max": SetScore("max", lambda quality, n_samples: float(np.max(quality)), _running_max),
    "sum": SetScore("sum", _sum_in_draw_order, _running_sum),
}


def get_set_score(set_score: SetScoreLike) -> SetScore:
    """Set score from its name or from a callable.

    Parameters
    ----------
    set_score : {"first_k", "first_k_reject", "max", "sum"} or callable
        A name of the paper (below), or a callable with one required argument or two:
        ``f(quality) -> float`` takes the 1-D array of the accepted qualities in draw order;
        ``f(quality, accepted) -> array of shape (n,)`` takes two arrays of shape (n, K), the second
        boolean, and scores n sets at once, much faster; qualities outside of the sets are 0. F
        need not be monotone in the set, but must depend on the accepted members alone.

    Notes
    -----
    | name | F | rejected draws |
    |---|---|---|
    | "first_k" | number of members | none |
    | "first_k_reject" | number of draws so far, the rejected ones included | those too similar |
    | "max" | largest quality of a member | those too similar or of low quality |
    | "sum" | sum of the qualities of the members | those too similar or of low quality |

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.scoring import get_set_score
    >>> get_set_score("sum").of_set(np.array([0.25, 0.5]), n_samples=4)
    0.75
    >>> get_set_score(np.mean).of_set(np.array([0.25, 0.75]), n_samples=4)
    0.5
    """
    if isinstance(set_score, SetScore):
        return set_score
    if isinstance(set_score, str) and set_score in _SET_SCORES:
        return _SET_SCORES[set_score]
    if not callable(set_score):
        raise ValueError(
            f"set_score must be one of {sorted(_SET_SCORES)} or a callable, got {set_score!r:.60} "
            "instead."
        )
    name = getattr(set_score, "__name__", type(set_score).__name__)
    value = f"the value of set_score {name}"

    def called(*arguments: np.ndarray) -> object:
        with noting_arguments(f"set_score {name}", *arguments):
            return set_score(*arguments)

    if not _is_vectorised(set_score):

        def of_one(quality: np.ndarray, n_samples: int) -> float:
            return float(as_array(called(quality), value, (), where=False))

        return SetScore(name, of_one)

    # a mean of infinite qualities, say, is NaN, at which sampling does not stop
    def of_sets(quality: np.ndarray, accepted: np.ndarray) -> np.ndarray:
        # equal bytes in equal order for every caller: the memory layout decides the order in
        # which NumPy adds, and what is not in the set must have no part in any rounding
        members = np.ascontiguousarray(accepted)
        values = np.zeros(members.shape)
        np.copyto(values, quality, where=members)
        return as_array(called(values, members), value, (len(quality),), where=False)

    def of_set(quality: np.ndarray, n_samples: int) -> float:
        accepts_all = np.ones((1, len(quality)), dtype=bool)
        (score,) = of_sets(quality[np.newaxis], accepts_all)
        return float(score)

    return SetScore(name, of_set, of_sets=of_sets)


def _is_vectorised(function: Callable[..., object]) -> bool:
    """Whether a function needs more than one argument."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return True
    except ValueError:
        pass  # a built-in function without a signature
    return False
