"""Calibration of a threshold on components (section 4.4)."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import LabeledArrays, Provenance
from sklearn_clm.calibration._binomial import binomial_p_value, critical_count, smallest_epsilon
from sklearn_clm.calibration.between import middles_below
from sklearn_clm.calibration.certify import Entries, SequenceResult
from sklearn_clm.calibration.checks import as_array, as_labels, check_level
from sklearn_clm.calibration.claim import Claim, refuse_too_few
from sklearn_clm.calibration.digests import next_digests, repeated, row_digests
from sklearn_clm.calibration.path import Path
from sklearn_clm.calibration.risk import Risk

ComponentJudge = Callable[[np.ndarray], Iterable[bool]]
"""``judge(positions)``: verdicts on components, named by their positions in the flat arrays."""


class ComponentCalibrationData(LabeledArrays):
    """Scores and labels of each calibration prompt's distinct components.

    Prompt ``i`` owns the entries ``offsets[i]`` to ``offsets[i + 1] - 1`` of the flat arrays: one
    for each distinct component of all K samples drawn for it.

    Parameters
    ----------
    scores : array-like of shape (m,)
        Confidence F^c of each component, below +inf: the *maximum* over its occurrences, so that it
        never scores higher in a set of fewer samples (Proposition 4.4), as with a mean it would.
    admissible : array-like of shape (m,)
        Whether the component is correct, A^c: booleans, or 0 and 1; -1 where that is unknown. The
        attribute `labels` holds them as numbers, as in :class:`CalibrationData`.
    offsets : array-like of int, shape (n + 1,)
        Where the components of each prompt begin, from 0 to m, in non-decreasing order.
    provenance : Provenance, optional
        What the data were collected with, as far as it is known.
    prompts : array-like of uint64, shape (n,), optional
        Digests by which prompts are known again. None: not known.

    Examples
    --------
    >>> from sklearn_clm.calibration import ComponentCalibrationData
    >>> data = ComponentCalibrationData.from_arrays(
    ...     [[0.9, 0.4], [], [0.7]], [[True, False], [], [True]]
    ... )
    >>> data.n_prompts, data.n_components
    (3, 3)
    """

    _members = ("scores", "offsets", "prompts")
    _each = "component"

    def __init__(
        self,
        scores: ArrayLike,
        admissible: ArrayLike,
        offsets: ArrayLike,
        provenance: Provenance | None = None,
        prompts: ArrayLike | None = None,
    ) -> None:
        self.scores = as_array(scores, "scores", (None,), high=np.finfo(np.float64).max)
        self.labels = as_labels(admissible, self.scores.shape)
        self.offsets = as_array(offsets, "offsets", (None,), np.int64, low=0)
        self.provenance = provenance or Provenance()
        is_partition = len(self.offsets) > 1 and bool(np.all(np.diff(self.offsets) >= 0))
        if is_partition:
            is_partition = self.offsets[0] == 0 and self.offsets[-1] == self.n_components
        if not is_partition:
            raise ValueError(
                f"offsets must be n + 1 integers, n >= 1, that rise from 0 to {self.n_components}, "
                f"the number of scores, got {self.offsets.tolist()!r:.80} instead."
            )
        n = (self.n_prompts,)
        self.prompts = None if prompts is None else as_array(prompts, "prompts", n, np.uint64)

    def content_digests(self) -> np.ndarray:
        """Digests of what the rows hold, uint64 of shape (n,).

        The scores are digested, and the labels where scores are equal.
        """
        # digests are of rows of an array: shorter ones are filled up
        counts = np.diff(self.offsets)
        place = np.arange(self.n_components) - np.repeat(self.offsets[:-1], counts)
        rows = np.full((self.n_prompts, max(counts.max(), 1)), np.nan)
        labels = rows.copy()
        rows[self.prompt_index, place] = self.scores
        labels[self.prompt_index, place] = self.labels
        digests = row_digests(rows)
        tied = repeated(digests)
        digests[tied] = next_digests(digests[tied], labels[tied])
        return digests

    def __repr__(self) -> str:
        return (
            f"ComponentCalibrationData(n_prompts={self.n_prompts}, "
            f"n_components={self.n_components})"
        )

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

    def take(self, indices: ArrayLike) -> "ComponentCalibrationData":
        """Data of the prompts at some positions, as :meth:`CalibrationData.take`."""
        chosen = np.arange(self.n_prompts)[np.asarray(indices)]
        counts = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        flat = self.components_of(chosen)
        prompts = None if self.prompts is None else self.prompts[chosen]
        return ComponentCalibrationData(
            self.scores[flat], self.labels[flat], offsets, self.provenance, prompts
        )

    def components_of(self, rows: np.ndarray) -> np.ndarray:
        """Positions of the components of prompts at `rows`, in turn."""
        counts = np.diff(self.offsets)[rows]
        # of each chosen prompt: its first component, then one after the other, without a loop
        before = np.cumsum(counts) - counts
        return np.repeat(self.offsets[rows] - before, counts) + np.arange(counts.sum())

    @classmethod
    def from_arrays(
        cls,
        scores: Sequence[ArrayLike],
        labels: Sequence[ArrayLike],
        *,
        provenance: Provenance | None = None,
        prompts: np.ndarray | None = None,
    ) -> "ComponentCalibrationData":
        """Data from a list of scores and labels per prompt."""
        counts = [np.size(row) for row in scores]
        if counts != [np.size(row) for row in labels]:
            raise ValueError("labels must be as many as scores in each row, got others instead.")
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return cls(_joined(scores), _joined(labels), offsets, provenance, prompts)


def _joined(rows: Sequence[ArrayLike]) -> np.ndarray:
    """Rows one after the other, in one array."""
    # an empty row has no numeric type
    filled = [row for row in rows if np.size(row)]
    return np.concatenate([np.empty(0), *filled])


def check_components(data: object) -> None:
    """Refuse an object that is no ComponentCalibrationData."""
    if not isinstance(data, ComponentCalibrationData):
        kind = type(data).__name__
        raise TypeError(f"data must be ComponentCalibrationData, got {kind} instead.")


@dataclass(frozen=True, kw_only=True)
class ComponentThreshold(SequenceResult):
    """Result of :func:`component_learn_then_test`.

    Parameters
    ----------
    thresholds, n_components : ndarray of shape (t,)
        The middles of the gaps below the distinct scores of the calibration data, from the largest
        down, and the mean number of components per prompt that score at least so much.
    alpha, smallest_alpha : float
        Tolerated risk, and the smallest for which a threshold would have been certified.
    achievable_alpha : tuple of (float, float)
        Mean loss at the highest threshold and at the lowest; NaN where labels are unknown.
    n_valid, position, n_errors, p_values, exact, n_calibration, delta, provenance
        As in :class:`LearnThenTestResult`; an error is a prompt with an inadmissible component
        that scores at least the threshold, or more than `max_wrong` of them.
    """

    thresholds: np.ndarray = field(repr=False)
    n_components: np.ndarray = field(repr=False)
    alpha: float
    smallest_alpha: float
    achievable_alpha: tuple[float, float]

    @property
    def gamma_hat(self) -> float:
        """The lowest certified threshold; +inf selects nothing."""
        return math.inf if self.position is None else float(self.thresholds[self.position])


def component_learn_then_test(
    data: ComponentCalibrationData, alpha: float, delta: float = 0.05, *, max_wrong: int = 0
) -> ComponentThreshold:
    """Find the lowest safe threshold on component scores (Eq. 9).

    With probability at least 1 - delta over the calibration data, all components of a new prompt
    that score at least gamma-hat are admissible with probability at least 1 - alpha, but for at
    most `max_wrong` of them. `data` hold the components of all K samples; labels may be unknown
    where no test needs them.

    Notes
    -----
    The loss of a prompt falls as gamma rises, so the thresholds form one fixed sequence, from the
    largest down. Most components are selected at the lowest that is certified (Eq. 10).

    *It stands between scores.* Let V be the largest score of a wrong component of a prompt, or the
    (m + 1)-th largest, where m = `max_wrong`; -inf, where there are fewer. A selection at gamma
    holds more than m wrong components if and only if V >= gamma, so that the risk at gamma is
    P(V >= gamma). Let w be the (c + 1)-th largest V of the n prompts, with c the critical count:
    the largest score that must stay out. Any gamma > w is valid, wherever it stands. Let g be the
    supremum of the thresholds of a risk above alpha. The risk is continuous from the left, so that
    P(V >= g) >= alpha, with > if g itself is such a threshold. If gamma is one, then
    w < gamma <= g, and w < g: at most c of the n prompts have V >= g, an event of probability at
    most P(Binom(n, alpha) <= c) <= delta.

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
    alpha = check_level(alpha, "alpha")
    delta = check_level(delta, "delta")
    n = data.n_prompts
    refuse_too_few(n, Claim(alpha, delta, about="components"))
    if not isinstance(max_wrong, Integral) or max_wrong < 0:
        raise ValueError(f"max_wrong must be an integer of at least 0, got {max_wrong!r} instead.")
    # from the largest threshold down: fewest and most possible errors, where labels are unknown
    entries = ComponentEntries(data, max_wrong=max_wrong)
    thresholds = entries.thresholds[::-1]
    labels = data.labels
    fewest = entries.n_at_least(labels == 0)
    most = entries.n_at_least(labels != 1)
    n_selected = _count_from(entries.scores, len(thresholds))

    # counts rise along the sequence, so that all comparisons together are a fixed sequence
    allowed = critical_count(n, alpha, delta)
    certified = most <= allowed
    # where unknown labels leave a test open, neither answer would be that of the whole table
    if not np.array_equal(certified, fewest <= allowed):
        raise ValueError(
            f"data must have the labels that decide the tests at alpha={alpha:g}, got "
            f"{int(np.sum(labels < 0))} unknown labels instead; lazy judging asks for them."
        )
    n_valid = int(certified.sum())

    # a threshold that passes has at most so many errors, one that fails at least so many
    n_errors = np.where(certified, most, fewest).astype(np.int64)
    exact = fewest == most
    return ComponentThreshold(
        n_valid=n_valid,
        position=n_valid - 1 if n_valid else None,
        thresholds=thresholds,
        n_errors=n_errors,
        p_values=binomial_p_value(n_errors, n, alpha),
        n_components=n_selected / n,
        alpha=alpha,
        delta=delta,
        n_calibration=n,
        # without any component nothing can be wrong
        smallest_alpha=smallest_epsilon(n_errors[0], n, delta) if len(n_errors) else math.nan,
        achievable_alpha=_losses_at_ends(n_errors, exact, n),
        provenance=data.provenance,
        exact=exact,
    )


