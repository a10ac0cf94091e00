"""Scores of claims: their support by draws, and by passages."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation
from sklearn_clm.generators.draws import is_chat, prompt_bytes
from sklearn_clm.generators.prompts import texts_of_chat
from sklearn_clm.scoring._callables import distinct_items, name_of, numbers_from
from sklearn_clm.scoring._splitters import numbered_components
from sklearn_clm.scoring.protocols import (
    Draws,
    PairJudge,
    PairScorer,
    Part,
    Prompt,
    Prompts,
    Response,
    Scores,
    Spans,
)
from sklearn_clm.scoring.verdicts import take_verdicts

Entails: TypeAlias = Callable[[Any, Response], Any] | PairScorer | PairJudge


class ClaimSupport(BaseEstimator):
    """Number of draws that say what a claim says.

    All draws taken for a prompt count, accepted or not. Divided by K it is the share of all K draws
    that support the claim, where those that were not made support none: a constant factor, which
    selects the same.

    Parameters
    ----------
    entails : callable (response, claim) -> bool or float, default=None
        How far a response supports a claim, in [0, 1]: an :class:`EntailmentScore`, an
        :class:`LLMJudge`, what a :class:`sklearn_clm.caching.CachedScore` keeps, a function. None:
        whether it makes an equal claim.

    Notes
    -----
    A draw adds to the number or leaves it as it is, so that it never falls as draws are added
    (Proposition 4.4). The share among the draws that were taken would.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import Claim, ClaimSupport
    >>> draws = [[Generation("Born in 1867, in Warsaw."), Generation("She was born in 1867.")]]
    >>> claims = [[[Claim("1867"), Claim("Warsaw")], [Claim("1867")]]]
    >>> support = ClaimSupport(lambda response, claim: claim in response)
    >>> support.score_components(["Curie?"], draws, claims)
    [[array([2., 1.]), array([2.])]]
    """

    counts_taken_draws = True

    def __init__(self, entails: Entails | None = None) -> None:
        self.entails = entails

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return [self._one_prompt(draws, rows) for draws, rows in zip(generations, spans)]

    def _one_prompt(
        self, draws: Sequence[Generation], rows: Sequence[Sequence[Part]]
    ) -> list[np.ndarray]:
        texts = [draw.response for draw in draws]
        claims, ids = numbered_components(texts, rows)
        # without a judge of entailment a draw supports what it claims itself, word for word
        if self.entails is None:
            holds = np.zeros((len(rows), len(claims)))
            for row, numbers in zip(holds, ids):
                row[numbers] = 1.0
        else:
            # equal responses are asked about once, and counted as often as they were drawn
            responses, (of_draw,) = distinct_items([texts], prompt_bytes)
            holds = entailed(self.entails, responses, claims)[of_draw]
        counts = holds.sum(axis=0)
        return [counts[numbers] for numbers in ids]


class Citation(NamedTuple):
    """The passage that entails a claim.

    Parameters
    ----------
    passage : int
        Its position among the passages of the prompt, from 0.
    text : str
        The passage.
    score : float
        How far it entails the claim, in (0, 1].
    """

    passage: int
    text: str
    score: float


@runtime_checkable
class Citing(Protocol):
    """A component score that says where claims come from."""

    def cite(self, prompt: Prompt, claims: Sequence[Response]) -> list[Citation | None]:
        """The passage on which each claim stands, or None."""

    def passages_beside(self, prompt: Prompt) -> Sequence[str]:
        """The passages, unless they stand in the prompt.

        People who judge see them beside it.
        """


class GroundedIn(BaseEstimator):
    """How far a passage of the prompt entails a claim.

    The score is that of the passage which entails it most, and 0 without passages; that passage is
    cited. It does not depend on draws.

    Parameters
    ----------
    entails : callable (passage, claim) -> bool or float
        As in :class:`ClaimSupport`. What is selected is asked about once more, for its citation.
    context : callable prompt -> list of str, default=None
        The passages of a prompt. None: the texts of chat messages, or the paragraphs of a text.

    Examples
    --------
    >>> from sklearn_clm.scoring import GroundedIn
    >>> grounded = GroundedIn(lambda passage, claim: claim in passage)
    >>> grounded.cite("Born in 1867.\\n\\nBorn in Warsaw.", ["Warsaw", "Paris"])
    [Citation(passage=1, text='Born in Warsaw.', score=1.0), None]
    """

    def __init__(
        self, entails: Entails, context: Callable[[Prompt], Sequence[str]] | None = None
    ) -> None:
        self.entails = entails
        self.context = context

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        scores = []
        for prompt, draws, rows in zip(prompts, generations, spans):
            claims, ids = numbered_components((draw.response for draw in draws), rows)
            of_passages = entailed(self.entails, self._passages(prompt), claims)
            best = of_passages.max(axis=0, initial=0.0)
            scores.append([best[numbers] for numbers in ids])
        return scores

    def cite(self, prompt: Prompt, claims: Sequence[Response]) -> list[Citation | None]:
        """The passage that entails each claim most, or None."""
        # `argmax` below needs a passage to point at
        passages = self._passages(prompt)
        if not passages:
            return [None] * len(claims)
        scores = entailed(self.entails, passages, claims)
        best = scores.argmax(axis=0).tolist()
        citations: list[Citation | None] = []
        for c, k in enumerate(best):
            score = float(scores[k, c])
            citations.append(Citation(k, passages[k], score) if score > 0 else None)
        return citations

    def passages_beside(self, prompt: Prompt) -> list[str]:
        """What `context` gives, as in :class:`Citing`."""
        if self.context is None:
            return []
        given: Any = self.context(prompt)
        is_listed = isinstance(given, Iterable) and not isinstance(given, str)
        passages = list(given) if is_listed else [given]
        if not is_listed or not all(isinstance(text, str) for text in passages):
            raise TypeError(f"context must give a list of texts, got {given!r:.80} instead.")
        return passages

    def _passages(self, prompt: Prompt) -> list[str]:
        """The passages beside the prompt, or those that it holds."""
        if self.context is not None:
            return self.passages_beside(prompt)
        if is_chat(prompt):
            return texts_of_chat(prompt)
        # paragraphs: a whole article is longer than most models of entailment read
        paragraphs = re.split(r"\n\s*\n", str(prompt))
        return [paragraph.strip() for paragraph in paragraphs if paragraph.strip()]


def entailed(
    entails: Entails, premises: Sequence[Response], claims: Sequence[Response]
) -> np.ndarray:
    """How far each premise entails each claim, shape (m, n)."""
    # all pairs in one call: a model takes a batch, and a judge of many pairs its workers
    pairs = [(premise, claim) for premise in premises for claim in claims]
    values = np.zeros(len(pairs))
    if pairs and isinstance(entails, PairJudge):
        take_verdicts(entails, pairs, values.__setitem__)
    elif pairs:
        scorer: Any = entails
        values[:] = numbers_from(scorer, "entails", pairs, n_jobs=1)
    # the negated comparison finds NaN as well
    outside = ~((values >= 0) & (values <= 1))
    if outside.any():
        raise ValueError(
            f"entails {name_of(entails)} must return numbers from 0 to 1, got "
            f"{values[outside][0]:g} for {pairs[int(outside.argmax())]!r:.160} instead."
        )
    return values.reshape(len(premises), len(claims))
