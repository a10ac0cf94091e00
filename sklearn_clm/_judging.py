"""What came of prediction sets, judged by admissions: loss, size, samples and excess."""

from typing import Any, NamedTuple

import numpy as np

from sklearn_clm._results import PredictionSets
from sklearn_clm.calibration import relative_excess
from sklearn_clm.scoring import admission_matrix

__all__ = ["SetOutcomes", "judge_sets", "set_objective"]


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


def judge_sets(
    admission: Any, admissions: list[Any], sets: PredictionSets, *, n_jobs: int | None = None
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
        verdicts = admission_matrix(
            admission,
            [admissions[i] for i in asked],
            [[sets[i].generations[draw].response] for i in asked],
            n_jobs=n_jobs,
        )[:, 0]
        for i in np.asarray(asked)[verdicts]:
            first_admissible[i] = first_admissible[i] or draw + 1
            covered[i] |= draw in members[i]
    samples = sets.n_samples
    excess = relative_excess(samples, first_admissible)
    return SetOutcomes(~covered, sets.sizes, samples, excess)


def set_objective(outcomes: SetOutcomes, size_weight: float, excess_weight: float) -> float:
    """Objective of Eq. 7."""
    return float(size_weight * np.mean(outcomes.size) + excess_weight * np.mean(outcomes.excess))
