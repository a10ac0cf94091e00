"""CalibrationData: the draws of prompts, as three arrays."""

import copy
from dataclasses import replace
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._arrays import LabeledArrays, Provenance
from sklearn_clm.calibration.checks import as_array, as_labels
from sklearn_clm.calibration.digests import next_digests, repeated, row_digests
from sklearn_clm.calibration.files import Source, read_npy
from sklearn_clm.calibration.rows import RandomState, optimization_size, split_prompts


class CalibrationData(LabeledArrays):
    """Quality, similarity and admissibility of K draws for n prompts.

    Parameters
    ----------
    quality : array-like of shape (n, K)
        Q(x_i, y_ij); NaN at the end of a row where draws were not made. New scores must be computed
        as these were; their last digits do not matter.
    similarity : array-like of shape (n, K, K)
        S(y_ij, y_il) at [i, j, l] for l < j; all other entries are ignored.
    admissible : array-like of shape (n, K)
        A_i(y_ij): booleans, or numbers 0 and 1; -1 where the label is unknown, -1 or NaN where the
        draw was not made.
    provenance : Provenance or None, default=None
        What the data were collected with; its number of draws is read off the arrays.
    texts : array-like of int, shape (n, K), default=None
        For each draw the first draw of its prompt with an equal response, where that is known: the
        size of a set is then its number of texts, and otherwise that of draws.
    prompts : array-like of uint64, shape (n,), default=None
        Digests by which prompts are known again, whatever their scores. Rows without them are
        told apart by what they hold, which a split goes by: give them where many rows are equal.
    n_draws : array-like of int, shape (n,), default=None
        How many draws of each prompt were made, where not all were; what the arrays hold for the
        others means nothing, and their labels are unknown. Thresholds, exit levels and answers
        calibrate on such data: what draws do not decide counts as an error. None: those whose
        quality is there.

    Attributes
    ----------
    quality, similarity, texts, prompts, n_draws, provenance
        As given, scores in double precision.
    labels : ndarray of int8, shape (n, K)
        1, 0, or -1 where unknown. `admissible` is where they are 1, `unknown` where they are -1,
        or None where all are known.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> rng = np.random.default_rng(0)
    >>> data = CalibrationData(
    ...     quality=rng.random((6, 3)),
    ...     similarity=rng.random((6, 3, 3)),
    ...     admissible=rng.random((6, 3)) < 0.5,
    ... )
    >>> data
    CalibrationData(n_prompts=6, k_max=3)
    >>> data.split(1 / 3, random_state=0)
    (CalibrationData(n_prompts=2, k_max=3), CalibrationData(n_prompts=4, k_max=3))
    >>> data.take([2, 0]).truncate(2)
    CalibrationData(n_prompts=2, k_max=2)
    """

    _members = ("quality", "similarity", "texts", "prompts", "n_draws")
    _each = "draw"

    def __init__(
        self,
        quality: ArrayLike,
        similarity: ArrayLike,
        admissible: ArrayLike,
        provenance: Provenance | None = None,
        texts: ArrayLike | None = None,
        prompts: ArrayLike | None = None,
        n_draws: ArrayLike | None = None,
    ) -> None:
        self.quality = as_array(quality, "quality", (None, None), where=False)
        n, k = self.quality.shape
        if n == 0 or k == 0:
            raise ValueError(
                f"quality must hold a prompt and a draw, got shape ({n}, {k}) instead."
            )
        # NaN at the end of a row: draws that were not made
        is_nan_from_the_end = np.isnan(self.quality)[:, ::-1]
        is_missing = np.logical_and.accumulate(is_nan_from_the_end, axis=1)[:, ::-1]
        is_made = ~is_missing
        if n_draws is not None:
            counts = as_array(n_draws, "n_draws", (n,), np.intp, low=0, high=k)
            is_made = np.arange(k) < counts[:, np.newaxis]
        self.n_draws = is_made.sum(axis=1)
        # only now it is known which scores must be numbers: those of draws that were made
        as_array(self.quality, "quality", (n, k), where=is_made)
        is_earlier = np.tri(k, k=-1, dtype=bool)
        is_used = is_earlier & is_made[:, :, np.newaxis]
        self.similarity = as_array(similarity, "similarity", (n, k, k), where=is_used)
        # no NaN of a missing draw may reach a computation
        if is_missing.any():
            self.quality = np.where(is_missing, 0.0, self.quality)
            self.similarity = np.where(is_missing[:, :, np.newaxis], 0.0, self.similarity)
        self.labels = _labels_of(admissible, is_made)
        self.texts = None if texts is None else _checked_texts(texts, (n, k))
        self.prompts = None if prompts is None else as_array(prompts, "prompts", (n,), np.uint64)
        self.provenance = replace(provenance or Provenance(), k_max=k)

    def _part(self, rows: slice | np.ndarray, k: int) -> "CalibrationData":
        """Some prompts with their first k draws; slices are views."""
        part = copy.copy(self)
        for name in (*self._members, "labels"):
            array = getattr(self, name)
            if array is None:
                continue
            # all axes but that of the prompts are axes of draws
            of_draws = [slice(k)] * (array.ndim - 1)
            setattr(part, name, array[(rows, *of_draws)])
        part.n_draws = np.minimum(part.n_draws, k)
        part.provenance = replace(self.provenance, k_max=k)
        return part

    def content_digests(self) -> np.ndarray:
        """Digests of what the rows hold, uint64 of shape (n,).

        As few first qualities are digested as tell a row from the others, so that further draws,
        and other labels, change nothing; and all else where the qualities are equal.
        """
        later, earlier = np.tril_indices(self.k_max, -1)
        digests = np.zeros(self.n_prompts, dtype=np.uint64)
        tied = np.arange(self.n_prompts)
        # draw by draw, for the rows that the draws before do not tell apart
        for quality in self.quality.T:
            digests[tied] = next_digests(digests[tied], quality[tied, np.newaxis])
            tied = tied[repeated(digests[tied])]
        if len(tied):
            similarity = self.similarity[tied][:, later, earlier]
            rest = np.column_stack((similarity, self.first[tied], self.labels[tied]))
            digests[tied] = next_digests(digests[tied], rest)
        return digests

    @property
    def first(self) -> np.ndarray:
        """`texts`; if unknown, each draw is a distinct text."""
        if self.texts is not None:
            return self.texts
        return np.tile(np.arange(self.k_max), (self.n_prompts, 1))

    @property
    def made(self) -> np.ndarray:
        """Which draws were made, bool of shape (n, K)."""
        return np.asarray(np.arange(self.k_max) < self.n_draws[:, np.newaxis])

    def refuse_unknown(self) -> None:
        # a draw that was not made has no label
        if np.any((self.labels < 0) & self.made):
            super().refuse_unknown()

    @property
    def n_judged(self) -> int:
        """Number of labels, equal texts of a prompt counted once."""
        is_text = self.first == np.arange(self.k_max)  # not a copy of an earlier draw
        return int(np.sum(is_text & (self.labels >= 0)))

    @property
    def n_prompts(self) -> int:
        """Number of prompts, n."""
        return self.quality.shape[0]

    @property
    def k_max(self) -> int:
        """Number of draws for each prompt, K."""
        return self.quality.shape[1]

    @property
    def n_made(self) -> int:
        """Number of draws that were made, of all prompts together."""
        return int(self.n_draws.sum())

    def __repr__(self) -> str:
        return f"CalibrationData(n_prompts={self.n_prompts}, k_max={self.k_max})"

    def take(self, indices: ArrayLike | slice) -> "CalibrationData":
        """The prompts at some positions: a copy, or a view.

        `indices` are integers, in any order and with repetitions, a boolean mask, or a slice.
        """
        if isinstance(indices, slice):
            return self._part(indices, self.k_max)
        positions = np.arange(self.n_prompts)[np.asarray(indices)]
        if positions.ndim != 1 or not len(positions):
            raise ValueError(
                f"indices must be one-dimensional and select a prompt, got {indices!r:.60} instead."
            )
        return self._part(positions, self.k_max)

    def truncate(self, k: int) -> "CalibrationData":
        """These prompts with their first `k` draws: a view."""
        if not isinstance(k, Integral) or not 1 <= k <= self.k_max:
            raise ValueError(f"k must lie between 1 and {self.k_max}, got {k!r} instead.")
        return self._part(slice(None), int(k))

    def split(
        self, fraction: float, random_state: RandomState = None
    ) -> tuple["CalibrationData", "CalibrationData"]:
        """Split the prompts into an optimisation and a calibration part.

        `fraction`, in (0, 1), is the share of the first. All rows of one prompt stand in the same
        part, as far as `prompts` tells them. The prompts and `random_state` decide, or where they
        are not known the scores, so that the same data are split alike however they are sorted.
        """
        optimization, calibration = split_of(self, fraction, random_state)
        return self.take(optimization), self.take(calibration)

    @classmethod
    def from_arrays(
        cls,
        scores: Source,
        similarity: Source,
        labels: Source,
        *,
        provenance: Provenance | None = None,
        n_draws: Source | None = None,
    ) -> "CalibrationData":
        """Data from the three customary files, or from arrays.

        Parameters
        ----------
        scores, similarity, labels : array-like, or path of a .npy file
            Quality (scores.npy), similarity to earlier draws (diversity.npy, where a *large* value
            means a near duplicate all the same; zeros where there are none), and 1 where the draw
            is admissible (labels.npy).
        provenance, n_draws : Provenance or None, array-like or path of a .npy file
            As in the class.
        """
        return cls(
            read_npy(scores, "scores"),
            read_npy(similarity, "similarity"),
            read_npy(labels, "labels"),
            provenance,
            n_draws=None if n_draws is None else read_npy(n_draws, "n_draws"),
        )


