"""What all policies share: one search, tests on other prompts, and the rule that they certify."""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    LabelTable,
    LearnThenTestResult,
    prompts_needed,
)
from sklearn_clm.calibration._data import (
    RandomState,
    size_that_leaves,
    split_of,
)
from sklearn_clm.calibration._groups import check_groups
from sklearn_clm.calibration._learn_then_test import doubts_of_admission
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.policies._drawing import DrawnPart, LazyDraws
from sklearn_clm.policies._groups import Groups, why_null_groups
from sklearn_clm.policies._judging import LazyJudging, Verdicts
from sklearn_clm.policies._risks import Losses, RiskTest
from sklearn_clm.policies._sampling import AnyOpenSets, DrawScores, Marks, ThresholdSets
from sklearn_clm.policies._shift import CovariateShift

Path = TypeVar("Path")


def draw_budgets(k_max: int | Sequence[int]) -> list[int]:
    """Values of the parameter `k_max` in ascending order."""
    if isinstance(k_max, (int, Integral)):
        return [int(k_max)]
    budgets = list(k_max)
    if not budgets or not all(isinstance(k, Integral) and int(k) >= 1 for k in budgets):
        raise ValueError(f"k_max must be an int >= 1, or a sequence of such, got {k_max!r}.")
    return sorted({int(k) for k in budgets})


@dataclass(frozen=True)
class Request:
    """What a calibration is asked for."""

    epsilon: float
    delta: float
    guarantee: str  # "pac": with confidence 1 - delta; "marginal": on average over calibrations
    budgets: list[int]  # to choose from, ascending
    set_score: SetScoreLike
    weights: Weights  # of size, excess and draws in the objective
    n_lambdas: int  # most observed values to try for each threshold
    optimization_fraction: float  # part of the prompts that is searched or learnt from
    random_state: RandomState  # source of the split
    judging: LazyJudging | None = None  # how labels are asked for; None where data have all
    verdicts: Verdicts | None = None  # whom to ask
    groups: list[Hashable] | None = None  # of each prompt; None tests all prompts together alone
    options: Groups | None = None  # what the guarantee of groups is
    risks: RiskTest | None = None  # None is the exact binomial test of admission alone
    draws: LazyDraws | None = None  # who makes draws that data lack; None where they have all

    def whole(self, data: CalibrationData, rows: np.ndarray) -> CalibrationData:
        """The prompts at `rows` with all their draws."""
        if self.draws is None:
            return data.take(rows)
        self.draws.make(rows, data.k_max)
        part = DrawnPart(self.draws, data, rows).data
        part.n_draws = None
        return part

    def drawn(self, data: CalibrationData, rows: np.ndarray) -> DrawnPart | None:
        """The prompts at `rows` as far as they are drawn; None where data have all draws."""
        return None if self.draws is None else DrawnPart(self.draws, data, rows)

    @property
    def n_needed(self) -> int:
        """Calibration prompts below which nothing can be certified."""
        if self.risks is not None and not self.risks.tests_admission:
            return 1  # epsilon has no part in it, and each loss has its own p-value
        if self.guarantee == "marginal":
            return math.ceil(1 / self.epsilon) - 1
        return prompts_needed(self.epsilon, self.delta)

    def labels(self, data: CalibrationData, rows: np.ndarray) -> np.ndarray:
        """Labels of the prompts at `rows` that are known by now; -1 for unknown."""
        labels = data.labels[rows]
        if self.verdicts is None:
            return labels
        # another test may have asked since
        return np.where(labels >= 0, labels, self.verdicts.labels[rows, : labels.shape[1]])

    def table(self, first: np.ndarray, known: np.ndarray, rows: np.ndarray) -> LabelTable:
        """Labels of the prompts at `rows`, those that are known and those that can be asked for."""
        return LabelTable(
            first, _unasked if self.verdicts is None else self.verdicts.of_rows(rows), known
        )

    def search_table(self, first: np.ndarray, known: np.ndarray, rows: np.ndarray) -> LabelTable:
        """Labels that shape the path alone, by the judge of the optimisation part."""
        other = None if self.judging is None else self.judging.optimization_admission
        if other is None or self.verdicts is None:
            return self.table(first, known, rows)
        # kept apart, so that none of them ever enters a test
        verdicts = self.verdicts.by(other)
        return LabelTable(first, verdicts.of_rows(rows), verdicts.labels[rows, : first.shape[1]])

    def wanted(
        self, error: VerdictsWanted, texts: np.ndarray, rows: np.ndarray, n_more: int = 0
    ) -> VerdictsWanted:
        """The error with a bound of all verdicts that may still be wanted.

        `texts`, of shape (m, K), are those of the prompts at `rows` that tests may ask for; of
        other prompts `n_more` are wanted.
        """
        if self.verdicts is None:
            return error
        prompts, draws = np.nonzero(texts)
        return self.verdicts.wanted(error, rows[prompts], draws, n_more)

    def too_few(self, n: int, n_calibration: int) -> str | None:
        """Why so few prompts certify nothing, and how many would; None if they are enough."""
        needed, fraction = self.n_needed, self.optimization_fraction
        if n_calibration >= needed:
            return None
        reason = f"no p-value can reach delta={self.delta:g} at epsilon={self.epsilon:g}"
        if self.guarantee == "marginal":
            reason = f"no level is certified on average at epsilon={self.epsilon:g}"
        # where a path is given, none are spent on a search
        total = needed if n_calibration == n > 1 else size_that_leaves(needed, fraction)
        return (
            f"Calibration is null: the calibration part has {n_calibration} of n_samples={n} "
            f"prompts, and {reason} with fewer than {needed}. With "
            f"optimization_fraction={fraction:.3g} that takes at least {total} prompts (those "
            "that train a generator not counted)."
        )


