"""The model of an exit policy: probabilities of texts.

The probabilities are learnt from the optimisation part, and shape the path of the calibration
alone: the guarantee needs nothing of them, and labels may be wrong, estimated or missing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from sklearn_clm.calibration._texts import (
    TEXT_FEATURES,
    ScoreScale,
    TextPaths,
    same_text_of,
    texts_of_draws,
)
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tiers import Tiers

_N_FOLDS = 5  # of the cross-fitting
_RHOS = np.geomspace(0.02, 20.0, 31)  # from "waits long" to "stops at once"
_AROUND = np.linspace(0.5, 1.2, 8)  # of epsilon: where the cost of a rho is measured


class Classifier(Protocol):
    """What gives the probability of two classes."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities of both classes for each row."""


class Learner(Classifier, Protocol):
    """A classifier that is still to learn."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Learn from rows of features and labels."""


def _added_features(chance: np.ndarray, features: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """How texts compare with more probable ones, (m, K, 5).

    The features are the probability, the chance that no text of a larger one is admissible, the
    largest similarity to these, the largest product of similarity and probability of these, and the
    largest quality.

    `chance`, (m, K), are probabilities of being admissible, -inf where there is no text; `features`
    are :data:`TEXT_FEATURES`, (m, K, 6), and `alike` similarities of texts, (m, K, K).
    """
    # never quite 1, so that a product of chances to be wrong never stays at 0
    probability_of_text = np.clip(chance, 0.0, 1.0 - 1e-6)
    order = np.argsort(-chance, axis=1, kind="stable")
    rank = np.argsort(order, axis=1)

    # the chance that no text of higher rank is admissible, as if they were independent
    ranked_chance_wrong = 1.0 - np.take_along_axis(probability_of_text, order, axis=1)
    none_up_to = np.cumprod(ranked_chance_wrong, axis=1)
    none_before_first = np.ones((len(chance), 1))
    none_before = np.concatenate((none_before_first, none_up_to[:, :-1]), axis=1)

    is_above = rank[:, np.newaxis, :] < rank[:, :, np.newaxis]
    alike_above = np.where(is_above, alike, np.float32(0.0))
    alike_and_right = alike_above * probability_of_text[:, np.newaxis, :]
    columns = (
        probability_of_text,
        np.take_along_axis(none_before, rank, axis=1),
        alike_above.max(axis=2),
        alike_and_right.max(axis=2),
        features[:, :, TEXT_FEATURES.index("largest quality")],
    )
    return np.stack(columns, axis=2)


def _arrival_features(
    n_texts: np.ndarray, n_draws: np.ndarray, text: np.ndarray, k_max: int, tiers: Tiers | None
) -> np.ndarray:
    """What tells of texts to come, from p_k(c) so far.

    `text`, (..., K), holds p_k(c), -inf where there is no text. The features are the largest of
    these, their sum, the share of distinct texts among the draws, the logarithm of the number of
    draws, and the share of the budget that is left. Their products come after them; with tiers, of
    whose dear ones there are few draws to learn from, the depth of the draws in each instead.
    """
    chance_of_text = np.maximum(text, 0.0)
    # one by one, so that any batch rounds sums alike
    total_chance = np.cumsum(chance_of_text, axis=-1)[..., -1]
    draws = np.broadcast_to(n_draws, total_chance.shape).astype(np.float64)
    columns = (
        chance_of_text.max(axis=-1),
        total_chance,
        n_texts / draws,
        np.log(draws),
        1.0 - draws / k_max,
    )
    features = np.stack(columns, axis=-1)
    if tiers is not None:
        return np.concatenate((features, tiers.depth(draws)), axis=-1)
    first_factor, second_factor = np.triu_indices(len(columns))
    products = features[..., first_factor] * features[..., second_factor]
    return np.concatenate((features, products), axis=-1)


def horizons(
    n_draws: np.ndarray, k_max: int, look_ahead: int, tiers: Tiers | None
) -> tuple[np.ndarray, np.ndarray]:
    """Draws up to which an arrival is awaited, and prices.

    Both have shape (h, ...), one row for each horizon. The price is that of the draws from
    `n_draws` to the horizon, where the dearest draw has the price 1. With tiers there is a horizon
    for each tier, up to its first draw that is left: further draws of a tier are no likelier to
    bring the first admissible text, and cost as much. A tier without a draw left has an infinite
    price.
    """
    if tiers is None:
        stops = n_draws + look_ahead
        return stops[np.newaxis], np.ones((1, *n_draws.shape))
    stops_by_tier = []
    is_left_by_tier = []
    for start, end in zip(tiers.starts[:-1], tiers.starts[1:]):
        stop = np.maximum(n_draws, start) + 1
        stops_by_tier.append(stop)
        is_left_by_tier.append(stop <= min(end, k_max))
    stops = np.stack(stops_by_tier)
    is_left = np.stack(is_left_by_tier)
    price_from_here = tiers.price_of(stops) - tiers.price_of(n_draws)
    prices = price_from_here / max(tiers.prices)
    return stops, np.where(is_left, prices, np.inf)


class TextModel(ABC):
    """Protocol of what scores texts, draw by draw."""

    @abstractmethod
    def paths(self, n_prompts: int) -> TextPaths:
        """Empty paths of `n_prompts` prompts."""

    @abstractmethod
    def probabilities(self, paths: TextPaths, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p_k(c), (m, K), -inf without a text, and g_k, (m,)."""

    def after_next_draw(
        self, table: Table, at: np.ndarray, paths: TextPaths, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities after the next draw of some prompts.

        The prompts stand at `at` in the table, and at `rows` in the paths.
        """
        draw = paths.n_draws[rows]
        table.ensure(at, draw + 1)
        quality = table.data.quality[at, draw]
        similarity = table.data.similarity[at, draw]
        paths.update(rows, quality, similarity, table.texts[at, draw])
        return self.probabilities(paths, rows)


@dataclass(frozen=True)
class ExitModel(TextModel):
    """What was learnt on the optimisation part."""

    text_classifier: Classifier  # gives the probability of being admissible
    added_classifier: Classifier | None  # gives p_k(c); None where that is the same
    arrival_classifiers: tuple[Classifier, ...]  # give g_k, one for each horizon
    quality_scale: ScoreScale
    similarity_scale: ScoreScale
    rho: float
    k_max: int
    tiers: Tiers | None = None
    same_text: float | None = None  # similarity above which a response repeats an earlier text
    # digests of the prompts of that part
    seen: np.ndarray | None = field(default=None, repr=False)

    tells_losses: ClassVar[bool] = False  # levels are found on the prompts that are tested

    def paths(self, n_prompts: int) -> TextPaths:
        return TextPaths(
            n_prompts,
            self.k_max,
            self.quality_scale,
            self.similarity_scale,
            self.tiers,
            self.same_text,
        )

    def probabilities(self, paths: TextPaths, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # p_k(c): that a text is admissible, and then that it adds something to better ones
        present, features = paths.text_features(rows)
        chance = probabilities(self.text_classifier, present, features)
        if self.added_classifier is not None:
            added_features = _added_features(chance, features, paths.alike[rows])
            chance = probabilities(self.added_classifier, present, added_features)

        # g_k: that a first admissible text arrives, per price, by the best horizon
        n_draws = paths.n_draws[rows]
        n_texts = present.sum(axis=1)
        so_far = _arrival_features(n_texts, n_draws, chance, self.k_max, self.tiers)
        arrivals = [probability(classifier, so_far) for classifier in self.arrival_classifiers]
        _, prices = horizons(n_draws, self.k_max, 1, self.tiers)
        return chance, np.max(arrivals / prices, axis=0)


def tau_after_draw(before: np.ndarray, text: np.ndarray, after: np.ndarray) -> np.ndarray:
    """min(m_{k-1}, p_k(c)) where that is above m_k; -inf elsewhere."""
    values = np.minimum(before[..., np.newaxis], text)
    return np.where(values > after[..., np.newaxis], values, -np.inf)


def exit_scores(text: np.ndarray, arrival: np.ndarray, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """tau and m, both (n, K), from p_k(c) and g_k.

    `text` holds p_k(c) after each draw k, (n, K, K), and `arrival` g_k, (n, K).
    """
    exits = np.minimum.accumulate(arrival / rho, axis=1)
    exits[:, -1] = -np.inf  # after the last draw nothing is waited for
    # m_{k-1}, where m_0 = +inf: sampling never stops before the first draw
    before_first = np.full((len(exits), 1), np.inf)
    before = np.concatenate((before_first, exits[:, :-1]), axis=1)
    return tau_after_draw(before, text, exits).max(axis=1), exits


def with_references(data: CalibrationData) -> CalibrationData:
    """The data; without labels, last draws stand for references.

    The last draw of a prompt is then no draw any more. A text among the others is admissible if it
    equals this reference, which happens as often as the text is drawn.
    """
    if data.k_max == 1 or np.any(data.labels >= 0):
        return data
    right = data.first[:, :-1] == data.first[:, -1:]
    # the reference itself would always be admissible
    return data.truncate(data.k_max - 1).with_labels(right.astype(np.int8))


def fit_exit_model(
    data: CalibrationData,
    *,
    new_classifier: Callable[[], Learner],
    epsilon: float,
    look_ahead: int = 4,
    draw_price: float = 0.1,
    tiers: Tiers | None = None,
) -> ExitModel:
    """Learn probabilities and choose rho, on the optimisation part alone.

    Labels are all known, or none is. An admissible text is waited for `look_ahead` draws. rho is
    that of the lowest mean size and draws, at their price, at risks of about `epsilon`.

    *Two stages.* The first one learns from every text whether it is admissible. Texts are ranked by
    what it gives, and the second one learns what a text adds: that it is admissible, and none
    ranked above it is. Probabilities from which something is learnt, or rho is chosen, are
    cross-fitted: those of a prompt come from models that have not seen it. Where the labels are all
    alike, or prompts are too few for folds, the probabilities are constants, and the policy orders
    texts by when they arrived.
    """
    in_use = data.k_max
    data = with_references(data)
    n, k_max = data.quality.shape
    learn = partial(learnt, new_classifier, folds_of(n))
    labels = data.admissible
    # the features of every text after every draw, which both stages learn from
    paths, present, features = TextPaths.of_all_draws(
        data.quality, data.similarity, data.first, tiers
    )
    # after the first draws each one more tells much, later ones little
    numbers_of_draws = np.geomspace(1, k_max, 8).round().astype(np.intp)
    moments = np.unique(numbers_of_draws) - 1
    taught = np.zeros_like(present)
    taught[:, moments] = present[:, moments]

    # first stage: whether a text is admissible
    of_texts = np.broadcast_to(labels[:, np.newaxis, :], present.shape)
    text_classifier, chance = learn(features, of_texts, taught, present)

    # second stage: whether it is so, and none ranked above it
    after_each_draw = [
        _added_features(chance[:, k], features[:, k], paths.alike) for k in range(k_max)
    ]
    added_features = np.stack(after_each_draw, axis=1)
    adds = _best_admissible(chance, labels)
    added_classifier, chance_to_add = learn(added_features, adds, taught, present)

    # how likely a first admissible text arrives within the next draws
    n_texts = present.sum(axis=2)
    arrival_classifiers, arrival = _learnt_arrivals(
        learn, labels, n_texts, chance_to_add, look_ahead, tiers
    )

    draws = np.arange(1, k_max + 1)
    costs = draws if tiers is None else tiers.price_of(draws)
    return ExitModel(
        text_classifier=text_classifier,
        added_classifier=added_classifier,
        arrival_classifiers=arrival_classifiers,
        quality_scale=paths.quality_scale,
        similarity_scale=paths.similarity_scale,
        rho=_best_rho(chance_to_add, arrival, labels, epsilon, draw_price * costs),
        k_max=in_use,
        tiers=tiers,
    )


def _learnt_arrivals(
    learn: Callable[..., tuple[Classifier, np.ndarray]],
    labels: np.ndarray,
    n_texts: np.ndarray,
    chance_to_add: np.ndarray,
    look_ahead: int,
    tiers: Tiers | None,
) -> tuple[tuple[Classifier, ...], np.ndarray]:
    """Classifiers of arrivals, by horizon, and cross-fitted g_k, (n, K).

    `learn` is :func:`learnt` with its first two arguments. `n_texts`, (n, K), are distinct texts
    after each draw, and `chance_to_add`, (n, K, K), holds p_k(c).
    """
    n, k_max = labels.shape
    draws = np.arange(1, k_max + 1)
    so_far = _arrival_features(n_texts, draws, chance_to_add, k_max, tiers)
    stops, prices = horizons(draws, k_max, look_ahead, tiers)
    every_moment = np.ones((n, k_max), dtype=bool)
    classifiers = []
    chances = []
    for stop, price in zip(stops, prices):
        # of a tier that is used up nothing is learnt
        has_draws = every_moment & np.isfinite(price)
        arrives = _arrives(labels, stop)
        classifier, chance_of_arrival = learn(so_far, arrives, has_draws, every_moment)
        classifiers.append(classifier)
        chances.append(chance_of_arrival)
    # per price, by the best horizon
    return tuple(classifiers), np.max(chances / prices[:, np.newaxis], axis=0)


def folds_of(n_prompts: int) -> np.ndarray:
    """The fold of each prompt in cross-fitting."""
    return np.random.default_rng(0).permutation(n_prompts) % max(min(_N_FOLDS, n_prompts), 1)


def learnt(
    new_classifier: Callable[[], Learner],
    folds: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    taught: np.ndarray,
    present: np.ndarray,
) -> tuple[Classifier, np.ndarray]:
    """A classifier, and cross-fitted probabilities.

    The probabilities of a fold come from a classifier of the other folds. The first axis of all
    arrays counts prompts. A classifier learns where `taught`, and is asked where `present`.
    """
    chances = np.full(present.shape, -np.inf)
    for fold in np.unique(folds):
        is_held_out = folds == fold
        taught_by_others = taught.copy()
        taught_by_others[is_held_out] = False
        of_others = fitted(new_classifier, features[taught_by_others], labels[taught_by_others])
        held_features = features[is_held_out]
        chances[is_held_out] = probabilities(of_others, present[is_held_out], held_features)
    return fitted(new_classifier, features[taught], labels[taught]), chances


class ConstantClassifier:
    """The classifier of labels that are alike, or of none."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        share = np.full(len(X), self.probability)
        return np.stack((1.0 - share, share), axis=1)


def fitted(
    new_classifier: Callable[[], Learner], features: np.ndarray, labels: np.ndarray
) -> Classifier:
    """A classifier of rows; constant where labels are all alike."""
    # with one class alone scikit-learn's classifiers refuse, or give one column
    n_positive = int(np.sum(labels))
    if 0 < n_positive < len(labels):
        return new_classifier().fit(features, labels)
    # never 0 or 1: so few labels do not prove a certainty
    return ConstantClassifier((n_positive + 0.5) / (len(labels) + 1.0))


def is_logistic(classifier: Any) -> bool:
    """Whether coefficients alone give the probability of two classes."""
    # by name, since nothing here imports scikit-learn. A subclass may have a `predict_proba` of its
    # own, and so have linear classifiers of other losses: these are asked for theirs
    kind = type(classifier)
    if not kind.__module__.startswith("sklearn.linear_model."):
        return False
    if kind.__name__ in ("LogisticRegression", "LogisticRegressionCV"):
        # older releases can fit two classes as if they were many, with other log-odds
        is_of_two = getattr(classifier, "multi_class", "ovr") != "multinomial"
    else:
        is_of_two = kind.__name__ == "SGDClassifier" and classifier.loss == "log_loss"
    return is_of_two and len(classifier.coef_) == 1


def probability(classifier: Any, features: np.ndarray) -> np.ndarray:
    """Probability of the second class."""
    if is_logistic(classifier):
        terms = features * classifier.coef_[0]
        terms[:, :1] += classifier.intercept_
        # term by term: a matrix product may round a row otherwise in another batch
        log_odds = np.cumsum(terms, axis=1)[:, -1]
        return 1.0 / (1.0 + np.exp(-log_odds))
    if not len(features):
        return np.empty(0)
    # its last digits may depend on the batch, and levels stand between probabilities
    return np.asarray(classifier.predict_proba(features))[:, 1]


def probabilities(classifier: Classifier, present: np.ndarray, features: np.ndarray) -> np.ndarray:
    """:func:`probability` where there is something, -inf elsewhere."""
    chances = np.full(present.shape, -np.inf)
    chances[present] = probability(classifier, features[present])
    return chances


def _best_admissible(chance: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which admissible text has the largest chance so far."""
    # admissible texts that rank below another admissible one add nothing to a set
    chance_of_right = np.where(labels[:, np.newaxis, :], chance, -np.inf)
    place_of_largest = chance_of_right.argmax(axis=2, keepdims=True)  # of equals the first
    is_largest = np.zeros(chance.shape, dtype=bool)
    np.put_along_axis(is_largest, place_of_largest, True, axis=2)
    # where no text so far is admissible, the largest is none
    return is_largest & np.isfinite(chance_of_right)


def _arrives(labels: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Whether the first admissible draw follows k, before `stops`[k]."""
    draws = np.arange(labels.shape[1])
    # without an admissible draw the first one lies beyond all horizons
    has_admissible = labels.any(axis=1)
    first = np.where(has_admissible, labels.argmax(axis=1), np.max(stops))
    first_of_prompt = first[:, np.newaxis]
    return (first_of_prompt > draws) & (first_of_prompt < stops)


def _best_rho(
    text: np.ndarray, arrival: np.ndarray, labels: np.ndarray, epsilon: float, costs: np.ndarray
) -> float:
    """The rho of lowest cost where errors are about epsilon.

    `costs`, of shape (K,), are those of the first so many draws. A few prompts tell little of one
    level, and the level that a test allows errs less: logarithms of costs are averaged.
    """
    n = len(labels)
    n_errors = np.minimum(epsilon * n * _AROUND, n - 1).astype(np.intp)
    # of each rho the mean, over levels of about epsilon, of the logarithm of what sets cost
    mean_log_price = np.zeros(len(_RHOS))
    for place, rho in enumerate(_RHOS):
        tau, exits = exit_scores(text, arrival, rho)
        # the prompts of the smallest V err at a level: that of rank e leaves e errors
        v_of_prompts = np.where(labels, tau, -np.inf).max(axis=1)
        levels = np.sort(v_of_prompts)[n_errors]
        for level in levels:
            stops = np.sum(exits[:, :-1] >= level, axis=1)
            total_price = np.sum(tau >= level) + np.sum(costs[stops])
            mean_log_price[place] += np.log(total_price) / len(levels)
    return float(_RHOS[mean_log_price.argmin()])


def impute_labels(
    data: CalibrationData,
    first: np.ndarray,
    labels: np.ndarray,
    new_classifier: Callable[[], Learner],
    random_state: int = 0,
) -> np.ndarray:
    """All labels of the optimisation part, where few were judged.

    A classifier on quality, frequency and similarity to judged draws gives each unjudged text a
    probability, and its label is drawn from it, so that shares of admissible texts are right on
    average. Near copies count as one text: their labels are equal in truth, and drawn one by one
    they would look as if each of them could save a set. From which similarity on texts are near
    copies is learnt from the pairs of judged texts.

    Only for the optimisation part: there labels shape the path of the tests, and the guarantee
    needs nothing of them. `labels`, (n, K), are 1, 0, or -1 where a draw was not judged.
    """
    same_text = same_text_of(data.similarity, first, labels)
    first = texts_of_draws(data.similarity, first, same_text)
    labels = _labels_of_texts(labels, first)

    # features after the last draw
    paths, present_after, features_after = TextPaths.of_all_draws(
        data.quality, data.similarity, first
    )
    present = present_after[:, -1]
    # similarity is known to earlier draws alone: each pair counts for both of its texts
    to_earlier = np.tril(data.similarity, -1)
    to_all = to_earlier + np.swapaxes(to_earlier, 1, 2)
    scaled = paths.similarity_scale(to_all)
    # a text is no evidence about itself
    is_other_text = first[:, :, np.newaxis] != first[:, np.newaxis, :]
    nearest = []
    for label in (0, 1):
        has_label = (labels == label)[:, np.newaxis, :]
        to_judged = np.where(is_other_text & has_label, scaled, 0.0)
        nearest.append(to_judged.max(axis=2))
    features_of_judged = np.stack(nearest, axis=2)
    features = np.concatenate((features_after[:, -1], features_of_judged), axis=2)

    # learnt from judged texts, asked about the others
    is_judged = present & (labels >= 0)
    classifier = fitted(new_classifier, features[is_judged], labels[is_judged] > 0)
    chance = probabilities(classifier, present, features)
    # drawn, not rounded: shares of admissible texts would otherwise be too extreme
    drawn = np.random.default_rng(random_state).random(chance.shape) < chance
    drawn_of_text = np.take_along_axis(drawn, first, axis=1)
    return np.where(labels >= 0, labels > 0, drawn_of_text)


def _labels_of_texts(labels: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Labels, unknown ones by another draw of their text."""
    # a judge was asked about one draw of a text, not always the first: its verdict is one on all
    of_texts = labels.copy()
    for draw in range(labels.shape[1]):
        label = labels[:, [draw]]
        is_same_text = first == first[:, [draw]]
        takes_label = is_same_text & (label >= 0) & (of_texts < 0)
        of_texts = np.where(takes_label, label, of_texts)
    return of_texts
