"""Loss, size and costs of prediction sets."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import make_scorer

from sklearn_clm._results import ComponentSets, PredictionSets
from sklearn_clm.calibration._rule import first_admissible, relative_excess
from sklearn_clm.calibration.risk import MISSES, Risk
from sklearn_clm.scoring import admission_matrix
from sklearn_clm.scoring.protocols import Admission, Reference
from sklearn_clm.scoring.verdicts import check_admissions

Admissions: TypeAlias = Collection[object]
Judge: TypeAlias = str | Admission | None


class SetOutcomes(NamedTuple):
    """Outcomes of n prediction sets, as :func:`set_outcomes` describes them."""

    loss: np.ndarray
    size: np.ndarray
    samples: np.ndarray
    excess: np.ndarray

    def means(self) -> dict[str, float]:
        """Means by name, for a tracker of experiments."""
        return {name: float(np.mean(values)) for name, values in self._asdict().items()}


def set_outcomes(
    admissions: Admissions, sets: PredictionSets, *, admission: Judge = None
) -> SetOutcomes:
    """Loss, size, samples and excess of each prediction set.

    Parameters
    ----------
    admissions : sequence of length n
        As y in :meth:`ConformalSampler.fit`: callables A_i, or references.
    sets : PredictionSets of length n
        From ``predict``. No more of their draws are judged than it takes.
    admission : str or callable, default=None
        Judge of references. None is that of the sampler which made the sets.

    Returns
    -------
    SetOutcomes
        A named tuple of arrays of shape (n,): `loss`, whether no member is admissible; `size`;
        `samples`, the draws taken S; `excess`, max(S - S*, 0) / S with S* the first admissible
        draw, rejected or not, and 0 where none is admissible. ``means()`` is a dict of their means.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.metrics import set_outcomes
    >>> draws = [Generation("Lyon"), Generation("Paris"), Generation("Nice"), Generation("Metz")]
    >>> one = PredictionSet("Q", ("Paris", "Metz"), [0.9, 0.8], [1, 3], 4, 0.9, True, True, draws)
    >>> set_outcomes(["Paris"], PredictionSets([one], k_max=4), admission="exact_match")
    SetOutcomes(loss=array([False]), size=array([2]), samples=array([4]), excess=array([0.5]))
    """
    checked = checked_for(sets, PredictionSets, admissions)
    return judge_sets(judge_of(admission, sets.sampler, checked), checked, sets)


def checked_for(
    sets: object, kind: type[PredictionSets | ComponentSets], admissions: Admissions
) -> list[Reference]:
    """Admissions of sets of one kind, one for each set."""
    if not isinstance(sets, kind):
        raise TypeError(f"sets must be {kind.__name__}, got {type(sets).__name__} instead.")
    return check_admissions(admissions, len(sets))


def judge_of(admission: Judge, estimator: Any, admissions: Sequence[Reference]) -> str | Admission:
    """The judge given, or else that of the estimator."""
    if admission is not None:
        return admission
    if estimator is not None:
        return estimator.admission
    if not all(map(callable, admissions)):
        raise ValueError(
            "admission must be given, got None: admissions holds references, and the sets do not "
            "know the estimator that made them (a pickle leaves it behind)."
        )
    return "exact_match"  # which nobody asks


def set_loss(
    admissions: Admissions, sets: PredictionSets, *, admission: Judge = None, average: bool = True
) -> float | np.ndarray:
    """Share of sets that hold no admissible response.

    Epsilon bounds what is expected. What an error is, and who counts, is said by the promise of the
    sets: of answers, and where thresholds may abstain, an empty set does not count; where a miss
    has a cost, it is the mean cost. A set that `needs_draws` counts, as an error until a member is
    admissible, so that the share is then the most there can be. Parameters are those of
    :func:`set_outcomes`; ``average=False`` returns the values of each prompt. Whether n held-out
    prompts refute the promise:

    >>> from scipy.stats import binomtest
    >>> missed, n, epsilon = 11, 100, 0.15
    >>> bool(binomtest(missed, n, epsilon, alternative="greater").pvalue < 0.05)
    False
    """
    checked = checked_for(sets, PredictionSets, admissions)
    # by the risk that was promised of each set, which its claim names
    risks = risks_of(sets)
    loss = judge_sets(judge_of(admission, sets.sampler, checked), checked, sets, risks).loss
    if any(risk.has_costs for risk in risks):
        costs = [risk.costs_of([a_set.prompt])[0] for a_set, risk in zip(sets, risks)]
        loss = loss * np.array(costs)
    # draws to come may fill an empty set: to leave it out would choose by what ended the draws
    counts = [
        a_set.needs_draws or risk.counts(np.array([len(a_set)]))[0]
        for a_set, risk in zip(sets, risks)
    ]
    is_counted = np.array(counts, dtype=bool)
    if not average:
        return loss
    return float(np.mean(loss[is_counted])) if is_counted.any() else np.nan


def risks_of(sets: PredictionSets) -> list[Risk]:
    """The promised risk of each set."""
    # what a miss costs is no part of a claim: the calibration that made the sets knows
    record = None if sets.sampler is None else sets.sampler.calibration_
    risks = []
    for a_set in sets:
        risk = MISSES if a_set.claim is None else a_set.claim.risk
        if record is not None and record.risk.has_name_of(risk):
            risk = record.risk
        risks.append(risk)
    return risks


def set_coverage(admissions: Admissions, sets: PredictionSets, *, admission: Judge = None) -> float:
    """Share of all sets with an admissible response."""
    return float(np.mean(~set_outcomes(admissions, sets, admission=admission).loss))


def judge_sets(
    admission: str | Admission,
    admissions: Sequence[Reference],
    sets: PredictionSets,
    risks: Sequence[Risk] | None = None,
    *,
    n_jobs: int | None = None,
) -> SetOutcomes:
    """Judge as few draws as the outcomes need.

    A draw is judged if no earlier one was admissible, and a member of the set also as long as the
    earlier members do not settle it: nothing else can change S* or the loss. The loss is by the
    risk of each set, by default a miss.
    """
    for i, a_set in enumerate(sets):
        if len(a_set.generations) != a_set.n_samples:
            raise ValueError(
                f"sets[{i}] must hold all its draws in `generations`, as predict gives them, got "
                f"{len(a_set.generations)} of {a_set.n_samples} instead."
            )

    risk_of_set = [MISSES] * len(sets) if risks is None else risks
    settled_by = np.array([risk.settled_by for risk in risk_of_set])
    n_settling = np.array([risk.n_settling for risk in risk_of_set])
    samples = sets.n_samples
    most = int(max(samples, default=0))
    is_member = np.zeros((len(sets), most), dtype=bool)
    for row, a_set in zip(is_member, sets):
        row[a_set.indices] = True
    admissible = np.zeros_like(is_member)  # as far as judged
    n_of_label = np.zeros(len(sets), dtype=np.intp)  # members of the label that settles

    for draw in range(most):
        # the excess is known from the first admissible draw on, and the loss once enough members
        # settle it: then no further draw of the prompt is judged
        loss_is_known = ~is_member[:, draw] | (n_of_label >= n_settling)
        is_decided = admissible.any(axis=1) & loss_is_known
        to_judge = np.flatnonzero((samples > draw) & ~is_decided)
        if not len(to_judge):
            continue
        # one draw of all open prompts together: a judge may take a batch
        references = [admissions[i] for i in to_judge.tolist()]
        responses = [[sets[i].generations[draw].response] for i in to_judge.tolist()]
        verdicts = admission_matrix(admission, references, responses, n_jobs=n_jobs)[:, 0]
        admissible[to_judge, draw] = verdicts
        settles = is_member[to_judge, draw] & (verdicts == settled_by[to_judge])
        n_of_label[to_judge] += settles

    # unjudged draws come after the first admissible one, or are none
    first = first_admissible(admissible)
    counts_of_set = n_of_label[:, np.newaxis]  # risks take arrays
    losses = [risk.errs(counts)[0] for risk, counts in zip(risk_of_set, counts_of_set)]
    excess = relative_excess(samples, first)
    return SetOutcomes(np.array(losses, dtype=bool), sets.sizes, samples, excess)


def objective_of(
    outcomes: SetOutcomes, size_weight: float, excess_weight: float, draw_weight: float
) -> float:
    """Objective of Eq. 7, plus a price for each draw."""
    objective = size_weight * np.mean(outcomes.size) + excess_weight * np.mean(outcomes.excess)
    return float(objective + draw_weight * np.mean(outcomes.samples))


def set_size(admissions: Admissions, sets: PredictionSets | ComponentSets) -> float:
    """Mean number of members."""
    return float(np.mean(sets.sizes))


# the arguments that scikit-learn gives to a scorer, though not all are used
def _samples(admissions: Admissions, sets: PredictionSets) -> float:
    return float(np.mean(sets.n_samples))


def _excess(admissions: Admissions, sets: PredictionSets) -> float:
    return float(np.mean(set_outcomes(admissions, sets).excess))


def _objective(admissions: Admissions, sets: PredictionSets) -> float:
    """Objective of Eq. 7; +inf where nothing is guaranteed."""
    # a search must prefer whatever is certified: a trivial set of all draws costs, and promises
    # nothing
    if not sets.guaranteed or sets.sampler is None:
        return np.inf
    outcomes = set_outcomes(admissions, sets)
    return objective_of(outcomes, **sets.sampler.calibration_.weights)


def normalized_auc(levels: ArrayLike, values: ArrayLike) -> np.ndarray:
    """Mean height of curves over the range of their levels.

    AUC(f; a, b) is the integral of f from a to b (trapezoidal rule) over b - a (section 5).

    Parameters
    ----------
    levels : array-like of shape (n_levels,)
        Where the curves were evaluated, strictly increasing, without those that are trivial or out
        of reach.
    values : array-like of shape (..., n_levels)
        The curves.

    Returns
    -------
    ndarray of shape (...)
        The areas: the value itself where there is one level, NaN where there is none.
    """
    levels = np.asarray(levels, dtype=np.float64)
    values = np.asarray(values, dtype=np.float64)
    if values.shape[-1:] != levels.shape or not np.all(np.diff(levels) > 0):
        raise ValueError(
            f"levels must increase strictly, one for each of {values.shape[-1:]} values, got "
            f"{levels!r} instead."
        )
    if len(levels) == 0:
        return np.full(values.shape[:-1], np.nan)
    if len(levels) == 1:
        return values[..., 0]
    return np.trapezoid(values, levels, axis=-1) / (levels[-1] - levels[0])


# of an estimator, prompts and admissions
SCORERS = {
    "coverage": make_scorer(set_coverage),
    "neg_set_size": make_scorer(set_size, greater_is_better=False),
    "neg_samples": make_scorer(_samples, greater_is_better=False),
    "neg_excess": make_scorer(_excess, greater_is_better=False),
    "neg_objective": make_scorer(_objective, greater_is_better=False),
}
