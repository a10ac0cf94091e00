"""The distinct components of a set of responses, each scored by the maximum over occurrences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sklearn_clm.scoring._component_spans import Span, numbered_components

__all__ = ["DistinctComponents", "Occurrence", "distinct_components"]


class Occurrence(NamedTuple):
    """Where a component stands.

    Parameters
    ----------
    draw : int
        Index of the draw, from 0.
    span : (int, int) or None
        Characters of its response; None where the response is not text, and is the component.

    Examples
    --------
    >>> from sklearn_clm.scoring import Occurrence
    >>> Occurrence(draw=2, span=(0, 12)).draw
    2
    """

    draw: int
    span: Span | None


class DistinctComponents(NamedTuple):
    """The distinct components of one prompt's responses, in order of first occurrence."""

    components: list[Any]
    scores: np.ndarray
    occurrences: list[list[Occurrence]]


def distinct_components(
    responses: Sequence[Any],
    draws: Sequence[int],
    spans: Sequence[Sequence[Span | None]],
    scores: Sequence[np.ndarray],
) -> DistinctComponents:
    """Merge equal components of several responses; the maximum is their score.

    Proposition 4.4 needs the maximum: the score of a component must not rise when responses are
    taken away. It can under a mean, or if the last occurrence wins.
    """
    components, ids = numbered_components(responses, spans)
    best = np.full(len(components), -np.inf)
    occurrences: list[list[Occurrence]] = [[] for _ in components]
    for draw, row, numbers, row_scores in zip(draws, spans, ids, scores):
        np.maximum.at(best, numbers, row_scores)
        for number, span in zip(numbers, row):
            occurrences[number].append(Occurrence(int(draw), span))
    return DistinctComponents(components, best, occurrences)
