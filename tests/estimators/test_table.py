"""The table that tests are given: the sampler makes what is missing, or refuses the data."""

import pytest
from sklearn.base import clone

from sklearn_clm.policies import Losses, ThresholdPolicy
from tests.toy import questions, toy_sampler

OPTIONS = {"k_max": 3, "epsilon": 0.4, "delta": 0.2, "random_state": 0}
PROMPTS, REFERENCES = questions(60)


@pytest.fixture(scope="module")
def data():
    return toy_sampler(**OPTIONS).fit(PROMPTS, REFERENCES).calibration_data_


def cost_of(prompt):
    return 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"losses": Losses({"size": lambda prompt, reference, a_set: 0.0}, {"size": 0.5})},
        {"policy": ThresholdPolicy(cost=cost_of)},
    ],
    ids=["losses", "costs"],
)
def test_what_arrays_do_not_hold_is_asked_of_a_collection(data, options):
    sampler = toy_sampler(**OPTIONS, **options)
    with pytest.raises(ValueError, match=r"what this sampler has collected|all that this sampler"):
        sampler.calibrate(data)
    assert sampler.fit(PROMPTS, REFERENCES).calibration_.certified


def test_a_smaller_budget_has_the_first_draws(data):
    sampler = toy_sampler(**OPTIONS | {"k_max": 2})
    of_first = clone(sampler).calibrate(data.truncate(2))
    assert sampler.calibrate(data).lambda_hat_ == of_first.lambda_hat_ is not None
    with pytest.raises(ValueError, match="k_max must be at most the 3 draws of data"):
        sampler.set_params(k_max=4).calibrate(data)