def _losses_at_ends(n_errors: np.ndarray, exact: np.ndarray, n: int) -> tuple[float, float]:
    """Mean loss at the highest threshold and at the lowest."""
    if not len(n_errors):
        return 0.0, 0.0  # nothing is selected
    shares = np.where(exact, n_errors / n, np.nan)
    return float(shares[0]), float(shares[-1])


def _count_from(places: np.ndarray, n_thresholds: int) -> np.ndarray:
    """Number of places from each threshold on, highest first."""
    places_of_some = places[places >= 0].astype(np.intp)  # -inf: of nothing
    n_at_place = np.bincount(places_of_some, minlength=n_thresholds)
    return np.cumsum(n_at_place[::-1])


class ComponentEntries(Entries):
    """Components with places for scores; the wrong ones decide.

    A place is that among `thresholds`, which stand in the gaps below the distinct scores. So a
    component that scores -inf has a place, and is told from none. V is the (max_wrong + 1)-th
    highest place of a wrong component.
    """

    def __init__(
        self,
        data: ComponentCalibrationData,
        judge: ComponentJudge | None = None,
        *,
        max_wrong: int = 0,
    ) -> None:
        self.thresholds = np.unique(middles_below(data.scores))
        # below -inf there is no gap: that threshold selects everything
        if np.any(data.scores == -np.inf):
            self.thresholds = np.append(-np.inf, self.thresholds)
        places = np.searchsorted(self.thresholds, data.scores, side="right") - 1
        super().__init__(data.prompt_index, data.n_prompts, places.astype(np.float64), wanted=0)
        self.rank = max_wrong + 1
        self._labels = data.labels.copy()
        self._judge = judge

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    def n_at_least(self, chosen: np.ndarray) -> np.ndarray:
        """Prompts that err at each threshold, were the chosen wrong."""
        return _count_from(self.deciding(chosen), len(self.thresholds))

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(self.owner)), np.zeros_like(self.owner)

    def ask(self, entries: np.ndarray) -> None:
        verdicts = [] if self._judge is None else self._judge(entries)
        for entry, verdict in zip(entries, verdicts, strict=True):
            self._labels[entry] = bool(verdict)


