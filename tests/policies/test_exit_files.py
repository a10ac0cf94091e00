"""Exit models in files are those that were learnt."""

import functools

import pytest
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.policies import ExitPolicy
from tests.toy import questions, toy_sampler

N, K = 150, 6


sampler = functools.partial(toy_sampler, k_max=K)


def test_files(tmp_path):
    prompts, references = questions(200)
    one = sampler(policy=ExitPolicy(same_text=0.95)).fit(prompts, references)
    one.save_calibration(tmp_path / "exit.json")
    loaded = sampler(policy=ExitPolicy(same_text=0.95)).load_calibration(tmp_path / "exit.json")
    new, _ = questions(30, first=900)
    assert loaded.predict(new) == one.predict(new)
    tree = sampler(policy=ExitPolicy(DecisionTreeClassifier(max_depth=3))).fit(prompts, references)
    with pytest.raises(ValueError, match="must be a logistic regression"):
        tree.save_calibration(tmp_path / "tree.json")
