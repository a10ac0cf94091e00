"""What sets of responses and of components share."""

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, overload

import numpy as np

from sklearn_clm._results import _cards, _views
from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.claim import NO_GUARANTEE, sentence_of_nulls
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.generators.draws import Prompt, Response

if TYPE_CHECKING:
    import pandas as pd

IsRight: TypeAlias = Callable[[Prompt, Response], bool]

_USUAL = Claim(0.5, 0.5)  # what sets without a claim say of it


class SetOfOne:
    """A set of members for one prompt, with its guarantee."""

    guaranteed: bool
    claim: Claim | None
    needs_draws = False

    if TYPE_CHECKING:  # a field of one dataclass, which would take it for a default

        @property
        def prompt(self) -> Prompt: ...

    @property
    @abstractmethod
    def _members(self) -> tuple[Response, ...]: ...

    @property
    @abstractmethod
    def _seen(self) -> Iterable[Response]:
        """All responses behind the set, also where it is empty."""

    @property
    def group(self) -> Hashable | None:
        """Group within which the guarantee holds; None for all prompts."""
        return None if self.claim is None else self.claim.group

    @property
    def answered(self) -> bool:
        """Whether it is an answer that is guaranteed as such."""
        if self.claim is None or not self.guaranteed:
            return False
        risk = self.claim.risk
        return risk.escalates and bool(risk.counts(np.array([len(self)]))[0])

    def remarks(self) -> list[str]:
        """Remarks on the guarantee, unless it is the usual one."""
        if self.claim is not None:
            return self.claim.remarks()
        return [] if self.guaranteed else [NO_GUARANTEE]

    def unguaranteed(self, why: str) -> Self:
        """This set without a guarantee, and why."""
        claim = None if self.claim is None else self.claim.withdrawn(why)
        return replace(self, guaranteed=False, claim=claim)  # type: ignore[type-var]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Response]:
        return iter(self._members)

    def to_dict(self) -> dict[str, Any]:
        """The set as values for JSON.

        Returns
        -------
        dict
            Its attributes by name, without what was rejected; `guarantee`, the promise and its
            conditions in words; `group` and `answered`, where there are such. Numbers that JSON
            lacks, such as the set score -inf of an empty set, are None; objects are texts.
        """
        # draws are large, and a claim is said in words: neither is written as it is
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        written = [name for name in names if name not in ("generations", "claim")]
        content = {name: as_json(getattr(self, name)) for name in written}
        if self.claim is None:
            return {**content, "guarantee": None}
        if self.claim.risk.escalates:
            content["answered"] = self.answered
        if self.claim.group is not None:
            content["group"] = as_json(self.claim.group)
        conditions = self.claim.conditions() if self.claim.holds else ()
        return {**content, "guarantee": " ".join((self.claim.sentence(), *conditions))}

    @abstractmethod
    def _text(self) -> str:
        """The set in full."""

    @abstractmethod
    def _card(self, verdicts: Sequence[bool | None]) -> str:
        """The set as a card, with verdicts on its members."""

    def _judged(self, is_right: IsRight | None) -> Sequence[bool | None]:
        """Whether each member is right."""
        if is_right is None:
            return [None] * len(self)
        return [bool(is_right(self.prompt, member)) for member in self]

    def to_html(self, is_right: IsRight | None = None) -> str:
        """The set as a card of HTML.

        Parameters
        ----------
        is_right : callable, optional
            ``is_right(prompt, member) -> bool``: what it refuses is shown as wrong.

        Returns
        -------
        str
            One element, which carries its style; all text is escaped.
        """
        return _cards.element(self._card(self._judged(is_right)))

    def _repr_html_(self) -> str:
        return self.to_html()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.claim == other.claim and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def as_json(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, SetOfOne):
        return value.to_dict()
    if isinstance(value, (np.ndarray, np.generic)):
        return as_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    # objects of users as text: a service must not fail on one response
    return value if isinstance(value, (str, int, type(None))) else repr(value)


_Set = TypeVar("_Set", bound=SetOfOne)


