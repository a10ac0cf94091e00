"""Protocols of scores and admissions beyond plain callables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.generators import Generation
from sklearn_clm.generators.draws import Prompt as Prompt
from sklearn_clm.generators.draws import Response as Response

Reference: TypeAlias = Any
Prompts: TypeAlias = Sequence[Prompt]
Responses: TypeAlias = Sequence[Response]
Draws: TypeAlias = Sequence[Sequence[Generation]]

Span: TypeAlias = tuple[int, int]
Scores: TypeAlias = list[list[np.ndarray]]  # of components

Admission: TypeAlias = Callable[[Reference, Response], bool]
Similarity: TypeAlias = Callable[[Response, Response], float]
Quality: TypeAlias = Callable[[Prompt, Generation], float]


@dataclass(frozen=True)
class Claim:
    """A statement that a response makes, in whatever words.

    Parameters
    ----------
    text : str
        The statement, by itself.
    span : (int, int), default=None
        Characters of the response that say so. None: where its text stands word for word, or
        nowhere.
    parents : tuple of int, default=()
        The claims on which it rests: their positions, from 0, among the claims of its response. It
        is selected only if they are: its score is the least along its way up.

    Examples
    --------
    >>> from sklearn_clm.scoring import Claim, get_splitter
    >>> def steps(response):
    ...     return [Claim("x is 2."), Claim("x squared is 4.", parents=(0,))]
    >>> get_splitter(steps)("As x is 2., its square is 4.")
    [(3, 10), Claim(text='x squared is 4.', span=None, parents=(0,))]
    """

    text: str
    span: tuple[int, int] | None = None
    parents: tuple[int, ...] = ()


# where a component stands; a claim that stands nowhere; None for a response that is no text
Part: TypeAlias = Span | Claim | None
Spans: TypeAlias = Sequence[Sequence[Sequence[Part]]]


class Occurrence(NamedTuple):
    """Where a component of responses stands.

    Parameters
    ----------
    draw : int
        Index of the draw, from 0.
    span : (int, int) or None
        Characters of its response; None for a claim that stands nowhere in it, and where the
        response is not text, and is the component.

    Examples
    --------
    >>> from sklearn_clm.scoring import Occurrence
    >>> Occurrence(draw=2, span=(0, 12)).draw
    2
    """

    draw: int
    span: tuple[int, int] | None


@runtime_checkable
class PairwiseSimilarity(Protocol):
    """Similarity of all pairs of two lists at once."""

    def pairwise(self, a: Sequence[Response], b: Sequence[Response] | None = None) -> ArrayLike:
        """Similarity of all pairs of two lists, shape (m, n).

        A value must not depend on what else is compared, but for its last digits.
        """


@runtime_checkable
class PairScorer(Protocol):
    """Similarity, quality or metric of many pairs at once."""

    def score_pairs(
        self, firsts: Sequence[Any], seconds: Sequence[Any], *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Score of each pair of two lists."""


@runtime_checkable
class DrawScorer(Protocol):
    """Quality of whole rows of draws.

    With an attribute ``needs_logprobs = True`` generators without log-probabilities are refused
    before a draw is made.
    """

    def score_draws(self, prompts: Prompts, generations: Draws, start: int) -> ArrayLike:
        """Qualities of the draws from `start` on.

        `generations` are the draws so far, in draw order. The quality of draw j may depend on draws
        0 to j of its prompt alone: it is final when the sampling rule asks for it.
        """


@runtime_checkable
class Classifier(Protocol):
    """Fitted classifier whose second class is the good one."""

    def predict_proba(self, rows: Sequence[object]) -> np.ndarray:
        """Probability of each class, of shape (n, 2)."""


@runtime_checkable
class PairJudge(Protocol):
    """Admission of many pairs at once.

    It is asked about all pairs together, and of several references only about those that no earlier
    one decides. It distributes its work itself, by joblib's ``n_jobs=None`` over the workers that
    the caller asked for. A judge that inherits from this class can also be called with one pair.
    """

    def judge_pairs(
        self, references: Sequence[Reference], responses: Responses
    ) -> Iterable[tuple[int, bool]]:
        """Position, from 0, and verdict of each pair.

        Where all become known together, these are ``enumerate(verdicts)``. An error that one pair
        causes is best raised last, when the others are judged.
        """

    def __call__(self, reference: Reference, response: Response) -> bool:
        """Whether `response` is acceptable given `reference`."""
        ((_, verdict),) = self.judge_pairs([reference], [response])
        return bool(verdict)


class Arriving:
    """Results handed on as they arrive, safe from interrupts.

    `ask` calls what it is given with the position of a pair and the result for it.
    """

    def __init__(self, ask: Callable[[Callable[[int, Any], None]], None]) -> None:
        self.hand_to = ask

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        results: dict[int, Any] = {}
        self.hand_to(results.__setitem__)
        return iter(results.items())


def hand_on(results: Iterable[tuple[int, Any]], take: Callable[[int, Any], None]) -> None:
    """Give each position and result to `take` as it arrives."""
    if isinstance(results, Arriving):
        results.hand_to(take)
    else:
        for k, value in results:
            take(k, value)


@runtime_checkable
class PairSplitter(Protocol):
    """Splits many responses at once."""

    def split_pairs(
        self, prompts: Prompts, responses: Responses
    ) -> Iterable[tuple[int, Sequence[Any]]]:
        """Position, from 0, and components of each response."""

    def __call__(self, prompt: Prompt, response: str) -> Sequence[Any]:
        """The components of one response."""
        ((_, parts),) = self.split_pairs([prompt], [response])
        return parts


@runtime_checkable
class ComponentScore(Protocol):
    """Scores of the components of many prompts.

    A score that depends on the other draws of a prompt must never fall when draws are added
    (Proposition 4.4). With a class attribute ``counts_taken_draws = True`` it is given all draws
    that were taken for a prompt, accepted or not; otherwise the accepted ones alone.
    """

    def score_components(
        self, prompts: Prompts, generations: Draws, spans: Spans
    ) -> Sequence[Sequence[ArrayLike]]:
        """One array of scores for each draw of each prompt.

        ``spans[i][j]`` are the components of draw j of prompt i: where they begin and end in
        ``generations[i][j].response``, a :class:`Claim` that is no part of it, or None for a
        response that is one whole. A score must be below +inf.
        """
