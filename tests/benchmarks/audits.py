"""Verdicts of people that certify a risk by their standard: theirs alone, or audits of a model."""

from collections.abc import Iterator

from scipy.stats import binom

from sklearn_clm.calibration import critical_count, prompts_needed, two_phase_power

from . import Row

__all__ = ["rows"]

_POWER, _DELTA = 0.8, 0.05
_REJECTED = 0.01  # of the prompts that the model admits: it is rarely lenient
_CASES = ((0.2, 0.14, 300), (0.2, 0.14, 1000), (0.15, 0.1, 1000))  # epsilon, risk, prompts


def rows(quick: bool = False) -> Iterator[Row]:
    """The fewest verdicts of either kind that certify a true risk often enough."""
    for epsilon, risk, n_prompts in _CASES[: 1 if quick else None]:
        refused = (risk - _REJECTED) / (1 - _REJECTED)
        alone = audits = prompts_needed(epsilon, _DELTA)
        while binom.cdf(critical_count(alone, epsilon, _DELTA), alone, risk) < _POWER:
            alone += 1
        while two_phase_power(refused, _REJECTED, n_prompts, audits, epsilon, _DELTA) < _POWER:
            audits += 1
        yield Row(
            f"verdicts of people for {_POWER:.0%} power, risk {risk}, epsilon = {epsilon}, a model "
            f"judges {n_prompts:,} prompts, people reject {_REJECTED:.0%} of what it admits",
            f"people alone: {alone}",
            f"audits: {audits}",
            alone / audits,
        )
