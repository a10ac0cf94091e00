"""Measures of selected components."""

import math
import pickle

import numpy as np
import pytest

from sklearn_clm import ComponentSelector, ComponentSet, ComponentSets, PredictionSet
from sklearn_clm.metrics import (
    COMPONENT_SCORERS,
    component_loss,
    component_precision,
    component_recall,
)
from tests.reports import ReportModel, cases

REFERENCES = ["The lungs are clear. There is no effusion.", "The heart is large.", ""]
SELECTED = [("Lungs are clear.", "Purple hats fly."), (), ("The heart is large.",)]


def sets(selected=SELECTED):
    answer = PredictionSet("q", (), [], [], 1, 0.0, True, True)
    return ComponentSets(
        [
            ComponentSet(components, [0.5] * len(components), [[]] * len(components), answer, True)
            for components in selected
        ]
    )


def test_loss_and_precision():
    options = {"admission": "rouge_l"}
    loss = component_loss(REFERENCES, sets(), average=False, **options)
    assert loss.tolist() == [True, False, True]
    assert component_loss(REFERENCES, sets(), **options) == pytest.approx(2 / 3)
    precision = component_precision(REFERENCES, sets(), average=False, **options)
    assert np.array_equal(precision, [0.5, np.nan, 0.0], equal_nan=True)
    # the prompt without a selection does not count
    assert component_precision(REFERENCES, sets(), **options) == 0.25
    assert math.isnan(component_precision(REFERENCES, sets([()] * 3), **options))


def test_callables_need_no_admission():
    judges = [lambda text: "purple" not in text.lower()] * 3
    assert component_loss(judges, sets(), average=False).tolist() == [True, False, False]
    assert component_precision(judges, sets()) == 0.75


def test_recall():
    recall = component_recall(REFERENCES, sets(), average=False)
    assert np.array_equal(recall, [0.5, 0.0, np.nan], equal_nan=True)
    assert component_recall(REFERENCES, sets()) == 0.25
    assert component_recall(REFERENCES, sets(), match=lambda part, component: True) == 0.5
    options = {"match": "exact_match", "splitter": lambda text: text.split(".")}
    assert component_recall(REFERENCES, sets(), **options) == 0.25
    best = [REFERENCES[0], ["Nothing of the kind.", "The lungs are clear."], REFERENCES[1]]
    covered = component_recall(best, sets([SELECTED[0], SELECTED[0], SELECTED[2]]), average=False)
    assert covered.tolist() == [0.5, 1.0, 1.0]


def test_the_selector_knows_its_judge_until_it_is_pickled():
    from sklearn_clm import ConformalSampler

    X, y = cases(60)
    sampler = ConformalSampler(ReportModel(), k_max=3, epsilon=0.6, random_state=0)
    selector = ComponentSelector(sampler, alpha=0.6, admission="exact_match").fit(X, y)
    found = selector.predict(X)
    judged = component_loss(y, found)
    assert judged == component_loss(y, found, admission="exact_match")
    scores = {name: scorer(selector, X, y) for name, scorer in COMPONENT_SCORERS.items()}
    assert scores["neg_component_loss"] == -judged
    assert scores["component_count"] == selector.score(X) == found.sizes.mean() > 0
    assert scores["component_precision"] == component_precision(y, found)
    assert scores["component_recall"] == component_recall(y, found)
    with pytest.raises(ValueError, match="admission must"):
        component_loss(y, pickle.loads(pickle.dumps(found)))


def test_bad_input():
    with pytest.raises(TypeError, match="sets must be ComponentSets"):
        component_loss([], [])
    with pytest.raises(ValueError, match="admissions"):
        component_loss(REFERENCES[:2], sets(), admission="rouge_l")
