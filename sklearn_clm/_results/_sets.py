"""What the estimators return: sets of responses and of components, one for each prompt."""

import copy
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, overload

import numpy as np

from sklearn_clm._results import _html
from sklearn_clm.calibration import Claim, Provenance
from sklearn_clm.generators import Generation
from sklearn_clm.generators._draws import Occurrence, Prompt, Response, prompt_bytes
from sklearn_clm.generators._prompts import prompt_line

if TYPE_CHECKING:
    import pandas as pd


_COLUMNS = [
    *("prompt", "responses", "quality", "indices", "size", "n_samples", "set_score", "stopped"),
    "guaranteed",
]
_SHOWN = 400  # characters of a set on one line
_USUAL = Claim(0.5, 0.5)  # what sets without a claim say of it


class _SetOfOne:
    """A set of members for one prompt, and what it says of its guarantee."""

    guaranteed: bool
    claim: Claim | None

    @property
    @abstractmethod
    def members(self) -> tuple[Response, ...]:
        """The members, in order."""

    @property
    def group(self) -> Hashable | None:
        """The group within which the guarantee holds; None for all prompts together."""
        return None if self.claim is None else self.claim.group

    @property
    def provenance_known(self) -> bool:
        """Whether calibration knew what its data were collected with."""
        return self.claim is None or not self.claim.unknown

    def unguaranteed(self, why: str) -> Self:
        """The same set without a guarantee.

        Parameters
        ----------
        why : str
            Why nothing is guaranteed.

        Returns
        -------
        PredictionSet or ComponentSet
        """
        claim = None if self.claim is None else self.claim.nullified(why)
        return replace(self, guaranteed=False, claim=claim)  # type: ignore[type-var]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Response]:
        return iter(self.members)

    def __contains__(self, member: object) -> bool:
        return member in self.members

    @abstractmethod
    def _key(self) -> tuple[object, ...]:
        """What sets are compared by."""

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, type(self)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


_Set = TypeVar("_Set", bound=_SetOfOne)


class SetSequence(Sequence[_Set]):
    """One set for each of n prompts, indexed like an array and turned into one."""

    # the attribute that holds the estimator that made the sets
    _maker: ClassVar[str]
    _sets: list[_Set]
    _index: "pd.Index | None"  # `index` is a method of sequences

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @staticmethod
    @abstractmethod
    def _is_numeric(one: _Set) -> bool:
        """Whether all responses behind a set are numbers."""

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float64 if all(map(self._is_numeric, self._sets)) else object)

    @property
    def sizes(self) -> np.ndarray:
        """Number of members of each set, an int array of shape (n,)."""
        return np.array([len(one) for one in self._sets], dtype=np.intp)

    @property
    def guaranteed(self) -> bool:
        """Whether every set carries the guarantee."""
        return all(one.guaranteed for one in self._sets)

    @property
    def provenance_known(self) -> bool:
        """Whether calibration knew what the data behind every set were collected with."""
        return all(one.provenance_known for one in self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[_Set]:
        return iter(self._sets)

    @overload
    def __getitem__(self, key: int | np.integer) -> _Set: ...
    @overload
    def __getitem__(self, key: Any) -> Self: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, np.integer)):
            return self._sets[key]
        if isinstance(key, tuple):
            # scikit-learn takes rows by [rows, ...]; all else is about single members
            if len(key) != 2 or key[1] is not Ellipsis:
                return np.asarray(self)[key]
            key = key[0]
        rows = np.arange(len(self))[key if isinstance(key, slice) else np.asarray(key)]
        taken = copy.copy(self)
        setattr(taken, self._maker, getattr(self, self._maker))
        taken._sets = [self._sets[i] for i in rows]
        taken._index = None if self._index is None else self._index.take(rows)
        return taken

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.shape == other.shape and self._sets == other._sets

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # numpy asks for no more than this; there is no array that could be shared
        own = self.dtype
        array = np.full(self.shape, np.nan if own.kind == "f" else None, dtype=own)
        for row, one in zip(array, self._sets):
            for j, member in enumerate(one):
                row[j] = member
        return array if dtype is None else array.astype(dtype)

    def __getstate__(self) -> dict[str, Any]:
        # sets are kept and sent around by the thousand: without the model and its data
        return {**self.__dict__, self._maker: None}

    def _with_claims(self, frame: "pd.DataFrame", rows: Iterable[int]) -> "pd.DataFrame":
        """The frame, with what the claims of the sets at these rows say beyond the usual."""
        sets = [self._sets[i] for i in rows]
        claims = [one.claim or _USUAL for one in sets]
        if any(claim.guarantee != "pac" for claim in claims):
            frame["guarantee"] = [claim.guarantee for claim in claims]
        if any(claim.group is not None for claim in claims):
            frame["group"] = [claim.group for claim in claims]
        if any(claim.approximate for claim in claims):
            frame["approximate"] = [claim.approximate for claim in claims]
        if not self.provenance_known:
            frame["provenance"] = "unknown"
        return frame


