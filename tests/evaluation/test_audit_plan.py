"""Planning an audit from a pilot that a model and people have judged."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm.calibration import prompts_needed, two_phase_power
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
    n, other = plan.n_two_phase, plan.n_people
    assert (n < other) == (design == "two-phase")
    reached = two_phase_power(*truth[:2], terms["n_prompts"], n, terms["epsilon"], terms["delta"])
    assert 0.77 < reached < 0.87
    assert str(n) in str(plan)
    assert str(other) in str(plan)
    assert ("People alone are better" in str(plan)) == (design == "people")


def verdicts_needed(truth, n_prompts, epsilon, delta):
    """Fewest verdicts with a power of .8 in two phases, and of people alone."""
    a, b, mistaken = (*truth, 0.0)[:3]
    missed = a * (1 - mistaken) + (1 - a) * b
    sizes = np.unique(np.geomspace(prompts_needed(epsilon, delta), n_prompts, 60).astype(int))
    powers = {
        "two-phase": [two_phase_power(a, b, n_prompts, int(n), epsilon, delta) for n in sizes],
        "people": chance_to_certify(sizes, missed, epsilon, delta),
    }
    return {
        design: int(np.append(sizes, n_prompts)[np.append(np.array(power) >= 0.8, True).argmax()])
        for design, power in powers.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "terms", "design", "share"),
    [
        (*WORLDS[0], 0.9),
        # a pilot of 50 holds 3 prompts that people alone admit, one of five pilots at most one
        (*WORLDS[1], 0.75),
        ((0.05, 0.01), {"n_prompts": 500, "epsilon": 0.1, "delta": 0.05}, "two-phase", 0.9),
        ((0.33, 0.005, 0.5), {"n_prompts": 1192, "epsilon": 0.25, "delta": 0.05}, "people", 0.9),
    ],
)
def test_small_pilots_name_it_and_pay_for_themselves(truth, terms, design, share):
    rng, n_pilot, n_pilots = np.random.default_rng(1), 50, 100
    needed = verdicts_needed(truth, **terms)
    assert min(needed, key=needed.get) == design
    # of a pilot only the counts of its pairs matter
    pilots = Counter(tuple(sorted(zip(*pilot(rng, n_pilot, *truth)))) for _ in range(n_pilots))
    named = Counter()
    for pairs, n in pilots.items():
        named[plan_audits(*zip(*pairs), **terms).design] += n
    # no fewer than this share, as far as so many pilots tell
    assert named[design] >= binom.ppf(0.01, n_pilots, share)
    if design == "two-phase":
        # what is saved on people alone, wrong plans included, is more than the pilot takes
        paid = sum(needed[name] * n for name, n in named.items()) / n_pilots
        assert needed["people"] - paid > n_pilot


def test_a_judge_that_is_often_lenient_leaves_no_number():
    plan = plan_audits(*pilot(np.random.default_rng(0), 200, 0.02, 0.2), n_prompts=300, epsilon=0.1)
    assert plan.n_two_phase is None
    assert plan.n_people is None
    assert "no number" in str(plan)
