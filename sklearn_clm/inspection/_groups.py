"""Groups of prompts: the loss within each, by the rule for all prompts and by its own."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import clopper_pearson
from sklearn_clm.inspection._figures import BLUE, DASHED, RED, EstimatorDisplay


@dataclass(kw_only=True, eq=False, repr=False)
class GroupLossDisplay(EstimatorDisplay):
    """Loss by group with exact intervals, pooled against grouped.

    For each group, the share of its calibration prompts whose set holds no admissible response:
    under the rule for all prompts together, and under the group's own. The lines are exact 95 %
    intervals (Clopper-Pearson) of one group each. A group whose pooled interval lies above epsilon
    is one that a guarantee for all prompts fails. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    groups : list of hashable, length G
        The groups.
    n_prompts : ndarray of int, shape (G,)
        Calibration prompts of each.
    pooled, grouped : ndarray of shape (G,)
        Errors among them under the rule for all prompts, and under its own; NaN without one.
    epsilon : float
        The tolerated risk.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.inspection import GroupLossDisplay
    >>> display = GroupLossDisplay(
    ...     groups=["easy", "hard"], n_prompts=np.array([300, 100]), pooled=np.array([30, 40]),
    ...     grouped=np.array([60, 20]), epsilon=0.3,
    ... )
    >>> display.failed_by_pooling
    ['hard']
    """

    groups: list[Hashable]
    n_prompts: np.ndarray
    pooled: np.ndarray
    grouped: np.ndarray
    epsilon: float

    title = "Loss within groups"
    legend_above = True
    wanted = (
        "be calibrated with thresholds, all labels, and groups that are large enough for a test"
    )

    def __post_init__(self) -> None:
        self.size = 5.6, 1.2 + 0.45 * len(self.groups)

    @property
    def failed_by_pooling(self) -> list[Hashable]:
        """Groups whose interval under the rule for all prompts lies above epsilon."""
        low, _ = _intervals(self.pooled, self.n_prompts)
        return [name for name, bound in zip(self.groups, low, strict=True) if bound > self.epsilon]

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        record = estimator.calibration_
        groups = record.by_group or {}
        tested = {name: one.rule.result for name, one in groups.items() if one.rule.result}
        if not tested or record.result is None or record.data.unknown is not None:
            return None
        # all groups test one path, on which the rule for all prompts stands as well
        everyone = record.result.position
        pooled, grouped = np.full((2, len(tested)), np.nan)
        for g, result in enumerate(tested.values()):
            if result.position is not None:
                grouped[g] = result.n_errors[result.position]
            if everyone is not None:
                pooled[g] = result.n_errors[everyone]
        return cls(
            groups=list(tested),
            n_prompts=np.array([result.n_calibration for result in tested.values()]),
            pooled=pooled,
            grouped=grouped,
            epsilon=record.epsilon,
        )

    def _draw(self) -> None:
        place = np.arange(len(self.groups))[::-1].astype(np.float64)
        for errors, offset, color, marker, label in (
            (self.pooled, 0.12, RED, "s", "rule for all prompts"),
            (self.grouped, -0.12, BLUE, "o", "rule of the group"),
        ):
            low, high = _intervals(errors, self.n_prompts)
            self.ax_.hlines(place + offset, low, high, color=color, linewidth=1.4)
            share = errors / self.n_prompts
            self.ax_.plot(share, place + offset, marker, color=color, markersize=4.5, label=label)
        line: dict[str, Any] = {"color": "0.4", "linestyle": DASHED, "linewidth": 1.0}
        self.ax_.axvline(self.epsilon, label="epsilon", **line)
        labels = [f"{name} (n={n})" for name, n in zip(self.groups, self.n_prompts, strict=True)]
        self.ax_.set_yticks(place, labels)
        self.ax_.set_ylim(-0.6, len(self.groups) - 0.4)
        self.ax_.set_xlabel("share of sets without an admissible response")


def _intervals(errors: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact 95 % intervals; NaN where there is no count."""
    known = ~np.isnan(errors)
    low, high = np.full((2, len(errors)), np.nan)
    if known.any():
        low[known], high[known] = clopper_pearson(errors[known].astype(np.int64), n[known])
    return low, high