def _shortened(one: object) -> str:
    text = " ".join(str(one).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 40]} … {text[-38:]}"


def _as_key(prompt: Prompt) -> object:
    """The prompt as what can be compared, NaN in it included."""
    try:
        return prompt_bytes(prompt)
    except (TypeError, ValueError):  # no draws are keyed by such a prompt
        return prompt


def all_numbers(values: Iterable[object]) -> bool:
    """Whether no value is anything but a number."""
    return all(isinstance(value, (bool, int, float, np.number, np.bool_)) for value in values)


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSet(_SetOfOne):
    """The set of responses returned for one prompt.

    Parameters
    ----------
    prompt : object
        The prompt.
    responses : tuple of length m
        The accepted responses, in the order they were drawn, and as the model gave them: leading
        white space stays, which "exact_match" and "rouge_l" ignore. May be empty where the budget
        of draws was used up without an accepted one.
    quality : ndarray of shape (m,)
        Quality of the accepted responses.
    indices : ndarray of shape (m,) of int
        Which draws they are, counted from 0, as in ``to_frame``; printed sets and pages count
        draws from 1.
    n_samples : int
        Draws taken, rejected ones included.
    set_score : float
        The set score F at the stop; -inf for an empty set.
    stopped : bool
        Whether the set score reached its threshold, as opposed to the budget being used up.
    guaranteed : bool
        False where nothing was certified, so that the set holds every draw, and in what
        ``fit_transform`` returns for prompts that trained the generator.
    generations : tuple of `n_samples` Generation
        All draws taken, the rejected ones included.
    claim : Claim, default=None
        What is guaranteed: with confidence or on average, within which group, and more. Its
        ``sentence()`` says it in words.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet
    >>> answer = PredictionSet("Q: ?", ("yes",), [0.9], [1], 2, 0.9, stopped=True, guaranteed=True)
    >>> len(answer), "yes" in answer
    (1, True)
    >>> print(answer)
    'Q: ?' -> {'yes'} (2 draws, stopped)
    """

    prompt: Prompt
    responses: tuple[Response, ...]
    quality: np.ndarray
    indices: np.ndarray
    n_samples: int
    set_score: float
    stopped: bool
    guaranteed: bool
    generations: tuple[Generation, ...] = field(default=(), repr=False)
    claim: Claim | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "responses", tuple(self.responses))
        object.__setattr__(self, "quality", np.asarray(self.quality, dtype=np.float64))
        object.__setattr__(self, "indices", np.asarray(self.indices, dtype=np.intp))
        object.__setattr__(self, "generations", tuple(self.generations))

    @property
    def members(self) -> tuple[Response, ...]:
        """The responses."""
        return self.responses

    def _key(self) -> tuple[object, ...]:
        drawn = self.quality.tolist(), self.indices.tolist(), self.n_samples, self.set_score
        ending = self.stopped, self.guaranteed, self.claim
        return (_as_key(self.prompt), self.responses, *drawn, *ending)

    def __str__(self) -> str:
        shown = ", ".join(_html.member(response) for response in self.responses)
        ending = "stopped" if self.stopped else "budget used up"
        remarks = "".join(f"; {remark}" for remark in _html.remarks(self))
        draws = _html.counted(self.n_samples, "draw")
        return f"{prompt_line(self.prompt)} -> {{{shown}}} ({draws}, {ending}{remarks})"

    def __repr__(self) -> str:
        return f"<PredictionSet {_shortened(self)}>"

    def _repr_html_(self) -> str:
        return _html.prediction_set_html(self)


