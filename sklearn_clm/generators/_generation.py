"""What one draw from a generator is."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Generation"]


@dataclass(frozen=True, slots=True)
class Generation:
    """One response drawn for a prompt, with what the generator knows about it.

    Parameters
    ----------
    response : str or object
        The response. Text for language models; a label or a number for generators over numeric
        data.
    logprob : float or None
        Natural logarithm of the *base* model's probability of the response given the prompt,
        log p(y | x), before temperature, top-k or top-p reshape it. None where unknown.
    n_tokens : int or None
        Number of generated tokens |y|, the end-of-sequence token included where the model
        emitted it.
    token_logprobs : tuple of float or None
        Natural log-probability of each generated token in its context; they sum to `logprob`.
    token_spans : tuple of (int, int) or None
        For each generated token, the characters ``response[start:stop]`` it produced. Tokens that
        produced no character of the response (end of sequence, text cut at a stop string) have
        an empty span at its end.
    finish_reason : str or None
        ``"stop"`` (end of sequence or a stop string), ``"length"`` (budget of tokens used up) or
        None (unknown).

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> Generation("Paris", logprob=-0.7, n_tokens=2).response
    'Paris'
    """

    response: Any
    logprob: float | None = None
    n_tokens: int | None = None
    token_logprobs: tuple[float, ...] | None = None
    token_spans: tuple[tuple[int, int], ...] | None = None
    finish_reason: str | None = None
