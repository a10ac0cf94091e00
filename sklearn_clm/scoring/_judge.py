"""A language model as the judge of responses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sklearn_clm.scoring._asking import Asking, yes_or_no

__all__ = ["LLMJudge"]

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
