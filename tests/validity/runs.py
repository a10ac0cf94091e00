"""Gates of runs: is a gate certified that errs just above alpha?

The epsilon of a setting is alpha here, and the set score of a cell is the order of its runs.
"""

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm import NullCalibrationError
from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration.certify import nth_largest
from sklearn_clm.calibration.tests import step_p_values
from sklearn_clm.runs import RunGate
from sklearn_clm.runs._levels import let_through

from .orders import SEEDS
from .procedures import Setting
from .worlds import K_MAX, World, named

RUN_ORDERS = ("as_drawn", "by_outcome", "by_length")
_ABOVE = 0.002  # of alpha


class LowScores(BaseEstimator):
    """A scorer that learns nothing: the lower a score, the likelier a failure."""

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        failure = 1.0 / (1.0 + np.exp(X[:, 0]))
        return np.stack((1.0 - failure, failure), axis=1)


def _gate(runs, succeeded, order: str, rng, **options) -> RunGate | None:
    """A gate of runs in an order, with a seed or without; None where nothing is certified."""
    keys = {"by_outcome": succeeded, "by_length": [len(run) for run in runs]}
    places = np.argsort(keys.get(order, np.zeros(len(runs))), kind="stable")
    seed = SEEDS[int(rng.integers(len(SEEDS)))]
    gate = RunGate(random_state=seed, on_null="raise", **options)
    try:
        return gate.fit([runs[i] for i in places], succeeded[places])
    except NullCalibrationError:
        return None


def kept_runs(
    world: World, set_score, setting: Setting, rng, *, failures_look=0.0, scorer=None
) -> bool | None:
    """Are runs stopped that are just more than alpha of those that succeed?

    They score 0, the others that succeed 1; runs that fail score the one or the other.
    """
    succeeded = rng.random(setting.n) < 0.6
    poor = rng.random(setting.n) < setting.epsilon + _ABOVE
    scores = np.where(succeeded, np.where(poor, 0.0, 1.0), failures_look)
    lengths = rng.integers(1, 4, size=setting.n)
    runs = [[score] * length for score, length in zip(scores.tolist(), lengths)]
    levels = {"alpha": setting.epsilon, "delta": setting.delta}
    gate = _gate(runs, succeeded, set_score, rng, scorer=scorer, **levels)
    # whoever stops the short ones stops the long ones as well
    return None if gate is None else bool(gate.stopped([[0.0]])[0])


def misleading_runs(world: World, set_score, setting: Setting, rng) -> bool | None:
    """The same where the scorer takes all runs that fail for good ones."""
    options = {"failures_look": 1.0, "scorer": LowScores()}
    return kept_runs(world, set_score, setting, rng, **options)


def passed_runs(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Are runs let through of which just more than alpha fail, whatever their scores?"""
    chosen = world.draw(setting.n, rng)
    lengths = rng.integers(1, K_MAX + 1, size=setting.n)
    runs = [row[:k] for row, k in zip(world.population.quality[chosen], lengths)]
    succeeded = rng.random(setting.n) >= setting.epsilon + _ABOVE
    options = {"promise": "passes", "alpha": setting.epsilon, "delta": setting.delta}
    gate = _gate(runs, succeeded, set_score, rng, **options)
    return None if gate is None else True


RUN_PROCEDURES = named(kept_runs, misleading_runs, passed_runs)


def _from_all_runs(of_successes, largest_risks, claim):
    """Broken: the level of all runs together."""
    n_allowed = int(critical_count(len(largest_risks), claim.level, claim.delta))
    return nth_largest(largest_risks, n_allowed + 1)


def _all_levels(largest_risks, succeeded, n, claim):
    """Broken: no start is fixed beforehand."""
    return np.append(np.sort(largest_risks), np.inf)


def _largest_that_passes(levels, largest_risks, succeeded, claim):
    """Broken: whatever failed before it."""
    n_passing, n_failed = let_through(levels, largest_risks, succeeded)
    passes = step_p_values(n_failed, n_passing, claim.level) <= claim.delta
    return levels[passes][-1] if passes.any() else -np.inf


# by name the procedure that must notice it, and what is put in the place of what
RUN_MUTATIONS = {
    "threshold from all runs": ("misleading_runs", {"keeping_level": _from_all_runs}),
    "largest level of runs that passes": (
        "passed_runs",
        {"levels_to_test": _all_levels, "passing_level": _largest_that_passes},
    ),
}
