"""The model of an exit policy: probabilities of texts, learnt from the optimisation part.

What is learnt here shapes the path of the calibration alone: the guarantee needs nothing of it, and
labels may be wrong, estimated or missing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._tiers import Tiers

TEXT_FEATURES = (
    "share of the draws so far",
    "share above that of the most frequent other text",
    "largest quality",
    "share of texts of higher quality",
    "mean similarity to the other draws",
    "logarithm of the number of draws",
)
ADDED_FEATURES = (
    "probability of being admissible",
    "chance that no text of larger probability is",
    "largest similarity to these",
    "largest product of similarity and probability of these",
    "largest quality",
)
ARRIVAL_FEATURES = (
    "largest probability of a text",
    "sum of the probabilities of all texts",
    "share of distinct texts among the draws",
    "logarithm of the number of draws",
    "share of the budget that is left",
)

N_FOLDS = 5  # of the cross-fitting

_KNOTS = 65
_COPIES_DIFFER = 1 / 4  # as often as any two judged texts of a prompt, at most
_RHOS = np.geomspace(0.02, 20.0, 31)


class Classifier(Protocol):
    """What estimates a probability: a fitted classifier as in scikit-learn."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray: ...


class ScoreScale:
    """Empirical distribution function of scores, through a few ascending quantiles, `knots`.

    Features on this scale lie in [0, 1], whatever the unit of a score, infinite ones included.
    """

    def __init__(self, knots: np.ndarray) -> None:
        self.knots = np.asarray(knots, dtype=np.float64)

    @classmethod
    def of(cls, values: np.ndarray) -> "ScoreScale":
        ordered = np.sort(values, axis=None)
        if not len(ordered):
            return cls(np.zeros(1))
        places = np.linspace(0, len(ordered) - 1, min(_KNOTS, len(ordered))).round()
        return cls(ordered[places.astype(np.intp)])

    def __call__(self, values: np.ndarray) -> np.ndarray:
        # the mean of both sides, so that scores that are all equal lie in the middle
        below = np.searchsorted(self.knots, values, side="left")
        upto = np.searchsorted(self.knots, values, side="right")
        return (below + upto) / (2.0 * len(self.knots))


