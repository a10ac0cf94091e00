"""Scores F^c of components of responses (section 4.4).

A component that occurs in several draws is one component, and the maximum over its occurrences is
its score.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import NamedTuple, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from sklearn_clm.generators import Generation
from sklearn_clm.scoring._callables import as_scores, chosen, name_of, numbers_from
from sklearn_clm.scoring._quality import (
    LOGPROB_ROUNDING,
    ClassifierScore,
    length_normalised,
    refuse_unfitted,
)
from sklearn_clm.scoring._similarity import similarity_tensor
from sklearn_clm.scoring._splitters import (
    component_of,
    least_on_the_way_up,
    logprobs_inside,
    numbered_components,
    scores_of_components,
    span_of,
)
from sklearn_clm.scoring.protocols import (
    Claim,
    Classifier,
    ComponentScore,
    Draws,
    Occurrence,
    PairwiseSimilarity,
    Part,
    Prompt,
    Prompts,
    Response,
    Scores,
    Similarity,
    Spans,
)

ComponentScorer = Callable[[Prompt, Response], float]
ComponentScoreLike: TypeAlias = str | ComponentScorer | ComponentScore | Classifier


class DistinctComponents(NamedTuple):
    """Distinct components of one prompt, in order of first occurrence."""

    components: list[Response]
    scores: np.ndarray
    occurrences: list[list[Occurrence]]


def distinct_components(
    responses: Sequence[Response],
    draws: Sequence[int],
    spans: Sequence[Sequence[Part]],
    scores: Sequence[np.ndarray],
) -> DistinctComponents:
    """Merge equal components; their maximum is their score.

    Proposition 4.4 needs the maximum: the score of a component must not rise when responses are
    taken away. It can under a mean, or if the last occurrence wins.

    *Claims that rest on others.* Let s(o) be the score of an occurrence o, t(o) the least s among o
    and all that o rests on in its draw, directly or not, and S(e) the largest t of any occurrence
    of e. Each s never falls as draws are added, nor then does t, and S is a maximum over more: so
    Proposition 4.4 holds. If S(e) >= gamma, e has an occurrence o with t(o) >= gamma. Whatever
    o rests on, rests on a part of the same: for each such a t(a) >= t(o) >= gamma, so that its
    component is selected, too. Hence e stays only if all stay on which it rests in *one* draw: that
    is its ground. In another draw it may rest on more. The least over the grounds of all draws
    would fall as draws are added.
    """
    components, ids = numbered_components(responses, spans)
    best = np.full(len(components), -np.inf)
    occurrences: list[list[Occurrence]] = [[] for _ in components]
    for draw, row, numbers, row_scores in zip(draws, spans, ids, scores):
        # unbuffered: one draw may hold a component twice
        np.maximum.at(best, numbers, least_on_the_way_up(row, row_scores))
        for number, part in zip(numbers, row):
            occurrences[number].append(Occurrence(int(draw), span_of(part)))
    return DistinctComponents(components, best, occurrences)


class SpanLikelihood(BaseEstimator):
    """Likelihood of a component's tokens under the base model.

    As :func:`likelihood`, of the tokens that produced some character of the component; 0 where
    there are none. A draw needs `token_logprobs` and `token_spans`; a response that is a single
    component by itself needs no more than `logprob`.
    """

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return [
            [
                np.array([self._one(draw, span) for span in components])
                for draw, components in zip(draws, rows)
            ]
            for draws, rows in zip(generations, spans)
        ]

    def _one(self, draw: Generation, part: Part) -> float:
        span = span_of(part)
        if span is None and isinstance(part, Claim):
            raise ValueError(
                "component_score='span_likelihood' needs components that stand in the response, "
                f"got the claim {part.text!r:.80} instead. Use ClaimSupport, or a callable."
            )

        # without token spans the whole response has a log-probability, and no part of it has
        is_whole = span is None or component_of(draw.response, span) == draw.response.strip()
        if draw.token_logprobs is not None and draw.token_spans is not None:
            inside = list(draw.token_logprobs) if span is None else logprobs_inside(draw, span)
            n_tokens = len(inside)
        elif draw.logprob is not None and is_whole:
            inside = [draw.logprob]
            n_tokens = draw.n_tokens or 1
        else:
            inside = [math.nan]
            n_tokens = 1

        if not all(logprob <= LOGPROB_ROUNDING for logprob in inside):
            raise ValueError(
                "component_score='span_likelihood' needs token_logprobs of at most 0, and "
                f"token_spans, got {draw!r:.200} instead. Use a generator that gives them, or "
                "component_score='support', for sets that seldom stop early, or a callable."
            )
        return float(length_normalised(math.fsum(inside), n_tokens)) if inside else 0.0


class Support(BaseEstimator):
    """Number of draws that hold the component, or nearly so.

    All draws taken for a prompt count, accepted or not, each of them once. Calibration counts among
    all K: where sets stop early, fewer draws agree, and selections may be empty. Another score
    avoids that; ``ThresholdPolicy(size_weight=1, excess_weight=0)``, which stops late, lessens it.

    Parameters
    ----------
    similarity : str or callable (component, component) -> float, default="rouge_l"
        As for the sampler. Components that are not text compare by equality under a name.
    threshold : float, default=0.9
        Similarity from which two components are near-duplicates.

    Notes
    -----
    Proposition 4.4 needs a component of a prediction set never to score higher than among all K
    draws, which calibrate. The first S <= K draws of a prompt are the same in both (draws are
    keyed), so those among them that hold the component are a subset of those among all K.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import Support
    >>> draws = [Generation("It is big."), Generation("It is big!"), Generation("No.")]
    >>> spans = [[(0, 10)], [(0, 10)], [(0, 3)]]
    >>> Support().score_components(["Size?"], [draws], [spans])
    [[array([2.]), array([2.]), array([1.])]]
    """

    counts_taken_draws = True

    def __init__(
        self, similarity: str | Similarity | PairwiseSimilarity = "rouge_l", threshold: float = 0.9
    ) -> None:
        self.similarity = similarity
        self.threshold = threshold

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        check_scalar(self.threshold, "threshold", Real)
        return [self._one_prompt(draws, rows) for draws, rows in zip(generations, spans)]

    def _one_prompt(
        self, draws: Sequence[Generation], rows: Sequence[Sequence[Part]]
    ) -> list[np.ndarray]:
        components, ids = numbered_components((draw.response for draw in draws), rows)
        holds = np.zeros((len(rows), len(components)), dtype=bool)
        for j, row_ids in enumerate(ids):
            holds[j, row_ids] = True
        # similarity is known to earlier components alone: each pair is compared once, and counts
        # both ways
        to_earlier = similarity_tensor(self.similarity, [components])[0]
        alike = to_earlier + to_earlier.T >= self.threshold
        np.fill_diagonal(alike, True)  # a component agrees with itself, whatever the measure says
        counts = (holds @ alike.T).sum(axis=0, dtype=np.float64)
        return [counts[row_ids] for row_ids in ids]


class CallableScore:
    """A callable (prompt, component) -> float for each distinct component."""

    def __init__(self, function: ComponentScorer) -> None:
        self.function = function

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return scores_of_components(prompts, generations, spans, self._score_pairs)

    def _score_pairs(self, pairs: list[tuple[Prompt, Response]]) -> np.ndarray:
        return np.array(numbers_from(self.function, "component_score", pairs, n_jobs=1))


_COMPONENT_SCORES: dict[str, ComponentScorer | ComponentScore | Classifier] = {
    "span_likelihood": SpanLikelihood(),
    "support": Support(),
}


def get_component_score(
    component_score: ComponentScoreLike,
) -> ComponentScore:
    """Component score from its name, a callable or a classifier."""
    other_kinds = "a callable, a fitted classifier, or an object with a method score_components"
    protocols = (ComponentScore, Classifier)
    score = chosen("component_score", component_score, _COMPONENT_SCORES, other_kinds, protocols)
    if isinstance(score, ComponentScore):
        if hasattr(score, "fit"):
            refuse_unfitted(score, "component_score")
        return score
    if isinstance(score, Classifier):
        refuse_unfitted(score, "component_score")
        return ClassifierScore(score)
    return CallableScore(score)


def component_scores(
    score: ComponentScore,
    prompts: Prompts,
    generations: Draws,
    spans: Spans,
    *,
    members: Sequence[Sequence[int] | np.ndarray] | None = None,
) -> Scores:
    """Scores, checked, of all components, or of accepted `members`."""
    if members is not None:
        # such a score counts draws that agree, rejected ones too: these are among the K that
        # calibrated (Proposition 4.4)
        if getattr(score, "counts_taken_draws", False):
            scores_of_members = component_scores(score, prompts, generations, spans)
            return [[row[j] for j in of] for row, of in zip(scores_of_members, members)]
        # a score sees what the set holds, as in prediction
        accepted = [[row[j] for j in of] for row, of in zip(generations, members)]
        accepted_spans = [[row[j] for j in of] for row, of in zip(spans, members)]
        return component_scores(score, prompts, accepted, accepted_spans)

    rows = score.score_components(prompts, generations, spans)
    n_given = [len(row) for row in rows]
    n_wanted = [len(row) for row in spans]
    if n_given != n_wanted:
        raise ValueError(
            f"component_score {name_of(score)} must return scores for {n_wanted} draws of the "
            f"prompts, got {n_given} instead."
        )

    scores = [
        [
            as_scores(scores_of_draw, (len(parts),), "component_score", score)
            for scores_of_draw, parts in zip(row, wanted)
        ]
        for row, wanted in zip(rows, spans)
    ]

    # a threshold of +inf is the empty selection, which is always valid: nothing may reach it
    if any(np.inf in scores_of_draw for row in scores for scores_of_draw in row):
        raise ValueError(
            f"component_score {name_of(score)} must return scores below inf, the threshold at "
            "which nothing is selected, got inf instead."
        )
    return scores
