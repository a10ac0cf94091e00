"""The monitor in simulated use: false alarms, delays, and what is broken on purpose."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from sklearn_clm.calibration import binomial_p_value
from sklearn_clm.calibration.betting import RiskEProcess
from sklearn_clm.evaluation import RiskMonitor

ALPHA = 0.05
STEPS = 10_000
#: Accepted outcomes before the risk rises.
BEFORE = 1_000
_OF_A_DAY = 100


@dataclass(frozen=True)
class MonitoringResult:
    """Alarms among the runs at one epsilon, the watched risk."""

    epsilon: float
    n_runs: int
    #: With an e-value that ever reached 1 / alpha: the watch stopped at its best moment.
    n_false: int
    #: With the audits of a day in one call, those that erred first.
    n_sorted: int
    #: Broken: a test of fixed size, repeated; each stake chosen after its outcome.
    n_repeated: int
    n_hindsight: int
    #: Median number of outcomes to the alarm at risk epsilon + 0.1: at once, and after good ones.
    delay: float
    late_delay: float

    @property
    def holds(self) -> bool:
        """Whether the 99.9 % interval of the share of false alarms reaches down to alpha."""
        return max(_low(n, self.n_runs) for n in (self.n_false, self.n_sorted)) <= ALPHA

    @property
    def notices(self) -> bool:
        """Whether what is broken on purpose is seen to be broken."""
        return min(_low(n, self.n_runs) for n in (self.n_repeated, self.n_hindsight)) > ALPHA


def _low(count: int, runs: int) -> float:
    return float(binomtest(count, runs).proportion_ci(0.999, method="exact").low)


def _delay(epsilon: float, risk: np.ndarray, n_runs: int, rng: np.random.Generator) -> np.ndarray:
    e_values = RiskEProcess(epsilon).update(rng.random((len(risk), n_runs)) < risk[:, np.newaxis])
    reached = e_values >= 1 / ALPHA
    return np.where(reached.any(axis=0), reached.argmax(axis=0) + 1, np.inf)


def _alarm_of_sorted(epsilon: float, losses: np.ndarray, rng: np.random.Generator) -> bool:
    requests = rng.integers(2**62, size=len(losses)).tolist()
    return RiskMonitor(epsilon, ALPHA).update(np.sort(losses)[::-1], requests).alarm_


def monitoring_results(
    n_runs: int = 2_000, epsilons: tuple[float, ...] = (0.05, 0.1, 0.3), seed: int = 0
) -> list[MonitoringResult]:
    """One result for each epsilon."""
    results = []
    for epsilon in epsilons:
        rng = np.random.default_rng([seed, round(1e6 * epsilon)])
        losses = rng.random((STEPS, n_runs)) < epsilon
        false = RiskEProcess(epsilon).update(losses).max(axis=0) >= 1 / ALPHA
        few = losses[:500]
        n = np.arange(1, 501)[:, np.newaxis]
        # of the hypothesis that the risk is at most epsilon
        repeated = binomial_p_value(n - np.cumsum(few, axis=0), n, 1 - epsilon).min(axis=0) <= ALPHA
        stakes = np.geomspace(0.005, 0.8, 14)[:, np.newaxis] / epsilon
        gains = np.log1p(stakes * (np.array([0, 1]) - epsilon)).max(axis=0)
        hindsight = np.cumsum(gains[few.astype(int)], axis=0).max(axis=0) >= np.log(1 / ALPHA)
        rise = np.full(3_000, epsilon + 0.1)
        late = np.concatenate((np.full(BEFORE, epsilon * 2 / 3), rise))
        few_runs = min(n_runs, 500)
        results.append(
            MonitoringResult(
                epsilon,
                n_runs,
                int(false.sum()),
                sum(_alarm_of_sorted(epsilon, one, rng) for one in losses[:_OF_A_DAY].T),
                int(repeated.sum()),
                int(hindsight.sum()),
                float(np.median(_delay(epsilon, rise, few_runs, rng))),
                float(np.median(_delay(epsilon, late, few_runs, rng))) - BEFORE,
            )
        )
    return results


def monitoring_markdown(results: list[MonitoringResult]) -> str:
    """One row for each epsilon."""
    lines = [
        f"| epsilon | false alarms in {STEPS:,} steps, at most {ALPHA:g} | median delay at epsilon "
        f"+ 0.1 | the same after {BEFORE:,} good ones | broken: repeated tests | broken: stake "
        "after its outcome |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.epsilon:g} | {one.n_false / one.n_runs:.4f}{'' if one.holds else ' NO'} "
        f"| {one.delay:.0f} | {one.late_delay:.0f} | {one.n_repeated / one.n_runs:.3f} "
        f"| {one.n_hindsight / one.n_runs:.3f}{'' if one.notices else ' NOT NOTICED'} |"
        for one in results
    ]
    return "\n".join(lines)
