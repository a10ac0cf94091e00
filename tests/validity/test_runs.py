"""Promises of gates hold in worlds that are just above alpha, and broken gates are noticed."""

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import NullCalibrationError
from sklearn_clm.calibration import Claim
from sklearn_clm.policies import Groups
from sklearn_clm.runs import RunGate
from sklearn_clm.runs._features import features_of_runs
from sklearn_clm.runs._levels import keeping_level, levels_to_test, passing_level

from .runs import LowScores

N_TRIALS = 300
DELTA = 0.1


def n_at_most(n_trials, delta=DELTA):
    """So many false certificates of a valid gate are exceeded with probability 1e-4."""
    return int(binom.ppf(1 - 1e-4, n_trials, delta))


def continuous(rng, n, succeeded):
    """M is uniform; runs that fail have larger ones."""
    return rng.random(n) + 0.3 * ~succeeded


def tied(rng, n, succeeded):
    """M takes few values, and of the successes 0.1001 or .2001 reach the two highest."""
    values = rng.choice(4, size=n, p=[0.5, 0.2999, 0.1, 0.1001])
    return np.where(succeeded, values, 3.0)


def misleading(rng, n, succeeded):
    """Runs that fail have smaller M than those that succeed."""
    return np.where(succeeded, rng.random(n), -rng.random(n))


def risk_of(world, level):
    """True share of the runs that would succeed which a level stops."""
    if world is tied:
        return sum(p for value, p in enumerate([0.5, 0.2999, 0.1, 0.1001]) if value >= level)
    return float(np.clip(1.0 - level, 0.0, 1.0))


def keeping(calibrate, world, n, alpha, n_trials=N_TRIALS):
    """How often a level stops too many."""
    n_false = 0
    for seed in range(n_trials):
        rng = np.random.default_rng([seed, n])
        succeeded = rng.random(n) < 0.6
        risks = world(rng, n, succeeded)
        if not succeeded.any():
            continue
        level = calibrate(risks, succeeded, Claim(alpha, DELTA, "runs that succeed"))
        n_false += risk_of(world, level) > alpha
    return n_false


def of_levels(risks, succeeded, claim):
    """The level of runs by their M; +inf where they are too few."""
    of_successes = risks[succeeded]
    if len(of_successes) < claim.fewest_prompts:
        return np.inf
    return keeping_level(of_successes, risks, claim)


@pytest.mark.parametrize("world", [continuous, tied, misleading])
@pytest.mark.parametrize("n", [30, 100, 300, 1000])
@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_of_the_runs_that_would_succeed_few_are_stopped(world, n, alpha):
    assert keeping(of_levels, world, n, alpha) <= n_at_most(N_TRIALS)


def of_one_step(risks, succeeded, claim):
    """The level of a gate whose runs have one step, scored by minus the risk."""
    gate = RunGate(LowScores(), alpha=claim.level, delta=claim.delta, on_null="raise")
    try:
        gate.fit([[-risk] for risk in risks], succeeded)
    except NullCalibrationError:  # too few
        return np.inf
    level = gate.calibration_.levels[None]
    return np.log(level / (1.0 - level)) if level < 1.0 else np.inf  # of its log-odds


@pytest.mark.parametrize("world", [continuous, tied])
@pytest.mark.parametrize("n", [40, 200])
def test_gates_of_runs_of_one_step_stop_few_that_would_succeed(world, n):
    n_false = keeping(of_one_step, world, n, 0.2)
    assert n_false <= n_at_most(N_TRIALS)
    # and not by stopping none: in a continuum the promise is broken nearly as often as it may be
    assert n_false > N_TRIALS * DELTA / 10 or world is tied


# the share of failures among the runs of each value of M, from the least to the largest: those let
# through at each level fail in just above .2
RISK_OF_VALUE = np.array([0.202, *[0.201] * 30])


def drawn(rng, n):
    values = rng.integers(len(RISK_OF_VALUE), size=n)
    return values.astype(float), rng.random(n) >= RISK_OF_VALUE[values]


@pytest.mark.parametrize("n", [30, 100, 300, 1000])
def test_of_the_runs_that_are_let_through_few_fail(n):
    claim = Claim(0.2, DELTA, "runs that pass")
    n_false = 0
    for seed in range(N_TRIALS):
        rng = np.random.default_rng([seed, n])
        searched, searched_succeeded = drawn(rng, n // 2)
        levels = levels_to_test(searched, searched_succeeded, n, claim)
        # whatever is certified is false in this world
        n_false += passing_level(levels, *drawn(rng, n), claim) > -np.inf
    assert n_false <= n_at_most(N_TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("promise", ["keeps", "passes"])
@pytest.mark.parametrize("by", ["drawn", "outcome", "length"])
@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_whole_gates_in_groups_however_the_table_is_sorted(promise, by):
    """Runs of one to four steps with rounded scores, in two groups, learnt and calibrated."""
    n_trials = 100
    alpha = 0.25

    def world(rng, n):
        names = rng.choice(["easy", "hard"], size=n)
        chances = np.where(names == "easy", 0.74, 0.6)
        succeeded = rng.random(n) < chances
        lengths = rng.integers(1, 5, size=n)
        # scores say something of the outcome, and are tied
        return [
            np.round(rng.normal(0.8 * good, 1.0, size=m), 1) for good, m in zip(succeeded, lengths)
        ], (
            succeeded,
            names,
        )

    runs_new, (succeeded_new, names_new) = world(np.random.default_rng(10**6), 4_000)
    prefixes = features_of_runs(runs_new, None)
    rows, begins = np.vstack(prefixes), np.cumsum([0, *map(len, prefixes[:-1])])

    def stopped_by(gate):
        """What `stopped` says, with features that are computed once for all gates."""
        record = gate.calibration_
        levels = np.where(names_new == "easy", record.level_of("easy"), record.level_of("hard"))
        return np.maximum.reduceat(record.risk(rows), begins) >= levels

    n_false = dict.fromkeys(["easy", "hard"], 0)
    for seed in range(n_trials):
        runs, (succeeded, names) = world(np.random.default_rng(seed), 240)
        keys = {"outcome": succeeded, "length": [len(run) for run in runs]}.get(by)
        order = np.arange(240) if keys is None else np.argsort(keys, kind="stable")
        gate = RunGate(
            promise=promise, alpha=alpha, delta=DELTA, groups=Groups(), random_state=seed
        )
        gate.fit([runs[i] for i in order], succeeded[order], groups=names[order])
        stopped = stopped_by(gate)
        if seed == 0:
            np.testing.assert_array_equal(stopped, gate.stopped(runs_new, groups=names_new))
        for name in n_false:
            counts = succeeded_new if promise == "keeps" else ~stopped
            chosen = counts & (names_new == name)
            errors = stopped if promise == "keeps" else ~succeeded_new
            # three standard errors of the measured share
            n_false[name] += chosen.any() and errors[chosen].mean() > alpha + 3 * np.sqrt(
                alpha / max(chosen.sum(), 1)
            )
    assert max(n_false.values()) <= n_at_most(n_trials)
