"""Planning an audit from a pilot that a model and people have judged."""

import numpy as np
import pytest

from sklearn_clm.calibration import two_phase_power
from sklearn_clm.evaluation import plan_audits


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


@pytest.mark.slow
@pytest.mark.parametrize(("truth", "terms", "design"), WORLDS)
def test_most_small_pilots_name_it_too(truth, terms, design):
    rng = np.random.default_rng(1)
    plans = [plan_audits(*pilot(rng, 50, *truth), **terms) for _ in range(20)]
    assert sum(plan.design == design for plan in plans) >= 16


def test_a_judge_that_is_often_lenient_leaves_no_number():
    plan = plan_audits(*pilot(np.random.default_rng(0), 200, 0.02, 0.2), n_prompts=300, epsilon=0.1)
    assert plan.n_two_phase is None
    assert plan.n_people is None
    assert "no number" in str(plan)