class SelectedEntries(Entries):
    """Components of some prompts, from a threshold on."""

    def __init__(self, data: ComponentCalibrationData, rows: np.ndarray, threshold: float) -> None:
        # components of other prompts have no owner among these
        position = np.full(data.n_prompts, -1)
        position[rows] = np.arange(len(rows))
        owner = position[data.prompt_index]
        is_selected = (data.scores >= threshold) & (owner >= 0)
        self._flat = np.flatnonzero(is_selected)
        self._labels = data.labels[self._flat]
        scores = np.ones(len(self._flat))
        super().__init__(owner[self._flat], len(rows), scores, wanted=0)

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        return self._flat, np.zeros_like(self._flat)

    def ask(self, entries: np.ndarray) -> None:
        raise TypeError("selected components are judged by their threshold")


class ComponentPath(Path):
    """Thresholds on components, from the largest, on some prompts."""

    what: ClassVar[str] = "threshold"
    parts: ClassVar[tuple[str, str]] = ("chooses the threshold", "tests it")

    def __init__(
        self,
        data: ComponentCalibrationData,
        rows: np.ndarray,
        thresholds: np.ndarray | None = None,
    ) -> None:
        self.data = data
        self.rows = rows
        # by default a threshold in each gap between the scores of these prompts
        self._entries: ComponentEntries | None = None
        if thresholds is None:
            thresholds = np.array([np.inf])  # without components none is selected
            has_components = np.isin(data.prompt_index, rows).any()
            if has_components:
                self._entries = ComponentEntries(data.take(rows))
                thresholds = self._entries.thresholds[::-1]
        self.thresholds = thresholds

    def __len__(self) -> int:
        return len(self.thresholds)

    def members(self, step: int) -> SelectedEntries:
        """The components that a threshold selects."""
        return SelectedEntries(self.data, self.rows, self.thresholds[step])

    def sizes(self, step: int) -> np.ndarray:
        """Number of components that are selected of each prompt."""
        return np.bincount(self.members(step).owner, minlength=len(self.rows))

    def draws(self, step: int) -> np.ndarray:
        """Number of draws for each prompt; 0 if unknown."""
        # components are those of all K draws of a prompt (Proposition 4.4)
        return np.full(len(self.rows), self.data.provenance.k_max or 0)

    def unfinished(self, step: int) -> np.ndarray:
        """Which prompts lack draws: none."""
        return np.zeros(len(self.rows), dtype=bool)

    def only(self, step: int) -> "ComponentPath":
        """The path of this threshold alone."""
        return ComponentPath(self.data, self.rows, self.thresholds[[step]])

    def on(self, rows: np.ndarray) -> "ComponentPath":
        """The thresholds of this path, on other prompts."""
        return ComponentPath(self.data, rows, self.thresholds)

    def tally(self, risk: Risk) -> tuple[np.ndarray, np.ndarray] | None:
        """Errors of all steps, and how many prompts count."""
        entries = self._entries
        # thresholds that come from other prompts are counted step by step
        if entries is None or np.any(entries.labels < 0):
            return None
        # so are risks of which wrong components do not decide, or for which some prompts count
        if risk.settled_by == 1 or not risk.counts_all:
            return None
        n_errors = entries.for_risk(risk).n_at_least(entries.labels == 0)
        return n_errors, np.full(len(self), len(self.rows))
