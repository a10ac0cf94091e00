"""Exit models in files are those that were learnt."""

import functools

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.policies import ExitPolicy
from tests.toy import questions, toy_sampler

N, K = 150, 6


sampler = functools.partial(toy_sampler, k_max=K)


class Halved(LogisticRegression):
    """A logistic regression whose probabilities are its own, which coefficients do not tell."""

    def predict_proba(self, X):
        return super().predict_proba(X) / 2.0


def test_files(tmp_path):
    prompts, references = questions(200)
    one = sampler(policy=ExitPolicy(same_text=0.95)).fit(prompts, references)
    one.save_calibration(tmp_path / "exit.json")
    loaded = sampler(policy=ExitPolicy(same_text=0.95)).load_calibration(tmp_path / "exit.json")
    new, _ = questions(30, first=900)
    assert loaded.predict(new) == one.predict(new)
    for other in (DecisionTreeClassifier(max_depth=3), Halved()):
        fitted = sampler(policy=ExitPolicy(other)).fit(prompts, references)
        with pytest.raises(ValueError, match="must be a logistic regression"):
            fitted.save_calibration(tmp_path / "other.json")
