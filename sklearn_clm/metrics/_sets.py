"""Measures of prediction sets: what came of them, per prompt or on average."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sklearn_clm._results import ComponentSets, PredictionSets
from sklearn_clm.calibration import relative_excess
from sklearn_clm.scoring import admission_matrix, warn_of_references
from sklearn_clm.scoring._admission import check_admissions
from sklearn_clm.scoring._protocols import Admission, Reference

Admissions: TypeAlias = Collection[object]
Judge: TypeAlias = str | Admission | None


class SetOutcomes(NamedTuple):
    """Outcomes of n prediction sets, arrays of shape (n,).

    Parameters
    ----------
    loss : ndarray of bool
        Whether no member of the set is admissible.
    size : ndarray of int
        Members of the set.
    samples : ndarray of int
        Draws taken S, rejected ones included.
    excess : ndarray of float
        max(S - S*, 0) / S with S* the first admissible draw, rejected or not; 0 where none of
        the draws taken is admissible.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.metrics import SetOutcomes
    >>> outcomes = SetOutcomes(*np.array([[0, 1], [1, 2], [2, 4], [0.5, 0.0]]))
    >>> float(outcomes.loss.mean())
    0.5
    """

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
        Arrays of shape (n,).

    Raises
    ------
    TypeError
        If `sets` is not PredictionSets.
    ValueError
        If the lengths differ, a set does not know all its draws, or `admissions` are references
        and no judge is known.

    Warns
    -----
    UserWarning
        Of references that can hardly be judged, as :func:`sklearn_clm.scoring.warn_of_references`.

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
    _refuse_other_sets(sets)
    checked = check_admissions(admissions, len(sets))
    if admission is None:
        if sets.sampler is not None:
            admission = sets.sampler.admission
        elif not all(callable(one) for one in checked):
            raise ValueError(
                "admission must be given: these prediction sets do not know the sampler that made "
                "them (a pickle leaves it behind), and admissions holds references."
            )
        else:
            admission = "exact_match"  # not asked, where every A_i is a callable
    return judge_sets(admission, checked, sets, n_jobs=n_jobs)


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
    return _averaged(set_outcomes(admissions, sets, admission=admission).loss, average)


def set_coverage(
    admissions: Admissions, sets: PredictionSets, *, admission: Judge = None, average: bool = True
) -> float | np.ndarray:
    """Share of sets that hold an admissible response: one minus :func:`set_loss`.

    Parameters
    ----------
    admissions, sets, admission, average
        As in :func:`set_loss`.

    Returns
    -------
    float, or ndarray of shape (n,)
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
    return _averaged(~set_outcomes(admissions, sets, admission=admission).loss, average)


def set_size(sets: PredictionSets, *, average: bool = True) -> float | np.ndarray:
    """Size of the sets.

    Parameters
    ----------
    sets : PredictionSets of length n
        From ``predict``.
    average : bool, default=True
        Whether to return the mean, or the values of each prompt.

    Returns
    -------
    float, or ndarray of shape (n,)
        Accepted responses.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.metrics import set_size
    >>> set_size(PredictionSets([PredictionSet("Q", "ab", [1, 1], [0, 1], 2, 1, True, True)], 2))
    2.0
    """
    return _averaged(sets.sizes, average)


def set_samples(sets: PredictionSets, *, average: bool = True) -> float | np.ndarray:
    """Draws taken for the sets, rejected ones included.

    Parameters
    ----------
    sets, average
        As in :func:`set_size`.

    Returns
    -------
    float, or ndarray of shape (n,)
        Draws.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.metrics import set_samples
    >>> set_samples(PredictionSets([PredictionSet("Q", "a", [1], [3], 4, 1, True, True)], 9))
    4.0
    """
    return _averaged(sets.n_samples, average)


def set_excess(
    admissions: Admissions, sets: PredictionSets, *, admission: Judge = None, average: bool = True
) -> float | np.ndarray:
    """Relative excess of draws: the share taken after the first admissible one (Eq. 7).

    Parameters
    ----------
    admissions, sets, admission, average
        As in :func:`set_loss`.

    Returns
    -------
    float, or ndarray of shape (n,)
        ``max(S - S*, 0) / S``, in [0, 1).

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.metrics import set_excess
    >>> draws = [Generation("ja"), Generation("NO")]
    >>> one = PredictionSet("Q", ("NO",), [0.9], [1], 2, 0.9, True, True, draws)
    >>> set_excess([str.islower], PredictionSets([one], k_max=2))
    0.5
    """
    return _averaged(set_outcomes(admissions, sets, admission=admission).excess, average)


def set_objective(
    admissions: Admissions,
    sets: PredictionSets,
    *,
    admission: Judge = None,
    size_weight: float | None = None,
    excess_weight: float | None = None,
    draw_weight: float | None = None,
) -> float:
    """Objective of Eq. 7: weighted set size and excess; the smaller the better.

    Parameters
    ----------
    admissions, sets, admission
        As in :func:`set_loss`.
    size_weight, excess_weight, draw_weight : float, default=None
        Weights rho_1 and rho_2, and the price of a draw. None are those of the sampler which made
        the sets, or 0.5, 0.5 and 0.

    Returns
    -------
    float
        ``size_weight * mean size + excess_weight * mean excess + draw_weight * mean draws``; +inf
        where the sets carry no guarantee, since calibration was null.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.metrics import set_objective
    >>> draws = [Generation("ja"), Generation("NO")]
    >>> one = PredictionSet("Q", ("NO",), [0.9], [1], 2, 0.9, True, True, draws)
    >>> set_objective([str.islower], PredictionSets([one], k_max=2))
    0.75
    """
    _refuse_other_sets(sets)
    if not sets.guaranteed:
        return np.inf
    record = getattr(sets.sampler, "calibration_", None)
    usual = {"size_weight": 0.5, "excess_weight": 0.5, "draw_weight": 0.0}
    weights = [
        float(getattr(record, name, usual[name]) if given is None else given)
        for name, given in zip(usual, (size_weight, excess_weight, draw_weight))
    ]
    return objective_of(set_outcomes(admissions, sets, admission=admission), *weights)


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
                f"sets[{i}] knows {len(one.generations)} of its {one.n_samples} draws; wanted "
                "all of them in `generations`, as predict gives them, to find the first "
                "admissible one."
            )
    drawn = [[draw.response for draw in one.generations] for one in sets]
    warn_of_references(admission, admissions, drawn)
    first_admissible = np.zeros(n, dtype=np.intp)  # counted from 1; 0: none yet
    covered = np.zeros(n, dtype=bool)
    members = [set(one.indices.tolist()) for one in sets]
    for draw in range(max((len(one.generations) for one in sets), default=0)):
        asked = [
            i
            for i, one in enumerate(sets)
            if draw < len(one.generations)
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


def _averaged(values: np.ndarray, average: bool) -> float | np.ndarray:
    return float(np.mean(values)) if average else values


def _refuse_other_sets(sets: object) -> None:
    if not isinstance(sets, PredictionSets):
        selected = isinstance(sets, ComponentSets)
        hint = ", for which there are component_loss and COMPONENT_SCORERS" if selected else ""
        raise TypeError(f"sets must be PredictionSets, got {type(sets).__name__}{hint}.")
