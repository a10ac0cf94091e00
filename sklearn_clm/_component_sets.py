"""What component selection returns: the trusted components of each prompt's responses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_clm import _views
from sklearn_clm._prediction_sets import PredictionSet
from sklearn_clm._set_sequence import SetSequence, all_numbers
from sklearn_clm.scoring import Occurrence

__all__ = ["ComponentSet", "ComponentSets"]


@dataclass(frozen=True, eq=False)
class ComponentSet:
    """The components selected for one prompt: all of them are trusted.

    Parameters
    ----------
    components : tuple of length m
        The components, in the order in which they first occur. May be empty.
    scores : ndarray of shape (m,)
        Their scores F^c, the maximum over occurrences.
    occurrences : tuple of m tuples of Occurrence
        Where each of them stands: index of the draw, and characters of its response.
    prediction_set : PredictionSet
        The responses that they come from.
    guaranteed : bool
        False where no threshold could be certified. The selection is empty then, which is valid
        but says nothing.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, ComponentSet
    >>> answer = PredictionSet("Q: ?", ("Yes. No.",), [0.9], [1], 2, 0.9, True, True)
    >>> print(ComponentSet(("Yes.",), [0.8], [[(1, (0, 4))]], answer, guaranteed=True))
    Q: ?
      draw 2, quality 0.9: **Yes.** No.
    trusted components:
      0.8  Yes.  (draw 2)
    """

    components: tuple[Any, ...]
    scores: np.ndarray
    occurrences: tuple[tuple[Occurrence, ...], ...]
    prediction_set: PredictionSet
    guaranteed: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "scores", np.asarray(self.scores, dtype=np.float64))
        places = tuple(tuple(Occurrence(*place) for place in row) for row in self.occurrences)
        object.__setattr__(self, "occurrences", places)

    @property
    def prompt(self) -> Any:
        """The prompt."""
        return self.prediction_set.prompt

    def __len__(self) -> int:
        return len(self.components)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.components)

    def __contains__(self, component: Any) -> bool:
        return component in self.components

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComponentSet):
            return NotImplemented
        return (
            self.components == other.components
            and np.array_equal(self.scores, other.scores)
            and self.occurrences == other.occurrences
            and self.prediction_set == other.prediction_set
            and self.guaranteed == other.guaranteed
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return _views.component_set_text(self)

    def _repr_html_(self) -> str:
        return _views.component_set_html(self)


class ComponentSets(SetSequence[ComponentSet]):
    """Selected components for n prompts: a sequence, indexed like an array.

    ``sets[3]`` is a :class:`ComponentSet`; a slice, an array of indices or a boolean mask gives a
    :class:`ComponentSets`. As an array it has shape (n, m), each row the components in order,
    padded with NaN where all responses are numbers and with None otherwise; m is the largest
    number of components, but at least `min_width`.

    Parameters
    ----------
    sets : sequence of ComponentSet
        One for each prompt.
    min_width : int, default=1
        Smallest width as an array. The selector passes the budget of draws, so that the width of
        numeric predictions does not depend on which prompts are predicted together.
    selector : ComponentSelector, optional
        The estimator that made them. It does not travel with a pickle.

    Attributes
    ----------
    shape : tuple (n, m)
    dtype : numpy.dtype
        float64 where all responses are numbers, otherwise object.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm import ComponentSet, ComponentSets, PredictionSet
    >>> answer = PredictionSet("Q: ?", ("Yes. No.",), [0.9], [0], 1, 0.9, True, True)
    >>> one = ComponentSet(("Yes.",), [0.8], [[(0, (0, 4))]], answer, True)
    >>> two = ComponentSet((), [], [], answer, True)
    >>> np.asarray(ComponentSets([one, two], min_width=2))
    array([['Yes.', None],
           [None, None]], dtype=object)
    """

    _maker = "selector"

    def __init__(
        self, sets: Sequence[ComponentSet], min_width: int = 1, *, selector: Any = None
    ) -> None:
        self._sets = list(sets)
        self.min_width = int(min_width)
        self.selector = selector

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self._sets), max([self.min_width, *map(len, self._sets)]))

    @property
    def components(self) -> list[list[Any]]:
        """The selected components of each prompt."""
        return [list(one.components) for one in self._sets]

    def _take(self, rows: np.ndarray) -> "ComponentSets":
        return ComponentSets([self._sets[i] for i in rows], self.min_width, selector=self.selector)

    @staticmethod
    def _is_numeric(one: ComponentSet) -> bool:
        # an empty selection from a text model is still text: the responses tell
        responses = (draw.response for draw in one.prediction_set.generations)
        return all_numbers([*one.components, *one.prediction_set.responses, *responses])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComponentSets):
            return NotImplemented
        return self._sets == other._sets

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per selected component.

        Returns
        -------
        pandas.DataFrame
            Columns `prompt_index`, `component`, `score`, `draws` (tuple of the indices of the
            draws that hold it) and `guaranteed`.
        """
        import pandas as pd

        rows = [
            (i, component, score, tuple(place.draw for place in places), one.guaranteed)
            for i, one in enumerate(self._sets)
            for component, score, places in zip(one.components, one.scores, one.occurrences)
        ]
        columns = ["prompt_index", "component", "score", "draws", "guaranteed"]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        return f"<ComponentSets of {len(self)} prompts, {int(self.sizes.sum())} components>"

    def __str__(self) -> str:
        return _views.component_sets_text(self)

    def _repr_html_(self) -> str:
        return _views.component_sets_html(self)
