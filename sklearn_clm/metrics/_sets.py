"""Measures of prediction sets: what came of them, per prompt or on average."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sklearn_clm._results import ComponentSets, PredictionSets
from sklearn_clm.calibration._rule import relative_excess
from sklearn_clm.scoring import admission_matrix
from sklearn_clm.scoring._admission import check_admissions, warn_of_references
from sklearn_clm.scoring._protocols import Admission, Reference

Admissions: TypeAlias = Collection[object]
Judge: TypeAlias = str | Admission | None


class SetOutcomes(NamedTuple):
    """Outcomes of n prediction sets, as :func:`set_outcomes` describes them."""

    loss: np.ndarray
    size: np.ndarray
    samples: np.ndarray
    excess: np.ndarray


def set_outcomes(
    admissions: Admissions,
    sets: PredictionSets,
    *,
    admission: Judge = None,
    n_jobs: int | None = None,
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
    n_jobs : int or None, default=None
        Workers for judging.

    Returns
    -------
    SetOutcomes
        A named tuple of arrays of shape (n,): `loss`, whether no member is admissible; `size`;
        `samples`, the draws taken S; `excess`, max(S - S*, 0) / S with S* the first admissible
        draw, rejected or not, and 0 where none is admissible.

    Raises
    ------
    TypeError
        If `sets` is not PredictionSets.
    ValueError
        If the lengths differ, a set does not know all its draws, or `admissions` are references
        and no judge is known.

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
    if not isinstance(sets, PredictionSets):
        selected = isinstance(sets, ComponentSets)
        hint = ", for which there are component_loss and COMPONENT_SCORERS" if selected else ""
        raise TypeError(f"sets must be PredictionSets, got {type(sets).__name__} instead{hint}.")
    checked = check_admissions(admissions, len(sets))
    if admission is None and sets.sampler is not None:
        admission = sets.sampler.admission
    refuse_without_judge(admission, checked)
    return judge_sets(admission or "exact_match", checked, sets, n_jobs=n_jobs)


def set_loss(
    admissions: Admissions, sets: PredictionSets, *, admission: Judge = None, average: bool = True
) -> float | np.ndarray:
    """Share of sets that hold no admissible response: the risk that epsilon bounds.

    Parameters
    ----------
    admissions, sets, admission
        As in :func:`set_outcomes`.
    average : bool, default=True
        Whether to return the mean, or the values of each prompt.

    Returns
    -------
    float, or ndarray of shape (n,)
        In [0, 1].

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.metrics import set_loss
    >>> draws = [Generation("Lyon"), Generation("Paris")]
    >>> one = PredictionSet("Q", ("Lyon",), [0.9], [0], 2, 0.9, True, True, draws)
    >>> set_loss(["Paris"], PredictionSets([one], k_max=2), admission="exact_match")
    1.0
    """
    loss = set_outcomes(admissions, sets, admission=admission).loss
    return float(np.mean(loss)) if average else loss


def set_coverage(admissions: Admissions, sets: PredictionSets, *, admission: Judge = None) -> float:
    """Share of sets that hold an admissible response: one minus :func:`set_loss`.

    Parameters
    ----------
    admissions, sets, admission
        As in :func:`set_outcomes`.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.metrics import set_coverage
    >>> one = PredictionSet("Q", ("no",), [0.9], [0], 1, 0.9, True, True, [Generation("no")])
    >>> set_coverage([str.islower], PredictionSets([one], k_max=1))
    1.0
    """
    return float(np.mean(~set_outcomes(admissions, sets, admission=admission).loss))


def refuse_without_judge(admission: Judge, admissions: Sequence[Reference]) -> None:
    """Refuse references that nobody judges; callables judge themselves."""
    if admission is None and not all(callable(one) for one in admissions):
        raise ValueError(
            "admission must be given, got None: admissions holds references, and the sets do not "
            "know the estimator that made them (a pickle leaves it behind)."
        )


def judge_sets(
    admission: str | Admission,
    admissions: Sequence[Reference],
    sets: PredictionSets,
    *,
    n_jobs: int | None = None,
) -> SetOutcomes:
    """Judge as few draws as the outcomes need.

    A draw is judged if no earlier one was admissible, and a member of the set also as long as no
    earlier member was: nothing else can change S* or the loss.
    """
    n = len(sets)
    for i, one in enumerate(sets):
        if len(one.generations) != one.n_samples:
            raise ValueError(
                f"sets[{i}] must hold all its draws in `generations`, as predict gives them, got "
                f"{len(one.generations)} of {one.n_samples} instead."
            )
    drawn = [[draw.response for draw in one.generations] for one in sets]
    warn_of_references(admission, admissions, drawn)
    first_admissible = np.zeros(n, dtype=np.intp)  # counted from 1; 0: none yet
    covered = np.zeros(n, dtype=bool)
    members = [set(one.indices.tolist()) for one in sets]
    for draw in range(max(map(len, drawn), default=0)):
        asked = [
            i
            for i in range(n)
            if draw < len(drawn[i])
            and (not first_admissible[i] or (draw in members[i] and not covered[i]))
        ]
        if not asked:
            continue
        references = [admissions[i] for i in asked]
        responses = [[drawn[i][draw]] for i in asked]
        verdicts = admission_matrix(admission, references, responses, n_jobs=n_jobs)[:, 0]
        for i in np.asarray(asked)[verdicts]:
            first_admissible[i] = first_admissible[i] or draw + 1
            covered[i] |= draw in members[i]
    samples = sets.n_samples
    return SetOutcomes(~covered, sets.sizes, samples, relative_excess(samples, first_admissible))


def objective_of(
    outcomes: SetOutcomes, size_weight: float, excess_weight: float, draw_weight: float
) -> float:
    """Objective of Eq. 7, plus a price for each draw."""
    objective = size_weight * np.mean(outcomes.size) + excess_weight * np.mean(outcomes.excess)
    return float(objective + draw_weight * np.mean(outcomes.samples))
