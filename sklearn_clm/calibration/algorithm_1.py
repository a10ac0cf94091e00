"""Algorithm 1 on the arrays of many prompts at once.

The rule itself stands in ``_rule.py``, draw by draw: these sets are tested against it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration._engine import scores_of_prefixes
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.path import Column
from sklearn_clm.calibration.set_scores import SetScoreLike, get_set_score


class StoppedSet(NamedTuple):
    """The set of one prompt when Algorithm 1 stops."""

    accepted: tuple[int, ...]  # draws, with those that repeat a text
    n_samples: int  # draws taken
    score: float  # set score F, -inf of an empty set
    by_score: bool  # whether F reached its threshold: otherwise the budget was used up


class StoppedSets(NamedTuple):
    """The sets of n prompts when Algorithm 1 stops."""

    accepted: np.ndarray  # bool (n, K)
    samples: np.ndarray  # (n,): the budget where the draws made do not reach the stop
    score: np.ndarray  # (n,)
    by_score: np.ndarray  # bool (n,)

    def one_by_one(self) -> Iterator[StoppedSet]:
        """The set of each prompt in turn."""
        samples = self.samples.tolist()
        scores = self.score.tolist()
        by_score = self.by_score.tolist()
        for position, is_accepted in enumerate(self.accepted):
            accepted = tuple(np.flatnonzero(is_accepted).tolist())
            yield StoppedSet(accepted, samples[position], scores[position], by_score[position])


def run_algorithm_1(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScoreLike
) -> StoppedSets:
    """Accepted draws and stop of each prompt (Algorithm 1)."""
    quality = data.quality
    similarity = data.similarity
    score = get_set_score(set_score)
    is_made = np.arange(data.k_max) < data.n_draws[:, np.newaxis]

    # which draws would be accepted, if sampling went on
    accepted = (quality >= configuration.quality) & is_made
    # Algorithm 1: a draw meets the accepted earlier draws, never the rejected ones
    for j in range(1, data.k_max):
        alike = similarity[:, j, :j] > configuration.similarity
        accepted[:, j] &= ~np.any(accepted[:, :j] & alike, axis=1)

    # F after each draw that changes it: an accepted one, or any where F counts draws; an empty set
    # has no score, and never stops
    not_empty = np.logical_or.accumulate(accepted, axis=1)
    is_change = not_empty & is_made if score.counts_draws else accepted
    # draws by prompts, as the scores of prefixes want them: a place of the flattened array names a
    # prompt and the last draw of a prefix
    changes = is_change.T
    places = np.flatnonzero(changes)
    scores = np.full(changes.shape, -np.inf)
    scores.reshape(-1)[places] = scores_of_prefixes(
        score, np.ascontiguousarray(quality.T), np.ascontiguousarray(accepted.T), places
    )

    # the first draw at which F reaches its threshold; the budget stops in any case
    reaches = changes & (scores >= configuration.set_score)
    is_stop = reaches.copy()
    is_stop[k_max - 1] = True
    last = is_stop.argmax(axis=0)
    samples = last + 1
    is_before_stop = np.arange(data.k_max) < samples[:, np.newaxis]

    # F at the stop is that after the last draw which changed it; an empty set has none
    prompts = np.arange(data.n_prompts)
    draw_of_change = np.where(changes, np.arange(data.k_max)[:, np.newaxis], -1)
    last_change = np.maximum.accumulate(draw_of_change, axis=0)[last, prompts]
    return StoppedSets(
        accepted=accepted & is_before_stop,
        samples=samples,
        score=np.where(last_change < 0, -np.inf, scores[last_change, prompts]),
        by_score=reaches[last, prompts],
    )


def sets_at_stop(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScoreLike
) -> Column:
    """The set of each prompt under a configuration (Algorithm 1).

    Accepted draws that repeat a text count for the set score, and are not shown.
    """
    sets = run_algorithm_1(data, configuration, k_max, set_score)
    shown = sets.accepted.copy()
    if data.texts is not None:
        # from the last draw on, so that those before still say what was accepted
        for j in range(data.k_max - 1, 0, -1):
            same = data.texts[:, :j] == data.texts[:, j, np.newaxis]
            shown[:, j] &= ~np.any(shown[:, :j] & same, axis=1)
    return Column(shown, sets.samples)
