"""A generator that knows no model: it draws the references it was fitted on."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_clm.generators._base import BaseGenerator
from sklearn_clm.generators._generation import Generation
from sklearn_clm.generators._identity import digest_of
from sklearn_clm.generators._keys import draw_stream

__all__ = ["ResamplingGenerator"]


class ResamplingGenerator(BaseGenerator):
    """Draw references of other prompts at random: the baseline that any model must beat.

    Like :class:`sklearn.dummy.DummyClassifier` it looks at no prompt. Each draw takes one of the
    training prompts uniformly at random and returns its reference (any one of them, uniformly,
    where it has several).

    Attributes
    ----------
    responses_ : list
        The distinct references.
    log_frequencies_ : ndarray of shape (len(responses_),)
        Natural logarithm of the probability of each; the `logprob` of a draw.

    Examples
    --------
    >>> from sklearn_clm.generators import ResamplingGenerator
    >>> generator = ResamplingGenerator().fit(["a", "b", "c"], ["yes", "no", "yes"])
    >>> [draw.response for draw in generator.sample(["d"], 4, seed=0)[0]]
    ['yes', 'yes', 'yes', 'no']
    """

    def fit(self, prompts: Sequence[Any], references: Sequence[Any]) -> "ResamplingGenerator":
        """Learn the references.

        Parameters
        ----------
        prompts : sequence of length n
            Ignored.
        references : sequence of length n
            A reference, or a list of references, for each prompt.

        Returns
        -------
        ResamplingGenerator
            Itself.

        Raises
        ------
        ValueError
            If there are no references, or if they are callables A_i, which cannot be drawn.
        """
        weights: Counter[Any] = Counter()
        for reference in references:
            options = _options(reference)
            for option in options:
                weights[option] += 1.0 / len(options)  # type: ignore[assignment]
        if not weights:
            raise ValueError("ResamplingGenerator needs at least 1 reference to draw, got none.")
        self.responses_ = list(weights)
        counts = np.array([weights[response] for response in self.responses_])
        self._cumulative = np.cumsum(counts) / counts.sum()
        self.log_frequencies_ = np.log(counts / counts.sum())
        return self

    def sample(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        """Draw references.

        Parameters
        ----------
        prompts, n_samples, start, seed
            As in :meth:`BaseGenerator.sample`. The prompt keys the draws, and is ignored
            otherwise.

        Returns
        -------
        list of lists of Generation
            With `logprob`, the log frequency of the response, and one token.
        """
        check_is_fitted(self)
        draws = range(start, start + n_samples)
        return [[self._draw(prompt, seed, draw) for draw in draws] for prompt in prompts]

    def fingerprint(self) -> str:
        """Hexadecimal digest of the class and, once fitted, of what it draws."""
        fitted = [self.responses_, self.log_frequencies_] if hasattr(self, "responses_") else []
        return digest(type(self), self.get_params(deep=False), fitted)

    def _draw(self, prompt: Any, seed: int, draw: int) -> Generation:
        k = invert(self._cumulative, draw_stream(prompt, seed, draw).random())
        response, logprob = self.responses_[k], float(self.log_frequencies_[k])
        return Generation(
            response,
            logprob,
            1,
            token_logprobs=(logprob,),
            token_spans=((0, len(response)),) if isinstance(response, str) else None,
            finish_reason="stop",
        )


def _options(reference: Any) -> list[Any]:
    if callable(reference):
        raise ValueError(
            "ResamplingGenerator draws references, but admissions (y) holds callables; pass "
            "references, or another generator."
        )
    if isinstance(reference, (set, frozenset)):
        return sorted(reference, key=repr)  # a set has another order in every process
    options = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    for option in options:
        if not isinstance(option, Hashable):
            raise ValueError(
                "ResamplingGenerator draws references that are text, numbers or other hashable "
                f"objects, got {type(option).__name__} {option!r:.60}."
            )
    return options


def digest(cls: type, params: dict[str, Any], fitted: Any) -> str:
    """Fingerprint of a generator together with what it learnt."""
    return digest_of(cls, {**params, "fitted state": fitted})


def invert(cumulative: np.ndarray, uniform: float) -> int:
    """Index that a uniform number picks from cumulative probabilities."""
    return min(int(np.searchsorted(cumulative, uniform, side="right")), len(cumulative) - 1)
