"""Results of repeated random splits: curves over levels, comparisons, tables and files."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sklearn_clm.calibration._arrays import naming, read_arrays, write_arrays
from sklearn_clm.metrics import normalized_auc

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """Difference between two methods over the same random splits.

    Parameters
    ----------
    measure : str
        What was measured.
    method_a, method_b : str
        The methods; differences are a minus b.
    differences : ndarray of shape (n_trials,)
        One difference for each trial; NaN where one of the two methods abstained.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.evaluation import PairedDifference
    >>> print(PairedDifference("draws", "max", "sum", np.linspace(-3.0, -1.0, 41)))
    draws, max - sum: -2 [-2.95, -1.05] (95 % of 41 trials)
    """

    measure: str
    method_a: str
    method_b: str
    differences: np.ndarray

    @property
    def mean(self) -> float:
        """Mean difference; NaN if one of the methods abstained in some trial."""
        return float(np.mean(self.differences))

    @property
    def interval(self) -> tuple[float, float]:
        """Central interval that holds 95 % of the trials."""
        low, high = np.quantile(self.differences, [0.025, 0.975])
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        what = f"{self.measure}, {self.method_a} - {self.method_b}"
        share = f"95 % of {len(self.differences)} trials"
        return f"{what}: {self.mean:.4g} [{low:.4g}, {high:.4g}] ({share})"


@dataclass(frozen=True, eq=False)
class LevelResults:
    """Curves of several methods over levels, one for each random split."""

    methods: tuple[str, ...]
    levels: np.ndarray
    delta: float
    null: np.ndarray
    trivial: np.ndarray

    measures: ClassVar[tuple[str, ...]] = ()
    level_name: ClassVar[str] = "level"

    @property
    def n_trials(self) -> int:
        """Number of random splits."""
        return self.null.shape[1]

    def values(self, measure: str) -> np.ndarray:
        """One of `measures`, shape (n_methods, n_trials, n_levels); NaN where it is not defined."""
        if measure not in self.measures:
            raise ValueError(f"measure must be one of {self.measures}, got {measure!r} instead.")
        return np.asarray(getattr(self, measure))

    def mean(self, measure: str, *, min_share: float = 1.0) -> np.ndarray:
        """Mean over trials.

        Parameters
        ----------
        measure : str
            One of `measures`.
        min_share : float, default=1.0
            A level counts where at least this share of the trials found a configuration. Below
            1, means at different levels may be over different trials.

        Returns
        -------
        ndarray of shape (n_methods, n_levels)
            The means; NaN where too many trials abstained.
        """
        return np.asarray(self._counted(measure, min_share).mean(axis=1).filled(np.nan))

    def std(self, measure: str, *, min_share: float = 1.0) -> np.ndarray:
        """Standard deviation over trials; parameters and shape as in :meth:`mean`."""
        return np.asarray(self._counted(measure, min_share).std(axis=1).filled(np.nan))

    def usable(self, *, common: bool = True) -> np.ndarray:
        """Levels that are achievable and not trivial in every trial.

        Parameters
        ----------
        common : bool, default=True
            Whether a level must be so for all methods at once, which makes the areas of
            different methods comparable, or for each method by itself.

        Returns
        -------
        ndarray of bool, shape (n_methods, n_levels)
            The range over which :meth:`auc` integrates.
        """
        usable = ~(self.null | self.trivial).any(axis=1)
        return np.broadcast_to(usable.all(axis=0), usable.shape) if common else usable

    def auc(self, measure: str) -> np.ndarray:
        """Normalised areas under the curves (section 5), shape (n_methods, n_trials).

        They are over the levels that are achievable and not trivial in every trial of every
        method; NaN where there is no such level.
        """
        return self._areas(measure, self.usable()[0])

    def why_no_area(self) -> str | None:
        """Why no areas can be compared, in words; None where they can."""
        if self.usable().any():
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
    ) -> PairedDifference:
        """Difference between two methods, trial by trial on the same splits.

        All trials split the same data anew, so that they are not independent: the interval holds
        95 % of the trials. It does not shrink as trials are added, and it is not a confidence
        interval for the difference over the population of prompts.

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
        PairedDifference
        """
        rows = [self.position(method_a), self.position(method_b)]
        if level is None:
            usable = self.usable(common=False)[rows]
            values = self._areas(measure, np.asarray(usable.all(axis=0)))
        else:
            nearest = int(np.argmin(np.abs(self.levels - level)))
            if not np.isclose(self.levels[nearest], level, rtol=0.0, atol=1e-12):
                raise ValueError(
                    f"level must be one that was evaluated, got {level} instead; the nearest is "
                    f"{self.levels[nearest]:.6g}."
                )
            values = self.values(measure)[..., nearest]
        return PairedDifference(measure, method_a, method_b, values[rows[0]] - values[rows[1]])

    def summary(self, reference: str | None = None) -> "pd.DataFrame":
        """Table of the areas, or of the differences to one method.

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
        import pandas as pd

        columns: dict[tuple[str, str], Any] = {}
        for measure in self.measures:
            if reference is None:
                areas = self.auc(measure)
                columns[measure, "mean"] = areas.mean(axis=1)
                columns[measure, "std"] = areas.std(axis=1)
                continue
            pairs = [self.compare(one, reference, measure) for one in self.methods]
            columns[measure, "mean"] = [pair.mean for pair in pairs]
            columns[measure, "low"] = [pair.interval[0] for pair in pairs]
            columns[measure, "high"] = [pair.interval[1] for pair in pairs]
        return pd.DataFrame(columns, index=list(self.methods))

    def to_frame(self) -> "pd.DataFrame":
        """All values as a pandas DataFrame, one row for each method, trial and level."""
        import pandas as pd

        names = ["method", "trial", self.level_name]
        index = [self.methods, range(self.n_trials), self.levels]
        columns = {
            **{name: self.values(name) for name in self.measures},
            **self._chosen(),
            "null": self.null,
            "trivial": np.broadcast_to(self.trivial, self.null.shape),
        }
        return pd.DataFrame(
            {name: array.ravel() for name, array in columns.items()},
            index=pd.MultiIndex.from_product(index, names=names),
        ).reset_index()

    def save(self, path: str | Path) -> None:
        """Write everything to a .npz file, without pickle."""
        arrays = {"kind": np.asarray(type(self).__name__)}
        arrays |= {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        write_arrays(path, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        with naming(path, f"is not an intact file written by {cls.__name__}.save"):
            arrays = read_arrays(path)
            kind = str(arrays.pop("kind"))
            if kind != cls.__name__:
                raise ValueError(f"it holds {kind}.")
            values = {k: v if v.ndim else v.item() for k, v in arrays.items()}
            return cls(**{**values, "methods": tuple(map(str, arrays["methods"]))})

    def position(self, method: str) -> int:
        """Where a method stands among all."""
        if method not in self.methods:
            raise ValueError(f"method must be one of {self.methods}, got {method!r} instead.")
        return self.methods.index(method)

    def _chosen(self) -> dict[str, np.ndarray]:
        """The thresholds, as columns of a table."""
        return {}

    def _areas(self, measure: str, used: np.ndarray) -> np.ndarray:
        return normalized_auc(self.levels[used], self.values(measure)[..., used])

    def _counted(self, measure: str, min_share: float) -> np.ma.MaskedArray:
        """Values without those that are not defined, and levels at which too many abstain."""
        values = np.ma.masked_invalid(self.values(measure))
        few = (~self.null).mean(axis=1) < min_share
        return np.ma.masked_where(np.broadcast_to(few[:, np.newaxis], values.shape), values)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.methods)} methods {list(self.methods)}, "
            f"{self.n_trials} trials, {len(self.levels)} values of {self.level_name} from "
            f"{self.levels[0]:g} to {self.levels[-1]:g}, delta={self.delta:g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class TrialResults(LevelResults):
    """Results of :func:`run_trials`.

    Where a trial is null, its test measures are NaN: the procedure abstains and predicts
    nothing there, so that no set could be measured.

    Attributes
    ----------
    methods : tuple of str, length n_methods
        Names of the set scores.
    levels : ndarray of shape (n_levels,)
        The values of epsilon.
    delta : float
        Level of the tests.
    null : ndarray of bool, shape (n_methods, n_trials, n_levels)
        Where no configuration was found to be valid.
    trivial : ndarray of bool, shape (1, n_trials, n_levels)
        Where always returning the first generation satisfies epsilon on the test part.
    loss, excess, size, draws : ndarray of shape (n_methods, n_trials, n_levels)
        Means over the test part with lambda-hat: share of the prompts without an admissible
        response in the set; relative excess of draws in [0, 1]; responses in the set; draws
        made, rejected ones included.
    relative_size, relative_draws : ndarray of shape (n_methods, n_trials, n_levels)
        Size and draws divided by the largest budget.
    lambdas : ndarray of shape (n_methods, n_trials, n_levels, 3)
        lambda-hat: thresholds on similarity, quality and set score; NaN where null.
    budgets : ndarray of int, shape (n_methods, n_trials, n_levels)
        The budget of draws that goes with lambda-hat; 0 where null.
    first_1_error, first_k_error : ndarray of shape (n_trials,)
        Ends of the achievable band of Appendix C, on the test part.
    k_max, n_frontier, n_testing, n_test : int
        The largest budget of draws; prompts in each part of a split.
    """

    loss: np.ndarray
    excess: np.ndarray
    size: np.ndarray
    draws: np.ndarray
    lambdas: np.ndarray
    budgets: np.ndarray
    first_1_error: np.ndarray
    first_k_error: np.ndarray
    k_max: int
    n_frontier: int
    n_testing: int
    n_test: int

    measures: ClassVar[tuple[str, ...]] = (
        "loss",
        "excess",
        "size",
        "relative_size",
        "draws",
        "relative_draws",
    )
    level_name: ClassVar[str] = "epsilon"

    @property
    def relative_size(self) -> np.ndarray:
        """Set size divided by the largest budget."""
        return self.size / self.k_max

    @property
    def relative_draws(self) -> np.ndarray:
        """Draws divided by the largest budget."""
        return self.draws / self.k_max

    def _chosen(self) -> dict[str, np.ndarray]:
        names = ("lambda_similarity", "lambda_quality", "lambda_set_score")
        return {**dict(zip(names, np.moveaxis(self.lambdas, -1, 0))), "k_max": self.budgets}


