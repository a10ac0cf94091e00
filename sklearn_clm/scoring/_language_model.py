"""Questions to a language model, for judges, scores and splitters."""

import math
import re
import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from sklearn_clm.generators import DrawQueue, FunctionGenerator, Generation, Generator
from sklearn_clm.generators.base import answer_queue, sample
from sklearn_clm.generators.draws import prompt_bytes
from sklearn_clm.generators.identity import digest_of
from sklearn_clm.generators.prompts import texts_of_chat
from sklearn_clm.generators.records import json_value
from sklearn_clm.scoring._callables import distinct_items
from sklearn_clm.scoring._splitters import circle_of, logprobs_inside, scores_of_components
from sklearn_clm.scoring.protocols import (
    Arriving,
    Claim,
    Draws,
    PairJudge,
    PairSplitter,
    Prompt,
    Prompts,
    Reference,
    Response,
    Responses,
    Scores,
    Spans,
)

Template: TypeAlias = str | Callable[[Prompt | Reference, Response], Prompt]

# yes or no at the beginning, formatted or not, but not "yes or no" or "yes/no"
_YES_NO = re.compile(r"[\W_]*(yes|no)\b(?!\s*(?:/|\\|or\b|and\b)\s*(?:yes|no)\b)", re.IGNORECASE)


def _filled(template: str, fields: Mapping[str, object]) -> str:
    """A template with its ``{names}`` replaced, other braces kept."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        return str(fields[name]) if name in fields else match[0]

    # in one pass, so that braces of a response are never taken for names
    return re.sub(r"\{(\w+)\}", value_of, template)


def _yes_or_no(answer: Generation) -> bool | None:
    """Whether an answer begins with yes; None if unclear."""
    match = _YES_NO.match(str(answer.response))
    return None if match is None else match[1].lower() == "yes"


def _probability_of_yes(answer: Generation) -> tuple[bool, float] | None:
    """Whether the probability of yes is known, and its value."""
    match = _YES_NO.match(str(answer.response))
    if match is None:
        return None
    is_yes = match[1].lower() == "yes"
    logprobs = answer.token_logprobs
    if logprobs and answer.token_spans is not None:
        inside = logprobs_inside(answer, match.span(1))
    else:
        # without spans, a first token that need not be formatting is the word
        inside = list(logprobs[:1]) if logprobs is not None and match.start(1) == 0 else []
    if not inside:
        return False, float(is_yes)
    probability = math.exp(min(math.fsum(inside), 0.0))
    return True, probability if is_yes else 1.0 - probability


class _Asking(BaseEstimator):
    """Base of scores that ask a model from a template."""

    _template: str
    _wanted = "answers that begin with yes or no"

    def __init__(
        self,
        generator: Generator | Callable[..., Any] | None = None,
        *,
        template: Template | None = None,
        max_attempts: int = 5,
        seed: int = 0,
    ) -> None:
        self.generator = generator
        self.template = template
        self.max_attempts = max_attempts
        self.seed = seed

    def fingerprint(self) -> str:
        """Name of the class, with a digest of its parameters."""
        return f"{type(self).__name__}:{digest_of(type(self), self.get_params(deep=False))}"

    def _question(
        self, subject: Prompt | Reference, fields: Mapping[str, object], response: Response
    ) -> Prompt:
        """The question about a response to `subject`."""
        if callable(self.template):
            return self.template(subject, response)
        template = self._template if self.template is None else self.template
        if "{response}" not in template:
            raise ValueError(f"template must hold '{{response}}', got {template!r:.80}.")
        # white space around a response would end a question otherwise
        response_text = response.strip() if isinstance(response, str) else response
        return _filled(template, {**fields, "response": response_text})

    def _questions(self, pairs: Iterable[tuple[Prompt, Response]]) -> list[Prompt]:
        """The question about each prompt and response, or component."""
        return [
            self._question(prompt, {"prompt": _chat_text(prompt)}, response)
            for prompt, response in pairs
        ]

    @staticmethod
    @abstractmethod
    def _understood(answer: Generation) -> Any:
        """What an answer says; None where it is not understood."""

    def _ask(self, questions: Sequence[Prompt], take: Callable[[int, Any], None]) -> None:
        """Hand on each understood answer as it arrives.

        Attempt j takes draw j: answers are as keyed as the generator's draws.
        """
        name = type(self).__name__
        if self.generator is None:
            raise ValueError(f"generator of {name} must be given, got None instead.")
        generator: object = self.generator
        # a function of the question, as users have it: calls run beside each other
        if callable(generator) and not hasattr(generator, "sample"):
            generator = FunctionGenerator(generator)
        check_scalar(self.max_attempts, "max_attempts", Integral, min_val=1)
        unclear = list(range(len(questions)))
        answers: dict[int, object] = {}  # the last one to each question that is unclear

        def on_draw(k: int, attempt: int, answer: Generation) -> None:
            value = self._understood(answer)
            if value is None:
                answers[unclear[k]] = answer.response
            else:
                answers.pop(unclear[k], None)
                take(unclear[k], value)

        # in rounds: only what was not understood is asked again, by the next draw of its question
        for attempt in range(self.max_attempts):
            open_questions = [questions[i] for i in unclear]
            first = [attempt] * len(open_questions)
            queue = DrawQueue(
                open_questions, attempt + 1, seed=self.seed, first=first, on_draw=on_draw
            )
            answer_queue(generator, queue)
            unclear = sorted(answers)
            if not unclear:
                return
        raise ValueError(
            f"generator of {name} must give {self._wanted}, but to "
            f"{len(unclear)} of {len(questions)} questions it did not in {self.max_attempts} "
            f"attempts; got {_ends(answers.get(unclear[0]))} for {_ends(questions[unclear[0]])} "
            "instead."
        )


_TEMPLATE = """\
Judge whether a response is acceptable: whether it says what the reference says, in whatever words.

