"""Planning an audit from a pilot that a model and people have judged."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import prompts_needed, two_phase_power
from sklearn_clm.calibration.betting import audit_p_values, audit_power
from sklearn_clm.evaluation import plan_audits
from sklearn_clm.evaluation.sizes import chance_to_certify


def pilot(rng, m, refused, rejected, mistaken=0.0):
    """Verdicts of a model and of people; of refused prompts people admit a share `mistaken`."""
    by_model = rng.random(m) >= refused
    by_people = np.where(by_model, rng.random(m) >= rejected, rng.random(m) < mistaken)
    return by_model, by_people


# a rarely lenient model saves verdicts; one that refuses much of what people admit does not
WORLDS = [
    ((0.07, 0.01), {"n_prompts": 300, "epsilon": 0.15, "delta": 0.1}, "two-phase"),
    ((0.1, 0.005, 0.6), {"n_prompts": 500, "epsilon": 0.15, "delta": 0.05}, "people"),
]


@pytest.mark.parametrize(("truth", "terms", "design"), WORLDS)
def test_much_data_name_the_better_design_and_its_number(truth, terms, design):
    plan = plan_audits(*pilot(np.random.default_rng(0), 100_000, *truth), **terms)
    assert plan.design == design
    n, bets, other = (plan.n_audits(name) for name in ("two-phase", "betting", "people"))
    assert (n < other) == (design == "two-phase")
    reached = two_phase_power(*truth[:2], terms["n_prompts"], n, terms["epsilon"], terms["delta"])
    assert reached > 0.77
    assert all(str(number) in str(plan) for number in (n, bets or "no number", other))
    assert all(made <= size for made, size in zip(plan.n_made, plan.sizes))
    assert ("People alone are better" in str(plan)) == (design == "people")


def betting(a, b, n_prompts, n_audits, epsilon, delta, n_runs=1000):
    """How often audits by betting certify, and how many they are on average, simulated."""
    sizes = np.array([len(one) for one in np.array_split(range(n_prompts), n_audits)])
    rng = np.random.default_rng(0)
    refused = rng.binomial(sizes, a, (n_runs, n_audits)) / sizes
    losses = np.where(rng.random(refused.shape) < b, 1.0, refused)
    stops = np.argmax(audit_p_values(losses.T, epsilon, delta) <= delta, axis=0)
    return np.mean(stops > 0), np.mean(np.where(stops > 0, stops, n_audits))


def test_the_power_of_betting_is_about_that_of_simulated_audits():
    for truth, design in (
        ((0.07, 0.01), (300, 60, 0.15, 0.1)),
        ((0.05, 0.01), (500, 150, 0.1, 0.05)),
        ((0.02, 0.1), (500, 100, 0.2, 0.05)),
    ):
        power, n_made = betting(*truth, *design, n_runs=4000)
        expected = audit_power(*truth, *design)
        assert expected[0] == pytest.approx(power, abs=0.08)
        assert expected[1] == pytest.approx(n_made, rel=0.06)


# refused, rejected, of the refused admitted by people; prompts, epsilon, delta
SIMULATED = {
    "rarely lenient": (0.07, 0.01, 0.0, 300, 0.15, 0.1),
    "rarely lenient, little tolerated": (0.05, 0.01, 0.0, 500, 0.1, 0.05),
    "refuses little": (0.03, 0.02, 0.0, 300, 0.1, 0.1),
    "nearly right": (0.05, 0.005, 0.0, 500, 0.15, 0.05),
    "sometimes lenient": (0.02, 0.04, 0.0, 500, 0.1, 0.05),
    "often lenient": (0.02, 0.1, 0.0, 500, 0.2, 0.05),
    "lenient with hard prompts": (0.063, 0.029, 0.0, 400, 0.15, 0.1),
    "refuses 1 of 100 wrongly": (0.1, 0.01, 0.1, 300, 0.2, 0.1),
    "refuses 2 of 100 wrongly": (0.1, 0.02, 0.2, 500, 0.2, 0.05),
    "lenient and strict": (0.17, 0.03, 0.1, 600, 0.25, 0.05),
    "strict": (0.1, 0.005, 0.6, 500, 0.15, 0.05),
    "strict, near the tolerated": (0.15, 0.005, 0.5, 500, 0.2, 0.05),
    "strict, much tolerated": (0.2, 0.01, 0.6, 500, 0.3, 0.05),
    "very strict": (0.33, 0.005, 0.5, 600, 0.25, 0.05),
}


@cache
def verdicts_needed(refused, rejected, mistaken, *terms):
    """Fewest verdicts with a power of .8 of each design; of betting, on average."""
    n_prompts, epsilon, delta = terms
    missed = refused * (1 - mistaken) + (1 - refused) * rejected
    sizes = np.unique(np.geomspace(prompts_needed(epsilon, delta), n_prompts, 60).astype(int))
    truth = refused, rejected, n_prompts
    # no number beyond the first that suffices is tried
    found = {
        "two-phase": ((two_phase_power(*truth, int(n), epsilon, delta), n) for n in sizes),
        "betting": (betting(*truth, n, epsilon, delta) for n in sizes),
        "people": list(zip(chance_to_certify(sizes, missed, epsilon, delta), sizes)),
    }
    return {
        design: next((n for power, n in numbers if power >= 0.8), n_prompts)
        for design, numbers in found.items()
    }


@cache
def planned(n_refused, said_of_refused, said_of_admitted, n_prompts, epsilon, delta):
    """The plan where the model has judged half as many prompts as will test.

    Of the refused and of the others people have admitted so many, and rejected so many.
    """
    by_model = np.arange(n_prompts // 2) >= n_refused
    by_people = np.full(len(by_model), None)
    for first, (n_right, n_wrong) in ((0, said_of_refused), (n_refused, said_of_admitted)):
        by_people[first : first + n_right + n_wrong] = [True] * n_right + [False] * n_wrong
    return plan_audits(by_model, by_people, n_prompts=n_prompts, epsilon=epsilon, delta=delta)


def verdicts(rng, n, share):
    """Of so many verdicts how many admit, and how many do not."""
    n_right = int(rng.binomial(n, share))
    return n_right, n - n_right


@pytest.mark.slow
@pytest.mark.parametrize("world", SIMULATED)
def test_thirty_verdicts_name_a_good_design(world):
    """Good takes at most a quarter, or 5, more than the best: about what sizes differ by.

    They are on refused prompts, and on others where the model refuses fewer.
    """
    n_pilots = 100
    refused, rejected, mistaken, *terms = SIMULATED[world]
    needed = verdicts_needed(*SIMULATED[world])
    best = min(needed.values())
    for seed in (1, 2):  # many pilots are those of the first, and their plans are kept
        rng = np.random.default_rng(seed)
        n_good = 0
        for _ in range(n_pilots):
            n_refused = int(rng.binomial(terms[0] // 2, refused))
            n_judged = min(n_refused, 30)
            said = verdicts(rng, n_judged, mistaken), verdicts(rng, 30 - n_judged, 1 - rejected)
            design = planned(n_refused, *said, *terms).design
            n_good += needed[design] <= max(1.25 * best, best + 5)
        # 90 %, as far as so many pilots tell
        assert n_good >= binom.ppf(0.01, n_pilots, 0.9)


def grown(rng, refused, mistaken, terms):
    """The first and the last design of a pilot that people enlarge as the plan says; its size."""
    n_refused, said = int(rng.binomial(terms[0] // 2, refused)), (0, 0)
    first = plan = planned(n_refused, said, (0, 0), *terms)
    while more := min(plan.n_more, n_refused - sum(said)):
        said = tuple(np.add(said, verdicts(rng, more, mistaken)).tolist())
        plan = planned(n_refused, said, (0, 0), *terms)
    return first.design, plan.design, sum(said)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_pilot_as_large_as_the_plan_says_costs_less_than_it_gains(seed):
    """In a world where the first design is right a pilot gains nothing: there it costs little."""
    rng, n_pilots, net = np.random.default_rng(seed), 50, {}
    for world, (refused, _, mistaken, *terms) in SIMULATED.items():
        needed = verdicts_needed(*SIMULATED[world])
        pilots = [grown(rng, refused, mistaken, terms) for _ in range(n_pilots)]
        net[world] = np.mean([needed[one] - needed[other] - n for one, other, n in pilots])
    assert np.mean(list(net.values())) > 3
    assert min(net.values()) > -7


def test_a_judge_that_is_often_lenient_leaves_no_number():
    plan = plan_audits(*pilot(np.random.default_rng(0), 200, 0.02, 0.2), n_prompts=300, epsilon=0.1)
    assert all(plan.n_audits(name) is None for name in plan.powers)
    assert "no number" in str(plan)
