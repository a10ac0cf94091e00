"""Draws of classes from the probabilities of a classifier."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import DrawMemory
from sklearn_clm.generators import DrawQueue, EstimatorGenerator

ROWS = np.random.default_rng(0).normal(size=(200, 3))
LABELS = (ROWS[:, 0] + ROWS[:, 1] > 0).astype(int)


@pytest.fixture
def generator():
    return EstimatorGenerator(LogisticRegression()).fit(ROWS, LABELS)


@pytest.mark.parametrize("estimator", [LinearSVC(), Ridge()])
def test_what_gives_no_probabilities_is_refused(estimator):
    says = f"estimator .*{type(estimator).__name__}"
    with pytest.raises(TypeError, match=says):
        ConformalSampler(EstimatorGenerator(estimator)).fit(ROWS, LABELS)
    frozen = FrozenEstimator(clone(estimator).fit(ROWS, LABELS))
    with pytest.raises(TypeError, match=says):
        EstimatorGenerator(frozen).sample(ROWS[:2], 1)


def test_draws_follow_the_probabilities(generator):
    probabilities = generator.estimator_.predict_proba(ROWS)
    rows = generator.sample(ROWS, 20)
    ones = sum(draw.response == 1 for row in rows for draw in row)
    expected = 20 * probabilities[:, 1].sum()
    # a sum of independent draws varies less than a binomial of the mean
    deviation = abs(ones - expected)
    assert deviation < binom.ppf(0.9995, 4000, expected / 4000) - expected
    for row, probability in zip(rows[:20], probabilities):
        for draw in row:
            assert draw.logprob == pytest.approx(np.log(probability[draw.response]))
            assert type(draw.response) is int
            assert draw.n_tokens == 1


def test_texts_as_prompts():
    texts = [f"{word} {i}" for i in range(20) for word in ("good", "bad")]
    estimator = make_pipeline(CountVectorizer(), LogisticRegression(C=100))
    generator = EstimatorGenerator(estimator).fit(texts, ["yes", "no"] * 20)
    draws = generator.sample(["good 99", "bad 98"], 9)
    assert [max(row, key=lambda draw: draw.logprob).response for row in draws] == ["yes", "no"]


def test_a_frozen_classifier_is_used_as_it_is():
    trained = LogisticRegression().fit(ROWS, LABELS)
    generator = EstimatorGenerator(FrozenEstimator(trained))
    assert not hasattr(generator, "fit")
    sampler = sampler_of(generator.estimator).fit(ROWS, LABELS)
    assert sampler.calibration_indices_.tolist() == list(range(200))
    assert sampler.generator_.estimator.estimator is trained
    anew = EstimatorGenerator(trained).fit(ROWS, LABELS)
    assert generator.sample(ROWS, 3) == anew.sample(ROWS, 3)


def test_fitting_leaves_the_parameter_alone(generator):
    assert not hasattr(generator.estimator, "coef_")
    with pytest.raises(NotFittedError):
        EstimatorGenerator(LogisticRegression()).sample(ROWS, 1)


def test_fingerprint(generator):
    same = clone(generator).fit(ROWS, LABELS)
    other = clone(generator).fit(ROWS, 1 - LABELS)
    assert generator.fingerprint() == same.fingerprint()
    small = clone(generator).set_params(batch_size=9).fit(ROWS, LABELS)
    assert small.fingerprint() == generator.fingerprint()
    prints = {each.fingerprint() for each in (generator, other, clone(generator))}
    assert len(prints) == 3


@pytest.mark.parametrize("reference", [["a", "b"], str.isupper, {"a": 1}])
def test_references_that_are_not_classes(reference):
    with pytest.raises(ValueError, match=r"admissions .*position 1"):
        EstimatorGenerator(LogisticRegression()).fit(ROWS[:2], ["a", reference])


@pytest.mark.parametrize(
    "classifier",
    [
        GaussianNB(),
        LogisticRegression(max_iter=50),
        RandomForestClassifier(9, random_state=0),
        KNeighborsClassifier(),
        MLPClassifier((8,), max_iter=20, random_state=0),
        make_pipeline(StandardScaler(), PCA(7), SVC(probability=True, random_state=0)),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_batches_of_one_shape_round_alike(classifier):
    images, digits = load_digits(return_X_y=True)
    generator = EstimatorGenerator(classifier).fit(images[:300], digits[:300])
    rows = images[300:900]
    together = generator.sample(rows, 3)
    order = np.random.default_rng(0).permutation(len(rows))
    assert generator.sample(rows[order], 3) == [together[i] for i in order]
    assert [generator.sample(rows[i : i + 1], 3)[0] for i in range(9)] == together[:9]
    assert generator.sample(rows[7:300], 2, start=1) == [row[1:] for row in together[7:300]]


class Counted(GaussianNB):
    """Counts the rows that it is shown."""

    n_rows = 0

    def predict_proba(self, X):
        Counted.n_rows += len(X)
        return super().predict_proba(X)


def test_a_queue_shows_each_prompt_to_the_classifier_once():
    generator = EstimatorGenerator(Counted(), batch_size=16).fit(ROWS, LABELS)
    rows = generator.sample(ROWS, 6, seed=1)
    Counted.n_rows = 0
    seen = {}
    queue = DrawQueue(
        ROWS,
        6,
        seed=1,
        decide=lambda arrived: [len(seen[index]) + 1 for index, _ in arrived],
        on_draw=lambda i, j, draw: seen.setdefault(i, []).append(draw),
    )
    DrawMemory().serve(generator, queue)
    assert [seen[i] for i in range(len(ROWS))] == rows
    assert Counted.n_rows <= 2 * len(ROWS)


def test_labels_stay_what_they_are():
    generator = EstimatorGenerator(GaussianNB()).fit(ROWS, np.where(LABELS, "+1", "-1"))
    assert generator.gives_labels
    draw = generator.sample(ROWS[:1], 1)[0][0]
    assert draw.response in ("+1", "-1")
    assert draw.token_spans == ((0, 2),)
    numbers = EstimatorGenerator(GaussianNB()).fit(ROWS, LABELS * 10 - 5)
    assert {draw.response for row in numbers.sample(ROWS, 2) for draw in row} == {-5, 5}


def sampler_of(classifier, epsilon=0.4):
    generator = EstimatorGenerator(classifier)
    return ConformalSampler(generator, k_max=3, epsilon=epsilon, random_state=0)


def test_columns_of_a_data_frame_are_numbers():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    with warnings.catch_warnings(action="error"):
        warnings.filterwarnings("ignore", "a single draw errs for")
        sampler = sampler_of(LogisticRegression()).fit(table, LABELS)
        plain = sampler_of(LogisticRegression()).fit(ROWS, LABELS)
    assert sampler.predict(table).responses == plain.predict(ROWS).responses
    with pytest.raises(ValueError, match="one column"):
        sampler_of(LogisticRegression()).fit(table.assign(city="Bern"), LABELS)
    with pytest.raises(TypeError, match="DataFrame"):
        sampler.generator_.sample(table, 1)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("model", [KNeighborsClassifier(), RandomForestClassifier(5)])
def test_a_classifier_whose_state_counts_its_uses_predicts(model, frozen, tmp_path):
    X, y = load_iris(return_X_y=True)
    kind = FrozenEstimator(clone(model).fit(X[::3], y[::3])) if frozen else model
    fitted = sampler_of(kind, 0.3).fit(X, y)
    expected = fitted.predict(X)
    assert fitted.predict(X) == pickle.loads(pickle.dumps(fitted)).predict(X) == expected
    fitted.save_calibration(tmp_path / "calibration.json")
    kept = pickle.loads(pickle.dumps(fitted.generator_))
    loaded = sampler_of(kind, 0.3).set_params(generator=kept)
    loaded.load_calibration(tmp_path / "calibration.json")
    assert loaded.predict(X) == expected
    anew = clone(fitted).set_params(generator__estimator=KNeighborsClassifier(1)).fit(X, y)
    with pytest.raises(ValueError, match="another generator"):
        anew.calibrate(fitted.calibration_data_)


def test_two_forests_without_a_seed_are_two_generators():
    X, y = load_iris(return_X_y=True)
    first = sampler_of(RandomForestClassifier(5), 0.3).fit(X, y)
    with pytest.raises(ValueError, match="another generator"):
        clone(first).fit(X, y).calibrate(first.calibration_data_)