def _unasked(prompts: np.ndarray, draws: np.ndarray) -> Iterator[bool]:
    raise ValueError("data must have a label for each draw where there is nobody to ask.")


def refuse_combinations(
    policy: "Policy[Any]",
    k_max: int | Sequence[int],
    guarantee: str,
    judging: object,
    groups: Groups | None,
    shift: CovariateShift | None,
    losses: Losses | None,
) -> None:
    """Refuse choices that the mathematics does not allow together."""
    draw_budgets(k_max)
    if groups is not None and groups.guarantee == "all" and guarantee == "marginal":
        raise ValueError(
            "groups must have guarantee='each' with guarantee='marginal', got 'all' instead: "
            "an average over calibrations has no delta to share among groups."
        )
    risks = None
    if losses is not None:
        losses.named()
        risks = "losses"
    elif shift is not None and shift.method == "betting":
        risks = "shift.method='betting'"
    policy.refuse(k_max, guarantee, risks)
    if isinstance(judging, LazyJudging):
        judging.refuse(draw_budgets(k_max)[-1])
    if risks is not None and judging != "all":
        raise ValueError(
            f"judging must be 'all' with {risks}, got {judging!r} instead: a test of several or "
            "weighted losses is not decided by a count of errors."
        )


class CalibratedRule(Protocol):
    """How sampling stops and what is returned, as calibration found it."""

    kind: ClassVar[str]

    @property
    def k_max(self) -> int:
        """The budget in force."""

    @property
    def certified(self) -> bool:
        """Whether anything is guaranteed; False for null."""

    @property
    def size(self) -> float:
        """Mean set size of the calibration prompts; NaN where it is not known."""

    def why_null(self, subject: str = "Calibration") -> str | None:
        """Why nothing is certified, and what would help; None if something is."""

    def open_sets(self, scores: DrawScores, marks: Marks) -> AnyOpenSets:
        """The sets of prompts before their first draw."""


@dataclass(frozen=True)
class ThresholdRule:
    """Algorithm 1 with certified thresholds; all draws where nothing was certified.

    Parameters
    ----------
    lambda_hat : Configuration or None
        The chosen thresholds; None for null.
    k_max : int
        The budget in force.
    result : LearnThenTestResult or None
        The tests; None where there were none, or for a calibration from a file.
    means : mapping of str to float
        With other losses: mean of each on the calibration part, under the chosen thresholds.
    why : str or None
        Why nothing is certified, where `result` does not say it.
    """

    lambda_hat: Configuration | None
    k_max: int
    result: LearnThenTestResult | None = field(default=None, repr=False)
    means: Mapping[str, float] = field(default_factory=dict)
    why: str | None = None

    kind: ClassVar[str] = "thresholds"

    @property
    def certified(self) -> bool:
        return self.lambda_hat is not None

    @property
    def size(self) -> float:
        if self.result is None or self.result.position is None:
            return math.nan
        return float(self.result.risks.size[self.result.position])

    def why_null(self, subject: str = "Calibration") -> str | None:
        result = self.result
        if self.certified:
            return None
        if self.why is not None:
            return f"{subject} is null: {self.why}"
        if result is None:
            return None
        low, high = result.achievable_epsilon
        # rounded up, so that the epsilon which is named does work
        smallest = math.ceil(result.smallest_epsilon * 1e4) / 1e4
        what = (
            f"{subject} is null: no configuration is certified at epsilon={result.epsilon:g}, "
            f"delta={result.delta:g} with {result.n_calibration} calibration prompts."
        )
        if math.isnan(low):
            return (
                f"{what} No epsilon below {smallest:g} would have worked; lazy judging does not "
                "know more."
            )
        doubts = doubts_of_admission(low)
        would = f"The smallest epsilon that would have worked is {smallest:g}."
        between = "; epsilon can sensibly lie between the two (appendix C)."
        if low == high and result.frontier.k_max.max() > 1:
            between = "; the other draws found nothing more."
        return (
            f"{what} {would if smallest < 1 else 'No epsilon would have worked.'} Sets of the "
            f"first draw alone err for {high:.1%} of the prompts, and sets of all "
            f"{result.frontier.k_max.max()} draws still for {low:.1%}"
            f"{f'. {doubts}' if doubts else between}"
        )

    def open_sets(self, scores: DrawScores, marks: Marks) -> AnyOpenSets:
        return ThresholdSets(self.lambda_hat, self.k_max, scores, marks)