def prompt_digests(data: CalibrationData) -> np.ndarray:
    """Digests of scores and known prompts, (n, 1 or 2)."""
    columns = [row_digests(data.quality)]
    if data.prompts is not None:
        columns.append(data.prompts)
    return np.stack(columns, axis=1)


def refuse_common_prompts(name: str, seen: np.ndarray | None, data: CalibrationData) -> None:
    """Refuse calibration prompts that were `seen` before; None is unknown.

    Independent samples share rows where scores, or prompts, are few: as many as `seen` has in
    common with itself are no sign.
    """
    if seen is None or not len(seen):
        return
    m = len(seen)
    n = data.n_prompts
    # digests of scores, and of prompts where both know theirs: zip ends with the shorter of the two
    columns_seen = np.reshape(seen, (m, -1)).T
    for seen_digests, digests in zip(columns_seen, prompt_digests(data).T):
        n_common = int(np.isin(digests, seen_digests).sum())
        # what the seen prompts have in common with each other, others may have in common with them
        _, counts = np.unique(seen_digests, return_counts=True)
        share_repeated = float(counts[counts > 1].sum() / m)
        # four standard deviations of the difference of two shares, and a hundredth
        variance = (share_repeated + 1.0 / m) * (1.0 / m + 1.0 / n)
        margin = 4.0 * np.sqrt(variance)
        if n_common > n * (share_repeated + 0.01 + margin):
            raise ValueError(
                f"{name} must come from other prompts than those that calibrate, got one that was "
                f"learnt from {n_common} of these {n} prompts instead: no guarantee would hold."
            )


