"""The protocol of repeated random splits for component selection (section 6, Appendix G)."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration import ComponentCalibrationData
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.calibration._components import check_components
from sklearn_clm.evaluation._results import ComponentTrialResults
from sklearn_clm.evaluation._trials import (
    RandomState,
    Split,
    check_levels,
    critical_counts,
    over_splits,
    part_sizes,
    random_splits,
)
from sklearn_clm.scoring import component_match

Match = Callable[[str, str], bool]
Splitter = Callable[[str], Sequence[object]]


def run_component_trials(
    data: ComponentCalibrationData | Mapping[str, ComponentCalibrationData],
    alphas: ArrayLike | None = None,
    *,
    reference_scores: Sequence[ArrayLike] | Mapping[str, Sequence[ArrayLike]] | None = None,
    delta: float = 0.05,
    n_trials: int = 100,
    calibration_fraction: float = 0.3,
    random_state: RandomState = None,
    verbose: int = 0,
) -> ComponentTrialResults:
    """Repeat calibration and test of component selection over random splits.

    Parameters
    ----------
    data : dict of str to ComponentCalibrationData, or ComponentCalibrationData
        For each component score to compare, the scores and labels of the components of the same
        n prompts, in the same order. A single one is named "component_score".
    alphas : array-like of shape (n_levels,), optional
        Levels in [0, 1], strictly increasing. Default: 101 from 0 to 1.
    reference_scores : dict of str to sequence of n 1-D arrays, optional
        For each component score what :func:`reference_scores` gives. Recall is then the share of
        the reference that the selection covers (Appendix G). By default it is the share of the
        admissible components, among those of all K samples, that are selected. Prompts with an
        empty reference, or no admissible component, do not count.
    calibration_fraction : float in (0, 1), default=0.3
        Share of the prompts to calibrate on; the rest tests. (No part is needed to find a
        frontier.)
    delta, n_trials, random_state, verbose
        As in :func:`run_trials`. All component scores see the same splits.

    Returns
    -------
    ComponentTrialResults
        Loss, number of components and recall for each score, trial and alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData
    >>> from sklearn_clm.evaluation import run_component_trials
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((600, 5))
    >>> admissible = rng.random((600, 5)) < scores**0.2
    >>> results = run_component_trials(
    ...     {
    ...         "good": ComponentCalibrationData.from_arrays(scores, admissible),
    ...         "random": ComponentCalibrationData.from_arrays(rng.random((600, 5)), admissible),
    ...     },
    ...     [0.2, 0.3],
    ...     n_trials=10,
    ...     random_state=0,
    ... )
    >>> results.compare("good", "random", "number", level=0.3).mean > 0
    True
    """
    if isinstance(data, ComponentCalibrationData):
        data = {"component_score": data}
    if reference_scores is not None and not isinstance(reference_scores, Mapping):
        reference_scores = {"component_score": reference_scores}
    n = _number_of_prompts(data)
    if reference_scores is not None:
        sizes = {name: len(reference_scores.get(name, ())) for name in data}
        if set(sizes.values()) != {n}:
            raise ValueError(f"reference_scores must hold {n} arrays each, got {sizes} instead.")
    levels = check_levels("alphas", alphas)
    check_level(delta, "delta")
    (n_calibration,) = part_sizes(n, {"calibration_fraction": calibration_fraction})
    critical = critical_counts(n_calibration, levels, delta)
    scores = [
        _PromptScores(part, None if reference_scores is None else reference_scores[name])
        for name, part in data.items()
    ]

    def measure(split: Split) -> dict[str, np.ndarray]:
        of_scores = [score.measure(split, critical, levels) for score in scores]
        return {name: np.stack([one[name] for one in of_scores]) for name in of_scores[0]}

    splits = random_splits(n, n_calibration, n_trials, random_state)
    measured = over_splits(measure, splits, n_trials, n_jobs=1, verbose=verbose)
    return ComponentTrialResults(
        methods=tuple(data),
        levels=levels,
        delta=float(delta),
        null=measured["gammas"] == np.inf,
        **measured,
        n_calibration=n_calibration,
        n_test=n - n_calibration,
    )


class _PromptScores:
    """One component score of all prompts, arranged for fast splits."""

    def __init__(
        self, data: ComponentCalibrationData, references: Sequence[ArrayLike] | None
    ) -> None:
        n = data.n_prompts
        self.owner, self.scores = data.prompt_index, data.scores
        inadmissible = ~data.admissible
        self.worst = np.full(n, -np.inf)
        np.maximum.at(self.worst, self.owner[inadmissible], self.scores[inadmissible])
        # kept apart from the scores, which may be -inf themselves
        self.has_wrong = np.bincount(self.owner[inadmissible], minlength=n) > 0
        if references is None:
            target_owner, targets = self.owner[data.admissible], self.scores[data.admissible]
            matched = np.ones(len(targets), dtype=bool)
        else:
            rows = [np.asarray(row, dtype=np.float64).ravel() for row in references]
            target_owner = np.repeat(np.arange(n), [len(row) for row in rows])
            targets = np.concatenate([*rows, np.empty(0)])
            matched = targets > -np.inf
        n_targets = np.bincount(target_owner, minlength=n)
        self.has_target = n_targets > 0
        self.target_owner, self.targets = target_owner[matched], targets[matched]
        self.target_weights = 1.0 / n_targets[self.target_owner]

    def measure(
        self, split: Split, critical: np.ndarray, levels: np.ndarray
    ) -> dict[str, np.ndarray]:
        """gamma-hat for each critical count of errors, and what it gives the test part."""
        gammas = self._thresholds(split.calibration, critical)
        n, inside = len(split.test), self._mask(split.test)
        covered_by = inside[self.target_owner]
        weights = self.target_weights[covered_by]
        covered = _at_least(self.targets[covered_by], gammas, weights)
        counted = np.count_nonzero(self.has_target[split.test])
        return {
            "gammas": gammas,
            "trivial": np.mean(self.has_wrong[split.test]) <= levels,
            "loss": _at_least(self.worst[inside & self.has_wrong], gammas) / n,
            "number": _at_least(self.scores[inside[self.owner]], gammas) / n,
            "recall": covered / counted if counted else np.full(len(gammas), np.nan),
        }

    def _thresholds(self, prompts: np.ndarray, critical: np.ndarray) -> np.ndarray:
        """gamma-hat for each critical count of errors; +inf where the first test fails."""
        inside = self._mask(prompts)
        distinct = np.unique(self.scores[inside[self.owner]])
        n_errors = _at_least(self.worst[inside & self.has_wrong], distinct)
        # errors never rise along the rising thresholds: the lowest one that passes
        first = len(distinct) - np.searchsorted(n_errors[::-1], critical, side="right")
        return np.append(distinct, np.inf)[first]

    def _mask(self, prompts: np.ndarray) -> np.ndarray:
        inside = np.zeros(len(self.worst), dtype=bool)
        inside[prompts] = True
        return inside


def _at_least(
    values: np.ndarray, thresholds: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Total weight (by default the number) of the values that are at least each threshold."""
    order = np.argsort(values)
    below = np.searchsorted(values[order], thresholds, side="left")
    if weights is None:
        return len(values) - below
    total = np.append(0.0, np.cumsum(weights[order]))
    return total[-1] - total[below]


