"""What tells the scores of one sampler from those of another."""

import hashlib
from typing import Any

from sklearn_clm.generators import prompt_bytes
from sklearn_clm.generators._fingerprint import identity

__all__ = ["score_fingerprint"]


def score_fingerprint(score: Any) -> str:
    """Name of a score, or name and digest where it is no built-in one; itself for a fingerprint."""
    from sklearn_clm.caching import CachedAdmission, CachedScore

    if isinstance(score, (CachedAdmission, CachedScore)) and score.key is None:
        # keeping what a score says does not change it
        score = score.admission if isinstance(score, CachedAdmission) else score.score
    if isinstance(score, str):
        return score
    if hasattr(score, "fingerprint"):
        return str(score.fingerprint())
    name = getattr(score, "__qualname__", type(score).__qualname__)
    if hasattr(score, "of_set"):  # a SetScore is told by its function
        content = identity([score.name, score.of_set])
    else:
        content = identity(score)
    return f"{name}:{hashlib.blake2b(prompt_bytes(content), digest_size=16).hexdigest()}"