class PredictionSets(SetSequence[PredictionSet]):
    """Sets of responses for n prompts: a sequence, indexed like an array.

    ``sets[3]`` is a :class:`PredictionSet`; a slice, an array of indices or a boolean mask gives
    a :class:`PredictionSets`. As an array it has shape (n, `k_max`), each row the accepted
    responses in order, padded with NaN where all responses are numbers and with None otherwise.

    Parameters
    ----------
    sets : sequence of PredictionSet
        One for each prompt.
    k_max : int
        The budget of draws, which is the width as an array.
    sampler : ConformalSampler, optional
        The estimator that made them. It does not travel with a pickle.
    provenance : Provenance, optional
        What they were drawn and scored with.
    index : pandas.Index, optional
        Of the data frame or the Series that held the prompts, for :meth:`to_frame`.

    Attributes
    ----------
    shape : tuple (n, k_max)
    dtype : numpy.dtype
        float64 where all responses are numbers, otherwise object.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> one = PredictionSet("a", ("x", "y"), [0.9, 0.8], [0, 2], 3, 0.9, True, True)
    >>> two = PredictionSet("b", (), [], [], 3, -np.inf, False, True)
    >>> sets = PredictionSets([one, two], k_max=3)
    >>> np.asarray(sets)
    array([['x', 'y', None],
           [None, None, None]], dtype=object)
    >>> sets[::-1][0].prompt
    'b'
    >>> print(sets)
    PredictionSets of 2 prompts, k_max=3
    'a' -> {'x', 'y'} (3 draws, stopped)
    'b' -> {} (3 draws, budget used up)
    """

    _maker = "sampler"

    def __init__(
        self,
        sets: Sequence[PredictionSet],
        k_max: int,
        *,
        sampler: Any = None,
        provenance: Provenance | None = None,
        index: "pd.Index | None" = None,
    ) -> None:
        self._sets = list(sets)
        self._index = index
        self.k_max = int(k_max)
        self.sampler = sampler
        self.provenance = provenance
        # of the very prompts that the sampler was fitted on, by its fit_transform
        self.of_fit = False

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self._sets), self.k_max)

    @property
    def responses(self) -> list[list[Response]]:
        """The accepted responses of each prompt."""
        return [list(one.responses) for one in self._sets]

    @property
    def n_samples(self) -> np.ndarray:
        """Draws taken for each prompt, an int array of shape (n,)."""
        return np.array([one.n_samples for one in self._sets], dtype=np.intp)

    @property
    def answered(self) -> np.ndarray:
        """Which prompts an :class:`AnswerPolicy` answers, with the guarantee: bool, shape (n,)."""
        return np.array(
            [
                one.guaranteed
                and one.claim is not None
                and one.claim.about == "answers"
                and len(one) == 1
                for one in self._sets
            ],
            dtype=bool,
        )

    @property
    def escalated(self) -> "PredictionSets":
        """The sets of the prompts that are not `answered`."""
        return self[~self.answered]

    @staticmethod
    def _is_numeric(one: PredictionSet) -> bool:
        # an empty set of a text model is still text: its rejected draws tell
        if one.generations:
            return all_numbers(draw.response for draw in one.generations)
        return all_numbers(one.responses)

    def to_frame(self, per: str = "prompt") -> "pd.DataFrame":
        """Return a pandas DataFrame with one row per prompt or response.

        Parameters
        ----------
        per : {"prompt", "response"}, default="prompt"
            What a row stands for. Use "response" for files: ``to_csv`` writes the tuples of
            "prompt" as Python code.

        Returns
        -------
        pandas.DataFrame
            Its index is that of the data frame or the Series that held the prompts, and 0 to
            n - 1 otherwise. Columns `prompt`, `responses`, `quality`, `indices` (tuples of one
            length), `size`, `n_samples`, `set_score`, `stopped` and "guaranteed"; `group`,
            `approximate` and `guarantee`, where there are groups, estimated weights or a marginal
            guarantee; and `provenance`, where it is unknown.

            Per response, rows of one prompt share its index and follow each other. In place of the
            tuples there are `response`, its `quality` and `draw` (counted from 0); an empty set
            has one row, in which these are missing. Prompts that are no text stay objects: in a
            file, the index says which they are.

        Examples
        --------
        >>> import io
        >>> import pandas as pd
        >>> from sklearn_clm import PredictionSet, PredictionSets
        >>> one = PredictionSet("a", ("x", "y"), [0.9, 0.8], [0, 2], 3, 0.9, True, True)
        >>> two = PredictionSet("b", (), [], [], 3, -np.inf, False, True)
        >>> text = PredictionSets([one, two], k_max=3).to_frame("response").to_csv()
        >>> frame = pd.read_csv(io.StringIO(text), index_col=0)
        >>> frame[["prompt", "response", "size", "draw"]]
          prompt response  size  draw
        0      a        x     2   0.0
        0      a        y     2   2.0
        1      b      NaN     0   NaN
        """
        if per not in ("prompt", "response"):
            raise ValueError(f"per must be 'prompt' or 'response', got {per!r:.60} instead.")
        import pandas as pd

        rows = [
            {
                "prompt": one.prompt,
                "responses": one.responses,
                "quality": tuple(one.quality.tolist()),
                "indices": tuple(one.indices.tolist()),
                "size": len(one),
                "n_samples": one.n_samples,
                "set_score": one.set_score,
                "stopped": one.stopped,
                "guaranteed": one.guaranteed,
            }
            for one in self._sets
        ]
        frame = self._with_claims(pd.DataFrame(rows, columns=_COLUMNS), range(len(self)))
        if self._index is not None:
            frame.index = self._index
        if per == "prompt":
            return frame
        frame = frame.explode(["responses", "quality", "indices"])
        frame = frame.rename(columns={"responses": "response", "indices": "draw"})
        return frame.astype({"quality": np.float64, "draw": "Int64"})

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def __str__(self) -> str:
        lines = [self._headline()]
        lines += map(str, self._sets[: _html.SHOWN_ROWS])
        if len(self) > _html.SHOWN_ROWS:
            lines.append(f"... and {len(self) - _html.SHOWN_ROWS} more")
        return "\n".join(lines)

    def _headline(self) -> str:
        remarks = "".join(f", {remark}" for remark in _html.common_remarks(self))
        number = _html.counted(len(self), "prompt")
        return f"PredictionSets of {number}, k_max={self.k_max}{remarks}"

    def _repr_html_(self) -> str:
        return _html.prediction_sets_html(self._sets, self.k_max)


