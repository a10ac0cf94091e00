"""Results of repeated random splits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sklearn_clm._exceptions import optional_module
from sklearn_clm.metrics import normalized_auc

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TrialResults:
    """Curves of several methods over levels, for each random split.

    Parameters
    ----------
    methods : tuple of str, length m
        Names of the set scores, or of the component scores.
    level_name : {"epsilon", "alpha"}
        What the levels are.
    levels : ndarray of shape (n_levels,)
        Tolerated risks.
    delta : float
        Level of the tests.
    null : ndarray of bool, shape (m, n_trials, n_levels)
        Where nothing was certified.
    trivial : ndarray of bool, shape (m, n_trials, n_levels)
        Where always returning the first generation (of components: selecting all of them)
        satisfies the level on the test part.
    measures : dict of str to ndarray of shape (m, n_trials, n_levels)
        Means over the test part. Of sets, NaN where null: "loss" (share of the prompts without an
        admissible response), "excess" (relative excess of draws), "size", "relative_size" (divided
        by the budget), "draws", "relative_draws". Of components, whose selection is empty where
        null: "loss" (share of the prompts with a wrong component selected), "number", "recall",
        "empty" (share of the prompts of which none is selected).
    thresholds : dict of str to ndarray of shape (m, n_trials, n_levels)
        What was chosen: "similarity", "quality" and "set_score", NaN where null, or "gamma".
    """

    methods: tuple[str, ...]
    level_name: str
    levels: np.ndarray
    delta: float
    null: np.ndarray
    trivial: np.ndarray
    measures: dict[str, np.ndarray]
    thresholds: dict[str, np.ndarray]

    @property
    def n_trials(self) -> int:
        """Number of random splits."""
        return self.null.shape[1]

    @property
    def usable(self) -> np.ndarray:
        """Levels achievable and not trivial in all trials, (m, n_levels)."""
        return ~(self.null | self.trivial).any(axis=1)

    def mean(self, measure: str) -> np.ndarray:
        """Mean over trials, (m, n_levels); NaN where some are null."""
        return np.asarray(self._achieved(measure).mean(axis=1).filled(np.nan))

    def std(self, measure: str) -> np.ndarray:
        """Standard deviation over trials, as :meth:`mean`."""
        return np.asarray(self._achieved(measure).std(axis=1).filled(np.nan))

    def auc(self, measure: str) -> np.ndarray:
        """Normalised areas under the curves (section 5), shape (m, n_trials).

        The areas are over the levels that every method can use; NaN where there is no such level.
        """
        return self._areas(measure, self.usable)

    def why_no_area(self) -> str | None:
        """Why no areas can be compared; None where they can."""
        if self.usable.all(axis=0).any():
            return None
        achieved = self.levels[~self.null.any(axis=(0, 1))]
        trivial = self.levels[self.trivial.any(axis=(0, 1))]
        return (
            f"No {self.level_name} can be used in every trial: the lowest at which none is null is "
            f"{min(achieved, default=np.nan):.4g}, the lowest at which some trial is trivial "
            f"{min(trivial, default=np.nan):.4g}. More prompts narrow the gap."
        )

    def compare(
        self, method_a: str, method_b: str, measure: str, *, level: float | None = None
    ) -> np.ndarray:
        """Difference between two methods on the same splits.

        All trials split the same data anew, so that they are not independent: their spread does
        not shrink as trials are added, and tells nothing of the population of prompts.

        Parameters
        ----------
        method_a, method_b : str
            Two of `methods`.
        measure : str
            One of `measures`.
        level : float, optional
            Compare at this level, which must be one of those evaluated. Default: compare the
            normalised areas over the levels that both methods can use.

        Returns
        -------
        ndarray of shape (n_trials,)
            What is measured of a, less that of b; NaN where one of them abstained.
        """
        rows = [self.position(method_a), self.position(method_b)]
        if level is None:
            a, b = self._areas(measure, self.usable[rows])[rows]
        else:
            # 0.1 * 3 is not the float 0.3, and means it
            places = np.flatnonzero(np.isclose(self.levels, level, rtol=0.0, atol=1e-12))
            if not places.size:
                raise ValueError(f"level must be one that was evaluated, got {level} instead.")
            a, b = self._values(measure)[rows, :, places[0]]
        return np.asarray(a - b)

    def summary(self, reference: str | None = None) -> "pd.DataFrame":
        """Table of the areas, or of differences to one method.

        Parameters
        ----------
        reference : str, optional
            The method to compare with, as in :meth:`compare`. Default: no comparison.

        Returns
        -------
        pandas.DataFrame
            One row for each method. For each measure `mean` and `std` over trials of :meth:`auc`;
            with a reference the `mean` of the differences, and `low` and `high`, which hold 95 %
            of the trials.
        """
        optional_module("pandas", "plot", "a data frame")
        import pandas as pd

        columns: dict[tuple[str, str], Any] = {}
        for measure in self.measures:
            if reference is None:
                areas = self.auc(measure)
                columns[measure, "mean"] = areas.mean(axis=1)
                columns[measure, "std"] = areas.std(axis=1)
                continue
            pairs = np.array([self.compare(method, reference, measure) for method in self.methods])
            columns[measure, "mean"] = pairs.mean(axis=1)
            # quantiles of trials, no standard error: trials share their prompts
            low, high = np.quantile(pairs, [0.025, 0.975], axis=1)
            columns[measure, "low"] = low
            columns[measure, "high"] = high
        return pd.DataFrame(columns, index=list(self.methods))

    def to_frame(self) -> "pd.DataFrame":
        """All values, one row for each method, trial and level."""
        optional_module("pandas", "plot", "a data frame")
        import pandas as pd

        names = ["method", "trial", self.level_name]
        index = [self.methods, range(self.n_trials), self.levels]
        chosen = {f"threshold_{name}": values for name, values in self.thresholds.items()}
        columns = {**self.measures, **chosen, "null": self.null, "trivial": self.trivial}
        return pd.DataFrame(
            {name: array.ravel() for name, array in columns.items()},
            index=pd.MultiIndex.from_product(index, names=names),
        ).reset_index()

    def position(self, method: str) -> int:
        """Where a method stands among all."""
        if method not in self.methods:
            raise ValueError(f"method must be one of {self.methods}, got {method!r} instead.")
        return self.methods.index(method)

    def _values(self, measure: str) -> np.ndarray:
        if measure not in self.measures:
            measures = tuple(self.measures)
            raise ValueError(f"measure must be one of {measures}, got {measure!r} instead.")
        return self.measures[measure]

    def _areas(self, measure: str, usable: np.ndarray) -> np.ndarray:
        # the same levels for all methods: areas over others could not be compared
        used = np.flatnonzero(usable.all(axis=0))
        return normalized_auc(self.levels[used], self._values(measure)[..., used])

    def _achieved(self, measure: str) -> np.ma.MaskedArray:
        """Defined values at levels where no trial is null."""
        # a mean over the trials that succeeded would flatter methods that seldom do
        some_null = self.null.any(axis=1, keepdims=True)
        return np.ma.masked_where(
            np.broadcast_to(some_null, self.null.shape), np.ma.masked_invalid(self._values(measure))
        )

    def __repr__(self) -> str:
        return (
            f"TrialResults(methods={list(self.methods)}, n_trials={self.n_trials}, "
            f"{len(self.levels)} values of {self.level_name} from {self.levels[0]:g} to "
            f"{self.levels[-1]:g}, delta={self.delta:g})"
        )