Reference: {reference}

Response: {response}

Is the response acceptable? Begin your answer with yes or no.
Answer:"""


class LLMJudge(_Asking, PairJudge):
    """Admission that asks a language model whether responses are acceptable.

    Where its errors matter, let it be stricter than you are: calibration with a stricter admission
    holds for the laxer one, too (Corollary A.4 of the paper).

    Parameters
    ----------
    generator : object with a method ``sample``, or callable
        Answers the question, as in :mod:`sklearn_clm.generators`; a function ``ask(question)``
        stands for its :class:`sklearn_clm.generators.FunctionGenerator`. Best a deterministic one,
        or a :class:`sklearn_clm.caching.CachedGenerator` of one that is not.
    template : str or callable, default=None
        The question. A text with ``{reference}`` and ``{response}`` (a reference that is a mapping
        fills in fields of its own, such as ``{question}``), or a callable
        ``(reference, response) -> prompt``. None asks whether the response says what the reference
        says.
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
    _understood = staticmethod(_yes_or_no)

    def judge_pairs(self, references: Sequence[Reference], responses: Responses) -> Arriving:
        """Verdicts as answers arrive, as in :class:`PairJudge`."""
        questions = []
        for reference, response in zip(references, responses):
            fields = reference if isinstance(reference, Mapping) else {"reference": reference}
            questions.append(self._question(reference, fields, response))
        return Arriving(partial(self._ask, questions))


_P_TRUE = """\
Question: {prompt}

Proposed answer: {response}

Is the proposed answer right? Begin your answer with yes or no.
Answer:"""


