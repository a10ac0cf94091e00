"""The sampling rule of Algorithm 1, draw by draw.

Prediction runs this very code. Everything that computes the same sets faster, for whole grids
of thresholds, is tested against it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration.set_scores import SetScore


class Configuration(NamedTuple):
    """One configuration lambda of Algorithm 1, possibly infinite.

    A draw is rejected if it is more similar to an accepted one than `similarity`, or of lower
    quality than `quality`. Sampling stops once a non-empty set scores `set_score`.
    """

    similarity: float
    quality: float
    set_score: float

    @property
    def accepts_all(self) -> bool:
        """Whether it rejects no draw, and never stops early."""
        return self == (math.inf, -math.inf, math.inf)


class SamplingRule:
    """Algorithm 1 for one prompt, fed draw by draw.

    Parameters
    ----------
    configuration, set_score, k_max : Configuration, SetScore, int
        The thresholds, the set function F, and the budget of draws, >= 1.
    width : int, default=None
        K of the data that calibration saw, >= `k_max`; None is `k_max`. A vectorised set score is
        given arrays of this width, as there: with another, sums could be rounded otherwise.

    Attributes
    ----------
    accepted, n_samples : list of int, int
        Indices of the accepted draws, and the number of draws so far, rejected ones included.
    texts : dict
        The set as it is shown, each text once: for each text the accepted draws that gave it.
    score, stopped : float, bool
        F after the last draw, -inf while the set is empty; and whether it reached its threshold.

    Notes
    -----
    The paper's C is a set, and its implementation counts draws: a text that is accepted twice is
    there twice. Here draws are accepted, scored and ended as in Algorithm 1, and only what is
    *shown* differs: of equal texts one, so that the size of Eq. 7 is the number of texts. A set
    misses its prompt if none of its texts is admissible, which a copy does not change: loss, tests
    and guarantee are those of Algorithm 1, for every configuration. Where texts are not known,
    each draw is a text of its own.

    Examples
    --------
    >>> from sklearn_clm.calibration import Configuration, SamplingRule
    >>> from sklearn_clm.scoring import get_set_score
    >>> rule = SamplingRule(Configuration(0.5, 0.2, 0.9), get_set_score("max"), k_max=3)
    >>> rule.update(0.1, [])  # too poor
    False
    >>> rule.update(0.4, [0.0])
    False
    >>> rule.update(0.95, [1.0, 0.3])  # only the accepted draw 1 counts, and 0.3 <= 0.5
    True
    >>> rule.accepted, rule.n_samples, rule.stopped
    ([1, 2], 3, True)
    """

    def __init__(
        self,
        configuration: Configuration,
        set_score: SetScore,
        k_max: int,
        width: int | None = None,
    ) -> None:
        if k_max < 1:
            raise ValueError(f"k_max must be at least 1, got {k_max!r} instead.")
        self.configuration = configuration
        self.set_score = set_score
        self.k_max = k_max
        self.accepted: list[int] = []
        self.texts: dict[int, list[int]] = {}
        self.n_samples = 0
        self.score = -math.inf
        self.stopped = False
        self._qualities = np.zeros(k_max if width is None else width)
        self._members = np.zeros(len(self._qualities), dtype=bool)

    @property
    def done(self) -> bool:
        """Whether no further draw is wanted."""
        return self.stopped or self.n_samples >= self.k_max

    def update(self, quality: float, similarity: Sequence[float], text: int | None = None) -> bool:
        """Take the next draw; returns whether to stop.

        `quality` is Q(x, y_j), and `similarity` begins with S(y_j, y_l) for each earlier draw l,
        accepted or not. `text` is the first draw of an equal text, accepted or not; None: this one.
        """
        if self.done:
            raise RuntimeError("the sampling rule has stopped; it takes no further draw")
        draw = self.n_samples
        self.n_samples += 1
        # "every accepted draw is similar at most", not "the maximum is": an empty set rejects
        # nothing, whatever the threshold
        # as float64: a score in half precision would round the threshold to its own
        is_good = float(quality) >= self.configuration.quality
        if is_good and all(
            float(similarity[earlier]) <= self.configuration.similarity for earlier in self.accepted
        ):
            self.accepted.append(draw)
            self.texts.setdefault(draw if text is None else text, []).append(draw)
            self._qualities[draw] = quality
            self._members[draw] = True
        # an empty set never stops, whatever the threshold
        if self.accepted:
            self.score = self._score_of_set()
            self.stopped = self.score >= self.configuration.set_score
        return self.done

    def _score_of_set(self) -> float:
        """F of the draws accepted so far."""
        # a score of whole arrays is asked as calibration asks it: sums round by their order
        of_sets = self.set_score.of_sets
        if self.set_score.running is None and of_sets is not None:
            (score,) = of_sets(self._qualities[np.newaxis], self._members[np.newaxis])
            return float(score)
        return self.set_score.of_set(self._qualities[self.accepted], self.n_samples)


def first_admissible(admissible: np.ndarray) -> np.ndarray:
    """S*: the first admissible draw from 1 on, or 0.

    `admissible` is bool of shape (n, K).
    """
    has_admissible = admissible.any(axis=1)
    return np.where(has_admissible, admissible.argmax(axis=1) + 1, 0)


def relative_excess(n_samples: ArrayLike, first: ArrayLike) -> np.ndarray:
    """Share of draws after the first admissible one (Eq. 7).

    `first` is S*, rejected or not: it counts from 1, and is 0 where no draw is admissible; the
    excess is then 0.
    """
    samples, first_draw = np.broadcast_arrays(n_samples, first)
    late = np.where(first_draw > 0, np.maximum(samples - first_draw, 0), 0)
    return late / np.maximum(samples, 1)