@dataclass(frozen=True)
class Calibrated:
    """What a policy found."""

    rule: CalibratedRule  # for all prompts
    by_group: Mapping[Hashable, CalibratedRule] | None
    why_null: str | None  # for a group, or for all prompts; None if something is certified for each


class Policy(BaseEstimator, ABC, Generic[Path]):
    """How sampling stops and what is returned, with parameters of its own."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def path(self) -> Path | None:
        """What was searched or learnt on other data; None if nothing was."""

    @abstractmethod
    def refuse(self, k_max: int | Sequence[int], guarantee: str, risks: str | None) -> None:
        """Refuse what this policy cannot do; `risks` names what asks for other tests."""

    @abstractmethod
    def refuse_path(self, path: Path, data: CalibrationData, request: Request) -> None:
        """Refuse what was learnt elsewhere where it does not fit these data."""

    @abstractmethod
    def search(self, part: CalibrationData, rows: np.ndarray, request: Request) -> Path:
        """Search, or learn, on the optimisation part: the prompts at `rows`."""

    @abstractmethod
    def test(
        self,
        data: CalibrationData,
        seen: np.ndarray,
        rows: np.ndarray,
        path: Path,
        request: Request,
    ) -> CalibratedRule:
        """Test on the prompts at `rows`; the path comes from those that were `seen`."""

    def calibrate(self, data: CalibrationData, request: Request) -> Calibrated:
        """Search on one part of the prompts, and test on the other.

        Parameters
        ----------
        data : CalibrationData
            The draws.
        request : Request
            What to certify.

        Returns
        -------
        Calibrated
            Null where there are too few prompts, or nothing is certified.
        """
        n, path = data.n_prompts, self.path
        fraction = request.optimization_fraction
        seen, rows = np.arange(0), np.arange(n)
        if path is None:
            seen, rows = split_of(data, fraction, request.random_state) if n > 1 else (rows, seen)
        if (too_few := request.too_few(n, len(rows))) is not None:
            null = ThresholdRule(None, request.budgets[-1])
            names = request.groups
            return Calibrated(null, None if names is None else dict.fromkeys(names, null), too_few)
        if path is None:
            try:
                path = self.search(request.whole(data, seen), seen, request)
            except VerdictsWanted as error:
                left = self._unjudged(data.take(rows))
                raise request.wanted(error, left, rows, len(error.wanted)) from None
        else:
            self.refuse_path(path, data, request)
        if request.groups is None or request.options is None:
            rule = self.test(data, seen, rows, path, request)
            return Calibrated(rule, None, rule.why_null())
        try:
            return self._test_groups(data, (seen, rows), path, request, request.groups)
        except VerdictsWanted as error:
            raise request.wanted(error, self._unjudged(data.take(rows)), rows) from None

    def texts(self, similarity: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Draw whose label is that of each draw: by default the first with an equal response."""
        return first

    def _unjudged(self, part: CalibrationData) -> np.ndarray:
        """All texts without a label: what tests may ask for as long as their path is not known.

        No smaller number of verdicts is sure to be enough. If the text that a test comes to last
        is the first admissible one of each prompt, but for c prompts that have none, then the test
        of the largest sets is open until all are judged.
        """
        texts = self.texts(part.similarity, part.first)
        return (texts == np.arange(part.k_max)) & (part.labels < 0)

    def _test_groups(
        self,
        data: CalibrationData,
        parts: tuple[np.ndarray, np.ndarray],
        path: Path,
        request: Request,
        groups: list[Hashable],
    ) -> Calibrated:
        """A test for each group, and one for all prompts."""
        seen, rows = parts
        options = request.options or Groups()
        names, of_prompt = check_groups(groups, data.n_prompts)
        pooled = options.unknown == "pooled"
        level = options.level(request.delta, len(names))
        one = replace(request, delta=level)
        found: dict[Hashable, CalibratedRule] = {}
        reasons = []
        for g, name in enumerate(names):
            members = rows[of_prompt[rows] == g]
            if len(members) >= one.n_needed:
                found[name] = self.test(data, seen[of_prompt[seen] == g], members, path, one)
            else:
                why = (
                    f"it has {len(members)} calibration prompts, too few for any test at "
                    f"epsilon={request.epsilon:g} and level {level:g}; it lacks "
                    f"{one.n_needed - len(members)} of {one.n_needed}."
                )
                found[name] = ThresholdRule(None, request.budgets[-1], why=why)
            reasons.append(found[name].why_null(f"Group {name!r}"))
        # what unknown groups get, or only for comparison
        rule = self.test(data, seen, rows, path, one if pooled else request)
        pooled_null = rule.why_null("The rule for all prompts") if pooled else None
        return Calibrated(rule, found, why_null_groups(reasons, pooled_null))
