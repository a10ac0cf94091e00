"""Where the components of responses are, and when two of them are the same."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from sklearn_clm.generators import prompt_bytes
from sklearn_clm.scoring._splitters import get_splitter

__all__ = ["Span", "component_key", "component_of", "component_spans", "numbered_components"]

Span = tuple[int, int]


def component_spans(splitter: Callable[[str], Any] | str, response: Any) -> list[Span | None]:
    """Where the components of a response are.

    Parameters
    ----------
    splitter : str or callable
        As in :func:`get_splitter`.
    response : str or object
        A response. One that is not text is a single component, whose span is None.

    Returns
    -------
    list of (int, int) or None
        Character offsets, in order.

    Examples
    --------
    >>> from sklearn_clm.scoring import component_spans
    >>> component_spans("sentence", "No effusion. Lungs are clear.")
    [(0, 12), (13, 29)]
    >>> component_spans("sentence", 3.5)
    [None]
    """
    if not isinstance(response, str):
        return [None]
    return list(get_splitter(splitter)(response))


def component_of(response: Any, span: Span | None) -> Any:
    """The component at a span of a response.

    Parameters
    ----------
    response : str or object
        A response.
    span : (int, int) or None
        Its span, as :func:`component_spans` gives it.

    Returns
    -------
    str or object
        That part of the text; the response itself where the span is None.

    Examples
    --------
    >>> from sklearn_clm.scoring import component_of
    >>> component_of("No effusion. Lungs are clear.", (13, 29))
    'Lungs are clear.'
    """
    return response if span is None else response[span[0] : span[1]]


def component_key(component: Any) -> Hashable:
    """What two occurrences of one component share: the same text, or the same value."""
    if isinstance(component, str):
        return component.strip()
    return prompt_bytes(component)


def numbered_components(
    responses: Iterable[Any], spans: Iterable[Sequence[Span | None]]
) -> tuple[list[Any], list[np.ndarray]]:
    """Distinct components of responses, as they first occur, and which of them each span holds."""
    numbers: dict[Hashable, int] = {}
    components: list[Any] = []
    ids = []
    for response, row in zip(responses, spans):
        found = np.empty(len(row), dtype=np.intp)
        for c, span in enumerate(row):
            component = component_of(response, span)
            found[c] = numbers.setdefault(component_key(component), len(components))
            if found[c] == len(components):
                components.append(component)
        ids.append(found)
    return components, ids
