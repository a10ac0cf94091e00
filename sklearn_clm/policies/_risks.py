"""Several risks at once: admission, other losses of a set, and weighted prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import (
    SetScore,
    betting_p_value,
    binomial_p_value,
    hoeffding_bentkus_p_value,
    weighted_betting_p_value,
)
from sklearn_clm.calibration._binomial import not_the_coverage
from sklearn_clm.generators import Generation
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.scoring._identity import score_fingerprint
from sklearn_clm.scoring._protocols import Prompt, Reference

Loss: TypeAlias = Callable[[Prompt, Reference, PredictionSet], float]


class Losses(BaseEstimator):
    """Other losses of a set that are to be kept, each at a level of its own.

    A configuration is certified where the p-value of every risk is at most delta: the largest of
    them is a p-value of "some risk is too high". The path orders configurations by that largest
    p-value on the optimisation part.

    Parameters
    ----------
    functions : callable, or dict of them
        ``loss(prompt, reference, set) -> float`` in [0, 1], with a
        :class:`sklearn_clm.PredictionSet`: the share of wrong members, a cost, a toxicity. They
        are called for each distinct set that the frontier gives an optimisation prompt, and on the
        calibration part until a test fails.
    levels : float or dict, default=0.1
        The tolerated mean of each, in (0, 1): one for all, or one by name.
    admission : bool, default=True
        Whether the risk of holding no admissible response is kept as well, at `epsilon`. Otherwise
        admissions shape the path alone, and nothing demands an answer: most losses of an empty set
        are 0, and Eq. 7 prefers it. ``size_weight=0`` leaves the size out of that choice.
    p_value : {"betting", "hoeffding_bentkus", "binomial"}, default="betting"
        The p-value of these losses, see :func:`sklearn_clm.calibration.betting_p_value` and
        :func:`sklearn_clm.calibration.hoeffding_bentkus_p_value`. "binomial" is exact, for losses
        that are 0 or 1, as that of admission. Weighted prompts are always tested by betting.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import Losses
    >>> def share_of_wrong(prompt, reference, one):
    ...     return sum(response != reference for response in one) / max(len(one), 1)
    >>> losses = Losses({"wrong": share_of_wrong}, {"wrong": 0.2})
    >>> sampler = ConformalSampler(epsilon=0.4, losses=losses)  # and few sets without an answer
    >>> sampler.get_params()["losses__levels"]
    {'wrong': 0.2}
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "functions": [callable, dict],
        "levels": [Real, dict],
        "admission": ["boolean"],
        "p_value": [StrOptions({"betting", "hoeffding_bentkus", "binomial"})],
    }

    def __init__(
        self,
        functions: Loss | Mapping[str, Loss],
        levels: float | Mapping[str, float] = 0.1,
        *,
        admission: bool = True,
        p_value: Literal["betting", "hoeffding_bentkus", "binomial"] = "betting",
    ) -> None:
        self.functions = functions
        self.levels = levels
        self.admission = admission
        self.p_value = p_value

    def named(self) -> dict[str, tuple[Loss, float]]:
        """Each loss and its level by name.

        Returns
        -------
        dict

        Raises
        ------
        ValueError, TypeError
            If a loss is not callable, a level is out of range, or names differ.
        """
        functions = self.functions
        if not isinstance(functions, Mapping):
            functions = {getattr(functions, "__name__", "loss"): functions}
        levels = self.levels
        if not isinstance(levels, Mapping):
            levels = dict.fromkeys(functions, levels)
        if not functions or set(functions) != set(levels):
            raise ValueError(
                f"levels must name the same losses as functions, {sorted(functions)!r}, got "
                f"{sorted(levels)!r} instead."
            )
        for name, function in functions.items():
            if not callable(function):
                raise TypeError(
                    f"functions must be callable, got {type(function).__name__} for {name!r} "
                    "instead."
                )
            if not isinstance(levels[name], Real) or not 0.0 < levels[name] < 1.0:
                raise ValueError(
                    f"levels must lie in (0, 1), got {levels[name]!r} for {name!r} instead."
                )
        return {name: (function, float(levels[name])) for name, function in functions.items()}


