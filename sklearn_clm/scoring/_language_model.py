"""Qualities for which a language model is asked about its own answer.

Questions to a language model whose answer must be understood.

A language model as the judge of responses."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation
from sklearn_clm.generators._base import sample
from sklearn_clm.generators._draws import prompt_bytes
from sklearn_clm.generators._fingerprint import digest_of

__all__ = ["Asking", "LLMJudge", "PTrue", "VerbalizedConfidence", "yes_or_no"]


_YES_NO = re.compile(r"[\W_]*(yes|no)\b(?!\s*(?:/|\\|or\b|and\b)\s*(?:yes|no)\b)", re.IGNORECASE)


def _filled(template: str, fields: Mapping[str, Any]) -> str:
    """A template with its ``{names}`` replaced; braces in what replaces them stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda m: str(fields[m[1]]) if m[1] in fields else m[0], template)


def yes_or_no(generation: Generation) -> bool | None:
    """Whether an answer begins with yes (True) or no (False); None where with neither."""
    found = _YES_NO.match(str(generation.response))
    return None if found is None else found[1].lower() == "yes"


class Asking(BaseEstimator):
    """What asks a generator about responses, by a template of its own or the one it is given."""

    _template: str
    generator: Any
    template: str | Callable[[Any, Any], Any] | None
    max_attempts: int
    seed: int

    def fingerprint(self) -> str:
        """Hexadecimal digest of what an answer depends on."""
        return digest_of(type(self), self.get_params(deep=False))

    def _question(self, subject: Any, fields: Mapping[str, Any], response: Any) -> Any:
        """What to ask about a response to `subject`, which the template knows as `fields`."""
        if callable(self.template):
            return self.template(subject, response)
        template = self._template if self.template is None else self.template
        if "{response}" not in template:
            raise ValueError(f"template must hold '{{response}}', got {template!r:.80}.")
        return _filled(template, {**fields, "response": response})

    def _ask(
        self, questions: Sequence[Any], understand: Callable[[Generation], Any], wanted: str
    ) -> list[Any]:
        """What `understand` makes of an answer to each question; asked again where that is None.

        The first draw is the first answer, the second one the next, and so on: answers are as keyed
        as the generator's draws.
        """
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts}.")
        understood: list[Any] = [None] * len(questions)
        answers: dict[int, Generation] = {}
        unclear = list(range(len(questions)))
        for attempt in range(self.max_attempts):
            asked = [questions[i] for i in unclear]
            rows = sample(self.generator, asked, 1, start=attempt, seed=self.seed)
            for i, (answers[i],) in zip(unclear, rows):
                understood[i] = understand(answers[i])
            unclear = [i for i in unclear if understood[i] is None]
            if not unclear:
                return understood
        first = unclear[0]
        raise ValueError(
            f"{type(self.generator).__name__} gave no answer that begins with {wanted}, in "
            f"{self.max_attempts} attempts, to {len(unclear)} of {len(questions)} questions; its "
            f"last one to the first of them ({questions[first]!r:.200}) was "
            f"{answers[first].response!r:.80}."
        )


_TEMPLATE = """\
Judge whether a response is acceptable: whether it says what the reference says, in whatever words.

Reference: {reference}

Response: {response}

Is the response acceptable? Begin your answer with yes or no.
Answer:"""


