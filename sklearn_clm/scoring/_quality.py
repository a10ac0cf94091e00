"""Quality Q of a response, given its prompt (section 4.2)."""

from collections.abc import Callable
from typing import TypeAlias, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import warn
from sklearn_clm.generators import Generation, Generator
from sklearn_clm.scoring._callables import (
    as_scores,
    check_draws,
    chosen,
    is_ours,
    name_of,
    numbers_from,
)
from sklearn_clm.scoring._language_model import PTrue
from sklearn_clm.scoring._similarity import similarity_tensor
from sklearn_clm.scoring._splitters import scores_of_components
from sklearn_clm.scoring.protocols import (
    Classifier,
    Draws,
    DrawScorer,
    PairwiseSimilarity,
    Prompt,
    Prompts,
    Quality,
    Response,
    Scores,
    Similarity,
    Spans,
)

QualityLike: TypeAlias = str | Quality | DrawScorer | BaseEstimator

_LENGTH_EXPONENT = 0.6  # of lp(y) (section 4.2)
# models in low precision give log-probabilities slightly above 0
LOGPROB_ROUNDING = 0.01


class ClassifierScore(BaseEstimator):
    """Probability of the positive class of a fitted binary classifier.

    It serves as quality of draws and as score of components.

    Parameters
    ----------
    classifier : fitted classifier with ``predict_proba``
        Two classes, the second of which means a good response, or a correct component. Trained on
        other prompts than those that calibrate.
    features : callable (prompt, x) -> object, or None, default=None
        Makes one row of the classifier's input from a draw, or a component, x. None gives a list of
        the responses, or the components, which a pipeline with a text vectoriser takes.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import quality_matrix
    >>> texts, good = ["a cat sat", "a dog ran", "lorem ipsum", "dolor sit"], [1, 1, 0, 0]
    >>> classifier = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, good)
    >>> draws = [[Generation("a cat ran"), Generation("lorem dolor")]]
    >>> quality_matrix(classifier, ["Q: ?"], draws).round(1)
    array([[0.7, 0.3]])
    """

    def __init__(
        self, classifier: Classifier, features: Callable[..., object] | None = None
    ) -> None:
        self.classifier = classifier
        self.features = features

    def score_draws(self, prompts: Prompts, generations: Draws, start: int = 0) -> np.ndarray:
        """Quality of the draws from `start` on, as in :class:`DrawScorer`."""
        features = self.features or (lambda prompt, draw: draw.response)
        rows = [features(x, draw) for x, row in zip(prompts, generations) for draw in row[start:]]
        return self._probabilities(rows, "quality").reshape(len(prompts), -1)

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return scores_of_components(prompts, generations, spans, self._score_pairs)

    def _score_pairs(self, pairs: list[tuple[Prompt, Response]]) -> np.ndarray:
        features = self.features or (lambda prompt, component: component)
        return self._probabilities([features(*pair) for pair in pairs], "component_score")

    def _probabilities(self, rows: list[object], argument: str) -> np.ndarray:
        if not rows:
            return np.empty(0)
        # all rows in one call: a model's own batches are faster than ours would be
        probabilities = self.classifier.predict_proba(rows)
        values = as_scores(probabilities, (len(rows), 2), argument, self.classifier)
        # a decision function, or one column, would be taken for a probability
        improper = np.any(values < 0.0, axis=1) | np.all(values == 0.0, axis=1)
        if improper.any():
            raise ValueError(
                f"{argument} {name_of(self.classifier)} must return two probabilities, got "
                f"{values[int(improper.argmax())]} instead."
            )
        return values[:, 1]


class SelfConsistency(BaseEstimator):
    """Agreement of a response with its prompt's earlier draws.

    It needs no log-probabilities. Later draws do not count: the quality of a draw must be final
    when the sampling rule asks for it.

    Parameters
    ----------
    similarity : {"rouge_l", "exact_match"}, callable or object, default="rouge_l"
        What agreement is, as in :func:`similarity_tensor`; between 0 and 1 for the built-in ones.

    Notes
    -----
    The quality of draw j = 0, 1, ... is ``(s_j0 + ... + s_j(j-1)) / (j + 1)``, with s_jl the
    similarity of draws j and l. A threshold above 0 accepts an answer when it is repeated: the
    repetition is what is kept.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import SelfConsistency
    >>> draws = [Generation(text) for text in ("Paris", "Lyon", "Paris", "Paris")]
    >>> SelfConsistency().score_draws(["Q: ?"], [draws], start=0)
    array([[0.        , 0.        , 0.33333333, 0.5       ]])
    """

    def __init__(self, similarity: str | Similarity | PairwiseSimilarity = "rouge_l") -> None:
        self.similarity = similarity

    def score_draws(self, prompts: Prompts, generations: Draws, start: int = 0) -> np.ndarray:
        """Quality of the draws from `start` on, as in :class:`DrawScorer`.

        The numbers are the same, to the last bit, for any `start` and K.
        """
        responses = [[generation.response for generation in row] for row in generations]
        agreement = similarity_tensor(self.similarity, responses, start=start)
        # draw by draw: a sum in another order is rounded differently
        total = np.zeros(agreement.shape[:2])
        for draw in range(agreement.shape[2]):
            total += agreement[:, :, draw]
        return total / np.arange(start + 1.0, start + 1.0 + agreement.shape[1])