class PTrue(_Asking):
    """Probability that a model, when asked, calls a response right.

    Where answers come with log-probabilities, one answer gives the probability: that of the tokens
    which hold the word. Elsewhere it is the share of yes among several answers.

    Parameters
    ----------
    generator : object with a method ``sample``, default=None
        Answers the question. None in an estimator means its own generator; one without a prompt
        template and stop strings of its own is better.
    template, max_attempts, seed
        As in :class:`LLMJudge`; a template has ``{prompt}`` in place of the reference.
    n_answers : int, default=5
        Number of answers where they come without log-probabilities.

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
    _understood = staticmethod(_probability_of_yes)

    def __init__(
        self,
        generator: Generator | None = None,
        *,
        template: Template | None = None,
        n_answers: int = 5,
        max_attempts: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__(generator, template=template, max_attempts=max_attempts, seed=seed)
        self.n_answers = n_answers

    def bind(self, generator: Generator) -> Self:
        """A copy that asks `generator`, where it has none."""
        if self.generator is not None:
            return self
        return type(self)(**{**self.get_params(deep=False), "generator": generator})

    def score_draws(self, prompts: Prompts, generations: Draws, start: int = 0) -> np.ndarray:
        """Quality of the draws from `start` on, as in :class:`DrawScorer`.

        Equal responses to a prompt are asked about once.
        """
        rows = [
            self._questions((prompt, draw.response) for draw in row[start:])
            for prompt, row in zip(prompts, generations)
        ]
        # equal responses make equal questions, which are paid for once
        questions, numbers = distinct_items(rows, prompt_bytes)
        return np.array(self._probabilities(questions))[np.array(numbers)]

    def _probabilities(self, questions: list[Prompt]) -> list[float]:
        check_scalar(self.n_answers, "n_answers", Integral, min_val=1)
        first: dict[int, tuple[bool, float]] = {}
        self._ask(questions, first.__setitem__)
        values = [first[k][1] for k in range(len(questions))]
        # question by question: a score must not depend on what else is asked
        unknown = [k for k in range(len(questions)) if not first[k][0]]
        open_questions = [questions[k] for k in unknown]
        rows = sample(self.generator, open_questions, self.n_answers, seed=self.seed)
        for k, row in zip(unknown, rows):
            # answers that are neither yes nor no do not count
            votes = [vote for vote in map(_yes_or_no, row) if vote is not None]
            if votes:
                values[k] = float(np.mean(votes))
        return values


_CLAIMS = """\
List what a response claims, as short statements that can be checked one by one.

- One fact in each statement, in a whole sentence.
- Each makes sense by itself: names stand in place of "he", "it" or "there".
- Nothing that the response does not say, and no questions, greetings or advice.

Question: {prompt}

Response: {response}