class LLMJudge(Asking):
    """Admission that asks a language model whether a response is acceptable.

    What it admits defines what the guarantee is about. Where its errors matter, let it be stricter
    than you are: calibration with a stricter admission holds for the laxer one, too
    (Corollary A.4 of the paper).

    Parameters
    ----------
    generator : object with a method ``sample``
        Answers the question, as in :mod:`sklearn_clm.generators`. Best a deterministic one, or a
        :class:`~sklearn_clm.generators.CachedGenerator` of one that is not.
    template : str or callable, default=None
        The question. A text with ``{reference}`` and ``{response}``; a reference that is a mapping
        fills in fields of its own, such as ``{question}``. Or a callable
        ``(reference, response) -> prompt``. None asks whether the response says what the reference
        says. For components, ask about the part that ``{response}`` then is.
    max_attempts : int, default=5
        How many answers to draw, one after the other, until one begins with yes or no.
    seed : int, default=0
        Seed of the answers.

    Examples
    --------
    >>> from sklearn_clm.generators import BaseGenerator, Generation
    >>> from sklearn_clm.scoring import LLMJudge
    >>> class Model(BaseGenerator):  # stands for a real one
    ...     def sample(self, prompts, n_samples, *, start=0, seed=0):
    ...         yes = Generation("Yes, it says so."), Generation("No.")
    ...         return [[yes["Lyon" in prompt]] * n_samples for prompt in prompts]
    >>> judge = LLMJudge(Model())
    >>> judge("Paris", "It is Paris."), judge("Paris", "It is Lyon.")
    (True, False)
    """

    _template = _TEMPLATE
    judges_whole = True

    def __init__(
        self,
        generator: Any,
        *,
        template: str | Callable[[Any, Any], Any] | None = None,
        max_attempts: int = 5,
        seed: int = 0,
    ) -> None:
        self.generator = generator
        self.template = template
        self.max_attempts = max_attempts
        self.seed = seed

    def __call__(self, reference: Any, response: Any) -> bool:
        """Whether the model calls `response` acceptable given `reference`."""
        return bool(self.judge_pairs([reference], [response])[0])

    def judge_pairs(
        self, references: Sequence[Any], responses: Sequence[Any], *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Judgement of each pair, from one stream of questions.

        Parameters
        ----------
        references, responses : sequences of length n
            The pairs.
        n_jobs : int, default=None
            No effect: how many questions are asked at a time is the generator's affair.

        Returns
        -------
        ndarray of shape (n,), bool

        Raises
        ------
        ValueError
            If an answer cannot be understood in `max_attempts` attempts, or the template lacks
            ``{response}``.
        """
        questions = [
            self._question(reference, _fields(reference), response)
            for reference, response in zip(references, responses)
        ]
        return np.array(self._ask(questions, yes_or_no, "yes or no"), dtype=bool)


def _fields(reference: Any) -> dict[str, Any]:
    return dict(reference) if isinstance(reference, Mapping) else {"reference": reference}


_P_TRUE = """\
Question: {prompt}

Proposed answer: {response}

Is the proposed answer right? Begin your answer with yes or no.
Answer:"""
_VERBALIZED = """\
Question: {prompt}

Proposed answer: {response}

How likely is it that the proposed answer is right? Begin your answer with a number from 0 \
(certainly wrong) to 100 (certainly right).
Answer:"""
_NUMBER = re.compile(r"[^\w.-]*(\d{1,3}(?:\.\d+)?)(?!\.?\d)")


class _AskedQuality(Asking):
    """Quality from what a model says of each response."""

    def bind(self, generator: Any) -> Self:
        """This quality with a generator to ask: its own, or else the one given."""
        if self.generator is not None:
            return self
        return type(self)(**{**self.get_params(deep=False), "generator": generator})

    def score_draws(
        self, prompts: Sequence[Any], generations: Sequence[Sequence[Generation]], start: int = 0
    ) -> np.ndarray:
        """Quality of the draws from `start` on; equal responses to a prompt are asked about once.

        Parameters
        ----------
        prompts : sequence of length n
            The prompts.
        generations : sequence of n sequences of K Generation
            The draws so far.
        start : int, default=0
            First draw to score.

        Returns
        -------
        ndarray of shape (n, K - start)
            Between 0 and 1.

        Raises
        ------
        ValueError
            If there is no generator to ask, or an answer cannot be understood in `max_attempts`
            attempts.
        """
        if self.generator is None:
            raise ValueError(
                f"{type(self).__name__} has no generator to ask; wanted "
                f"{type(self).__name__}(generator)."
            )
        questions: dict[bytes, Any] = {}
        rows: list[list[bytes]] = []
        for prompt, row in zip(prompts, generations):
            fields = {"prompt": _as_text(prompt)}
            asked = [self._question(prompt, fields, draw.response) for draw in row[start:]]
            rows.append([prompt_bytes(question) for question in asked])
            questions.update(zip(rows[-1], asked))
        answers = dict(zip(questions, self._answers(list(questions.values()))))
        shape = len(rows), len(rows[0]) if rows else 0
        values = [answers[key] for row in rows for key in row]
        return np.array(values, dtype=np.float64).reshape(shape)

    @abstractmethod
    def _answers(self, questions: list[Any]) -> list[float]:
        """A quality from the answers to each question."""


class PTrue(_AskedQuality):
    """Probability that a model answers yes when asked whether a response is right.

    Where its answers come with log-probabilities, one answer tells the probability; elsewhere it is
    the share of yes among several answers.

    Parameters
    ----------
    generator : object with a method ``sample``, default=None
        Answers the question. None in an estimator means the estimator's own generator; one without
        a prompt template and stop strings of its own is better.
    template : str or callable, default=None
        The question, a text with ``{prompt}`` and ``{response}``, or a callable
        ``(prompt, response) -> prompt``.
    n_answers : int, default=5
        Number of answers where they come without log-probabilities.
    max_attempts : int, default=5
        How many answers to draw, one after the other, until one begins with yes or no.
    seed : int, default=0
        Seed of the answers.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation, PrecomputedGenerator
    >>> from sklearn_clm.scoring import PTrue
    >>> model = PrecomputedGenerator(["2+2? 5?"], [["No.", "no", "Yes", "No", "no way"]])
    >>> quality = PTrue(model, template="{prompt} {response}?")
    >>> quality.score_draws(["2+2?"], [[Generation("5")]])
    array([[0.2]])
    """

    _template = _P_TRUE

    def __init__(
        self,
        generator: Any = None,
        *,
        template: str | Callable[[Any, Any], Any] | None = None,
        n_answers: int = 5,
        max_attempts: int = 5,
        seed: int = 0,
    ) -> None:
        self.generator = generator
        self.template = template
        self.n_answers = n_answers
        self.max_attempts = max_attempts
        self.seed = seed

    def _answers(self, questions: list[Any]) -> list[float]:
        first = self._ask(questions, _probability_of_yes, "yes or no")
        unknown = [k for k, (known, _) in enumerate(first) if not known]
        values = [value for _, value in first]
        # question by question: a score must not hang on what else is asked
        asked = [questions[k] for k in unknown]
        rows = sample(self.generator, asked, self.n_answers, seed=self.seed) if asked else []
        for k, row in zip(unknown, rows):
            # answers that are neither yes nor no do not count
            votes = [vote for vote in map(yes_or_no, row) if vote is not None]
            values[k] = float(np.mean(votes or [values[k]]))
        return values


class VerbalizedConfidence(_AskedQuality):
    """Confidence that a model names when asked how likely it is that a response is right.

    Parameters
    ----------
    generator : object with a method ``sample``, default=None
        Answers the question. None in an estimator means the estimator's own generator; one without
        a prompt template and stop strings of its own is better.
    template : str or callable, default=None
        The question, a text with ``{prompt}`` and ``{response}``, or a callable
        ``(prompt, response) -> prompt``. It asks for a number from 0 to 100.
    max_attempts : int, default=5
        How many answers to draw, one after the other, until one begins with such a number.
    seed : int, default=0
        Seed of the answers.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation, PrecomputedGenerator
    >>> from sklearn_clm.scoring import VerbalizedConfidence
    >>> model = PrecomputedGenerator(["2+2? 5?"], [["3 %"]])
    >>> quality = VerbalizedConfidence(model, template="{prompt} {response}?")
    >>> quality.score_draws(["2+2?"], [[Generation("5")]])
    array([[0.03]])
    """

    _template = _VERBALIZED

    def __init__(
        self,
        generator: Any = None,
        *,
        template: str | Callable[[Any, Any], Any] | None = None,
        max_attempts: int = 5,
        seed: int = 0,
    ) -> None:
        self.generator = generator
        self.template = template
        self.max_attempts = max_attempts
        self.seed = seed

    def _answers(self, questions: list[Any]) -> list[float]:
        return self._ask(questions, _percentage, "a number from 0 to 100")


def _probability_of_yes(answer: Generation) -> tuple[bool, float] | None:
    """Whether the probability is known, and the probability (else 1 or 0)."""
    verdict = yes_or_no(answer)
    if verdict is None:
        return None
    if not answer.token_logprobs:
        return False, float(verdict)
    probability = math.exp(sum(answer.token_logprobs[: _n_tokens_of_verdict(answer)]))
    return True, probability if verdict else 1.0 - probability


def _n_tokens_of_verdict(answer: Generation) -> int:
    """Number of tokens up to the end of the word yes or no."""
    if answer.token_spans is None:
        return 1
    text = str(answer.response)
    end = re.search(r"yes|no", text, re.IGNORECASE).end()  # type: ignore[union-attr]
    return next((k for k, (_, stop) in enumerate(answer.token_spans, 1) if stop >= end), 1)


def _percentage(answer: Generation) -> float | None:
    found = _NUMBER.match(str(answer.response))
    if found is None or float(found[1]) > 100.0:
        return None
    return float(found[1]) / 100.0


def _as_text(prompt: Any) -> Any:
    """The contents of chat messages; any other prompt as it is."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        contents = [message.get("content") for message in prompt if isinstance(message, dict)]
        texts = [content for content in contents if isinstance(content, str)]
        if texts:
            return "\n\n".join(texts)
    return prompt