def check_data(data: object, *, draws: bool = True, labels: bool = True) -> None:
    """Refuse other objects, and data with missing draws or labels."""
    if not isinstance(data, CalibrationData):
        raise TypeError(f"data must be CalibrationData, got {type(data).__name__} instead.")
    if draws and data.n_made < data.quality.size:
        fewest = int(data.n_draws.min())
        cut = f"truncate({fewest}) keeps as many of all, " if fewest else ""
        raise ValueError(
            f"data must hold all {data.k_max} draws of each prompt here, got as few as {fewest} "
            f"instead; {cut}collect makes all (without lazy judging)."
        )
    if labels:
        data.refuse_unknown()
        _refuse_labels_of_nothing(data.labels, data.made)


def split_of(
    data: LabeledArrays,
    fraction: float,
    random_state: RandomState = None,
    ties: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the optimisation and of the calibration part.

    Both are in the order of :meth:`LabeledArrays.order`.
    """
    n_first = optimization_size(data.n_prompts, fraction)
    order = data.order(ties)
    first, second = split_prompts(data.digests[order], n_first, random_state)
    return order[first], order[second]


def _labels_of(admissible: ArrayLike, is_made: np.ndarray) -> np.ndarray:
    """Labels of draws, -1 for those that were not made."""
    values = as_array(admissible, "admissible", is_made.shape, where=False)
    # NaN may stand for the label of a draw that was not made, and of no other
    stands_for_none = np.isnan(values) & ~is_made
    labels = as_labels(np.where(stands_for_none, -1.0, values), is_made.shape)
    _refuse_labels_of_nothing(labels, is_made)
    return labels


def _refuse_labels_of_nothing(labels: np.ndarray, is_made: np.ndarray) -> None:
    if np.any((labels >= 0) & ~is_made):
        raise ValueError(
            "n_draws must count all draws that have a label, got fewer instead; where quality is "
            "NaN, a label must be -1 or NaN."
        )


def _checked_texts(texts: ArrayLike, shape: tuple[int, int]) -> np.ndarray:
    _, k_max = shape
    array = as_array(texts, "texts", shape, np.intp, low=0, high=k_max - 1)
    # the draw that is named holds the text first, so that it names itself
    named_by_named = np.take_along_axis(array, array, axis=1)
    is_not_later = array <= np.arange(k_max)
    if not np.all((named_by_named == array) & is_not_later):
        raise ValueError("texts must name the first draw with an equal response for each draw.")
    return array
