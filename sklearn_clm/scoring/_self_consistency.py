"""Quality of a response as its agreement with what was drawn before it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation
from sklearn_clm.scoring._similarity import similarity_tensor

__all__ = ["SelfConsistency"]


class SelfConsistency(BaseEstimator):
    """Agreement of a response with the earlier draws for its prompt.

    It needs no log-probabilities. Only *earlier* draws count, so that the quality of a draw is
    known at the moment when the sampling rule asks for it, and never changes afterwards.

    Parameters
    ----------
    similarity : {"rouge_l", "exact_match"}, callable or object, default="rouge_l"
        What agreement is, as in :func:`get_similarity`; between 0 and 1 for the built-in ones.
    threshold : float or None, default=None
        With a threshold, two draws agree fully (1) where their similarity is at least this, and
        not at all (0) otherwise: the quality is then a share of near-duplicates. None uses the
        similarity as it is.
    prior : float, default=0.5
        Quality of the first draw, which has no earlier one. It goes on counting as one earlier
        draw with this agreement, so that two draws that happen to agree do not score like twenty.

    Notes
    -----
    The quality of draw j = 0, 1, ... is ``(prior + s_j0 + ... + s_j(j-1)) / (j + 1)``, with s_jl
    the similarity of draws j and l, or 1 and 0 for above and below the threshold.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import SelfConsistency
    >>> draws = [Generation(text) for text in ("Paris", "Lyon", "Paris", "Paris")]
    >>> SelfConsistency().score_draws(["Q: ?"], [draws], start=0)
    array([[0.5  , 0.25 , 0.5  , 0.625]])
    """

    # the sum is taken draw by draw: other orders round differently, and a threshold found on
    # draws scored together would then be missed by a draw scored alone

    def __init__(
        self, similarity: Any = "rouge_l", threshold: float | None = None, prior: float = 0.5
    ) -> None:
        self.similarity = similarity
        self.threshold = threshold
        self.prior = prior

    def score_draws(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        start: int = 0,
    ) -> np.ndarray:
        """Quality of the draws from `start` on.

        Parameters
        ----------
        prompts : sequence of length n
            The prompts (not used).
        generations : sequence of n sequences of K Generation
            The draws so far, in draw order.
        start : int, default=0
            First draw to score.

        Returns
        -------
        ndarray of shape (n, K - start)
            The same numbers, to the last bit, for any `start` and K.
        """
        responses = [[generation.response for generation in row] for row in generations]
        agreement = similarity_tensor(self.similarity, responses, start=start)
        n_earlier = np.arange(start, start + agreement.shape[1])
        if self.threshold is not None:
            agrees = agreement >= self.threshold
            earlier = np.arange(agreement.shape[2]) < n_earlier[:, np.newaxis]
            agreement = (agrees & earlier).astype(np.float64)
        total = np.full(agreement.shape[:2], float(self.prior))
        for draw in range(agreement.shape[2]):
            total += agreement[:, :, draw]
        return total / (n_earlier + 1.0)