class TextPaths:
    """The distinct texts of n prompts, as their draws arrive one by one.

    All arithmetic is row by row and in the order of the draws: the same bits in any batch.
    """

    def __init__(
        self,
        n_prompts: int,
        k_max: int,
        quality_scale: ScoreScale,
        similarity_scale: ScoreScale,
        tiers: Tiers | None = None,
    ) -> None:
        shape = (n_prompts, k_max)
        self.tiers = tiers
        self.quality_scale, self.similarity_scale = quality_scale, similarity_scale
        self.k_max = k_max
        self.n_draws = np.zeros(n_prompts, dtype=np.intp)
        # a text is named by the draw in which it occurs first
        self.first = np.zeros(shape, dtype=np.intp)
        self.counts = np.zeros(shape)
        self.quality = np.zeros(shape)
        self.similarity = np.zeros(shape)  # sum over draws of other texts
        self.alike = np.zeros((*shape, k_max), dtype=np.float32)  # similarities of texts

    @classmethod
    def of(
        cls, quality: np.ndarray, similarity: np.ndarray, tiers: Tiers | None = None
    ) -> "TextPaths":
        """Empty paths of prompts whose scores make the scales."""
        n_prompts, k_max = quality.shape
        earlier, later = np.triu_indices(k_max, 1)
        of_similarity = ScoreScale.of(similarity[:, later, earlier])
        return cls(n_prompts, k_max, ScoreScale.of(quality), of_similarity, tiers)

    def after_each_draw(
        self, quality: np.ndarray, similarity: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`text_features` after each draw of all prompts: (n, K, K) and (n, K, K, f)."""
        rows = np.arange(len(quality))
        present = np.zeros((len(rows), self.k_max, self.k_max), dtype=bool)
        features = np.zeros((*present.shape, n_text_features(self.tiers)))
        for k in range(self.k_max):
            self.update(rows, quality[:, k], similarity[:, k], first[:, k])
            present[:, k], features[:, k] = self.text_features(rows)
        return present, features

    def update(
        self, rows: np.ndarray, quality: np.ndarray, similarity: np.ndarray, first: np.ndarray
    ) -> None:
        """Take the next draw of each of the prompts at `rows`, each at most once.

        `similarity`, of shape (m, at least the draws so far), is that to earlier draws, and `first`
        the draw in which the text occurred first: the draw itself where it is new.
        """
        draw = self.n_draws[rows]
        self.first[rows, draw] = first
        new = first == draw
        scaled = self.quality_scale(quality)
        self.quality[rows, first] = np.where(
            new, scaled, np.maximum(scaled, self.quality[rows, first])
        )
        self.counts[rows, first] += 1.0
        earlier = np.arange(int(draw.max(initial=0)))
        there = earlier < draw[:, np.newaxis]
        texts = self.first[rows, : len(earlier)]
        scores = np.asarray(similarity[:, : len(earlier)], dtype=np.float64)
        alike = np.where(there, self.similarity_scale(scores), 0.0)
        # a new text meets all earlier draws; one by one, so that any batch rounds sums alike
        met = np.cumsum(alike, axis=1)[:, -1:].sum(axis=1)
        self.similarity[rows, draw] += np.where(new, met, 0.0)
        # ... and every other text one draw more, at its first occurrence
        other = np.where(there & (texts == earlier) & (texts != first[:, np.newaxis]), alike, 0.0)
        at = rows[:, np.newaxis]
        self.similarity[at, earlier] += other
        pair = np.where(new[:, np.newaxis], other, 0.0)
        self.alike[at, draw[:, np.newaxis], earlier] = pair
        self.alike[at, earlier, draw[:, np.newaxis]] = pair
        self.n_draws[rows] += 1

    def grow(self, n_prompts: int) -> None:
        """Make room for `n_prompts` prompts more."""
        for name in ("n_draws", "first", "counts", "quality", "similarity", "alike"):
            array = getattr(self, name)
            more = np.zeros((n_prompts, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate((array, more)))

    def clear(self, row: int) -> None:
        """Forget the draws of the prompt at `row`, so that it can stand for another."""
        self.n_draws[row] = 0
        for array in (self.first, self.counts, self.quality, self.similarity, self.alike):
            array[row] = 0

    def text_features(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which draws bring a new text, (m, K), and its :data:`TEXT_FEATURES`, (m, K, 6).

        With tiers, the share of the text in each and :func:`_depth` come after them.
        """
        counts, quality = self.counts[rows], self.quality[rows]
        present = counts > 0
        draws = self.n_draws[rows][:, np.newaxis].astype(np.float64)
        share = counts / draws
        ordered = np.sort(counts, axis=1)
        most, second = ordered[:, -1:], ordered[:, -2:-1] if counts.shape[1] > 1 else 0.0
        rival = np.where(counts == most, second, most)
        texts = np.sum(present, axis=1, keepdims=True)
        ranked = np.where(present, quality, -1.0)
        higher = np.sum(ranked[:, np.newaxis, :] > ranked[:, :, np.newaxis], axis=2)
        others = draws - counts
        found = [
            share,
            share - rival / draws,
            quality,
            higher / texts,
            self.similarity[rows] / np.maximum(others, 1.0),
            np.broadcast_to(np.log(draws), share.shape),
        ]
        if self.tiers is not None:
            found += self._shares_in_tiers(rows, self.tiers)
            depth = _depth(self.n_draws[rows], self.tiers)[:, np.newaxis]
            found += [np.broadcast_to(one, share.shape) for one in np.moveaxis(depth, -1, 0)]
        return present, np.stack(found, axis=2)

    def _shares_in_tiers(self, rows: np.ndarray, tiers: Tiers) -> list[np.ndarray]:
        """The share of each text among the draws of each tier, (m, K); 0 where none was made."""
        made = np.arange(self.k_max) < self.n_draws[rows][:, np.newaxis]
        of_draw, counts = tiers.of_draw[: self.k_max], tiers.counts(self.n_draws[rows])
        shares = []
        for tier in range(counts.shape[1]):
            at, draws = np.nonzero(made & (of_draw == tier))
            found = np.zeros(made.shape)
            np.add.at(found, (at, self.first[rows][at, draws]), 1.0)
            shares.append(found / np.maximum(counts[:, [tier]], 1))
        return shares


def n_text_features(tiers: Tiers | None) -> int:
    """Number of features of a text."""
    return len(TEXT_FEATURES) + (0 if tiers is None else 2 * len(tiers.prices) - 1)


def n_arrival_features(tiers: Tiers | None) -> int:
    """Number of features of what is to come."""
    n = len(ARRIVAL_FEATURES)
    return n + (n * (n + 1) // 2 if tiers is None else len(tiers.prices) - 1)


def _depth(n_draws: np.ndarray, tiers: Tiers) -> np.ndarray:
    """Logarithm of one more than the draws made in each tier but the first, on a last axis."""
    return np.log1p(tiers.counts(n_draws)[..., 1:])


def _added_features(chance: np.ndarray, features: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """:data:`ADDED_FEATURES`, (m, K, 5).

    `chance`, (m, K), are probabilities of being admissible, -inf where there is no text; `features`
    are :data:`TEXT_FEATURES`, (m, K, 6), and `alike` similarities of texts, (m, K, K).
    """
    certain = np.clip(chance, 0.0, 1.0 - 1e-6)
    order = np.argsort(-chance, axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    right = np.take_along_axis(certain, order, axis=1)
    none_before = np.cumprod(1.0 - right, axis=1)
    none_before = np.concatenate((np.ones((len(right), 1)), none_before[:, :-1]), axis=1)
    above = rank[:, np.newaxis, :] < rank[:, :, np.newaxis]
    nearest = np.where(above, alike, np.float32(0.0))
    found = (
        certain,
        np.take_along_axis(none_before, rank, axis=1),
        nearest.max(axis=2),
        (nearest * certain[:, np.newaxis, :]).max(axis=2),
        features[:, :, TEXT_FEATURES.index("largest quality")],
    )
    return np.stack(found, axis=2)


def _arrival_features(
    n_texts: np.ndarray, n_draws: np.ndarray, text: np.ndarray, k_max: int, tiers: Tiers | None
) -> np.ndarray:
    """:data:`ARRIVAL_FEATURES` given p_k(c), (..., K), -inf where there is no text.

    Their products come after them; with tiers :func:`_depth`, since few draws are of a dear one.
    """
    found = np.maximum(text, 0.0)
    # one by one, so that any batch rounds sums alike
    total = np.cumsum(found, axis=-1)[..., -1]
    draws = np.broadcast_to(n_draws, total.shape).astype(np.float64)
    single = (found.max(axis=-1), total, n_texts / draws, np.log(draws), 1.0 - draws / k_max)
    features = np.stack(single, axis=-1)
    if tiers is not None:
        return np.concatenate((features, _depth(draws, tiers)), axis=-1)
    one, other = (features[..., of] for of in np.triu_indices(len(single)))
    return np.concatenate((features, one * other), axis=-1)


def horizons(
    n_draws: np.ndarray, k_max: int, look_ahead: int, tiers: Tiers | None
) -> tuple[np.ndarray, np.ndarray]:
    """Up to which draws an arrival is waited for after so many, and the price of these: (h, ...).

    With tiers up to the first draw that is left of each, since further ones of a tier are no
    likelier than that to bring the first admissible text, and cost as much. The price of none is
    infinite, and the dearest draw's is 1.
    """
    if tiers is None:
        return (n_draws + look_ahead)[np.newaxis], np.ones((1, *n_draws.shape))
    stops = np.stack([np.maximum(n_draws, start) + 1 for start in tiers.starts[:-1]])
    ends = np.minimum(tiers.starts[1:], k_max).reshape(-1, *[1] * n_draws.ndim)
    prices = (tiers.price_of(stops) - tiers.price_of(n_draws)) / max(tiers.prices)
    return stops, np.where(stops <= ends, prices, np.inf)


@dataclass(frozen=True)
class ExitModel:
    """What was learnt on the optimisation part; `seen` are digests of its prompts."""

    text_classifier: Classifier  # gives the probability of being admissible
    added_classifier: Classifier | None  # gives p_k(c); None where that is the same
    arrival_classifiers: tuple[Classifier, ...]  # give g_k, one for each horizon
    quality_scale: ScoreScale
    similarity_scale: ScoreScale
    rho: float
    k_max: int
    tiers: Tiers | None = None
    same_text: float | None = None  # similarity above which a response repeats an earlier text
    seen: np.ndarray | None = field(default=None, repr=False)

    def paths(self, n_prompts: int) -> TextPaths:
        """Empty paths of `n_prompts` prompts."""
        scales = self.quality_scale, self.similarity_scale
        return TextPaths(n_prompts, self.k_max, *scales, self.tiers)

    def probabilities(self, paths: TextPaths, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p_k(c) of shape (m, K), -inf where there is no text, and g_k of shape (m,)."""
        present, features = paths.text_features(rows)
        text = _probabilities(self.text_classifier, present, features)
        if self.added_classifier is not None:
            added = _added_features(text, features, paths.alike[rows])
            text = _probabilities(self.added_classifier, present, added)
        draws = paths.n_draws[rows]
        features = _arrival_features(present.sum(axis=1), draws, text, self.k_max, self.tiers)
        chances = [probability(one, features) for one in self.arrival_classifiers]
        _, prices = horizons(draws, self.k_max, 1, self.tiers)
        return text, np.max(chances / prices, axis=0)


def counted(before: np.ndarray, text: np.ndarray, after: np.ndarray) -> np.ndarray:
    """min(m_{k-1}, p_k(c)) where that is above m_k; -inf elsewhere."""
    values = np.minimum(before[..., np.newaxis], text)
    return np.where(values > after[..., np.newaxis], values, -np.inf)


def exit_scores(text: np.ndarray, arrival: np.ndarray, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """tau and m, both (n, K), from p_k(c) after each draw k, (n, K, K), and g_k, (n, K)."""
    exits = np.minimum.accumulate(arrival / rho, axis=1)
    exits[:, -1] = -np.inf
    before = np.concatenate((np.full((len(exits), 1), np.inf), exits[:, :-1]), axis=1)
    return counted(before, text, exits).max(axis=1), exits


def labels_by_last(first: np.ndarray) -> np.ndarray:
    """Labels of all draws but the last, (n, K - 1), as if each prompt's last were its reference."""
    return np.asarray(first[:, :-1] == first[:, -1:], dtype=np.int8)


def fit_exit_model(
    quality: np.ndarray,
    similarity: np.ndarray,
    first: np.ndarray,
    admissible: np.ndarray,
    *,
    new_classifier: Callable[[], Any],
    epsilon: float,
    look_ahead: int = 4,
    draw_price: float = 0.1,
    tiers: Tiers | None = None,
    random_state: int = 0,
) -> ExitModel:
    """Learn the probabilities and choose rho, on the optimisation part alone.

    `first` is the draw in which each draw's text occurs first; `admissible` is 1 or 0, see
    :func:`impute_labels`, or all -1 where no label is known. An admissible text is waited for
    `look_ahead` draws. rho is that of the lowest mean size and draws, at their price, at risk
    `epsilon`.

    *Without labels* each prompt's last draw stands for its reference: a text among the others is
    admissible if it is that one, so that the share of a text is its chance.

    *Two stages.* The first one learns from every text whether it is admissible. Texts are ranked by
    what it gives, and the second one learns what a text adds: that it is admissible, and none
    ranked above it is. Probabilities from which something is learnt, or rho is chosen, are
    cross-fitted: those of a prompt come from models that have not seen it. Where the labels are all
    alike, or prompts are too few for folds, the probabilities are constants, and the policy orders
    texts by when they arrived.
    """
    n, k_max = quality.shape
    if k_max > 1 and np.all(admissible < 0):
        seen = slice(k_max - 1)
        model = fit_exit_model(
            quality[:, seen],
            similarity[:, seen, seen],
            first[:, seen],
            labels_by_last(first),
            new_classifier=new_classifier,
            epsilon=epsilon,
            look_ahead=look_ahead,
            draw_price=draw_price,
            tiers=tiers,
            random_state=random_state,
        )
        return replace(model, k_max=k_max)
    rng, everybody = np.random.default_rng(random_state), np.ones(n, dtype=bool)
    paths = TextPaths.of(quality, similarity, tiers)
    present, features = paths.after_each_draw(quality, similarity, first)
    folds = rng.permutation(n) % max(min(N_FOLDS, n), 1)
    # after the first draws each one more tells much, later ones little
    moments = np.unique(np.geomspace(1, k_max, 8).round().astype(np.intp)) - 1
    taught = np.zeros_like(present)
    taught[:, moments] = present[:, moments]
    labels = admissible > 0
    of_texts = np.broadcast_to(labels[:, np.newaxis, :], present.shape)
    texts = Learner(new_classifier, features, of_texts, taught)
    chance = texts.cross_fitted(folds, present)
    added = np.stack(
        [_added_features(chance[:, k], features[:, k], paths.alike) for k in range(k_max)], axis=1
    )
    adding = Learner(new_classifier, added, _highest(chance, labels), taught)
    text = adding.cross_fitted(folds, present)
    draws = np.arange(1, k_max + 1)
    stops, prices = horizons(draws, k_max, look_ahead, tiers)
    so_far = _arrival_features(present.sum(axis=2), draws, text, k_max, tiers)
    arrivals = [
        Learner(
            new_classifier,
            so_far,
            _arrives(labels, stop),
            np.broadcast_to(np.isfinite(price), (n, k_max)),
        )
        for stop, price in zip(stops, prices)
    ]
    everywhere = np.ones((n, k_max), dtype=bool)
    chances = [one.cross_fitted(folds, everywhere) for one in arrivals]
    arrival = np.max(chances / prices[:, np.newaxis], axis=0)
    costs = draws if tiers is None else tiers.price_of(draws)
    return ExitModel(
        texts.classifier(everybody),
        adding.classifier(everybody),
        tuple(one.classifier(everybody) for one in arrivals),
        paths.quality_scale,
        paths.similarity_scale,
        rho=_best_rho(text, arrival, labels, epsilon, draw_price * costs),
        k_max=k_max,
        tiers=tiers,
    )


@dataclass
class Learner:
    """Learns labels from features, of shape (..., f), the first axis of which counts prompts."""

    new_classifier: Callable[[], Any]
    features: np.ndarray
    labels: np.ndarray
    taught: np.ndarray  # where there is something to learn from

    def classifier(self, members: np.ndarray) -> Classifier:
        """What is learnt from some prompts, bool of shape (n,)."""
        rows = self.taught.copy()
        rows[~members] = False
        return fitted(self.new_classifier, self.features[rows], self.labels[rows])

    def cross_fitted(self, folds: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Probabilities where there is something, those of a fold learnt from the others."""
        found = np.full(present.shape, -np.inf)
        for fold in np.unique(folds):
            held = folds == fold
            classifier = self.classifier(~held)
            found[held] = _probabilities(classifier, present[held], self.features[held])
        return found


class ConstantClassifier:
    """The classifier of labels that are all alike, or of none."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        share = np.full(len(X), self.probability)
        return np.stack((1.0 - share, share), axis=1)


def fitted(
    new_classifier: Callable[[], Any], features: np.ndarray, labels: np.ndarray
) -> Classifier:
    """A classifier of some rows; a constant one where their labels are all alike."""
    n_positive = int(np.sum(labels))
    if 0 < n_positive < len(labels):
        classifier: Classifier = new_classifier().fit(features, labels)
        return classifier
    return ConstantClassifier((n_positive + 0.5) / (len(labels) + 1.0))


def probability(classifier: Classifier, features: np.ndarray) -> np.ndarray:
    """Probability of the second class; a row's does not depend on other rows."""
    coefficients = getattr(classifier, "coef_", None)
    if coefficients is not None and np.shape(coefficients) == (1, features.shape[1]):
        terms = features * coefficients[0]
        terms[:, :1] += classifier.intercept_  # type: ignore[attr-defined]
        # term by term: a matrix product may round a row otherwise in another batch
        return 1.0 / (1.0 + np.exp(-np.cumsum(terms, axis=1)[:, -1]))
    if not len(features):
        return np.empty(0)
    found = np.asarray(classifier.predict_proba(features))[:, 1]
    return np.round(found, 6)


def _probabilities(classifier: Classifier, present: np.ndarray, features: np.ndarray) -> np.ndarray:
    found = np.full(present.shape, -np.inf)
    found[present] = probability(classifier, features[present])
    return found


def _highest(chance: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether each text is the admissible one of largest chance so far; the first of equals."""
    ranked = np.where(labels[:, np.newaxis, :], chance, -np.inf)
    highest = np.zeros(chance.shape, dtype=bool)
    np.put_along_axis(highest, ranked.argmax(axis=2, keepdims=True), True, axis=2)
    return highest & np.isfinite(ranked)


def completed(
    admissible: np.ndarray, first: np.ndarray, chance: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Labels in which unknown ones are drawn from their probability, equal texts alike."""
    drawn = rng.random(admissible.shape) < chance
    of_text = np.take_along_axis(drawn, first, axis=1)
    return np.where(admissible >= 0, admissible > 0, of_text)


def _arrives(labels: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Whether a first admissible draw comes after draw k, before draw `stops`[k]: (n, K)."""
    k_max = labels.shape[1]
    first = np.where(labels.any(axis=1), labels.argmax(axis=1), np.max(stops))[:, np.newaxis]
    return (first > np.arange(k_max)) & (first < stops)


def _best_rho(
    text: np.ndarray, arrival: np.ndarray, labels: np.ndarray, epsilon: float, costs: np.ndarray
) -> float:
    """The rho of lowest cost, at the level where it errs for a share epsilon.

    `costs`, of shape (K,), are those of the first so many draws.
    """
    n = len(labels)
    best, lowest = float(_RHOS[0]), np.inf
    for rho in _RHOS:
        tau, exits = exit_scores(text, arrival, rho)
        found = np.where(labels, tau, -np.inf).max(axis=1)
        level = np.partition(found, int(epsilon * n))[int(epsilon * n)]
        stops = np.sum(exits[:, :-1] >= level, axis=1)
        price = float(np.sum(tau >= level) + np.sum(costs[stops]))
        if price < lowest:
            best, lowest = float(rho), price
    return best


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
    paths, rows = TextPaths.of(data.quality, data.similarity), np.arange(data.n_prompts)
    for k in range(data.k_max):
        paths.update(rows, data.quality[:, k], data.similarity[:, k], first[:, k])
    present, features = paths.text_features(rows)
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
    chance = _probabilities(classifier, present, features)
    return completed(known, first, chance, np.random.default_rng(random_state))


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


def texts_of_draws(
    similarity: np.ndarray, first: np.ndarray, same_text: float | None
) -> np.ndarray:
    """Draw in which each draw's text occurs first, near duplicates counted as one: (n, K)."""
    texts = np.empty_like(first)
    for j in range(first.shape[1]):
        texts[:, j] = text_of_draw(texts[:, :j], first[:, j], similarity[:, j], same_text)
    return texts


def text_of_draw(
    texts: np.ndarray, first: np.ndarray, similarity: np.ndarray, same_text: float | None
) -> np.ndarray:
    """Draw in which the text of the next draw occurs first, near duplicates counted as one.

    Of m prompts with j draws each, `texts`, of shape (m, j), says the same for these. `first` is
    the draw that holds an equal response first, j where there is none. A response repeats the
    earliest text to which its similarity is above `same_text`; clusters do not chain.
    """
    j = texts.shape[1]
    own = np.concatenate((texts, np.full((len(texts), 1), j)), axis=1)
    found = own[np.arange(len(texts)), first]
    if same_text is None:
        return found
    alike = (texts == np.arange(j)) & (similarity[:, :j].astype(np.float64) > same_text)
    # a column for none of them
    alike = np.concatenate((alike, np.ones((len(texts), 1), dtype=bool)), axis=1)
    return np.where(first == j, alike.argmax(axis=1), found)
