import pickle
from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from sklearn_clm.scoring import admission_matrix, label_match

FINDINGS = ("fracture", "effusion", "edema")
REFERENCES = ["effusion", "edema", "effusion"]
RESPONSES = [["an effusion", "edema"], ["edema", "an effusion"], ["edema", "nothing"]]
EXPECTED = [[True, False], [True, False], [False, False]]


def findings(report):
    return np.array([word in report for word in FINDINGS])


def test_all_labels_must_agree():
    same = label_match(findings)
    assert same("effusion, no more", "an effusion") is True
    assert same("effusion, no more", "an effusion and edema") is False
    assert repr(same) == "label_match(findings)"
    assert pickle.loads(pickle.dumps(same))("edema", "edema!") is True
    assert_array_equal(admission_matrix(same, REFERENCES, RESPONSES, n_jobs=2), EXPECTED)


def test_each_distinct_text_is_labelled_once():
    asked = Counter()

    def labeler(report):
        asked[report] += 1
        return findings(report)

    class Batched:
        def predict(self, reports):
            return np.array(list(map(labeler, reports)))

    for labels in (labeler, Batched()):
        asked.clear()
        assert_array_equal(admission_matrix(label_match(labels), REFERENCES, RESPONSES), EXPECTED)
        assert asked == dict.fromkeys(["effusion", "edema", "an effusion", "nothing"], 1)


def test_classifier_is_asked_to_predict():
    texts = ["effusion", "edema", "both effusion edema", "none"]
    labels = [[0, 1], [1, 0], [1, 1], [0, 0]]
    model = make_pipeline(CountVectorizer(), DecisionTreeClassifier(random_state=0))
    model.fit(texts, labels)
    assert_array_equal(
        admission_matrix(label_match(model), ["effusion"], [["effusion effusion", "edema"]]),
        [[True, False]],
    )


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("positive", "positive", True),
        (["heart"], ["heart", "lung"], False),
        (set(), set(), True),
        ([], [], True),
        ({"edema": 1}, {"edema": 0}, False),
        (np.array([1, 0]), [1, 0], True),
        ([1, "2"], ["1", 2], False),
    ],
)
def test_labels_may_be_of_any_kind(first, second, equal):
    labels = {"a": first, "b": second}
    assert label_match(labels.__getitem__)("a", "b") is equal


@pytest.mark.parametrize("label", [None, float("nan"), [1.0, float("nan")], [None, 1]])
def test_missing_labels_are_refused(label):
    with pytest.raises(ValueError, match="labeler"):
        label_match(lambda text: label)("a", "b")
    with pytest.raises(TypeError, match="labeler"):
        label_match(3)


def test_labels_may_be_tensors():
    torch = pytest.importorskip("torch")
    first_letters = label_match(lambda text: torch.tensor([ord(text[0]), 1.0]))
    assert first_letters("ab", "ac") is True
    assert first_letters("ab", "bb") is False