def why_empty(losses: Losses | None, epsilon: float) -> str:
    """What is said of certified sets that are empty for more than half of the prompts."""
    if losses is None:
        return (
            f"epsilon={epsilon:g} is certified with sets that are empty for more than half of the "
            f"calibration prompts. {not_the_coverage(epsilon)}"
        )
    what = (
        "the levels of losses are certified with sets that are empty for more than half of the "
        "calibration prompts, each of which takes all draws: "
    )
    wanted = "wanted, for answers, size_weight=0, so that small sets are not preferred, or"
    if losses.admission:
        return (
            f"{what}epsilon={epsilon:g} tolerates as many without an admissible response; "
            f"{wanted} a smaller epsilon."
        )
    return (
        f"{what}Losses(admission=False) demands no answer, and Eq. 7 prefers the smallest sets; "
        f"{wanted} admission=True, with epsilon the tolerated share of prompts without an "
        "admissible response."
    )


class WrongFraction(BaseEstimator):
    """The mean fraction of wrong components among those selected.

    For ``ComponentSelector(loss=...)``. The 0/1 loss of the paper counts a selection of twenty
    components with one wrong as it does one with all wrong. The fraction tells them apart, and lets
    more be selected; in return, no single selection is promised to be free of errors.

    It needs more care than the 0/1 loss. :func:`~sklearn_clm.calibration.component_fraction_test`
    says why thresholds must come from prompts that are not tested, and why components must be
    those of the sets that the sampler makes: a sampler that is fitted on other prompts, and is not
    calibrated again afterwards. Prompts that calibrated the sampler are left out, where it knows
    them; one whose calibration comes from a file does not.

    Parameters
    ----------
    p_value : {"betting", "hoeffding_bentkus"}, default="betting"
        The p-value of the tests.
    path_fraction : float, default=0.2
        Share of the prompts, in (0, 1), whose scores give the thresholds. They are not judged.

    Examples
    --------
    >>> from sklearn_clm import ComponentSelector
    >>> from sklearn_clm.policies import WrongFraction
    >>> selector = ComponentSelector(alpha=0.1, loss=WrongFraction(path_fraction=0.1))
    >>> selector.get_params()["loss__p_value"]
    'betting'
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "p_value": [StrOptions({"betting", "hoeffding_bentkus"})],
        "path_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        p_value: Literal["betting", "hoeffding_bentkus"] = "betting",
        path_fraction: float = 0.2,
    ) -> None:
        self.p_value = p_value
        self.path_fraction = path_fraction


class SetLosses:
    """Losses of sets of the draws that were collected for n prompts, each computed once."""

    def __init__(
        self,
        prompts: CheckedPrompts,
        references: list[Reference],
        draws: Sequence[Sequence[Generation]],
    ) -> None:
        self._prompts, self._references, self._draws = prompts, references, draws
        self._without_functions = False
        # by the loss as it is now, so that a change of its attributes is not overlooked
        self._known: dict[tuple[str, int, bytes, int, float, bool], float] = {}

    def __getstate__(self) -> dict[str, object]:
        # functions, often of a notebook, must not keep a sampler from a pickle
        kept = [None if callable(one) else one for one in self._references]
        lacking = self._without_functions or any(map(callable, self._references))
        return {**self.__dict__, "_references": kept, "_without_functions": lacking, "_known": {}}

    def of(
        self,
        name: str,
        loss: Loss,
        digest: str,
        rows: np.ndarray,
        quality: np.ndarray,
        accepted: np.ndarray,
        samples: np.ndarray,
        stop: "Stop",
    ) -> np.ndarray:
        """The loss of one set of each of the m prompts at `rows`.

        `digest` tells the loss from others, and from itself with other attributes. `quality` and
        `accepted`, which says what is in the set, have shape (m, K); `samples` are the draws taken.
        """
        if self._without_functions:
            raise ValueError(
                f"admissions that are functions are not in a pickle, and loss {name!r} is to be "
                "given them; call collect again."
            )
        found = np.empty(len(rows))
        for m, i in enumerate(rows.tolist()):
            taken = int(samples[m])
            members = np.flatnonzero(accepted[m])
            values = quality[m, members].astype(np.float64)
            score = stop.score(quality[m], accepted[m], taken)
            stopped = stop.stopped(score, taken)
            key = (digest, i, np.packbits(accepted[m]).tobytes(), taken, score, stopped)
            if key not in self._known:
                one = PredictionSet(
                    prompt=self._prompts.prompts[i],
                    responses=tuple(self._draws[i][j].response for j in members.tolist()),
                    quality=values,
                    indices=members,
                    n_samples=taken,
                    set_score=score,
                    stopped=stopped,
                    guaranteed=False,
                    generations=tuple(self._draws[i][:taken]),
                )
                value = loss(one.prompt, self._references[i], one)
                self._known[key] = _checked(value, name, i)
            found[m] = self._known[key]
        return found


def _checked(value: object, name: str, i: int) -> float:
    if not isinstance(value, (Real, np.bool_)):
        raise TypeError(
            f"loss {name!r} must return a number in [0, 1], got {type(value).__name__} for prompt "
            f"{i} instead."
        )
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"loss {name!r} must lie in [0, 1], got {number} for prompt {i} instead.")
    return number


@dataclass(frozen=True)
class Stop:
    """What ends the sampling under one configuration, as prediction knows it."""

    set_score: SetScore
    threshold: float
    k_max: int  # the budget, which may be smaller than the number of draws that were collected

    def score(self, quality: np.ndarray, accepted: np.ndarray, taken: int) -> float:
        """F of a set; -inf while it is empty."""
        if not accepted.any():
            return -np.inf
        if self.set_score.running is None and self.set_score.of_sets is not None:
            values = np.where(accepted, quality, 0.0).astype(np.float64)
            return float(self.set_score.of_sets(values[None], accepted[None])[0])
        return self.set_score.of_set(quality[accepted].astype(np.float64), taken)

    def stopped(self, score: float, taken: int) -> bool:
        """Whether the score reached its threshold, as opposed to the budget being used up."""
        # at the last draw both may happen; before it only the score ends the sampling
        return taken < self.k_max or score >= self.threshold


@dataclass(frozen=True)
class RiskTest:
    """P-values of all risks of a configuration."""

    losses: Losses | None = None  # besides, or instead of, that of admission
    outcomes: SetLosses | None = None  # computes them
    weights: np.ndarray | None = None  # of the n prompts, tested by betting
    weight_bound: float = 1.0  # the largest that any prompt may have

    @property
    def tests_admission(self) -> bool:
        """Whether the risk of holding no admissible response is one of them."""
        return self.losses is None or self.losses.admission

    def p_value(
        self,
        rows: np.ndarray,
        quality: np.ndarray,
        accepted: np.ndarray,
        samples: np.ndarray,
        missed: np.ndarray,
        epsilon: float,
        stop: Stop,
    ) -> tuple[float, dict[str, float]]:
        """The largest p-value, and the mean of each loss; arguments as in :meth:`SetLosses.of`.

        `missed` are the prompts whose set holds no admissible response, of which a share of
        `epsilon` is tolerated.
        """
        p_values, means = [], {}
        if self.tests_admission:
            p_values.append(self._p_value(missed.astype(np.float64), rows, epsilon, "binomial"))
        if self.losses is not None and self.outcomes is not None:
            for name, (loss, level) in self.losses.named().items():
                digest = self._digests[name]
                values = self.outcomes.of(
                    name, loss, digest, rows, quality, accepted, samples, stop
                )
                p_values.append(self._p_value(values, rows, level, self.losses.p_value, name))
                means[name] = float(values.mean())
        return max(p_values), means

    @cached_property
    def _digests(self) -> dict[str, str]:
        named = {} if self.losses is None else self.losses.named()
        return {name: f"{name} {score_fingerprint(loss)}" for name, (loss, _) in named.items()}

    def _p_value(
        self, values: np.ndarray, rows: np.ndarray, level: float, kind: str, name: str = ""
    ) -> float:
        if self.weights is not None:
            own = self.weights[rows]
            if not own.any():
                return 1.0
            return weighted_betting_p_value(values, own, level, bound=self.weight_bound)
        if kind == "hoeffding_bentkus":
            return float(hoeffding_bentkus_p_value(values, level))
        if kind == "betting":
            return float(betting_p_value(values, level))
        if not np.isin(values, (0.0, 1.0)).all():
            raise ValueError(
                f"loss {name!r} must be 0 or 1 with p_value='binomial', got "
                f"{values[(values > 0) & (values < 1)][0]} instead."
            )
        return float(binomial_p_value(int(values.sum()), len(values), level))
