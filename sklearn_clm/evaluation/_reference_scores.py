"""How surely each sentence of a reference is covered: what recall over all thresholds needs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.scoring import component_match, component_of, component_spans

__all__ = ["reference_scores"]


def reference_scores(
    references: Sequence[str],
    components: Sequence[Sequence[str]],
    scores: Sequence[ArrayLike],
    *,
    match: str | Callable[[Any, Any], bool] = "rouge_l",
    splitter: Any = "sentence",
) -> list[np.ndarray]:
    """Highest score of a component that almost matches each sentence of a reference (Appendix G).

    A selection at threshold gamma covers the sentences whose number is at least gamma.

    Parameters
    ----------
    references : sequence of n str
        One reference for each prompt.
    components : sequence of n sequences of str
        The components of the draws for each prompt.
    scores : sequence of n 1-D arrays
        Their scores.
    match : {"rouge_l", "exact_match"} or callable, default="rouge_l"
        When ``match(reference sentence, component)`` holds: "rouge_l" is a ROUGE-L of at least
        0.4.
    splitter : str or callable, default="sentence"
        Splits references, as in :func:`~sklearn_clm.scoring.get_splitter`.

    Returns
    -------
    list of n ndarray
        One number for each sentence of each reference; -inf where no component matches. As
        `reference_scores` of :func:`run_component_trials`.

    Raises
    ------
    TypeError
        If a reference is not text.
    ValueError
        If the lengths differ.

    Examples
    --------
    >>> from sklearn_clm.evaluation import reference_scores
    >>> reference_scores(
    ...     ["There is no effusion. The lungs are clear."],
    ...     [["No effusion.", "No effusion today.", "The heart is large."]],
    ...     [[0.5, 0.7, 0.9]],
    ...     match=lambda sentence, component: "effusion" in sentence and "effusion" in component,
    ... )
    [array([ 0.7, -inf])]
    """
    if not len(references) == len(components) == len(scores):
        raise ValueError(
            f"references, components and scores are for {len(references)}, {len(components)} and "
            f"{len(scores)} prompts; wanted the same number."
        )
    almost = component_match(match, splitter).admission
    best = []
    for i, (reference, texts, values) in enumerate(zip(references, components, scores)):
        if not isinstance(reference, str):
            raise TypeError(f"references[{i}] must be a str, got {type(reference).__name__}.")
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (len(texts),):
            raise ValueError(
                f"scores[{i}] has shape {values.shape}; wanted ({len(texts)},), one for each of "
                "the components."
            )
        best.append(_best_matches(reference, texts, values, almost, splitter))
    return best


def _best_matches(
    reference: str,
    components: Sequence[str],
    scores: np.ndarray,
    match: Callable[[Any, Any], bool],
    splitter: Any,
) -> np.ndarray:
    # from the surest down, so that the first match is the best
    order = np.argsort(-scores, kind="stable")
    return np.array(
        [
            next((scores[i] for i in order if match(sentence, components[i])), -np.inf)
            for sentence in (
                component_of(reference, span) for span in component_spans(splitter, reference)
            )
        ],
        dtype=np.float64,
    )
