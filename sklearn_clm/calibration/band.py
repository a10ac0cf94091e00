"""The band of epsilons neither out of reach nor trivial."""

import math
from typing import NamedTuple

import numpy as np

from sklearn_clm.calibration.words import percent


class AchievableEpsilon(NamedTuple):
    """Risks neither out of reach nor trivial (appendix C).

    `low` is the share of prompts none of whose K draws is admissible: no set can do better. `high`
    is the share of prompts whose first draw is not admissible: one draw does as well.
    """

    low: float
    high: float

    @classmethod
    def of_labels(cls, admissible: np.ndarray) -> "AchievableEpsilon":
        """The band of labels `admissible`, bool of shape (n, K)."""
        wrong = ~admissible
        share_of_all = wrong.all(axis=1).mean()
        share_of_first = wrong[:, 0].mean()
        return cls(low=float(share_of_all), high=float(share_of_first))

    def words(self, k_max: int) -> str:
        """The band of `k_max` draws in a sentence, if known."""
        if math.isnan(self.low):
            return ""
        if self.low == 1.0:
            return (
                "No draw of these prompts is admissible: check `admission`, or the labels, on some "
                "responses; or the generator is never right."
            )
        if k_max == 1:
            return f"The one draw errs for {percent(self.low)} of the prompts."
        between = "epsilon can sensibly lie between the two (appendix C)."
        if self.low == self.high:
            between = "the other draws found nothing more."
        return (
            f"Sets of the first draw alone err for {percent(self.high)} of the prompts, and sets "
            f"of all {k_max} draws still for {percent(self.low)}; {between}"
        )