Write one statement a line, each behind "- ". If the response claims nothing, write NONE.
Statements:"""
_ITEM = re.compile(r"(?:[-*•]|\d+[.)])\s+(.*\S)")
_FENCED = re.compile(r"```\w*\n(.*?)\n?```\Z", re.DOTALL)


def _claims_in(answer: Generation) -> list[Claim] | None:
    """Claims that an answer lists; None if it lists none."""
    text = str(answer.response).strip()
    if fenced := _FENCED.match(text):
        text = fenced[1].strip()
    if text.startswith(("[", "{")):
        return _claims_of_json(text)
    if text.strip(" .-*").upper() == "NONE":
        return []
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and not _ITEM.fullmatch(lines[0]):
        del lines[0]  # "Here they are:"
    claims = [Claim(item[1]) for line in lines if (item := _ITEM.fullmatch(line))]
    return claims if claims and len(claims) == len(lines) else None


def _claims_of_json(text: str) -> list[Claim] | None:
    """Claims of a list in JSON, or None."""
    try:
        items = json_value(text)
        items = items["claims"] if isinstance(items, dict) else items
        claims = [
            Claim(item["text"], parents=tuple(item.get("parents", ())))
            if isinstance(item, dict)
            else Claim(item)
            for item in items
        ]
    except (KeyError, TypeError, ValueError):
        return None
    positions = range(len(claims))
    for claim in claims:
        is_text = isinstance(claim.text, str) and bool(claim.text.strip())
        # one that counts from 1, or in words, is asked again
        if not is_text or any(type(k) is not int or k not in positions for k in claim.parents):
            return None
    return None if circle_of(claims) else claims


class ClaimSplitter(_Asking, PairSplitter):
    """Splitter that asks a model for claims of a response.

    A claim that stands in the response has its span, others have none. A response is asked about as
    often as it comes: :class:`sklearn_clm.caching.CachedSplitter` keeps what was paid for.

    Parameters
    ----------
    generator, max_attempts, seed
        As in :class:`LLMJudge`; answers are drawn until one can be read.
    template : str or callable, default=None
        The question, a text with ``{prompt}`` and ``{response}`` or a callable
        ``(prompt, response) -> prompt``. An answer lists a claim a line, each behind "- " or a
        number, or NONE; or it is JSON: a list of texts, or of objects with a "text" and "parents",
        positions from 0 of the claims on which it rests. Whatever cannot be read is an error.

    Examples
    --------
    >>> from sklearn_clm.scoring import ClaimSplitter
    >>> def ask(question):  # stands for a model
    ...     return "- Marie Curie was born in Warsaw.\\n- She won two prizes."
    >>> ClaimSplitter(ask)("Marie Curie?", "Born in Warsaw. She won two prizes.")
    [Claim(text='Marie Curie was born in Warsaw.', span=None, parents=()), \
Claim(text='She won two prizes.', span=None, parents=())]
    """

    _template = _CLAIMS
    _wanted = 'one claim a line behind "- ", JSON, or NONE'
    _understood = staticmethod(_claims_in)

    def split_pairs(self, prompts: Prompts, responses: Responses) -> Arriving:
        """Claims as answers arrive, as in :class:`PairSplitter`."""
        return Arriving(partial(self._ask, self._questions(zip(prompts, responses))))


_CONFIDENCE = """\
Question: {prompt}

Statement in an answer: {response}

How likely is it that this statement is true? Write a number from 0 (surely false) to 100 (surely
true), and nothing else.
Number:"""
_NUMBER = re.compile(r"\W*(\d{1,3}(?:\.\d+)?)\W*")


def _confidence_in(answer: Generation) -> float | None:
    """The number that an answer is, of 100."""
    match = _NUMBER.fullmatch(str(answer.response))
    if match is None or float(match[1]) > 100:
        return None
    return float(match[1]) / 100


class VerbalisedConfidence(_Asking):
    """Confidence in a component, as a model puts it.

    It is asked about the prompt and the component, and about no draw.

    Parameters
    ----------
    generator, template, max_attempts, seed
        As in :class:`LLMJudge`; a template has ``{prompt}`` in place of the reference, and asks for
        a number from 0 to 100.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import Claim, VerbalisedConfidence
    >>> score = VerbalisedConfidence(lambda question: "90" if "Warsaw" in question else "5 %")
    >>> claims = [[[Claim("She is from Warsaw."), Claim("She is from Oslo.")]]]
    >>> score.score_components(["Curie?"], [[Generation("...")]], claims)
    [[array([0.9 , 0.05])]]
    """

    _template = _CONFIDENCE
    _wanted = "a number from 0 to 100 alone"
    _understood = staticmethod(_confidence_in)

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return scores_of_components(prompts, generations, spans, self._score)

    def _score(self, pairs: list[tuple[Prompt, Response]]) -> np.ndarray:
        questions, (numbers,) = distinct_items([self._questions(pairs)], prompt_bytes)
        values = np.zeros(len(questions))
        self._ask(questions, values.__setitem__)
        return values[numbers]


def _ends(value: object) -> str:
    """A text where it begins, and where it ends."""
    # a question says at its end what it is about, and there an answer may go wrong
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 400
    return shortened.repr(value)


def _chat_text(prompt: Prompt) -> object:
    """The texts of a chat; other prompts unchanged."""
    return "\n\n".join(texts_of_chat(prompt)) or prompt
