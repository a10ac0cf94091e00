"""Component scores F^c from names or callables, and what is checked of any of them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sklearn_clm.generators import Generation
from sklearn_clm.scoring._component_scorers import (
    CallableScore,
    ComponentClassifier,
    RandomScore,
    SpanLikelihood,
    Support,
)
from sklearn_clm.scoring._component_spans import Span
from sklearn_clm.scoring._results import name_of, refuse_unfitted

__all__ = ["ComponentScore", "component_scores", "get_component_score"]

_NAMES = ("random", "span_likelihood", "support")


@runtime_checkable
class ComponentScore(Protocol):
    """An object that scores the components of many prompts at once."""

    def score_components(
        self,
        prompts: Sequence[Any],
        generations: Sequence[Sequence[Generation]],
        spans: Sequence[Sequence[Sequence[Span | None]]],
    ) -> Sequence[Sequence[Sequence[float]]]:
        """One score for each occurrence ``spans[i][j][c]`` in ``generations[i][j].response``.

        A score that depends on the other samples of a prompt must never fall when samples are
        added (Proposition 4.4).
        """


def get_component_score(component_score: Any, *, seed: int = 0) -> ComponentScore:
    """Component score from its name, from a callable or from a classifier.

    Parameters
    ----------
    component_score : {"random", "span_likelihood", "support"}, callable, classifier or object
        A name; a callable ``f(prompt, component) -> float``, asked once for each distinct
        component of a prompt; a fitted binary classifier with ``predict_proba``, which is given
        the components (see :class:`ComponentClassifier`); or an object with a method
        ``score_components``, such as :class:`EntailmentScore`.
    seed : int, default=0
        Seed of "random".

    Returns
    -------
    ComponentScore
        An object with a method ``score_components``.

    Raises
    ------
    ValueError
        If the name is unknown, or the classifier is not fitted.
    TypeError
        If it is none of these.

    Examples
    --------
    >>> from sklearn_clm.scoring import get_component_score
    >>> get_component_score("support")
    Support()
    """
    if isinstance(component_score, str):
        if component_score == "random":
            return RandomScore(seed=seed)
        if component_score == "span_likelihood":
            return SpanLikelihood()
        if component_score == "support":
            return Support()
        raise ValueError(
            f"component_score={component_score!r} is unknown; wanted one of {list(_NAMES)}, a "
            "callable, a classifier, or an object with a method score_components."
        )
    if isinstance(component_score, type):
        raise TypeError(
            f"component_score is the class {component_score.__name__}; wanted an instance."
        )
    if hasattr(component_score, "score_components"):
        return component_score
    if hasattr(component_score, "predict_proba"):
        refuse_unfitted(component_score, "component_score")
        return ComponentClassifier(component_score)
    if callable(component_score):
        return CallableScore(component_score)
    raise TypeError(
        "component_score must be a name, a callable, a classifier, or an object with a method "
        f"score_components, got {type(component_score).__name__} {component_score!r:.80}."
    )


def component_scores(
    score: ComponentScore,
    prompts: Sequence[Any],
    generations: Sequence[Sequence[Generation]],
    spans: Sequence[Sequence[Sequence[Span | None]]],
) -> list[list[np.ndarray]]:
    """Scores of all occurrences, checked.

    Parameters
    ----------
    score : ComponentScore
        As :func:`get_component_score` gives it.
    prompts : sequence of length n
        The prompts.
    generations : sequence of n sequences of Generation
        The samples of each prompt that make up its set.
    spans : sequence of n sequences of lists of (int, int) or None
        The components of each sample, as :func:`component_spans` gives them.

    Returns
    -------
    list of n lists of 1-D arrays, float64
        One score for each entry of `spans`.

    Raises
    ------
    ValueError
        If scores are too few, too many, NaN or +inf.
    TypeError
        If scores are not numbers.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import component_scores, get_component_score
    >>> score = get_component_score(lambda prompt, component: len(component))
    >>> component_scores(score, ["Q"], [[Generation("Yes. No.")]], [[[(0, 4), (5, 8)]]])
    [[array([4., 3.])]]
    """
    name = name_of(score)
    rows = score.score_components(prompts, generations, spans)
    if len(rows) != len(prompts):
        raise ValueError(
            f"component_score {name} returned scores for {len(rows)} prompts; wanted "
            f"{len(prompts)}."
        )
    checked = []
    for i, (row, wanted) in enumerate(zip(rows, spans)):
        if len(row) != len(wanted):
            raise ValueError(
                f"component_score {name} returned scores for {len(row)} samples of prompt {i}; "
                f"wanted {len(wanted)}."
            )
        checked.append(
            [
                _checked_scores(name, scores, len(w), i, j)
                for j, (scores, w) in enumerate(zip(row, wanted))
            ]
        )
    return checked


def _checked_scores(name: str, scores: Any, n_wanted: int, i: int, j: int) -> np.ndarray:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"component_score {name} returned {scores!r} for sample {j} of prompt {i}; wanted "
            f"{n_wanted} numbers."
        ) from None
    if array.shape != (n_wanted,):
        raise ValueError(
            f"component_score {name} returned scores of shape {array.shape} for sample {j} of "
            f"prompt {i}; wanted ({n_wanted},)."
        )
    if np.isnan(array).any() or (array == np.inf).any():
        bad = int(np.argmax(np.isnan(array) | (array == np.inf)))
        raise ValueError(
            f"component_score {name} returned {array[bad]} for component {bad} of sample {j} of "
            f"prompt {i}; wanted a number below +inf."
        )
    return array
