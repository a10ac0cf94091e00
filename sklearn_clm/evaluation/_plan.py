"""How many calibration prompts to collect, and what to expect."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom

from sklearn_clm._exceptions import DECIDE_BEFOREHAND, optional_module
from sklearn_clm.calibration import (
    CalibrationData,
    clopper_pearson,
    smallest_epsilon,
)
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.data import check_data
from sklearn_clm.calibration.rows import optimization_size
from sklearn_clm.calibration.words import counted
from sklearn_clm.evaluation.markdown import markdown_table
from sklearn_clm.evaluation.sizes import (
    chance_to_certify,
    first_k_errors,
    prompts_to_collect,
    smallest_epsilons,
)

if TYPE_CHECKING:
    import pandas as pd

_SIZES = (100, 200, 500, 1000, 2000)
_LARGEST_ADVICE = 10_000  # prompts
_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Plan:
    """What calibrations of several sizes can be expected to certify.

    Parameters
    ----------
    n_prompts : ndarray of int, shape (s,)
        Prompts to collect, the optimisation part included.
    n_calibration : ndarray of int, shape (s,)
        Of these, prompts in the calibration part.
    smallest_epsilon : ndarray of shape (s, 3)
        Smallest risk that will be certified, and the ends of its 95 % interval, which is for the
        calibration to come: it holds the chance of its prompts as well as that of the pilot's.
    chance : ndarray of shape (s, 3)
        Probability that a calibration at `epsilon` certifies anything, with its 95 % interval.
    n_recommended, n_recommended_cautious : int or None
        With this number of prompts, and any larger one, a calibration at `epsilon` succeeds with
        probability `power`, if the share of errors is that of the pilot, and if it is the upper end
        of its interval; None if there is none up to 10,000 or the largest of `n_prompts`. Some
        smaller numbers do as well: the chance falls until the test allows one error more.
    share, share_interval : float, tuple of float
        Share of prompts without any admissible draw: no epsilon below it can be certified.
    epsilon, delta, power : float
        As asked for.
    n_pilot, k_max : int
        Prompts of the pilot, and draws for each.
    """

    n_prompts: np.ndarray
    n_calibration: np.ndarray
    smallest_epsilon: np.ndarray
    chance: np.ndarray
    n_recommended: int | None
    n_recommended_cautious: int | None
    share: float
    share_interval: tuple[float, float]
    epsilon: float
    delta: float
    power: float
    n_pilot: int
    k_max: int

    def to_frame(self) -> "pd.DataFrame":
        """One row per size; intervals are columns `_low` and `_high`."""
        optional_module("pandas", "plot", "a data frame")
        import pandas as pd

        columns = {"n_prompts": self.n_prompts, "n_calibration": self.n_calibration}
        for name in ("smallest_epsilon", "chance"):
            columns |= dict(zip((name, f"{name}_low", f"{name}_high"), getattr(self, name).T))
        return pd.DataFrame(columns)

    def to_markdown(self) -> str:
        """The plan as text with a table in Markdown."""
        low, high = self.share_interval
        exact, cautious = (
            "no number of prompts suffices" if n is None else f"{n} prompts suffice"
            for n in (self.n_recommended, self.n_recommended_cautious)
        )

        if self.n_recommended is None:
            advice = (
                "Epsilon is below the pilot's share of errors, or too near to it: raise epsilon, "
                "take more draws, a better model or another admission."
            )
        elif self.n_recommended_cautious is None:
            advice = "The pilot does not tell: collect a larger one, or raise epsilon."
        else:
            advice = (
                f"Collect {self.n_recommended_cautious} prompts. The smaller number is enough if "
                "the pilot's share is the true one."
            )
        rows = [("prompts", "calibration part", "smallest epsilon", f"chance of {self.epsilon:g}")]
        sizes = zip(self.n_prompts, self.n_calibration, self.smallest_epsilon, self.chance)
        for n, m, smallest, chance in sizes:
            rows.append((str(n), str(m), _interval(smallest, ".3f"), _interval(chance, ".2f")))
        parts = (
            f"Plan from a pilot of {counted(self.n_pilot, 'prompt')} with "
            f"{counted(self.k_max, 'draw')} each: epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}.",
            f"Share of prompts without any admissible draw: {_interval((self.share, low, high))}. "
            "No number of prompts certifies an epsilon below it.",
            f"For a calibration to succeed with probability {self.power:g}, {exact} if the share "
            f"of errors is {self.share:.3f}, and {cautious} if it is {high:.3f}. {advice}",
            DECIDE_BEFOREHAND,
            markdown_table(rows).rstrip("\n"),
            "In brackets: 95 % intervals.",
        )
        return "\n\n".join(parts) + "\n"

    __str__ = _repr_markdown_ = to_markdown


def plan(
    data: CalibrationData,
    epsilon: float,
    delta: float = 0.05,
    *,
    sizes: Sequence[int] = _SIZES,
    optimization_fraction: float = 1 / 3,
    power: float = 0.9,
) -> Plan:
    """Estimate from a pilot what larger calibrations will certify.

    What can be certified depends on the errors of *accept everything*, whose share among the
    pilot's prompts has an exact interval. With half of the allowed error for that share, and half
    for the calibration to come, the interval of the smallest epsilon follows. It is the same for
    thresholds and for an :class:`~sklearn_clm.policies.ExitPolicy` with ``guarantee="pac"``. How
    large sets will be, a calibration on the pilot tells.

    Parameters
    ----------
    data : CalibrationData
        The pilot: some 50 to 100 independent prompts, distributed like those to come. They must
        not be calibrated with afterwards if they decided on `epsilon` or `k_max`. Under a covariate
        shift, all numbers are of prompts that their weights keep. Where draws end early, what they
        leave open counts as an error, as it will in calibration.
    epsilon : float
        The risk to certify, in (0, 1).
    delta : float, default=0.05
        Level of the tests, in (0, 1). Of m calibrations of more and more prompts, as is decided
        beforehand, each has delta / m.
    sizes : sequence of int, default=(100, 200, 500, 1000, 2000)
        Numbers of prompts to consider, the optimisation part included.
    optimization_fraction : float, default=1/3
        Share of the prompts that the tests will not use, in (0, 1): a third search thresholds. An
        ``ExitPolicy`` learns from a fifth of 300 or more.
    power : float, default=0.9
        Probability of success of the recommended number of prompts, in (0, 1).

    Returns
    -------
    Plan
        One row for each size.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> from sklearn_clm.evaluation import plan
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((80, 5))
    >>> pilot = CalibrationData(quality, rng.random((80, 5, 5)), rng.random((80, 5)) < quality)
    >>> expected = plan(pilot, epsilon=0.2, sizes=[100, 400])
    >>> expected.smallest_epsilon[:, 0].round(2).tolist(), expected.n_recommended
    ([0.09, 0.05], 45)
    """
    check_data(data, draws=False)
    levels = {"epsilon": epsilon, "delta": delta, "power": power}
    for name, value in (levels | {"optimization_fraction": optimization_fraction}).items():
        check_level(value, name)
    planned = np.unique(np.asarray(sizes))  # rows of the plan, ascending
    if not planned.size or planned.dtype.kind not in "iu" or planned[0] < 2:
        raise ValueError(f"sizes must be integers of at least 2, got {sizes!r} instead.")

    n = data.n_prompts
    # accept everything errs least, and is tested first: it decides whether anything passes
    n_errors = int(first_k_errors(data.admissible)[-1])
    parts = np.array([m - optimization_size(m, optimization_fraction) for m in planned.tolist()])

    # of the pilot's share: the calibration to come has chance of its own, see `_epsilons_to_come`
    low, high = map(float, clopper_pearson(n_errors, n, _CONFIDENCE))

    most = max(_LARGEST_ADVICE, int(planned[-1]))
    recommended, cautious = (
        prompts_to_collect(share, epsilon, delta, power, optimization_fraction, most)
        for share in (n_errors / n, high)
    )

    # the more errors, the smaller the chance, so that the ends of the interval change places
    shares = np.array([n_errors / n, high, low])
    return Plan(
        n_prompts=planned,
        n_calibration=parts,
        smallest_epsilon=_epsilons_to_come(n_errors, n, parts, delta),
        chance=chance_to_certify(parts[:, np.newaxis], shares, epsilon, delta),
        n_recommended=recommended,
        n_recommended_cautious=cautious,
        share=n_errors / n,
        share_interval=(low, high),
        epsilon=float(epsilon),
        delta=float(delta),
        power=float(power),
        n_pilot=n,
        k_max=data.k_max,
    )


def _epsilons_to_come(n_errors: int, n: int, parts: np.ndarray, delta: float) -> np.ndarray:
    """Smallest epsilons of calibration parts to come, with intervals."""
    # half of the allowed error for the pilot's share, half for the calibration to come
    tail = (1.0 - _CONFIDENCE) / 4.0
    low, high = clopper_pearson(n_errors, n, 1.0 - 2.0 * tail)
    fewest = binom.ppf(tail, parts, low)
    most = binom.ppf(1.0 - tail, parts, high)
    # an interval of the errors to come, each end at the worst share that its half allows
    ends = [smallest_epsilon(count.astype(np.int64), parts, delta) for count in (fewest, most)]
    return np.column_stack([smallest_epsilons(n_errors, n, parts, delta), *ends])


def _interval(values: Sequence[float] | np.ndarray, form: str = ".3f") -> str:
    """An estimate with its interval in brackets."""
    estimate, low, high = (f"{value:{form}}" for value in values)
    return f"{estimate} [{low}, {high}]"
