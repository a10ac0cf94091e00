"""Exit models: what they learn from odd data, and give a prompt alone or among others."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._texts import same_text_of
from sklearn_clm.calibration.exit_model import fit_exit_model, is_logistic, probability
from tests.calibration.tables import exit_scores_of


def questions(rng, n, k=8, n_answers=6):
    """Prompts whose frequent answers tend to be right, some of them hopeless."""
    logits = rng.normal(0, rng.choice([0.5, 2.5], (n, 1)), (n, n_answers))
    share = np.exp(logits)
    share /= share.sum(axis=1, keepdims=True)
    answers = np.stack([rng.choice(n_answers, k, p=row) for row in share])
    right = np.array([rng.choice(n_answers + 1, p=[*(0.9 * row), 0.1]) for row in share])
    same = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
    quality = np.take_along_axis(share, answers, axis=1)
    return quality, np.where(same, 1.0, 0.2), same.argmax(axis=2), answers == right[:, np.newaxis]


def scores_of(model, quality, similarity, first):
    data = CalibrationData(quality, similarity, np.ones(first.shape), texts=first)
    return exit_scores_of(model, data)


def model_of(quality, similarity, first, labels, **options):
    options = {"new_classifier": LogisticRegression, "epsilon": 0.3, **options}
    data = CalibrationData(quality, similarity, labels.astype(np.int8), texts=first)
    return fit_exit_model(data, **options)


def learnt(rng, n=120, **options):
    return model_of(*questions(rng, n), **options)


@pytest.mark.parametrize(
    "new_classifier", [LogisticRegression, lambda: DecisionTreeClassifier(max_depth=3)]
)
def test_a_prompt_scores_the_same_alone_and_among_others(new_classifier):
    rng = np.random.default_rng(0)
    model = learnt(rng, new_classifier=new_classifier)
    quality, similarity, first, _ = questions(rng, 40)
    tau, exits = scores_of(model, quality, similarity, first)
    for i in range(0, 40, 7):
        alone = scores_of(model, quality[i : i + 1], similarity[i : i + 1], first[i : i + 1])
        assert np.array_equal(alone[0][0], tau[i])
        assert np.array_equal(alone[1][0], exits[i])


class Halved(LogisticRegression):
    """A logistic regression whose probabilities are its own."""

    def predict_proba(self, X):
        return super().predict_proba(X) / 2.0


@pytest.mark.parametrize(
    ("classifier", "by_coefficients"),
    [
        (LogisticRegression(), True),
        (LogisticRegressionCV(Cs=2, cv=2), True),
        (SGDClassifier(loss="log_loss", random_state=0), True),
        (SGDClassifier(loss="modified_huber", random_state=0), False),
        (Halved(), False),
        (DecisionTreeClassifier(max_depth=3), False),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_probabilities_are_those_of_the_classifier(classifier, by_coefficients):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    classifier.fit(features, rng.normal(size=200) < features.sum(axis=1))
    assert is_logistic(classifier) == by_coefficients
    expected = classifier.predict_proba(features)[:, 1]
    np.testing.assert_allclose(probability(classifier, features), expected, atol=1e-12)


@pytest.mark.parametrize("label", [0, 1, -1])
def test_labels_that_are_all_alike_or_unknown(label):
    rng = np.random.default_rng(0)
    quality, similarity, first, _ = questions(rng, 10)
    model = model_of(quality, similarity, first, np.full(first.shape, label))
    tau, _ = scores_of(model, quality, similarity, first)
    assert np.all(np.isfinite(tau[first == np.arange(8)]))


def test_one_prompt_and_one_draw():
    first = np.zeros((1, 1), dtype=np.intp)
    model = model_of(np.ones((1, 1)), np.zeros((1, 1, 1)), first, np.ones((1, 1)))
    tau, exits = scores_of(model, np.ones((1, 1)), np.zeros((1, 1, 1)), first)
    assert np.isfinite(tau).all()
    assert exits.tolist() == [[-np.inf]]


def test_infinite_scores_are_scores():
    rng = np.random.default_rng(0)
    quality, similarity, first, admissible = questions(rng, 60)
    quality[::3, 1], similarity[::2] = np.inf, -np.inf
    model = model_of(quality, similarity, first, admissible)
    assert not np.isnan(scores_of(model, quality, similarity, first)[0]).any()


@pytest.mark.parametrize("noise", [1e-16, 1e-9])
@pytest.mark.parametrize("same_text", [None, "learnt"])
def test_last_digits_of_scores_change_no_feature(noise, same_text):
    """Knots of scales, and the similarity from which on texts are one, stand between scores."""
    rng = np.random.default_rng(0)
    seen = questions(rng, 120)
    quality, similarity, first, admissible = (np.concatenate((one, one)) for one in seen)

    def noisy(scores):
        return scores * (1 + noise * rng.normal(size=scores.shape))

    model = model_of(noisy(quality), noisy(similarity), first, admissible)
    if same_text is not None:
        distinct = np.tile(np.arange(8), (len(first), 1))
        least = same_text_of(noisy(similarity), distinct, admissible.astype(np.int8))
        assert 0.2 < least < 1 - 1e-3
        model = replace(model, same_text=least)
    scores = (scores_of(model, noisy(quality), noisy(similarity), first) for _ in range(2))
    for one, other in zip(*scores):
        assert np.array_equal(one, other)


def test_a_text_counts_for_what_it_adds_to_better_ones():
    # both texts of a prompt are right, or neither: the second one adds nothing
    rng = np.random.default_rng(0)
    quality, first = np.tile([0.9, 0.1], (400, 1)), np.tile([0, 1], (400, 1))
    right = np.tile(rng.random((400, 1)) < 0.7, 2)
    options = {"new_classifier": lambda: LogisticRegression(C=1e4), "epsilon": 0.4}
    model = model_of(quality, np.zeros((400, 2, 2)), first, right, **options)
    paths, rows = model.paths(1), np.array([0])
    for k in range(2):
        paths.update(rows, quality[:1, k], np.zeros((1, 2)), first[:1, k])
    text, _ = model.probabilities(paths, rows)
    high, low = max(text[0]), min(text[0])  # either may be the one that counts
    assert high > 0.6
    assert low < 0.05