@dataclass(frozen=True, eq=False, repr=False)
class ComponentSet(_SetOfOne):
    """The components selected for one prompt.

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
    claim : Claim, default=None
        What is guaranteed, and within which group.

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

    components: tuple[Response, ...]
    scores: np.ndarray
    occurrences: tuple[tuple[Occurrence, ...], ...]
    prediction_set: PredictionSet
    guaranteed: bool
    claim: Claim | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "scores", np.asarray(self.scores, dtype=np.float64))
        places = tuple(tuple(Occurrence(*place) for place in row) for row in self.occurrences)
        object.__setattr__(self, "occurrences", places)

    @property
    def prompt(self) -> Prompt:
        """The prompt."""
        return self.prediction_set.prompt

    @property
    def members(self) -> tuple[Response, ...]:
        """The components."""
        return self.components

    def _key(self) -> tuple[object, ...]:
        selected = self.components, self.scores.tolist(), self.occurrences
        return (*selected, self.prediction_set, self.guaranteed, self.claim)

    def __str__(self) -> str:
        return _html.component_set_text(self)

    def __repr__(self) -> str:
        components = _html.counted(len(self), "component")
        return f"<ComponentSet of {components} from {self.prediction_set!r}>"

    def _repr_html_(self) -> str:
        return _html.component_set_html(self)


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
    index : pandas.Index, optional
        Of the data frame or the Series that held the prompts, for :meth:`to_frame`.

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
        self,
        sets: Sequence[ComponentSet],
        min_width: int = 1,
        *,
        selector: Any = None,
        index: "pd.Index | None" = None,
    ) -> None:
        self._sets = list(sets)
        self._index = index
        self.min_width = int(min_width)
        self.selector = selector

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self._sets), max([self.min_width, *map(len, self._sets)]))

    @property
    def components(self) -> list[list[Response]]:
        """The selected components of each prompt."""
        return [list(one.components) for one in self._sets]

    @staticmethod
    def _is_numeric(one: ComponentSet) -> bool:
        # an empty selection from a text model is still text: the responses tell
        responses = (draw.response for draw in one.prediction_set.generations)
        return all_numbers([*one.components, *one.prediction_set.responses, *responses])

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame with one row per selected component.

        Returns
        -------
        pandas.DataFrame
            Its index is that of the data frame or the Series that held the prompts, shared by the
            rows of one prompt; otherwise rows are counted from 0. Columns `prompt_index` (position
            of the prompt, from 0), `component`, `score`, `draws` (tuple of the indices, from 0, of
            the draws that hold it) and "guaranteed"; `group`, where there are groups; and
            `provenance`, where it is unknown.
        """
        import pandas as pd

        rows = [
            (i, component, score, tuple(place.draw for place in places), one.guaranteed)
            for i, one in enumerate(self._sets)
            for component, score, places in zip(one.components, one.scores, one.occurrences)
        ]
        columns = ["prompt_index", "component", "score", "draws", "guaranteed"]
        frame = pd.DataFrame(rows, columns=columns)
        frame = self._with_claims(frame, frame["prompt_index"])
        if self._index is not None:
            frame.index = self._index.repeat(self.sizes)
        return frame

    def __repr__(self) -> str:
        remarks = "".join(f", {remark}" for remark in _html.common_remarks(self))
        prompts = _html.counted(len(self), "prompt")
        components = _html.counted(int(self.sizes.sum()), "component")
        return f"<ComponentSets of {prompts}, {components}{remarks}>"

    def __str__(self) -> str:
        return _html.component_sets_text(self)

    def _repr_html_(self) -> str:
        return _html.component_sets_html(self)