class SetSequence(Sequence[_Set]):
    """One set for each of n prompts, like an array."""

    # the name of the estimator that made the sets, which does not travel with a pickle
    _maker: str
    _usual_risk: Risk  # of sets without a claim
    _wide_cards = False
    _sets: list[_Set]
    frame_index: "pd.Index | None"  # `index` is a method of sequences

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype:
        # by the responses behind the sets too: an empty set of texts is no array of numbers
        numbers = (bool, int, float, np.number, np.bool_)
        numeric = all(isinstance(value, numbers) for a_set in self for value in a_set._seen)
        return np.dtype(np.float64 if numeric else object)

    @property
    def sizes(self) -> np.ndarray:
        """Number of members of each set, an array of int."""
        return np.array([len(a_set) for a_set in self], dtype=np.intp)

    @property
    def guaranteed(self) -> bool:
        """Whether every set carries the guarantee."""
        return all(a_set.guaranteed for a_set in self)

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
        # without `__init__`, whose arguments subclasses may have changed
        part = object.__new__(type(self))
        vars(part).update(vars(self))
        part._sets = [self._sets[i] for i in rows]
        part.frame_index = None if self.frame_index is None else self.frame_index.take(rows)
        return part

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.shape == other.shape and self._sets == other._sets

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        dtype_of_members = self.dtype
        padding = np.nan if dtype_of_members.kind == "f" else None
        array = np.full(self.shape, padding, dtype=dtype_of_members)
        for row, a_set in zip(array, self):
            for j, member in enumerate(a_set):
                row[j] = member
        return array if dtype is None else array.astype(dtype)

    def __getstate__(self) -> dict[str, Any]:
        # sets are kept and sent around by the thousand: without the model and its data
        return {**self.__dict__, self._maker: None}

    @abstractmethod
    def _headline(self) -> str: ...

    def _claims(self) -> list[Claim]:
        """The claims of the sets, each once."""
        return list(
            {id(a_set.claim): a_set.claim for a_set in self if a_set.claim is not None}.values()
        )

    def _guarantees(self) -> list[str]:
        """The guarantees in words, or that there is none."""
        # one sentence for all groups, which is true of each
        claims = [
            replace(claim, group=None, within_groups=claim.within_groups and "each")
            for claim in self._claims()
            if claim.holds
        ]
        if claims:
            return list(dict.fromkeys(claim.sentence() for claim in claims))
        # where a set alone has no guarantee, it says so itself
        of_nulls = sentence_of_nulls(claim for claim in self._claims() if not claim.of_one_set)
        return [of_nulls] if of_nulls else []

    def _remarks(self) -> str:
        """Remarks on the guarantees, without those about a group."""
        remarks = [remark for claim in self._claims() for remark in claim.common_remarks()]
        return "".join(f", {remark}" for remark in dict.fromkeys(remarks))

    def _cut(self, shown: int) -> str:
        """The headline, and how many sets are shown of more."""
        more = f"; the first {shown} are shown" if len(self) > shown else ""
        return self._headline() + more

    def _text(self) -> str:
        """The guarantees in words, and the first sets in full."""
        n = _views.SHOWN_SETS
        texts = [a_set._text() for a_set in self._sets[:n]]
        return "\n\n".join([self._cut(n), *self._guarantees(), *texts])

    def to_html(self, is_right: IsRight | None = None, *, shown: int = _views.SHOWN_SETS) -> str:
        """The promise, and a card for each set, as HTML.

        Parameters
        ----------
        is_right : callable, optional
            ``is_right(prompt, member) -> bool``, which knows the truth about these prompts. With
            it a bar shows what held against what was promised, and what is wrong is marked. The
            share that held is that of the sets with a guarantee, or of all where none has one.
        shown : int, default=20
            How many sets have a card; numbers above them are of all.

        Returns
        -------
        str
            One element, which carries its style, light and dark; all text is escaped.

        Examples
        --------
        >>> from sklearn_clm import PredictionSet, PredictionSets
        >>> one = PredictionSet("1 + 1", ("2", "3"), [0.9, 0.8], [0, 2], 3, 0.9, True, True)
        >>> page = PredictionSets([one], k_max=3).to_html(lambda prompt, answer: answer == "2")
        >>> page.count('title="wrong"')
        1
        """
        verdicts = [a_set._judged(is_right) for a_set in self._sets]
        held = None if is_right is None else self._held(verdicts)
        levels = [
            a_set.claim.level for a_set in self if a_set.claim is not None and a_set.guaranteed
        ]
        # sets of several levels keep at least the weakest promise
        promised = 1 - max(levels) if levels else None
        where = "held at least" if any(a_set.needs_draws for a_set in self) else "held"
        summary = _cards.Summary(promised, held, self._numbers(), where) if self._sets else None
        rows = zip(self._sets[:shown], verdicts[:shown])
        cards = [a_set._card(verdicts_of_set) for a_set, verdicts_of_set in rows]
        return _cards.element(
            "" if summary is None else _cards.head(summary),
            *map(_cards.paragraph, [self._cut(shown), *self._guarantees()]),
            _cards.grid(cards, wide=self._wide_cards),
        )

    def _held(self, verdicts: Sequence[Sequence[bool | None]]) -> float | None:
        """The share of right sets, None where none counts.

        Where draws end early, it is a bound: draws to come may show that a set is right.
        """
        # sets without a guarantee promise nothing that could be held; but those that need draws are
        # part of what the others promise, and to leave them out would choose by what ended draws
        all_guaranteed = self.guaranteed or not any(a_set.guaranteed for a_set in self)
        right = []
        for a_set, of_one in zip(self, verdicts):
            risk = self._risk(a_set)
            # a share of right sets says nothing of a mean cost
            counts = a_set.needs_draws or risk.counts(np.array([len(a_set)]))[0]
            promises = all_guaranteed or a_set.guaranteed or a_set.needs_draws
            if counts and promises and not risk.has_costs:
                accepted = np.ones((1, len(a_set)), dtype=bool)
                right.append(risk.right(accepted, np.array([of_one], dtype=bool))[0])
        return float(np.mean(right)) if right else None

    def _risk(self, a_set: _Set) -> Risk:
        """What makes a set right."""
        return self._usual_risk if a_set.claim is None else a_set.claim.risk

    @abstractmethod
    def _numbers(self) -> tuple[tuple[str, str], ...]:
        """Size and cost of the sets: numbers, and their units."""

    def _repr_html_(self) -> str:
        return self.to_html()

    def _with_claims(self, frame: "pd.DataFrame", sets: Iterable[_Set]) -> "pd.DataFrame":
        """Add columns for unusual claims to a frame of sets."""
        claims = [a_set.claim or _USUAL for a_set in sets]
        for name in ("guarantee", "group", "approximate"):
            values = [getattr(claim, name) for claim in claims]
            if any(value != getattr(_USUAL, name) for value in values):
                frame[name] = values
        if any(claim.unknown for claim in claims):
            frame["provenance"] = "unknown"
        return frame
