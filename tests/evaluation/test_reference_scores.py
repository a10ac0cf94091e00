import numpy as np
import pytest

from sklearn_clm import ComponentSet, ComponentSets, PredictionSet
from sklearn_clm.evaluation import reference_scores
from sklearn_clm.metrics import component_recall

WORDS = ["lungs", "heart", "clear", "large", "effusion", "normal", "small", "left"]


def sentences(rng, n):
    return [" ".join(rng.choice(WORDS, 4)).capitalize() + "." for _ in range(n)]


def test_thresholding_them_is_the_recall_of_the_selection():
    rng = np.random.default_rng(0)
    references = [" ".join(sentences(rng, rng.integers(1, 4))) for _ in range(30)]
    components = [sentences(rng, rng.integers(0, 5)) for _ in range(30)]
    scores = [np.round(rng.random(len(row)), 1) for row in components]
    best = reference_scores(references, components, scores)
    assert any(np.isinf(row).any() for row in best)
    for gamma in (0.0, 0.4, 0.7, 1.1):
        answer = PredictionSet("Q", ("A.",), [0.9], [0], 1, 0.9, True, True)
        sets = []
        for row, values in zip(components, scores):
            kept = np.flatnonzero(values >= gamma)
            texts = tuple(row[i] for i in kept)
            spans = [[(0, (0, len(text)))] for text in texts]
            sets.append(ComponentSet(texts, list(values[kept]), spans, answer, True))
        expected = component_recall(references, ComponentSets(sets), splitter="sentence")
        assert np.mean([(row >= gamma).mean() for row in best]) == pytest.approx(expected)


def test_no_component_and_no_sentence():
    assert reference_scores(["One. Two."], [[]], [[]])[0].tolist() == [-np.inf, -np.inf]
    assert reference_scores([""], [["One."]], [[0.5]])[0].shape == (0,)


def test_what_belongs_to_no_prompt_is_refused():
    for components, scores in (([["a"], ["b"]], [[1.0]]), ([["a"]], [[1.0, 2.0]])):
        with pytest.raises(ValueError):
            reference_scores(["a"], components, scores)