def likelihood(prompt: Prompt, generation: Generation) -> float:
    """Length-normalised likelihood of a response under the base model.

    Parameters
    ----------
    prompt : object
        Not used: the log-probability is that given the prompt.
    generation : Generation
        A draw, with `logprob` and `n_tokens`.

    Returns
    -------
    float
        ``exp(log p(y | x) / lp(y))`` with ``lp(y) = (5 + |y|)**0.6 / 6**0.6`` for |y| generated
        tokens; 0.0, the lowest quality, for a response of none.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import likelihood
    >>> round(likelihood("Q: ?", Generation("Paris", logprob=-0.5, n_tokens=1)), 4)
    0.6065
    """
    # by the code for arrays, so that a draw has the same bits alone
    return float(_likelihoods([prompt], [[generation]], 0)[0, 0])


def _likelihoods(prompts: Prompts, generations: Draws, start: int) -> np.ndarray:
    """Likelihoods of draws from `start` on, (n, K - start)."""
    # the log-probability of a draw is its own: earlier draws are not looked at
    rows = [row[start:] for row in generations]
    logprob = np.array([[g.logprob for g in row] for row in rows], dtype=np.float64)
    n_tokens = np.array([[g.n_tokens for g in row] for row in rows], dtype=np.float64)
    # NaN compares as false, so that what is unknown fails as well as what cannot be
    unknown = ~(logprob <= LOGPROB_ROUNDING) | ~(n_tokens >= 0)
    if unknown.any():
        i, j = np.argwhere(unknown)[0].tolist()
        draw = rows[i][j]
        raise ValueError(
            'quality="likelihood" needs the log-probability (at most 0) and the number of tokens '
            f"of every draw, got logprob={draw.logprob!r} and n_tokens={draw.n_tokens!r} for draw "
            f"{start + j} of prompt {i} ({prompts[i]!r:.80}). A function returns them as "
            "Generation(text, logprob, n_tokens). Where they are unknown, take "
            'quality="self_consistency", "p_true", which asks the model again, or a callable.'
        )
    return np.where(n_tokens > 0, length_normalised(logprob, n_tokens), 0.0)


def length_normalised(logprob: np.ndarray | float, n_tokens: np.ndarray | float) -> np.ndarray:
    """Likelihood of `n_tokens` tokens with the paper's length penalty."""
    penalty = ((5.0 + np.asarray(n_tokens)) / 6.0) ** _LENGTH_EXPONENT
    # a log-probability that rounding made positive is that of a sure response
    with np.errstate(under="ignore", over="ignore"):
        return np.asarray(np.exp(np.minimum(logprob, 0.0) / penalty))


_QUALITIES: dict[str, Quality | DrawScorer | Classifier] = {
    "likelihood": likelihood,
    "p_true": PTrue(),
    "self_consistency": SelfConsistency(),
}


def get_quality(quality: str | Quality | DrawScorer | Classifier) -> Quality | DrawScorer:
    """Quality from its name; :class:`ClassifierScore` of a fitted classifier."""
    other_kinds = (
        "a callable (prompt, generation) -> float, an object with a method score_draws, or a "
        "fitted classifier with predict_proba"
    )
    scorer = chosen("quality", quality, _QUALITIES, other_kinds, (DrawScorer, Classifier))
    # a score of whole rows may have predict_proba besides: then it says itself how it scores
    if isinstance(scorer, DrawScorer) or not isinstance(scorer, Classifier):
        return scorer
    refuse_unfitted(scorer, "quality")
    return ClassifierScore(scorer)