@dataclass(frozen=True, eq=False, repr=False)
class ComponentTrialResults(LevelResults):
    """Results of :func:`run_component_trials`.

    Where a trial is null, the selection is empty, which is always valid: loss, number and
    recall are 0 there.

    Attributes
    ----------
    methods, levels, delta
        As in :class:`TrialResults`, of component scores and alpha.
    null : ndarray of bool, shape (n_methods, n_trials, n_levels)
        Where gamma-hat is +inf.
    trivial : ndarray of bool, shape (n_methods, n_trials, n_levels)
        Where selecting every component satisfies alpha on the test part.
    loss, number, recall : ndarray of shape (n_methods, n_trials, n_levels)
        Means over the test part with gamma-hat: share of the prompts with a wrong component in
        the selection; selected components; share of what the reference says that the selection
        covers, NaN if that is not known.
    gammas : ndarray of shape (n_methods, n_trials, n_levels)
        gamma-hat.
    n_calibration, n_test : int
        Prompts in each part of a split.
    """

    loss: np.ndarray
    number: np.ndarray
    recall: np.ndarray
    gammas: np.ndarray
    n_calibration: int
    n_test: int

    measures: ClassVar[tuple[str, ...]] = ("loss", "number", "recall")
    level_name: ClassVar[str] = "alpha"

    def _chosen(self) -> dict[str, np.ndarray]:
        return {"gamma": self.gammas}


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, the first row its header; text that looks like markup is escaped."""
    header, *body = [f"| {' | '.join(map(markdown_text, row))} |" for row in rows]
    rule = f"|{' --- |' * len(rows[0])}"
    return "\n".join([header, rule, *body]) + "\n"


def markdown_text(text: str) -> str:
    """Text for Markdown on one line: names of scores come from users, and may look like markup."""
    for character in "\\`*<>|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
