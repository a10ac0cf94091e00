"""Exit policy: one nested level decides when to stop and what to return.

After k draws a model gives, for each distinct text c seen so far, the probability p_k(c) that c is
admissible and no text of higher quality is, and g_k, the chance that a first admissible text
arrives within the next few draws. So p_k(c) is what c adds to a set of better texts: where several
texts tend to be right together, the second one adds little.
With m_k = min(m_{k-1}, g_k / rho), m_0 = +inf and m_K = -inf,

    tau(c) = max over k of { v = min(m_{k-1}, p_k(c)) : v > m_k },

the set at level u is {c : tau(c) >= u}, and sampling stops at the first k with m_k < u.

*The sets are nested, and use only what was seen up to the stop.* Let k* be the stop at level u, so
that m_k >= u for all k < k*, and m_{k*} < u. A text counts through a draw k > k* only by
v <= m_{k-1} <= m_{k*} < u, which does not reach u. So tau(c) >= u is decided at the stop, and a
lower u keeps every member.

*The level is calibrated without a search.* Let V_i be the largest tau_i(c) over the admissible
texts of prompt i (-inf where there is none). The set at level u misses prompt i if and only if
V_i < u. The model comes from other prompts, so the V_i are independent and identically
distributed, and the risk at u is P(V < u). Take the (c + 1)-th smallest V for u-hat, where c is
the largest count with P(Binom(n, epsilon) <= c) <= delta. Let u* be the supremum of the levels of
risk at most epsilon; the risk is continuous from the left, so it is at most epsilon at u* too.
If u-hat > u*, then at most c of the V_i are <= u*, though P(V <= u*) >= epsilon: an event of
probability at most P(Binom(n, epsilon) <= c) <= delta. Nothing is searched, so nothing is
corrected for, and every epsilon is answered from the same V.

*Marginally*, V_1, ..., V_n and that of a new prompt are exchangeable: the new one falls below the
(c + 1)-th smallest of the others with probability at most (c + 1) / (n + 1), which is at most
epsilon for c = floor((n + 1) epsilon) - 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sklearn_clm.calibration._data import row_digests

TEXT_FEATURES = (
    "share of the draws so far",
    "share above that of the most frequent other text",
    "largest quality",
    "share of texts of higher quality",
    "mean similarity to the other draws",
    "logarithm of the number of draws",
)
ARRIVAL_FEATURES = (
    "largest probability of a text",
    "second largest",
    "share of distinct texts among the draws",
    "logarithm of the number of draws",
    "share of the budget that is left",
)

_KNOTS = 65
_RHOS = np.geomspace(0.02, 20.0, 31)


class Classifier(Protocol):
    """What estimates a probability: a classifier as in scikit-learn."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> object: ...

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

    All arithmetic is row by row and in the order of the draws, so that a prompt's features are
    the same bit for bit whichever prompts are looked at together.
    """

    def __init__(
        self, n_prompts: int, k_max: int, quality_scale: ScoreScale, similarity_scale: ScoreScale
    ) -> None:
        shape = (n_prompts, k_max)
        self.quality_scale, self.similarity_scale = quality_scale, similarity_scale
        self.k_max = k_max
        self.n_draws = np.zeros(n_prompts, dtype=np.intp)
        # a text is named by the draw in which it occurs first
        self.first = np.zeros(shape, dtype=np.intp)
        self.counts = np.zeros(shape)
        self.quality = np.zeros(shape)
        self.similarity = np.zeros(shape)  # sum over draws of other texts

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
        for earlier in range(int(draw.max(initial=0))):
            # draw by draw, so that sums are rounded alike for one prompt and for many
            there = earlier < draw
            text = self.first[rows, earlier]
            alike = self.similarity_scale(np.asarray(similarity[:, earlier], dtype=np.float64))
            # a new text meets all earlier draws ...
            self.similarity[rows, draw] += np.where(there & new, alike, 0.0)
            # ... and every other text one draw more, at its first occurrence
            other = there & (text == earlier) & (text != first)
            self.similarity[rows, earlier] += np.where(other, alike, 0.0)
        self.n_draws[rows] += 1

    def grow(self, n_prompts: int) -> None:
        """Make room for `n_prompts` prompts more."""
        shape = (n_prompts, self.k_max)
        self.n_draws = np.concatenate((self.n_draws, np.zeros(n_prompts, dtype=np.intp)))
        self.first = np.concatenate((self.first, np.zeros(shape, dtype=np.intp)))
        for name in ("counts", "quality", "similarity"):
            setattr(self, name, np.concatenate((getattr(self, name), np.zeros(shape))))

    def clear(self, row: int) -> None:
        """Forget the draws of the prompt at `row`, so that it can stand for another."""
        self.n_draws[row] = 0
        for array in (self.first, self.counts, self.quality, self.similarity):
            array[row] = 0

    def text_features(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which draws of prompts with any bring a new text, (m, K), and its features, (m, K, 6).

        The features are :data:`TEXT_FEATURES`, and arbitrary where there is no new text.
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
        features = np.stack(
            (
                share,
                share - rival / draws,
                quality,
                higher / texts,
                self.similarity[rows] / np.maximum(others, 1.0),
                np.broadcast_to(np.log(draws), share.shape),
            ),
            axis=2,
        )
        return present, features

    def arrival_features(self, rows: np.ndarray, text: np.ndarray) -> np.ndarray:
        """:data:`ARRIVAL_FEATURES`, given p_k(c) at the first occurrence of each text, (m, K)."""
        n_texts = np.sum(self.counts[rows] > 0, axis=1)
        return _arrival_features(n_texts, self.n_draws[rows], text, self.k_max)


def _arrival_features(
    n_texts: np.ndarray, n_draws: np.ndarray, text: np.ndarray, k_max: int
) -> np.ndarray:
    """:data:`ARRIVAL_FEATURES` of shape (..., 5) for probabilities `text` of shape (..., K)."""
    ordered = np.sort(np.maximum(text, 0.0), axis=-1)
    second = ordered[..., -2] if k_max > 1 else np.zeros(ordered.shape[:-1])
    draws = np.broadcast_to(n_draws, second.shape).astype(np.float64)
    features = ordered[..., -1], second, n_texts / draws, np.log(draws), 1.0 - draws / k_max
    return np.stack(features, axis=-1)


@dataclass(frozen=True)
class ExitModel:
    """What was learnt on the optimisation part.

    Parameters
    ----------
    text_classifier : Classifier
        Probability that a text is admissible and none of higher quality is, from its features.
    arrival_classifier : Classifier
        Chance that a first admissible text arrives within the next draws.
    quality_scale, similarity_scale : ScoreScale
        Scales of the scores.
    rho : float
        The chance of arrival is divided by it: a larger one stops earlier.
    k_max : int
        Budget of draws K.
    seen : ndarray of uint64, shape (n,), (n, 1) or (n, 2), or None
        Digests by which the n prompts that it was learnt from are known again, of their scores and
        of the prompts themselves, as far as these are known; None where nothing is.
    """

    text_classifier: Classifier
    arrival_classifier: Classifier
    quality_scale: ScoreScale
    similarity_scale: ScoreScale
    rho: float
    k_max: int
    seen: np.ndarray | None = field(default=None, repr=False)

    def paths(self, n_prompts: int) -> TextPaths:
        """Empty paths of `n_prompts` prompts."""
        return TextPaths(n_prompts, self.k_max, self.quality_scale, self.similarity_scale)

    def probabilities(self, paths: TextPaths, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p_k(c) of shape (m, K), -inf where there is no text, and g_k of shape (m,)."""
        text = _text_probabilities(self.text_classifier, *paths.text_features(rows))
        arrival = probability(self.arrival_classifier, paths.arrival_features(rows, text))
        return text, arrival

    def scores(
        self, quality: np.ndarray, similarity: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """tau of every text and m after every draw, from all K draws.

        Parameters
        ----------
        quality : ndarray of shape (n, K)
        similarity : ndarray of shape (n, K, K)
        first : ndarray of int, shape (n, K)
            Draw in which each draw's text occurs first.

        Returns
        -------
        tau : ndarray of shape (n, K)
            At the first occurrence of each text; -inf elsewhere.
        exits : ndarray of shape (n, K)
            m_k after draw k.
        """
        found = ExitScores(self, len(quality))
        rows = np.arange(len(quality))
        for k in range(self.k_max):
            found.update(rows, quality[:, k], similarity[:, k], first[:, k])
        return found.tau, found.exits


class ExitScores:
    """tau and m of prompts, as their draws are made.

    `tau`, of shape (n, K), is as :func:`exit_scores` gives it, and -inf where the draws so far do
    not tell; `exits` holds m_k after draw k, and -inf after the last and for draws not made.
    """

    def __init__(self, model: ExitModel, n_prompts: int) -> None:
        self.tau, self.exits = np.full((2, n_prompts, model.k_max), -np.inf)
        self._model, self._paths = model, model.paths(n_prompts)

    @property
    def n_draws(self) -> np.ndarray:
        """Draws made of each prompt."""
        return self._paths.n_draws

    @property
    def last(self) -> np.ndarray:
        """m_k after the last draw made; +inf before the first."""
        return self._before(np.arange(len(self.tau)))

    def _before(self, rows: np.ndarray) -> np.ndarray:
        k = self.n_draws[rows]
        return np.where(k > 0, self.exits[rows, k - 1], np.inf)

    def update(
        self, rows: np.ndarray, quality: np.ndarray, similarity: np.ndarray, first: np.ndarray
    ) -> None:
        """Take the next draw of each of the prompts at `rows`, as :meth:`TextPaths.update`."""
        before, k = self._before(rows), self.n_draws[rows]
        self._paths.update(rows, quality, similarity, first)
        text, arrival = self._model.probabilities(self._paths, rows)
        after = np.minimum(before, arrival / self._model.rho)
        after[k == self._model.k_max - 1] = -np.inf
        self.exits[rows, k] = after
        values = np.minimum(before[:, np.newaxis], text)
        counted = np.where(values > after[:, np.newaxis], values, -np.inf)
        self.tau[rows] = np.maximum(self.tau[rows], counted)


def exit_scores(text: np.ndarray, arrival: np.ndarray, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """tau and m from the probabilities after each draw.

    Parameters
    ----------
    text : ndarray of shape (n, K, K)
        p_k(c): [i, k, c] for the text that occurs first in draw c, after draw k; -inf elsewhere.
    arrival : ndarray of shape (n, K)
        g_k.
    rho : float
        Divides `arrival`, > 0.

    Returns
    -------
    tau : ndarray of shape (n, K)
        At the first occurrence of each text; -inf elsewhere.
    exits : ndarray of shape (n, K)
        m_k after draw k; -inf for the last.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import exit_scores
    >>> text = np.array([[[0.5, -np.inf], [0.3, 0.9]]])
    >>> tau, exits = exit_scores(text, np.array([[0.4, 0.0]]), rho=1.0)
    >>> tau, exits
    (array([[0.5, 0.4]]), array([[ 0.4, -inf]]))
    """
    exits = np.minimum.accumulate(arrival / rho, axis=1)
    exits[:, -1] = -np.inf
    before = np.concatenate((np.full((len(exits), 1), np.inf), exits[:, :-1]), axis=1)
    values = np.minimum(before[:, :, np.newaxis], text)
    counted = np.where(values > exits[:, :, np.newaxis], values, -np.inf)
    return counted.max(axis=1), exits


class ExitRule:
    """The exit policy for one prompt at one level: feed it probabilities until it says stop.

    Parameters
    ----------
    level : float
        u.
    rho : float
        Divides the chance of arrival, > 0.
    k_max : int
        Budget of draws, >= 1.

    Attributes
    ----------
    members : list of int
        Texts of the set so far, named by the draw in which they occur first.
    n_samples : int
        Draws seen.
    exit : float
        m_k.
    stopped : bool
        Whether the exit fell below the level, as opposed to the budget being used up.

    Examples
    --------
    >>> from sklearn_clm.calibration import ExitRule
    >>> rule = ExitRule(level=0.45, rho=1.0, k_max=2)
    >>> rule.update([0.5], 0.4)
    True
    >>> rule.members, rule.n_samples, rule.stopped
    ([0], 1, True)
    """

    def __init__(self, level: float, rho: float, k_max: int) -> None:
        if k_max < 1:
            raise ValueError(f"k_max must be at least 1, got {k_max!r} instead.")
        self.level, self.rho, self.k_max = level, rho, k_max
        self.members: list[int] = []
        self.n_samples = 0
        self.exit = np.inf
        self.stopped = False

    @property
    def done(self) -> bool:
        """Whether no further draw is wanted."""
        return self.stopped or self.n_samples >= self.k_max

    def update(self, text: "np.ndarray | list[float]", arrival: float) -> bool:
        """Take the probabilities after the next draw.

        Parameters
        ----------
        text : sequence of float
            p_k(c) at the first occurrence of each text; -inf elsewhere.
        arrival : float
            g_k.

        Returns
        -------
        bool
            Whether to stop.

        Raises
        ------
        RuntimeError
            If the rule had already stopped.
        """
        if self.done:
            raise RuntimeError("the exit rule has stopped; it takes no further draw")
        before, self.n_samples = self.exit, self.n_samples + 1
        last = self.n_samples == self.k_max
        self.exit = -np.inf if last else min(before, float(arrival) / self.rho)
        for c, chance in enumerate(text):
            value = min(before, float(chance))
            if value >= self.level and value > self.exit and c not in self.members:
                self.members.append(c)
        self.stopped = self.exit < self.level and not last
        return self.done


def exit_level(scores: np.ndarray, n_errors: int) -> float:
    """The level with at most `n_errors` calibration errors.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        V_i: for each prompt the largest tau of an admissible text; -inf where there is none.
    n_errors : int
        c, the most errors that a test of the n prompts allows; negative where it allows none.

    Returns
    -------
    float
        u-hat, the (c + 1)-th smallest score; -inf for null.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import exit_level
    >>> exit_level(np.array([0.9, 0.2, 0.7, 0.4]), n_errors=1)
    0.4
    """
    if n_errors < 0:
        return -np.inf
    return float(np.partition(scores, n_errors)[n_errors])


def draws_asked_for(exits: np.ndarray, scores: np.ndarray, level: float) -> np.ndarray:
    """Draws that finding the level asks for, prompt by prompt.

    Texts are judged in falling order of tau. Which texts reach a level u is known at the stop at u,
    and a prompt with a witness at V_i > u-hat is settled there: so its draws end at the stop at
    V_i, and those of the other prompts at the stop at u-hat.

    Parameters
    ----------
    exits : ndarray of shape (n, K)
        m_k after draw k.
    scores : ndarray of shape (n,)
        V_i, or -inf for those below the level.
    level : float
        u-hat.

    Returns
    -------
    ndarray of int, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import draws_asked_for
    >>> exits = np.array([[0.9, 0.5, -np.inf], [0.9, 0.5, -np.inf]])
    >>> draws_asked_for(exits, np.array([0.95, -np.inf]), level=0.4)
    array([1, 3])
    """
    settled = np.maximum(scores, level)
    return 1 + np.sum(exits[:, :-1] >= settled[:, np.newaxis], axis=1)


def fit_exit_model(
    quality: np.ndarray,
    similarity: np.ndarray,
    first: np.ndarray,
    admissible: np.ndarray,
    *,
    new_classifier: Callable[[], Classifier],
    epsilon: float,
    look_ahead: int = 4,
    n_folds: int = 5,
    cost: Callable[[np.ndarray, np.ndarray, np.ndarray], float] | None = None,
    random_state: int = 0,
) -> ExitModel:
    """Learn the probabilities and choose rho, on the optimisation part alone.

    Probabilities that choose rho are cross-fitted: those of a prompt come from models that have
    not seen it. Where the labels are all alike, or prompts are too few for folds, the
    probabilities are constants, and the policy orders texts by when they arrived.

    Parameters
    ----------
    quality : ndarray of shape (n, K)
    similarity : ndarray of shape (n, K, K)
    first : ndarray of int, shape (n, K)
        Draw in which each draw's text occurs first.
    admissible : ndarray of int8, shape (n, K)
        1, 0, or -1 where the label is unknown.
    new_classifier : callable
        Gives an unfitted classifier.
    epsilon : float
        Risk for which rho is chosen.
    look_ahead : int, default=4
        How many draws ahead an admissible text is waited for.
    n_folds : int, default=5
        Folds of the cross-fitting.
    cost : callable, default=None
        ``cost(sizes, samples, first admissible draw) -> float``, each of shape (n,); the last
        counts from 1, and is 0 where no draw is admissible. None is the mean size plus the mean
        share of the budget that is drawn.
    random_state : int, default=0
        Seed of the folds, and of the labels that stand in for unknown ones.

    Returns
    -------
    ExitModel
        The model.
    """
    n, k_max = quality.shape
    rng = np.random.default_rng(random_state)
    earlier, later = np.triu_indices(k_max, 1)
    scales = ScoreScale.of(quality), ScoreScale.of(similarity[:, later, earlier])
    paths, rows = TextPaths(n, k_max, *scales), np.arange(n)
    present = np.zeros((n, k_max, k_max), dtype=bool)
    features = np.zeros((n, k_max, k_max, len(TEXT_FEATURES)))
    for k in range(k_max):
        paths.update(rows, quality[:, k], similarity[:, k], first[:, k])
        present[:, k], features[:, k] = paths.text_features(rows)
    folds = rng.permutation(n) % max(min(n_folds, n), 1)
    labels = admissible > 0
    if np.any(admissible < 0):
        known = np.broadcast_to(admissible[:, np.newaxis, :], present.shape)
        learner = _Learner(new_classifier, present, features, known)
        chance = learner.text_probabilities(learner.text_classifier(rows), rows)[:, -1]
        labels = completed(admissible, first, chance, rng)
    learner = _Learner(new_classifier, present, features, _best(labels, present, features))
    text = np.full(present.shape, -np.inf)
    for fold in np.unique(folds):
        train, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        classifier = learner.text_classifier(train)
        text[held] = learner.text_probabilities(classifier, held)
    arrival_features = _arrival_features(present.sum(axis=2), np.arange(1, k_max + 1), text, k_max)
    arrives = _arrives(labels, look_ahead)
    arrival = np.empty((n, k_max))
    for fold in np.unique(folds):
        train, held = folds != fold, folds == fold
        classifier = fitted(
            new_classifier, arrival_features[train].reshape(-1, 5), arrives[train].ravel()
        )
        chances = probability(classifier, arrival_features[held].reshape(-1, 5))
        arrival[held] = chances.reshape(-1, k_max)
    return ExitModel(
        learner.text_classifier(rows),
        fitted(new_classifier, arrival_features.reshape(-1, 5), arrives.ravel()),
        *scales,
        rho=_best_rho(text, arrival, labels, epsilon, cost or _size_and_draws),
        k_max=k_max,
        seen=row_digests(quality),
    )


class _Learner:
    """Rows of texts to learn from, and classifiers learnt from some prompts' rows."""

    def __init__(
        self,
        new_classifier: Callable[[], Classifier],
        present: np.ndarray,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        self.new_classifier, self.labels = new_classifier, labels
        self.present, self.features = present, features
        k_max = present.shape[1]
        # after the first draws each one more tells much, later ones little
        self.moments = np.unique(np.geomspace(1, k_max, 8).round().astype(np.intp)) - 1

    def text_classifier(self, rows: np.ndarray) -> Classifier:
        at = np.ix_(rows, self.moments)
        known = self.present[at] & (self.labels[at] >= 0)
        return fitted(self.new_classifier, self.features[at][known], self.labels[at][known] > 0)

    def text_probabilities(self, classifier: Classifier, rows: np.ndarray) -> np.ndarray:
        return _text_probabilities(classifier, self.present[rows], self.features[rows])


class ConstantClassifier:
    """The classifier of labels that are all alike, or of none."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def fit(self, X: np.ndarray, y: np.ndarray) -> "ConstantClassifier":
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        share = np.full(len(X), self.probability)
        return np.stack((1.0 - share, share), axis=1)


def fitted(
    new_classifier: Callable[[], Classifier], features: np.ndarray, labels: np.ndarray
) -> Classifier:
    """A classifier of some rows; a constant one where their labels are all alike."""
    n_positive = int(np.sum(labels))
    if 0 < n_positive < len(labels):
        classifier = new_classifier()
        classifier.fit(features, labels)
        return classifier
    return ConstantClassifier((n_positive + 0.5) / (len(labels) + 1.0))


def probability(classifier: Classifier, features: np.ndarray) -> np.ndarray:
    """Probability of the second class; a row's does not depend on other rows."""
    coefficients = getattr(classifier, "coef_", None)
    if coefficients is not None and np.shape(coefficients) == (1, features.shape[1]):
        # term by term: a matrix product may round a row otherwise in another batch
        total = np.full(len(features), float(np.ravel(classifier.intercept_)[0]))  # type: ignore[attr-defined]
        for column, weight in zip(features.T, coefficients[0]):
            total += weight * column
        return 1.0 / (1.0 + np.exp(-total))
    if not len(features):
        return np.empty(0)
    found = np.asarray(classifier.predict_proba(features))[:, 1]
    return np.round(found, 6)


def _text_probabilities(
    classifier: Classifier, present: np.ndarray, features: np.ndarray
) -> np.ndarray:
    text = np.full(present.shape, -np.inf)
    text[present] = probability(classifier, features[present])
    return text


def _best(labels: np.ndarray, present: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Whether each text is the admissible one of highest quality so far; the first of equals."""
    quality = features[..., TEXT_FEATURES.index("largest quality")]
    ranked = np.where(present & labels[:, np.newaxis, :], quality, -np.inf)
    best = np.zeros(present.shape, dtype=np.int8)
    np.put_along_axis(best, ranked.argmax(axis=2, keepdims=True), 1, axis=2)
    return np.where(np.isfinite(ranked), best, 0)


def completed(
    admissible: np.ndarray, first: np.ndarray, chance: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Labels in which unknown ones are drawn from their probability, equal texts alike."""
    drawn = rng.random(admissible.shape) < chance
    of_text = np.take_along_axis(drawn, first, axis=1)
    return np.where(admissible >= 0, admissible > 0, of_text)


def _arrives(labels: np.ndarray, look_ahead: int) -> np.ndarray:
    """Whether a first admissible draw comes within `look_ahead` draws of draw k: (n, K)."""
    k_max = labels.shape[1]
    first = np.where(labels.any(axis=1), labels.argmax(axis=1), 2 * k_max + look_ahead)
    ahead = first[:, np.newaxis] - np.arange(k_max)
    return (ahead >= 1) & (ahead <= look_ahead)


def _size_and_draws(sizes: np.ndarray, samples: np.ndarray, arrived: np.ndarray) -> float:
    return float(np.mean(sizes) + np.mean(samples) / samples.max(initial=1))


def _best_rho(
    text: np.ndarray,
    arrival: np.ndarray,
    labels: np.ndarray,
    epsilon: float,
    cost: Callable[[np.ndarray, np.ndarray, np.ndarray], float],
) -> float:
    """The rho of lowest cost, each at the level where it errs for a share epsilon."""
    n = len(labels)
    arrived = np.where(labels.any(axis=1), labels.argmax(axis=1) + 1, 0)
    best, lowest = float(_RHOS[0]), np.inf
    for rho in _RHOS:
        tau, exits = exit_scores(text, arrival, rho)
        found = np.where(labels, tau, -np.inf).max(axis=1)
        level = np.partition(found, int(epsilon * n))[int(epsilon * n)]
        sizes = np.sum(tau >= level, axis=1)
        samples = 1 + np.sum(exits[:, :-1] >= level, axis=1)
        price = cost(sizes, samples, arrived)
        if price < lowest:
            best, lowest = float(rho), price
    return best
