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


def findings(report):
    return np.array([word in report for word in FINDINGS])


def test_all_labels_must_agree():
    same = label_match(findings)
    assert same("effusion, no more", "an effusion") is True
    assert same("effusion, no more", "an effusion and edema") is False
    assert repr(same) == "label_match(findings)"
    assert pickle.loads(pickle.dumps(same))("edema", "edema!") is True


REFERENCES = ["effusion", "edema", "effusion"]
RESPONSES = [["an effusion", "edema"], ["edema", "an effusion"], ["edema", "nothing"]]
EXPECTED = [[True, False], [True, False], [False, False]]


def test_each_distinct_text_is_labelled_once():
    asked = Counter()

    def labeler(report):
        asked[report] += 1
        return findings(report)

    assert_array_equal(admission_matrix(label_match(labeler), REFERENCES, RESPONSES), EXPECTED)
    assert set(asked) == {"effusion", "edema", "an effusion", "nothing"}
    assert set(asked.values()) == {1}


def test_batched_labeler_gets_one_list():
    asked = []

    def labeler(reports):
        asked.append(list(reports))
        return np.array([findings(report) for report in reports])

    same = label_match(labeler, batched=True)
    assert_array_equal(admission_matrix(same, REFERENCES, RESPONSES), EXPECTED)
    assert len(asked) == 1
    assert len(asked[0]) == len(set(asked[0])) == 4


def test_classifier_is_asked_to_predict():
    texts = ["effusion", "edema", "both effusion edema", "none"]
    labels = [[0, 1], [1, 0], [1, 1], [0, 0]]
    model = make_pipeline(CountVectorizer(), DecisionTreeClassifier(random_state=0))
    model.fit(texts, labels)
    assert_array_equal(
        admission_matrix(label_match(model), ["effusion"], [["effusion effusion", "edema"]]),
        [[True, False]],
    )


def test_workers_change_nothing():
    assert_array_equal(
        admission_matrix(label_match(findings), REFERENCES, RESPONSES, n_jobs=2), EXPECTED
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
    ],
)
def test_labels_may_be_of_any_kind(first, second, equal):
    labels = {"a": first, "b": second}
    assert label_match(labels.__getitem__)("a", "b") is equal


@pytest.mark.parametrize("label", [None, float("nan"), [1.0, float("nan")], [None, 1]])
def test_missing_labels_are_refused(label):
    def labeler(text):
        return label

    with pytest.raises(ValueError, match="labeler"):
        label_match(labeler)("a", "b")


def test_wrong_number_of_labels_and_wrong_types_are_refused():
    def labeler(texts):
        return [1]

    with pytest.raises(ValueError, match="labeler"):
        label_match(labeler, batched=True)("a", "b")
    for wrong in (3, None, DecisionTreeClassifier):
        with pytest.raises(TypeError, match="labeler must"):
            label_match(wrong)


def test_labels_may_be_tensors():
    torch = pytest.importorskip("torch")

    def length(text):
        return torch.tensor(float(len(text)), requires_grad=True)

    assert label_match(length)("ab", "cd") is True
    assert label_match(length)("ab", "c") is False

    def first_letters(texts):
        return torch.tensor([[ord(text[0])] for text in texts])

    assert label_match(first_letters, batched=True)("ab", "ac") is True
    assert label_match(first_letters, batched=True)("ab", "bb") is False
