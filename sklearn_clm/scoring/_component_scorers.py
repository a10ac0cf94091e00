"""The component scores F^c that come with the package (section 4.4 of the paper)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation, draw_stream, prompt_bytes
from sklearn_clm.scoring._classifier_quality import ClassifierScore
from sklearn_clm.scoring._component_spans import Span, numbered_components
from sklearn_clm.scoring._results import as_score, as_scores, name_of
from sklearn_clm.scoring._rouge import rouge_l, rouge_l_matrix
from sklearn_clm.scoring._similarity import get_similarity, rouge_l_or_equality

__all__ = ["CallableScore", "ComponentClassifier", "RandomScore", "SpanLikelihood", "Support"]

Spans = Sequence[Sequence[Sequence[Span | None]]]


class SpanLikelihood(BaseEstimator):
    """Likelihood of a component's tokens in their context, under the base model.

    ``exp(log p / lp)``, where log p sums the log-probabilities of the tokens that produced some
    character of the component, and ``lp = (5 + number of these tokens)^0.6 / 6^0.6``. A component
    that no token produced scores 0.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import SpanLikelihood
    >>> draw = Generation(
    ...     "No. Yes.", token_logprobs=(-1.0, -3.0, -0.5), token_spans=((0, 3), (3, 8), (8, 8))
    ... )
    >>> SpanLikelihood().score_components(["Sure?"], [[draw]], [[[(0, 3), (4, 8)]]])[0][0]
    array([0.36787944, 0.04978707])
    """

    needs_logprobs = True

    def score_components(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        spans: Spans,
    ) -> list[list[np.ndarray]]:
        """Scores of all occurrences.

        Parameters
        ----------
        prompts, generations, spans
            As in :func:`component_scores`. A sample needs `token_logprobs` and `token_spans`; a
            response that is a single component by itself needs no more than `logprob`.

        Returns
        -------
        list of n lists of 1-D arrays
            Numbers from 0 to 1.
        """
        return [
            [
                np.array([self._one(draw, span, i, j) for span in components])
                for j, (draw, components) in enumerate(zip(draws, rows))
            ]
            for i, (draws, rows) in enumerate(zip(generations, spans))
        ]

    def _one(self, draw: Generation, span: Span | None, i: int, j: int) -> float:
        if draw.token_logprobs is None or draw.token_spans is None:
            if draw.logprob is not None and _is_whole(draw.response, span):
                return _normalised(draw.logprob, draw.n_tokens or 1)
            raise ValueError(
                f"component_score='span_likelihood' needs the log-probability of each token and "
                f"the characters it produced; sample {j} of prompt {i} has "
                f"token_logprobs={draw.token_logprobs} and token_spans={draw.token_spans}. Use a "
                "generator that gives them or another component_score."
            )
        if span is None:
            return _normalised(math.fsum(draw.token_logprobs), len(draw.token_logprobs))
        inside = [
            logprob
            for logprob, (start, stop) in zip(draw.token_logprobs, draw.token_spans)
            if start < stop and start < span[1] and stop > span[0]
        ]
        return _normalised(math.fsum(inside), len(inside)) if inside else 0.0


def _is_whole(response: Any, span: Span | None) -> bool:
    return span is None or response[span[0] : span[1]] == response.strip()


def _normalised(logprob: float, n_tokens: int) -> float:
    return math.exp(logprob / ((5.0 + n_tokens) / 6.0) ** 0.6)


class RandomScore(BaseEstimator):
    """A uniform random number for each distinct component of a prompt: the paper's baseline.

    Parameters
    ----------
    seed : int, default=0
        Seed, >= 0. The number depends on (prompt, component, seed) alone.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import RandomScore
    >>> draws, spans = [Generation("Yes."), Generation("Yes.")], [[(0, 4)], [(0, 4)]]
    >>> first, second = RandomScore(seed=1).score_components(["Sure?"], [draws], [spans])[0]
    >>> bool(first == second)
    True
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def score_components(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        spans: Spans,
    ) -> list[list[np.ndarray]]:
        """Scores of all occurrences.

        Parameters
        ----------
        prompts, generations, spans
            As in :func:`component_scores`.

        Returns
        -------
        list of n lists of 1-D arrays
            Numbers in [0, 1).
        """
        return _score_distinct(self._draw, prompts, generations, spans)

    def _draw(self, prompt: Any, component: Any) -> float:
        salt = b"component " + prompt_bytes(component)
        return float(draw_stream(prompt, self.seed, 0, salt=salt).random())


