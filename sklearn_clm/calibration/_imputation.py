"""Labels of the optimisation part where few draws were judged."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._exit_model import fitted, probabilities
from sklearn_clm.calibration._texts import TextPaths, texts_of_draws

_COPIES_DIFFER = 1 / 4  # as often as any two judged texts of a prompt, at most


def impute_labels(
    data: CalibrationData,
    first: np.ndarray,
    known: np.ndarray,
    new_classifier: Callable[[], Any],
    random_state: int = 0,
) -> np.ndarray:
    """Labels for the optimisation part, of shape (n, K), where few draws were judged.

    A classifier on quality, frequency and similarity to judged draws gives each unjudged text a
    probability, and its label is drawn from it, so that shares of admissible texts are right on
    average. Near copies count as one text: their labels are equal in truth, and drawn one by one
    they would look as if each of them could save a set. From which similarity on texts are near
    copies is learnt from the pairs of judged texts.

    Only for the optimisation part: there labels shape the path of the tests, and the guarantee
    needs nothing of them. `known` is 1, 0, or -1 where a draw was not judged.
    """
    first = texts_of_draws(data.similarity, first, same_text_of(data.similarity, first, known))
    known = _shared(known, first)
    paths, present, features = TextPaths.of_all_draws(data.quality, data.similarity, first)
    present, features = present[:, -1], features[:, -1]
    lower = np.tril(np.asarray(data.similarity, dtype=np.float64), -1)
    scaled = paths.similarity_scale(lower + np.swapaxes(lower, 1, 2))
    other = first[:, :, np.newaxis] != first[:, np.newaxis, :]
    nearest = [
        np.max(np.where(other & (known == label)[:, np.newaxis, :], scaled, 0.0), axis=2)
        for label in (0, 1)
    ]
    features = np.concatenate((features, np.stack(nearest, axis=2)), axis=2)
    judged = present & (known >= 0)
    classifier = fitted(new_classifier, features[judged], known[judged] > 0)
    chance = probabilities(classifier, present, features)
    drawn = np.random.default_rng(random_state).random(chance.shape) < chance
    return np.where(known >= 0, known > 0, np.take_along_axis(drawn, first, axis=1))


def same_text_of(similarity: np.ndarray, first: np.ndarray, known: np.ndarray) -> float | None:
    """Similarity above which the labels of two texts agree; None if there is no such.

    Pairs are taken from the most similar on, as long as they differ at most a quarter as often as
    all judged pairs of a prompt do.
    """
    earlier, later = np.triu_indices(first.shape[1], 1)
    judged = (known >= 0) & (first == np.arange(first.shape[1]))  # equal texts are no pair
    pairs = judged[:, earlier] & judged[:, later]
    values = np.asarray(similarity[:, later, earlier][pairs], dtype=np.float64)
    differ = (known[:, earlier] != known[:, later])[pairs]
    if not differ.any():
        return None  # all labels are alike, whatever the similarity
    order = np.argsort(-values, kind="stable")
    values, differ = values[order], differ[order]
    # one that differs before all others, so that a few pairs show nothing
    gain = np.cumsum(_COPIES_DIFFER * differ.mean() - differ) - 1.0
    gain[:-1][values[1:] == values[:-1]] = -np.inf  # those that are as similar stand together
    best = int(gain.argmax())
    return float(np.nextafter(values[best], -np.inf)) if gain[best] >= 0 else None


def _shared(known: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Labels with which unknown draws of a text share the label of its first known draw."""
    shared = known.copy()
    for draw in range(known.shape[1]):
        same = (first == first[:, [draw]]) & (known[:, [draw]] >= 0)
        shared = np.where(same & (shared < 0), known[:, [draw]], shared)
    return shared
