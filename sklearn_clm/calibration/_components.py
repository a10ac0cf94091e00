"""Calibration of components (section 4.4): scores and labels in, the safe threshold out."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import SavedArrays, as_labels, read_npy
from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    check_level,
    check_probability,
    critical_count,
    prompts_needed,
    smallest_epsilon,
)
from sklearn_clm.calibration._certify import Entries, fixed_sequence_test, may_ask, settle
from sklearn_clm.calibration._claim import Claim, too_few
from sklearn_clm.calibration._data import checked_digests
from sklearn_clm.calibration._provenance import Provenance, with_budget

ComponentJudge = Callable[[np.ndarray], Iterable[bool]]
"""``judge(positions)``: verdicts on components, named by their positions in the flat arrays."""


@dataclass(eq=False, repr=False)
class ComponentCalibrationData(SavedArrays):
    """Scores and labels of the distinct components of each calibration prompt.

    Prompt ``i`` owns the entries ``offsets[i]`` to ``offsets[i + 1] - 1`` of the flat arrays: one
    for each distinct component of all K samples drawn for it.

    Parameters
    ----------
    scores : ndarray of shape (m,), float64
        Confidence F^c of each component: the maximum over its occurrences. May be -inf, but
        neither NaN nor +inf.
    admissible : ndarray of shape (m,), bool
        Whether the component is correct, A^c. Given as numbers, it may hold -1 where the label is
        unknown; it is then False there.
    offsets : ndarray of shape (n + 1,), int64
        Where the components of each prompt begin, from 0 to m, in non-decreasing order. A prompt
        without components has two equal entries.
    provenance : Provenance, optional
        What the data were collected with, as far as it is known.
    prompts : ndarray of uint64, shape (n,), optional
        Digests by which prompts are known again. None: not known.

    Attributes
    ----------
    unknown : ndarray of shape (m,), bool, or None
        Where labels are unknown; None where all are known.

    Notes
    -----
    Proposition 4.4 rests on this: a component of a prediction set, which holds fewer samples than
    K, must never score higher there than it did among all K samples. The maximum over
    occurrences has that property. A mean, or the score of the last occurrence, does not.

    Examples
    --------
    >>> from sklearn_clm.calibration import ComponentCalibrationData
    >>> data = ComponentCalibrationData.from_arrays(
    ...     [[0.9, 0.4], [], [0.7]], [[True, False], [], [True]]
    ... )
    >>> data.n_prompts, data.n_components
    (3, 3)
    """

    _members = ("scores", "admissible", "offsets")
    _optional = ("prompts",)

    scores: np.ndarray
    admissible: np.ndarray
    offsets: np.ndarray
    provenance: Provenance = field(default_factory=Provenance)
    prompts: np.ndarray | None = None
    unknown: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.scores = _as_numbers(self.scores)
        if self.scores.ndim != 1 or not np.all(self.scores < np.inf):
            raise ValueError(
                "scores must be a 1-D array of numbers below +inf, got one of shape "
                f"{self.scores.shape} instead, {np.sum(~(self.scores < np.inf))} of them NaN or "
                "+inf."
            )
        self.admissible, self.unknown = as_labels(self.admissible, self.scores.shape)
        given = self.offsets = np.asarray(self.offsets)
        if given.ndim != 1 or given.size < 2 or given.dtype.kind not in "iu":
            raise ValueError(
                f"offsets must be n + 1 integers for n >= 1 prompts, got dtype {given.dtype} of "
                f"shape {given.shape} instead."
            )
        self.offsets = given.astype(np.int64)
        if given[0] != 0 or given[-1] != self.n_components or (np.diff(self.offsets) < 0).any():
            raise ValueError(
                f"offsets must rise from 0 to {self.n_components}, the number of scores, got "
                f"{given.tolist()!r:.80} instead."
            )
        if self.prompts is not None:
            self.prompts = checked_digests(self.prompts, self.n_prompts)
        self.provenance = with_budget(self.provenance, None)

    def __repr__(self) -> str:
        return (
            f"ComponentCalibrationData(n_prompts={self.n_prompts}, "
            f"n_components={self.n_components})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComponentCalibrationData):
            return NotImplemented
        fields = ("scores", "labels", "offsets")
        return all(np.array_equal(getattr(self, f), getattr(other, f)) for f in fields)

    __hash__ = None  # type: ignore[assignment]

    @property
    def n_prompts(self) -> int:
        """Number of prompts n."""
        return len(self.offsets) - 1

    @property
    def n_components(self) -> int:
        """Number m of distinct components over all prompts."""
        return len(self.scores)

    @property
    def prompt_index(self) -> np.ndarray:
        """Prompt that each component belongs to, shape (m,)."""
        return np.repeat(np.arange(self.n_prompts), np.diff(self.offsets))

    def with_labels(self, labels: ArrayLike) -> "ComponentCalibrationData":
        """The same components with other labels, booleans or 1, 0 and -1 for unknown.

        Who gave the labels is not known: `provenance.admission` is None.
        """
        provenance = replace(self.provenance, admission=None)
        return ComponentCalibrationData(
            self.scores, np.asarray(labels), self.offsets, provenance, self.prompts
        )

    def take(self, indices: ArrayLike) -> "ComponentCalibrationData":
        """Data of the prompts at some positions, as :meth:`CalibrationData.take`."""
        chosen = np.arange(self.n_prompts)[np.asarray(indices)]
        counts = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        flat = np.repeat(self.offsets[chosen] - offsets[:-1], counts) + np.arange(offsets[-1])
        prompts = None if self.prompts is None else self.prompts[chosen]
        return ComponentCalibrationData(
            self.scores[flat], self.labels[flat], offsets, self.provenance, prompts
        )

    @classmethod
    def from_arrays(
        cls,
        scores: Any,
        labels: Any,
        *,
        prompt_index: ArrayLike | None = None,
        component_index: ArrayLike | None = None,
        n_prompts: int | None = None,
        provenance: Provenance | None = None,
        prompts: np.ndarray | None = None,
    ) -> "ComponentCalibrationData":
        """Data from ragged, padded or flat arrays, occurrences merged by the maximum.

        Parameters
        ----------
        scores : sequence of n 1-D arrays, array of shape (n, m) padded with NaN, or flat (m,)
            Score of each component or, with `component_index`, of each occurrence of one. A
            path of a .npy file stands for the array in it. The flat form needs `prompt_index`.
        labels : same shape as `scores`
            1 or True where the component is admissible, 0 or False where it is not, -1 where that
            is unknown. Padded entries are ignored.
        prompt_index : array-like of shape (m,), optional
            For the flat form: position of the prompt of each entry, in any order.
        component_index : array-like of shape (m,), optional
            For the flat form: which component of its prompt an entry is an occurrence of, any
            integers. Entries that share prompt and component are one component, whose score is
            the maximum; their labels must agree.
        n_prompts : int, optional
            For the flat form: n, where prompts at the end may have no component. By default
            ``max(prompt_index) + 1``.
        provenance : Provenance or None, default=None
            What the scores were collected with, where it is known.
        prompts : ndarray of uint64, shape (n,), optional
            Digests by which prompts are known again.

        Returns
        -------
        ComponentCalibrationData
            The data.

        Examples
        --------
        >>> from sklearn_clm.calibration import ComponentCalibrationData
        >>> data = ComponentCalibrationData.from_arrays(
        ...     [0.2, 0.8, 0.5], [0, 0, 1], prompt_index=[0, 0, 0], component_index=[7, 7, 9]
        ... )
        >>> data.scores
        array([0.8, 0.5])
        """
        scores, labels = read_npy(scores, "scores"), read_npy(labels, "labels")
        if prompt_index is None:
            if component_index is not None:
                raise ValueError("component_index was given without prompt_index; wanted both.")
            n_prompts = len(scores)
            scores, labels, prompt_index = _flat(scores, labels)
        scores, owner = _as_numbers(scores), np.asarray(prompt_index)
        if not owner.size:
            owner = owner.astype(np.intp)
        components = np.arange(scores.size) if component_index is None else component_index
        components = np.asarray(components)
        if scores.ndim != 1 or not scores.shape == np.shape(labels) == owner.shape:
            raise ValueError(
                "scores, labels and prompt_index must be 1-D arrays of one length, got shapes "
                f"{scores.shape}, {np.shape(labels)} and {owner.shape} instead."
            )
        if components.shape != scores.shape:
            raise ValueError(
                f"component_index must have shape {scores.shape} like scores, got "
                f"{components.shape} instead."
            )
        n = int(owner.max(initial=-1)) + 1 if n_prompts is None else n_prompts
        if owner.dtype.kind not in "iu" or owner.min(initial=0) < 0 or owner.max(initial=-1) >= n:
            raise ValueError(
                f"prompt_index must hold integers from 0 to n_prompts - 1 = {n - 1}, got "
                f"{owner.tolist()!r:.80} instead."
            )
        admissible, unknown = as_labels(labels, scores.shape)
        known = admissible.astype(np.int8) if unknown is None else admissible - unknown.astype(int)
        merged = _merge_occurrences(scores, known, owner, components, n)
        return cls(*merged, provenance or Provenance(), prompts)


def check_components(data: object) -> None:
    """Refuse what is no data of components."""
    if not isinstance(data, ComponentCalibrationData):
        raise TypeError(
            f"data must be ComponentCalibrationData, got {type(data).__name__} instead."
        )


def _merge_occurrences(
    scores: np.ndarray,
    labels: np.ndarray,
    owner: np.ndarray,
    components: np.ndarray,
    n_prompts: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One entry for each (prompt, component), scored by the maximum over its occurrences."""
    order = np.lexsort((components, owner))
    scores, labels = scores[order], labels[order]
    owner, components = owner[order], components[order]
    new = np.ones(scores.size, dtype=bool)
    new[1:] = (np.diff(owner) != 0) | (components[1:] != components[:-1])
    starts = np.flatnonzero(new)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[starts], minlength=n_prompts))])
    if not starts.size:
        return scores, labels, offsets
    label = np.minimum.reduceat(labels, starts)
    disagree = label != np.maximum.reduceat(labels, starts)
    if disagree.any():
        first = starts[int(np.argmax(disagree))]
        raise ValueError(
            f"labels differ between occurrences of component {components[first]} of prompt "
            f"{owner[first]}; wanted one label for each component."
        )
    return np.maximum.reduceat(scores, starts), label, offsets