class Support(BaseEstimator):
    """How many samples of the set hold the component or a near-duplicate of it.

    A count, never a share: it can only grow with the set, which Proposition 4.4 asks for. The
    price is that a small prediction set supports a component less than the K samples of
    calibration do, so it suits samplers that seldom stop early.

    Parameters
    ----------
    similarity : str or callable (component, component) -> float, default="rouge_l"
        As for the sampler. Components that are not text compare by equality under a name.
    threshold : float, default=0.9
        Similarity from which two components are near-duplicates.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import Support
    >>> draws = [Generation("It is big."), Generation("It is big!"), Generation("No.")]
    >>> spans = [[(0, 10)], [(0, 10)], [(0, 3)]]
    >>> Support().score_components(["Size?"], [draws], [spans])
    [[array([2.]), array([2.]), array([1.])]]
    """

    def __init__(
        self, similarity: str | Callable[[Any, Any], float] = "rouge_l", threshold: float = 0.9
    ) -> None:
        self.similarity = similarity
        self.threshold = threshold

    def score_components(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        spans: Spans,
    ) -> list[list[np.ndarray]]:
        """Scores of all occurrences.

        Parameters
        ----------
        prompts, generations, spans
            As in :func:`component_scores`.

        Returns
        -------
        list of n lists of 1-D arrays
            Whole numbers, at least 1 and at most the number of samples.
        """
        return [self._one_prompt(draws, rows) for draws, rows in zip(generations, spans)]

    def _one_prompt(
        self, draws: Sequence[Generation], rows: Sequence[Sequence[Span | None]]
    ) -> list[np.ndarray]:
        components, ids = numbered_components((draw.response for draw in draws), rows)
        if not components:
            return [np.empty(0) for _ in rows]
        holds = np.zeros((len(rows), len(components)), dtype=bool)
        for j, row_ids in enumerate(ids):
            holds[j, row_ids] = True
        alike = _pairwise(self.similarity, components) >= self.threshold
        np.fill_diagonal(alike, True)
        counts = (holds @ alike.T).sum(axis=0, dtype=np.float64)
        return [counts[row_ids] for row_ids in ids]


class ComponentClassifier(ClassifierScore):
    """Probability that a fitted binary classifier gives to a component.

    The classifier must have been trained on other prompts than those that calibrate.

    Parameters
    ----------
    classifier : fitted classifier with ``predict_proba``
        Two classes; the second one of its ``classes_`` means a correct component.
    features : callable (prompt, component) -> object, or None, default=None
        Makes one row of the classifier's input from one component. None gives it the components
        themselves, as a list: what a pipeline that starts with a text vectoriser takes.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import ComponentClassifier
    >>> texts, good = ["a cat sat", "a dog ran", "lorem ipsum", "dolor sit"], [1, 1, 0, 0]
    >>> classifier = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, good)
    >>> draws, spans = [[Generation("a cat ran")]], [[[(0, 9)]]]
    >>> ComponentClassifier(classifier).score_components(["Q: ?"], draws, spans)[0][0].round(1)
    array([0.7])
    """

    def score_components(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        spans: Spans,
    ) -> list[list[np.ndarray]]:
        """Scores of all occurrences; a component of several samples is classified once.

        Parameters
        ----------
        prompts, generations, spans
            As in :func:`component_scores`.

        Returns
        -------
        list of n lists of 1-D arrays
            Probabilities of the positive class; their log-odds are rounded to three decimals, so
            that the batch which a component is in does not matter.

        Raises
        ------
        ValueError
            If the classifier does not give two probabilities for each component.
        """
        rows: list[Any] = []
        ids: list[list[np.ndarray]] = []
        for prompt, draws, samples in zip(prompts, generations, spans):
            found, numbers = numbered_components((draw.response for draw in draws), samples)
            ids.append([len(rows) + own for own in numbers])
            rows += found if self.features is None else [self.features(prompt, c) for c in found]
        scores = self._probabilities(rows, "component_score")
        return [[scores[found] for found in sample] for sample in ids]


class CallableScore:
    """A callable (prompt, component) -> float, asked once for each distinct component."""

    def __init__(self, function: Callable[[Any, Any], float]) -> None:
        self.function = function
        self.__name__ = name_of(function)

    def score_components(self, prompts: Any, generations: Any, spans: Any) -> Any:
        return _score_distinct(self.function, prompts, generations, spans)

    def __repr__(self) -> str:
        return f"CallableScore({self.function!r})"


def _score_distinct(
    function: Callable[[Any, Any], float],
    prompts: Sequence[Any],
    generations: Sequence[Sequence[Generation]],
    spans: Spans,
) -> list[list[np.ndarray]]:
    scored = []
    for prompt, draws, rows in zip(prompts, generations, spans):
        components, ids = numbered_components((draw.response for draw in draws), rows)
        scores = np.empty(len(components))
        for c, component in enumerate(components):
            where = f"the component {component!r:.80}"
            scores[c] = as_score(function(prompt, component), "component_score", function, where)
        scored.append([scores[row] for row in ids])
    return scored


def _pairwise(similarity: Any, components: list[Any]) -> np.ndarray:
    """Similarity of all pairs of components."""
    similarity = get_similarity(similarity)
    if hasattr(similarity, "pairwise"):
        return as_scores(
            similarity.pairwise(components), (len(components),) * 2, "similarity", similarity
        )
    texts = all(isinstance(component, str) for component in components)
    if similarity is rouge_l and texts:
        return rouge_l_matrix(components)
    if similarity is rouge_l:
        # pair by pair: whether other components are texts must not matter to two that are
        similarity = rouge_l_or_equality
    where = "two components"
    return np.array(
        [
            [as_score(float(similarity(a, b)), "similarity", similarity, where) for b in components]
            for a in components
        ]
    )