def needs_logprobs(quality: str | Quality | DrawScorer | Classifier) -> bool:
    """Whether a quality scores only draws with log-probabilities.

    One of your own says so by an attribute ``needs_logprobs``.
    """
    scorer = get_quality(quality)
    return bool(getattr(scorer, "needs_logprobs", scorer is likelihood))


def refuse_unfitted(classifier: object, argument: str) -> None:
    """Refuse an estimator of scikit-learn that cannot predict yet."""
    if isinstance(classifier, BaseEstimator):
        message = (
            f"{argument} must be fitted on other prompts (in a FrozenEstimator, where clones are "
            "to keep it), got a %(name)s that is not fitted instead."
        )
        check_is_fitted(classifier, msg=message)


def bind_quality(
    quality: str | Quality | DrawScorer | Classifier, generator: Generator
) -> Quality | DrawScorer:
    """Quality from its name, asking `generator` if it has none."""
    scorer = get_quality(quality)
    # by default the model that drew a response is asked whether it is right
    return scorer.bind(generator) if isinstance(scorer, PTrue) else scorer


def warn_of_later_draws(
    scorer: object, prompts: Prompts, draws: Draws, qualities: np.ndarray
) -> bool:
    """Warn, and return True, where scores change with later draws."""
    half = len(draws[0]) // 2
    if is_ours(scorer) or not isinstance(scorer, DrawScorer) or not half:
        return False

    def is_same(n_made: int, n: int) -> bool:
        # without the later draws, as predict asks for them
        again = scorer.score_draws(prompts, [row[:n_made] for row in draws], 0)
        scores = np.asarray(again, dtype=np.float64)
        return np.allclose(scores[:, :n], qualities[:, :n], equal_nan=True)

    # where all draws have other scores in a batch of few prompts, later ones are not the reason
    if is_same(half, half) or not is_same(len(draws[0]), half):
        return False
    warn(
        f"quality={type(scorer).__name__} gives draws other scores once there are later ones, "
        "which predict does not make, so that the guarantee does not hold: the score of draw j "
        "may depend on draws 0 to j alone."
    )
    return True


def quality_matrix(
    quality: str | Quality | DrawScorer | Classifier,
    prompts: Prompts,
    generations: Draws,
    *,
    start: int = 0,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Quality of the draws from `start` on.

    Parameters
    ----------
    quality : str, callable, classifier or object
        "likelihood", "self_consistency" and "p_true" are known by name. A callable
        ``f(prompt, generation) -> float`` scores one draw, a :class:`DrawScorer` all draws at once.
        A fitted classifier with ``predict_proba`` stands for :class:`ClassifierScore` of it.
    prompts : sequence of length n
        The prompts.
    generations : sequence of n sequences of K Generation
        The draws so far, in draw order.
    start : int, default=0
        First draw to score, 0 <= start <= K.
    n_jobs : int, default=None
        Number of workers for a callable, as in joblib.

    Returns
    -------
    ndarray of shape (n, K - start), float64
        The qualities. They are the same whether draws are scored together or bit by bit.
    """
    return QualityCalls(quality).matrix(prompts, generations, start=start, n_jobs=n_jobs)


class QualityCalls:
    """A quality and how it is called.

    A rule asks for the score of one draw after another: which protocol the quality has is found out
    once, as that takes longer than most scores.
    """

    def __init__(self, quality: str | Quality | DrawScorer | Classifier) -> None:
        self.scorer = get_quality(quality)
        self._draw_scorer = self.scorer if isinstance(self.scorer, DrawScorer) else None

    def matrix(
        self, prompts: Prompts, generations: Draws, *, start: int = 0, n_jobs: int | None = None
    ) -> np.ndarray:
        """Qualities as of :func:`quality_matrix`."""
        size = check_draws(generations, "generations", start)
        if len(prompts) != len(generations):
            raise ValueError(
                f"prompts and generations must be of one length, got {len(prompts)} and "
                f"{len(generations)} instead."
            )
        shape = len(prompts), size - start
        if 0 in shape:
            return np.zeros(shape)
        if self.scorer is likelihood:
            return _likelihoods(prompts, generations, start)
        if self._draw_scorer is not None:
            scores = self._draw_scorer.score_draws(prompts, generations, start)
            return as_scores(scores, shape, "quality", self.scorer)
        # a plain callable sees one draw, and each draw once
        pairs = [
            (prompt, draw) for prompt, row in zip(prompts, generations) for draw in row[start:]
        ]
        values = numbers_from(cast(Quality, self.scorer), "quality", pairs, n_jobs)
        return np.array(values).reshape(shape)