def _flat(
    scores: np.ndarray | Sequence[np.ndarray], labels: np.ndarray | Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and prompts of padded or ragged rows."""
    if isinstance(scores, np.ndarray) and scores.ndim == 2:
        labels = np.asarray(labels)
        if labels.shape != scores.shape:
            raise ValueError(
                f"labels must have shape {scores.shape} like scores, got {labels.shape} instead."
            )
        present = ~np.isnan(_as_numbers(scores))
        return scores[present], labels[present], np.nonzero(present)[0]
    if any(np.ndim(row) != 1 for row in scores):
        raise ValueError(
            "scores must hold one 1-D array for each prompt (or be 2-D, padded with NaN); for "
            "flat scores give prompt_index too."
        )
    counts, of_labels = [len(row) for row in scores], [len(row) for row in labels]
    if counts != of_labels:
        raise ValueError(
            f"labels must be as many as scores for each prompt, {counts!r:.80}, got "
            f"{of_labels!r:.80} instead."
        )
    if not sum(counts):
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.intp)
    flat_scores, flat_labels = (
        np.concatenate([np.asarray(row) for row in rows if len(row)]) for rows in (scores, labels)
    )
    return flat_scores, flat_labels, np.repeat(np.arange(len(counts)), counts)


def _as_numbers(scores: ArrayLike) -> np.ndarray:
    array = np.asarray(scores)
    if array.size and array.dtype.kind not in "fiub":
        raise TypeError(f"scores must be numbers, got dtype {array.dtype} instead.")
    return array.astype(np.float64, copy=False)


@dataclass(frozen=True)
class ComponentThreshold:
    """Result of :func:`component_learn_then_test`.

    Parameters
    ----------
    gamma_hat : float
        The lowest certified threshold. +inf, which selects nothing and is always valid, where
        none could be certified.
    thresholds : ndarray of shape (t,)
        The distinct scores of the calibration data, from the largest down.
    n_errors : ndarray of shape (t,), int64
        Number of prompts with an inadmissible component that scores at least the threshold. It
        never falls along the array. Where it is not `exact`: the most there can be for a certified
        threshold, and the fewest for the others.
    p_values : ndarray of shape (t,)
        P(Binom(n, alpha) <= n_errors). Where the count is not `exact`, a certified threshold has a
        p-value of at most this.
    n_components : ndarray of shape (t,)
        Mean number of components per prompt that score at least the threshold.
    alpha, delta : float
        Tolerated risk and error probability.
    n_calibration : int
        Number of prompts n.
    smallest_alpha : float
        The smallest alpha for which a threshold would have been certified.
    achievable_alpha : tuple of (float, float)
        Mean loss at the highest threshold and at the lowest: below this band next to nothing can
        be selected, above it everything is. NaN where labels that the tests did not need are
        unknown.
    provenance : Provenance
        What the data were collected with.
    exact : ndarray of bool, shape (t,)
        Whether the labels that are known settle the count of errors at a threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData, component_learn_then_test
    >>> data = ComponentCalibrationData.from_arrays(np.ones((50, 1)), np.ones((50, 1)))
    >>> component_learn_then_test(data, alpha=0.1).smallest_alpha < 0.06
    True
    """

    gamma_hat: float
    thresholds: np.ndarray = field(repr=False)
    n_errors: np.ndarray = field(repr=False)
    p_values: np.ndarray = field(repr=False)
    n_components: np.ndarray = field(repr=False)
    alpha: float
    delta: float
    n_calibration: int
    smallest_alpha: float
    achievable_alpha: tuple[float, float]
    provenance: Provenance = field(default_factory=Provenance)
    exact: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=bool), repr=False)

    @property
    def n_valid(self) -> int:
        """Number of certified thresholds."""
        return int(np.count_nonzero(self.thresholds >= self.gamma_hat))

    @property
    def errors_of_safest(self) -> int | None:
        """Errors at the highest threshold; None without components, or where not exact."""
        return int(self.n_errors[0]) if self.n_errors.size and self.exact[0] else None

    def bound(self, i: int) -> str:
        """What stands before errors and p-value of test i: nothing where they are exact."""
        if self.exact[i]:
            return ""
        return "at most " if i < self.n_valid else "at least "


def component_learn_then_test(
    data: ComponentCalibrationData, alpha: float | Sequence[float] | np.ndarray, delta: float = 0.05
) -> Any:
    """Find the lowest safe threshold on component scores.

    With probability at least 1 - delta over the calibration data, all components of a new prompt
    that score at least gamma-hat are admissible with probability at least 1 - alpha (Eq. 9,
    Proposition 4.4).

    Parameters
    ----------
    data : ComponentCalibrationData
        Scores and labels of the distinct components of all K samples, n prompts. Labels may be
        unknown where no test needs them.
    alpha : float in (0, 1), or a sequence of them
        Tolerated probability of selecting any inadmissible component for a prompt.
    delta : float in (0, 1), default=0.05
        Tolerated probability, over the calibration data, that the risk exceeds `alpha`.

    Returns
    -------
    ComponentThreshold, or a tuple of them where `alpha` is a sequence
        The certified threshold and the tests that led to it.

    Notes
    -----
    The loss of a prompt falls as gamma rises, so the thresholds form one fixed sequence and no
    correction for multiple tests is needed: they are tested from the largest down, up to the
    first whose p-value exceeds `delta`. By the same monotonicity the number of selected
    components is largest at the lowest certified threshold (Eq. 10). Time is O(m log m) for m
    components.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import ComponentCalibrationData, component_learn_then_test
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((500, 6))
    >>> data = ComponentCalibrationData.from_arrays(scores, rng.random((500, 6)) < scores)
    >>> result = component_learn_then_test(data, alpha=0.3)
    >>> bool(0.6 < result.gamma_hat < 0.95)
    True
    """
    check_components(data)
    alphas = np.atleast_1d(check_probability(alpha, "alpha"))
    check_level(delta, "delta")
    if alphas.ndim != 1 or not alphas.size:
        raise ValueError(f"alpha must be a number or a sequence of numbers, got {alpha!r}.")
    for value in alphas.tolist():
        _check_enough_prompts(data.n_prompts, value, delta)

    entries = ComponentEntries(data)
    thresholds, labels = entries.thresholds[::-1], data.labels
    worst_known, worst_possible = entries.largest(labels == 0), entries.largest(labels != 1)
    fewest, most, n_selected = (
        _count_from(values, len(thresholds))
        for values in (worst_known, worst_possible, entries.scores)
    )
    n = data.n_prompts
    exact = fewest == most
    shares = np.where(exact, most / n, np.nan)
    achievable = (float(shares[0]), float(shares[-1])) if shares.size else (0.0, 0.0)
    results = []
    for value in alphas.tolist():
        allowed = int(critical_count(n, value, delta))
        certified = fixed_sequence_test(binomial_p_value(most, n, value), delta)
        if not np.array_equal(certified, fewest <= allowed):
            raise ValueError(
                f"data must have the labels that decide the tests at alpha={value:g}, got "
                f"{int(np.sum(labels < 0))} unknown labels instead; lazy judging "
                "asks for those that are needed."
            )
        n_errors = np.where(certified, most, fewest)
        smallest = smallest_epsilon(n_errors[0], n, delta) if n_errors.size else math.nan
        results.append(
            ComponentThreshold(
                gamma_hat=float(thresholds[certified][-1]) if certified.any() else math.inf,
                thresholds=thresholds,
                n_errors=n_errors.astype(np.int64),
                p_values=binomial_p_value(n_errors, n, value),
                n_components=n_selected / n,
                alpha=value,
                delta=float(delta),
                n_calibration=n,
                smallest_alpha=float(smallest),
                achievable_alpha=achievable,
                provenance=data.provenance,
                exact=exact,
            )
        )
    return results[0] if np.ndim(alpha) == 0 else tuple(results)


def _count_from(ranks: np.ndarray, n_thresholds: int) -> np.ndarray:
    """How many ranks are at least each of the ranks, from the highest down; -inf counts never."""
    counted = ranks[ranks >= 0].astype(np.intp)
    return np.cumsum(np.bincount(counted, minlength=n_thresholds)[::-1])


class ComponentEntries(Entries):
    """Components whose labels are asked for; V is the highest score of an inadmissible one.

    Scores are ranks among the distinct scores, `thresholds`, which order as they do and tell a
    component that scores -inf from none.
    """

    def __init__(self, data: ComponentCalibrationData, judge: ComponentJudge | None = None) -> None:
        super().__init__(data.prompt_index, data.n_prompts, wanted=0)
        self.thresholds, ranks = np.unique(data.scores, return_inverse=True)
        self._scores = ranks.astype(np.float64)
        self._labels, self._judge = data.labels, judge

    @property
    def scores(self) -> np.ndarray:
        return self._scores

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    def ask(self, entries: np.ndarray) -> None:
        if self._judge is None:
            raise ValueError("data must have a label for each component, as nobody is asked.")
        verdicts = np.array([bool(verdict) for verdict in self._judge(entries)], dtype=np.int8)
        if len(verdicts) != len(entries):
            raise ValueError(
                f"judge must give one verdict for each of {len(entries)} components, got "
                f"{len(verdicts)} instead."
            )
        self._labels[entries] = verdicts


def judge_components(
    data: ComponentCalibrationData, alpha: float, delta: float, judge: ComponentJudge
) -> ComponentCalibrationData:
    """Label the components that the tests need, from the highest score down.

    Let V_i be the highest score of an inadmissible component of prompt i. A threshold is certified
    if and only if it lies above the (c + 1)-th largest V, where c is the largest number of errors
    with which a test succeeds: a nested level, of which few labels are asked for.
    :func:`component_learn_then_test` then finds the threshold of the full table of labels.
    """
    _check_enough_prompts(data.n_prompts, alpha, delta)
    entries = ComponentEntries(data, judge)
    settle(entries, int(critical_count(data.n_prompts, alpha, delta)) + 1)
    return replace(data, admissible=entries.labels)


def components_to_ask(
    data: ComponentCalibrationData, alpha: float, delta: float = 0.05
) -> np.ndarray:
    """Positions of all components that :func:`judge_components` may still ask for."""
    rank = int(critical_count(data.n_prompts, alpha, delta)) + 1
    return np.flatnonzero(may_ask(ComponentEntries(data), rank))


def _check_enough_prompts(n_prompts: int, alpha: float, delta: float) -> None:
    """Refuse a calibration set on which even no error at all proves nothing."""
    wanted = prompts_needed(alpha, delta)
    if n_prompts < wanted:
        why = too_few(n_prompts, wanted, Claim(alpha, delta, about="components"))
        raise ValueError(f"data must hold more prompts: {why}")
