"""Verdicts of people that certify a risk by their standard: theirs alone, or audits of a model."""

from collections.abc import Iterator

from scipy.stats import binom

from sklearn_clm.calibration import critical_count, prompts_needed, two_phase_power

from . import Row

__all__ = ["rows"]


def rows(quick: bool = False) -> Iterator[Row]:
    """The fewest verdicts of either kind with which 80 % of calibrations certify."""
    delta, power, rejected = 0.05, 0.8, 0.01  # a model that is rarely lenient
    for epsilon, risk, n_prompts in [(0.2, 0.14, 300), (0.2, 0.14, 1000), (0.15, 0.1, 1000)]:
        refused = (risk - rejected) / (1 - rejected)
        alone = audits = prompts_needed(epsilon, delta)
        while binom.cdf(critical_count(alone, epsilon, delta), alone, risk) < power:
            alone += 1
        while two_phase_power(refused, rejected, n_prompts, audits, epsilon, delta) < power:
            audits += 1
        what = f"verdicts, risk {risk}, epsilon = {epsilon}, {n_prompts:,} prompts for a model"
        yield Row(what, f"people alone: {alone}", f"audits: {audits}", alone / audits)
