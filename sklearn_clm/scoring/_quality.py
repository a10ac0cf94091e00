"""Quality Q of a response, given its prompt (section 4.2 of the paper)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sklearn_clm.generators import Generation
from sklearn_clm.scoring._classifier_quality import ClassifierQuality
from sklearn_clm.scoring._parallel import map_chunks
from sklearn_clm.scoring._results import as_score, as_scores, refuse_unfitted
from sklearn_clm.scoring._self_consistency import SelfConsistency

__all__ = ["bind_quality", "get_quality", "likelihood", "quality_matrix"]

_LENGTH_EXPONENT = 0.6


def likelihood(prompt: Any, generation: Generation) -> float:
    """Length-normalised likelihood of a response under the base model.

    Parameters
    ----------
    prompt : object
        The prompt (not used; the log-probability is already given it).
    generation : Generation
        A draw, with `logprob` and `n_tokens`.

    Returns
    -------
    float
        ``exp(log p(y | x) / lp(y))`` with ``lp(y) = (5 + |y|)**0.6 / 6**0.6`` for |y| generated
        tokens; 0.0 where that is smaller than a float can hold.

    Raises
    ------
    ValueError
        If the log-probability or the number of tokens is unknown, or NaN.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import likelihood
    >>> round(likelihood("Q: ?", Generation("Paris", logprob=-0.5, n_tokens=1)), 4)
    0.6065
    """
    return float(_likelihoods([prompt], [[generation]], 0)[0, 0])


def _likelihoods(
    prompts: Sequence[Any], generations: Sequence[Sequence[Generation]], start: int
) -> np.ndarray:
    rows = [row[start:] for row in generations]
    logprob = np.array([[g.logprob for g in row] for row in rows], dtype=np.float64)
    n_tokens = np.array([[g.n_tokens for g in row] for row in rows], dtype=np.float64)
    unknown = np.isnan(logprob) | ~(n_tokens >= 0)
    if unknown.any():
        i, j = (int(index) for index in np.argwhere(unknown)[0])
        draw = rows[i][j]
        raise ValueError(
            'quality="likelihood" needs the log-probability and the number of tokens of every '
            f"draw, got logprob={draw.logprob!r} and n_tokens={draw.n_tokens!r} for draw "
            f"{start + j} of prompt {i} ({prompts[i]!r:.80}). For a generator that gives none: "
            'quality="self_consistency", "p_true" or "verbalized" (the model asked whether '
            "its answer is right), or a callable (prompt, generation) -> float."
        )
    penalty = ((5.0 + n_tokens) / 6.0) ** _LENGTH_EXPONENT
    with np.errstate(under="ignore", over="ignore"):
        return np.exp(logprob / penalty)


def _asked(name: str) -> Any:
    from sklearn_clm.scoring import _verbalized

    return getattr(_verbalized, name)()


_QUALITIES: dict[str, Callable[[], Any]] = {
    "likelihood": lambda: likelihood,
    "p_true": lambda: _asked("PTrue"),
    "self_consistency": SelfConsistency,
    "verbalized": lambda: _asked("VerbalizedConfidence"),
}


def get_quality(quality: Any) -> Any:
    """Quality from its name.

    Parameters
    ----------
    quality : str, callable, classifier or object
        "likelihood", "self_consistency", "p_true" and "verbalized" are known by name. A callable
        ``f(prompt, generation) -> float`` scores one draw. An object with a method
        ``score_draws(prompts, generations, start)`` scores all draws from `start` on at once,
        as an array of shape (n, K - start); its score of draw j may depend on draws up to j
        alone. A fitted classifier with ``predict_proba`` stands for
        :class:`ClassifierQuality` of it.

    Returns
    -------
    callable or object with a method ``score_draws``
        The quality.

    Raises
    ------
    ValueError
        If the name is unknown, or the classifier is not fitted.
    TypeError
        If it is none of these.

    Examples
    --------
    >>> from sklearn_clm.scoring import get_quality
    >>> get_quality("self_consistency")
    SelfConsistency()
    """
    if isinstance(quality, str):
        if quality not in _QUALITIES:
            raise ValueError(
                f"quality={quality!r} is unknown; wanted one of {sorted(_QUALITIES)}, a callable "
                "(prompt, generation) -> float, an object with a method score_draws, or a fitted "
                "classifier with predict_proba."
            )
        return _QUALITIES[quality]()
    if not isinstance(quality, type):
        if hasattr(quality, "score_draws"):
            return quality
        if hasattr(quality, "predict_proba"):
            refuse_unfitted(quality, "quality")
            return ClassifierQuality(quality)
        if callable(quality):
            return quality
    raise TypeError(
        "quality must be a name, a callable (prompt, generation) -> float, an object with a "
        "method score_draws, or a fitted classifier with predict_proba, got "
        f"{type(quality).__name__} {quality!r:.80}."
    )


def bind_quality(quality: Any, generator: Any) -> Any:
    """Quality from its name; one that has to ask a model and has none asks `generator`."""
    quality = get_quality(quality)
    return quality.bind(generator) if hasattr(quality, "bind") else quality


def quality_matrix(
    quality: Any,
    prompts: Sequence[Any],
    generations: Sequence[Sequence[Generation]],
    *,
    start: int = 0,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Quality of the draws from `start` on.

    Parameters
    ----------
    quality : str, callable, classifier or object
        As in :func:`get_quality`.
    prompts : sequence of length n
        The prompts.
    generations : sequence of n sequences of K Generation
        The draws so far, in draw order.
    start : int, default=0
        First draw to score, 0 <= start <= K.
    n_jobs : int, default=None
        Number of workers for a callable, as in joblib.

    Returns
    -------
    ndarray of shape (n, K - start), float64
        The qualities. They are the same whether draws are scored together or bit by bit.

    Raises
    ------
    ValueError
        If a quality is NaN, not a real number, or of the wrong shape; if quality="likelihood"
        and a log-probability is unknown; if prompts have different numbers of draws.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import quality_matrix
    >>> draws = [[Generation("yes"), Generation("no"), Generation("yes")]]
    >>> quality_matrix(lambda prompt, draw: len(draw.response), ["Q: ?"], draws, start=1)
    array([[2., 3.]])
    """
    from sklearn_clm.scoring import CachedScore

    quality = get_quality(quality)
    if len(prompts) != len(generations):
        raise ValueError(
            f"prompts and generations differ in length: {len(prompts)} and {len(generations)}."
        )
    size = len(generations[0]) if len(generations) else 0
    for i, row in enumerate(generations):
        if len(row) != size:
            raise ValueError(
                f"generations[{i}] holds {len(row)} draws and generations[0] {size}; wanted the "
                "same number for every prompt."
            )
    if not 0 <= start <= size:
        raise ValueError(f"start must be between 0 and {size} (the draws so far), got {start!r}.")
    shape = len(prompts), size - start
    if shape[0] == 0 or shape[1] == 0:
        return np.zeros(shape)
    if quality is likelihood:
        return _likelihoods(prompts, generations, start)
    if hasattr(quality, "score_draws"):
        return as_scores(
            quality.score_draws(prompts, generations, start), shape, "quality", quality
        )
    if isinstance(quality, CachedScore):
        pairs = [
            (prompt, draw) for prompt, row in zip(prompts, generations) for draw in row[start:]
        ]
        return quality.score_pairs(*zip(*pairs), n_jobs=n_jobs).reshape(shape)
    draws = [
        (prompt, row[j], f"draw {j} of prompt {i} ({row[j].response!r:.80})")
        for i, (prompt, row) in enumerate(zip(prompts, generations))
        for j in range(start, size)
    ]
    return np.array(map_chunks(_score_chunk, draws, quality, n_jobs=n_jobs)).reshape(shape)


def _score_chunk(
    draws: Sequence[tuple[Any, Generation, str]], quality: Callable[[Any, Generation], Any]
) -> list[float]:
    return [
        as_score(quality(prompt, generation), "quality", quality, where)
        for prompt, generation, where in draws
    ]
