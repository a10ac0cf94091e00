"""Planning an audit from a pilot that a model and people have judged."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import prompts_needed, two_phase_power
from sklearn_clm.calibration._betting import audit_p_values, audit_power
from sklearn_clm.evaluation import plan_audits
from sklearn_clm.evaluation._plan import chance_to_certify


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
    stops = [np.argmax(audit_p_values(one, epsilon, delta) <= delta) for one in losses]
    return np.mean(np.array(stops) > 0), np.mean(np.where(stops, stops, n_audits))


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


def verdicts_needed(truth, n_prompts, epsilon, delta):
    """Fewest verdicts with a power of .8 of each design; of betting, on average."""
    a, b, mistaken = (*truth, 0.0)[:3]
    missed = a * (1 - mistaken) + (1 - a) * b
    sizes = np.unique(np.geomspace(prompts_needed(epsilon, delta), n_prompts, 60).astype(int))
    bets = [betting(a, b, n_prompts, n, epsilon, delta) for n in sizes]
    found = {
        "two-phase": [(two_phase_power(a, b, n_prompts, int(n), epsilon, delta), n) for n in sizes],
        "betting": bets,
        "people": list(zip(chance_to_certify(sizes, missed, epsilon, delta), sizes)),
    }
    return {
        design: next((n for power, n in numbers if power >= 0.8), n_prompts)
        for design, numbers in found.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "terms"),
    [
        *((truth, terms) for truth, terms, _ in WORLDS),  # rarely lenient; strict
        ((0.05, 0.01), {"n_prompts": 500, "epsilon": 0.1, "delta": 0.05}),
        ((0.33, 0.005, 0.5), {"n_prompts": 1192, "epsilon": 0.25, "delta": 0.05}),  # very strict
        ((0.02, 0.1), {"n_prompts": 500, "epsilon": 0.2, "delta": 0.05}),  # often lenient
        # admits 3 of 10 wrong responses of hard prompts
        ((0.063, 0.029), {"n_prompts": 400, "epsilon": 0.15, "delta": 0.1}),
    ],
)
def test_small_pilots_name_a_good_design_and_pay_for_themselves(truth, terms):
    """Good takes at most a quarter, or 5, more than the best: about what sizes differ by."""
    rng, n_pilot, n_pilots = np.random.default_rng(1), 50, 100
    needed = verdicts_needed(truth, **terms)
    best = min(needed.values())
    # of a pilot only the counts of its pairs matter
    pilots = Counter(tuple(sorted(zip(*pilot(rng, n_pilot, *truth)))) for _ in range(n_pilots))
    named = Counter()
    for pairs, n in pilots.items():
        named[plan_audits(*zip(*pairs), **terms).design] += n
    good = sum(n for name, n in named.items() if needed[name] <= max(1.25 * best, best + 5))
    # 90 %, as far as so many pilots tell
    assert good >= binom.ppf(0.01, n_pilots, 0.9)
    if needed["people"] > 2 * best:
        # what is saved on people alone, wrong plans included, is more than the pilot takes
        paid = sum(needed[name] * n for name, n in named.items()) / n_pilots
        assert needed["people"] - paid > n_pilot


def test_a_judge_that_is_often_lenient_leaves_no_number():
    plan = plan_audits(*pilot(np.random.default_rng(0), 200, 0.02, 0.2), n_prompts=300, epsilon=0.1)
    assert all(plan.n_audits(name) is None for name in plan.powers)
    assert "no number" in str(plan)
