"""Two methods on the same random splits."""

from dataclasses import dataclass

import numpy as np

__all__ = ["PairedDifference"]


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
    confidence : float
        Share of the trials that the interval holds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.evaluation import PairedDifference
    >>> print(PairedDifference("draws", "max", "sum", np.array([-1.0, -2.0, -3.0]), 0.5))
    draws, max - sum: -2 [-2.5, -1.5] (50 % of 3 trials)
    """

    measure: str
    method_a: str
    method_b: str
    differences: np.ndarray
    confidence: float

    @property
    def mean(self) -> float:
        """Mean difference; NaN if one of the methods abstained in some trial."""
        return float(np.mean(self.differences))

    @property
    def interval(self) -> tuple[float, float]:
        """Central interval that holds the share `confidence` of the trials."""
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(self.differences, [tail, 1.0 - tail])
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        what, n = f"{self.measure}, {self.method_a} - {self.method_b}", len(self.differences)
        if np.isnan(low):
            return f"{what}: not defined in all of {n} trials; see why_no_area"
        return (
            f"{what}: {self.mean:.4g} [{low:.4g}, {high:.4g}] ({self.confidence:.0%} of {n} trials)"
        ).replace("%", " %")
