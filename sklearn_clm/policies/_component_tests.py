"""Tests of component thresholds: one for all prompts, and one for each group of them.

The prompts of a group are independent draws from it, given that the group is known from the prompt
alone, so that a test on them speaks of that group. The loss of Eq. 9 needs no path: each group
walks down the scores of its own prompts. For fractions of wrong components the path comes from the
path part of all prompts together. At delta each claim holds with probability 1 - delta; at
delta / G all of them hold together (union bound).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sklearn_clm.calibration import (
    ComponentCalibrationData,
    ComponentThreshold,
    component_fraction_test,
    component_learn_then_test,
    prompts_needed,
)
from sklearn_clm.calibration._component_fractions import component_path, path_part
from sklearn_clm.calibration._groups import check_groups
from sklearn_clm.policies._groups import Groups, why_null_groups
from sklearn_clm.policies._risks import WrongFraction


class ComponentTest(NamedTuple):
    """A test of component thresholds that is to be made."""

    rows: np.ndarray  # positions of its prompts, ascending
    delta: float
    group: Hashable | None = None  # all prompts together
    claimed: bool = True  # predictions may rest on it; it is made for comparison otherwise


@dataclass(frozen=True)
class TestedComponents:
    """What tests of component thresholds found."""

    result: ComponentThreshold | None  # of all prompts together; None where they are too few
    by_group: Mapping[Hashable, ComponentThreshold | None] | None  # None without groups
    # for a group or for all prompts; None where something is certified for each
    why_null: str | None

    def fields(self) -> dict[str, Any]:
        """Fields of the record of a calibration."""
        result, by_group = self.result, self.by_group
        return {
            "gamma_hat": _gamma(result),
            "achievable_alpha": (np.nan, np.nan) if result is None else result.achievable_alpha,
            "result": result,
            "by_group": by_group and {name: _gamma(one) for name, one in by_group.items()},
            "group_results": by_group,
        }


def _gamma(result: ComponentThreshold | None) -> float:
    return np.inf if result is None else result.gamma_hat


def planned_tests(
    n_prompts: int,
    delta: float,
    fraction: WrongFraction | None,
    groups: list[Hashable] | None,
    options: Groups,
    prompts: np.ndarray | None = None,
) -> list[ComponentTest]:
    """The tests of groups, where there are any, and at last that of all prompts."""
    rows = np.arange(n_prompts)
    if fraction is not None:
        rows = path_part(n_prompts, fraction.path_fraction, prompts)[1]
    if groups is None:
        return [ComponentTest(rows, delta)]
    names, of_prompt = check_groups(groups, n_prompts)
    pooled, level = options.unknown == "pooled", options.level(delta, len(names))
    tests = [ComponentTest(rows[of_prompt[rows] == g], level, name) for g, name in enumerate(names)]
    return [*tests, ComponentTest(rows, level if pooled else delta, claimed=pooled)]


def run_tests(
    data: ComponentCalibrationData,
    alpha: float,
    tests: list[ComponentTest],
    fraction: WrongFraction | None,
) -> TestedComponents:
    """Make the tests, and say which of them certify nothing."""
    thresholds = None if fraction is None else component_path(data, fraction.path_fraction)[0]
    found: dict[Hashable, ComponentThreshold | None] = {}
    reasons = []
    for test in tests:
        needed = prompts_needed(alpha, test.delta)
        subject = "Calibration of components" if test.group is None else f"Group {test.group!r}"
        if len(tests) > 1 and test.group is None:
            subject = "The threshold for all prompts"
        result: ComponentThreshold | None = None
        reason: str | None = _too_few(subject, len(test.rows), needed, alpha, test.delta)
        if len(test.rows) >= needed:
            part = data.take(test.rows)
            if fraction is None:
                result = component_learn_then_test(part, alpha, test.delta)
            else:
                result = component_fraction_test(
                    part, alpha, test.delta, p_value=fraction.p_value, thresholds=thresholds
                )
            reason = _null(subject, result)
        found[test.group] = result
        reasons.append(reason if test.claimed else None)
    pooled = found.pop(None)
    why = why_null_groups(reasons[:-1], reasons[-1])
    return TestedComponents(pooled, found if len(tests) > 1 else None, why)


def _too_few(subject: str, n: int, needed: int, alpha: float, delta: float) -> str:
    return (
        f"{subject} is null: there are n_samples={n} calibration prompts, and no p-value can reach "
        f"delta={delta:g} at alpha={alpha:g} with fewer than {needed}; {needed - n} are lacking."
    )


def _null(subject: str, result: ComponentThreshold) -> str | None:
    if result.gamma_hat < np.inf:
        return None
    if not result.thresholds.size:
        return (
            f"{subject} is null: no response of the {result.n_calibration} calibration prompts has "
            "any component."
        )
    low, high = result.achievable_alpha
    null = (
        f"{subject} is null: no threshold is certified at alpha={result.alpha:g}, "
        f"delta={result.delta:g} with {result.n_calibration} calibration prompts."
    )
    if np.isnan(high):
        return (
            f"{null} No alpha below {result.smallest_alpha:.4g} would have worked; lazy judging "
            "does not know more."
        )
    null += f" The smallest alpha that would have worked is {result.smallest_alpha:.4g}."
    if result.loss == "fraction":
        return (
            f"{null} Of what has the highest score a fraction of {low:.1%} is wrong, and of "
            f"everything {high:.1%}."
        )
    return (
        f"{null} Selecting what has the highest score errs for {low:.1%} of the prompts, and "
        f"selecting everything for {high:.1%}."
    )
