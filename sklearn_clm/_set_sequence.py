"""What prediction sets and selected components are as sequences and as arrays."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar, overload

import numpy as np

__all__ = ["SetSequence", "all_numbers"]


class _Members(Protocol):
    """A set of members for one prompt."""

    @property
    def guaranteed(self) -> bool: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


_Set = TypeVar("_Set", bound=_Members)


class SetSequence(Sequence[_Set]):
    """One set for each of n prompts, indexed like an array and turned into one."""

    # the attribute that holds the estimator that made the sets
    _maker: ClassVar[str]
    _sets: list[_Set]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def _take(self, rows: np.ndarray) -> Self:
        """The sets of these rows."""

    @staticmethod
    @abstractmethod
    def _is_numeric(one: Any) -> bool:
        """Whether all responses behind a set are numbers."""

    @property
    def ndim(self) -> int:
        return 2

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

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[_Set]:
        return iter(self._sets)

    @overload
    def __getitem__(self, key: int | np.integer) -> _Set: ...
    @overload
    def __getitem__(self, key: Any) -> Self: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            key, rest = (key[0], key[1:]) if key else (slice(None), ())
            if any(part is not Ellipsis and part != slice(None) for part in rest):
                return np.asarray(self)[(key, *rest)]
        if isinstance(key, (int, np.integer)):
            return self._sets[key]
        return self._take(np.arange(len(self))[key if isinstance(key, slice) else np.asarray(key)])

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(
                f"{type(self).__name__} hold no array of their own; copy=False cannot be met."
            )
        own = self.dtype
        array = np.full(self.shape, np.nan if own.kind == "f" else None, dtype=own)
        for row, one in zip(array, self._sets):
            for j, member in enumerate(one):
                row[j] = member
        return array if dtype is None else array.astype(dtype)

    def __getstate__(self) -> dict[str, Any]:
        # sets are kept and sent around by the thousand: without the model and its data
        return {**self.__dict__, self._maker: None}


def all_numbers(values: Iterable[Any]) -> bool:
    """Whether no value is anything but a number."""
    return all(isinstance(value, (bool, int, float, np.number, np.bool_)) for value in values)