def _number_of_prompts(data: Mapping[str, ComponentCalibrationData]) -> int:
    """Number of prompts, the same for all component scores."""
    if not isinstance(data, Mapping) or not data:
        raise TypeError(
            "data must be ComponentCalibrationData or a non-empty dict of them, got "
            f"{type(data).__name__} instead."
        )
    for part in data.values():
        check_components(part)
    sizes = {name: part.n_prompts for name, part in data.items()}
    n = next(iter(sizes.values()))
    if any(size != n for size in sizes.values()):
        raise ValueError(f"data must be of the same prompts throughout, got {sizes} instead.")
    return n


def reference_scores(
    references: Sequence[str],
    components: Sequence[Sequence[str]],
    scores: Sequence[ArrayLike],
    *,
    match: str | Match = "rouge_l",
    splitter: str | Splitter = "sentence",
) -> list[np.ndarray]:
    """Highest score of a component that almost matches each sentence of a reference (Appendix G).

    A selection at threshold gamma covers the sentences whose number is at least gamma.

    Parameters
    ----------
    references : sequence of n str
        One reference for each prompt.
    components : sequence of n sequences of str
        The components of the draws for each prompt.
    scores : sequence of n 1-D arrays
        Their scores.
    match : {"rouge_l", "exact_match"} or callable, default="rouge_l"
        When ``match(reference sentence, component)`` holds: "rouge_l" is a ROUGE-L of at least
        0.4.
    splitter : str or callable, default="sentence"
        Splits references, as in :func:`sklearn_clm.scoring.get_splitter`.

    Returns
    -------
    list of n ndarray
        One number for each sentence of each reference; -inf where no component matches.

    Examples
    --------
    >>> from sklearn_clm.evaluation import reference_scores
    >>> reference_scores(
    ...     ["There is no effusion. The lungs are clear."],
    ...     [["No effusion.", "No effusion today.", "The heart is large."]],
    ...     [[0.5, 0.7, 0.9]],
    ...     match=lambda sentence, component: "effusion" in sentence and "effusion" in component,
    ... )
    [array([ 0.7, -inf])]
    """
    almost = component_match(match, splitter)
    best = []
    for reference, texts, values in zip(references, components, scores, strict=True):
        if not isinstance(reference, str):
            raise TypeError(
                f"references must hold str, got {type(reference).__name__} among them instead."
            )
        # from the surest down, so that the first match is the best
        numbers = np.asarray(values, dtype=np.float64).tolist()
        ordered = sorted(zip(numbers, texts, strict=True), key=itemgetter(0), reverse=True)
        row = []
        for sentence in almost.parts(reference):
            matches = (value for value, text in ordered if almost.admission(sentence, text))
            row.append(next(matches, -np.inf))
        best.append(np.array(row, dtype=np.float64))
    return best
