"""Groups of prompts: the loss within each, by the rule for all prompts and by its own."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm._results import counted
from sklearn_clm.calibration import ComponentThreshold, LearnThenTestResult, clopper_pearson
from sklearn_clm.inspection._figures import BLUE, DASHED, RED, AxesLike, Display
from sklearn_clm.inspection._record import calibration_of
from sklearn_clm.inspection._tables import (
    INTERVAL,
    bound_of_level,
    bound_word,
    rounded_up,
    share_cells,
)

_MOST_NAMED = 10


@dataclass(kw_only=True, eq=False, repr=False)
class GroupLossDisplay(Display):
    """Loss by group with exact intervals, pooled against grouped.

    For each group, the share of its calibration prompts whose set holds no admissible response:
    under the rule for all prompts together, and under the group's own rule. The lines are exact 95%
    intervals (Clopper-Pearson) of one group each. A group whose pooled interval lies above epsilon
    is one that a guarantee for all prompts fails. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    groups : list of hashable, length G
        The groups.
    n_prompts : ndarray of int, shape (G,)
        Calibration prompts of each.
    pooled, grouped : ndarray of shape (G,)
        Errors among them under the rule for all prompts, and under its own; NaN where that is null.
    epsilon : float
        The tolerated risk.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and Axes
        What was drawn.

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

    def __post_init__(self) -> None:
        self.size = 5.6, 1.2 + 0.45 * len(self.groups)

    @property
    def failed_by_pooling(self) -> list[Hashable]:
        """Groups whose interval under the rule for all prompts lies above epsilon."""
        low, _ = _intervals(self.pooled, self.n_prompts)
        return [name for name, bound in zip(self.groups, low, strict=True) if bound > self.epsilon]

    @classmethod
    def from_estimator(cls, sampler: ConformalSampler, *, ax: AxesLike = None) -> Self:
        """Plot the groups of a fitted sampler.

        Parameters
        ----------
        sampler : ConformalSampler
            A sampler of thresholds, calibrated with groups and all labels.
        ax
            As in :meth:`plot`.

        Returns
        -------
        GroupLossDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If there are no groups, an exit policy or lazy judging, or no group could be tested.
        """
        record = calibration_of(sampler, ConformalSampler)
        if not record.by_group or record.result is None or record.data.unknown is not None:
            raise ValueError(
                "sampler must be calibrated with groups, thresholds and all labels, got one "
                "without instead."
            )
        tested = record.group_results
        if not tested:
            raise ValueError("sampler must hold a group that was tested, got groups too small.")
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
        ).plot(ax=ax)

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
    """Exact 95% intervals; NaN where there is no count."""
    known = ~np.isnan(errors)
    low, high = np.full((2, len(errors)), np.nan)
    if known.any():
        low[known], high[known] = clopper_pearson(errors[known].astype(np.int64), n[known])
    return low, high


def group_row(name: object, rule: Any, record: Any) -> tuple[str, ...]:
    """A group's rule, what came of its calibration prompts, and what they certify."""
    state = "certified" if rule.certified else "null"
    used, bound = "all draws", ""
    size = draws = float(rule.k_max)
    if isinstance(rule, type(record.exit)):  # groups with too few prompts have another rule
        n, smallest, errors = rule.n_calibration, rule.smallest_epsilon, rule.n_errors or 0
        bound = bound_of_level(rule)
        if rule.certified:
            used, size, draws = f"level {rule.level:.6g}", rule.size, rule.samples
    else:
        result: LearnThenTestResult | None = rule.result
        if result is None:
            why = rule.why or "too few prompts to test"
            return (str(name), state, used, why, "", f"{size:.4g}", f"{draws:.4g}", "")
        n, smallest = result.n_calibration, result.smallest_epsilon
        # what is tested first is to accept all draws
        chosen = result.position or 0
        errors = int(result.n_errors[chosen])
        bound = bound_word(result, chosen, len(result.valid_lambdas))
        if rule.certified:
            values = ", ".join(f"{value:.4g}" for value in rule.lambda_hat)
            used = f"similarity, quality, set score {values}"
            size, draws = float(result.risks.size[chosen]), float(result.risks.samples[chosen])
    known = rule.certified or not math.isnan(smallest)
    return (
        *(str(name), state, used, f"{bound}{errors} of {n}" if known else ""),
        "" if bound or not known else share_cells(errors, n)[1],
        *(f"{size:.4g}", f"{draws:.4g}"),
        "" if math.isnan(smallest) else rounded_up(smallest),
    )


def component_groups(record: Any) -> Iterable[tuple[str, ...]]:
    """For each group its threshold, what came of its calibration prompts, what they certify."""
    fraction = record.loss == "fraction"
    losses = ("fraction wrong", "any wrong") if fraction else ("error",)
    counts = "calibration prompts", *losses, INTERVAL, "components selected"
    yield "group", "", "gamma-hat", *counts, "smallest alpha"
    for name, gamma in record.by_group.items():
        result: ComponentThreshold | None = record.group_results[name]
        cells = [*("0" for _ in losses), "", "0"]  # of an empty selection
        if result is None:
            yield str(name), "null", "", "too few to test", *cells, ""
            continue
        state, shown, n = "null", "", result.n_calibration
        n_valid = int(np.count_nonzero(result.thresholds >= gamma))
        if n_valid:
            state, shown, i = "certified", f"{gamma:.4g}", n_valid - 1
            bound = bound_word(result, i, n_valid)
            error, interval = share_cells(int(result.n_errors[i]), n)
            cells = [f"{result.losses[i]:.4g}"] if fraction else []
            cells += [bound + error, "" if bound else interval, f"{result.n_components[i]:.4g}"]
        smallest = ""
        if len(result.thresholds):
            smallest = bound_word(result, 0, n_valid) + rounded_up(result.smallest_alpha)
        yield str(name), state, shown, str(n), *cells, smallest


def for_others(record: Any) -> str:
    """What the rule of all prompts together is for."""
    if record.groups.unknown == "pooled":
        return (
            "Prompts of unknown groups, and only these, get the rule for all prompts together, "
            "which all that follows is about; within a group it promises nothing."
        )
    return "Prompts of other groups are refused: no rule serves all prompts together."


def about_others(record: Any) -> tuple[str, ...]:
    """Whom the rule for all prompts together serves, where groups have their own."""
    if record.by_group is None:
        return ()
    return ("This is about prompts of unknown groups, and only these.",)


def null_groups(record: Any, what: str) -> list[str]:
    """Groups to which nothing is promised, where something is promised to others."""
    groups = record.certified_groups
    nulls = [] if groups is None else groups.nulls
    if not nulls or not record.certified:
        return []
    names = [f"{name!r:.40}" for name in nulls[:_MOST_NAMED]]
    names += [f"{len(nulls) - _MOST_NAMED} more"] * (len(nulls) > _MOST_NAMED)
    of = f"{len(nulls)} of {counted(len(record.by_group), 'group')}"
    return [f"Nothing is guaranteed for prompts of {of}, {what}: {', '.join(names)}."]
