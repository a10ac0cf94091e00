"""What everything that keeps its results in a store has in common."""

import abc
import copy
import json
import os
import threading
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, clone

from sklearn_clm._replacing import replacing
from sklearn_clm.generators._json import json_lines, json_value, naming, whole_number
from sklearn_clm.generators._store import Row, Space, Store, open_store

__all__ = ["StoreBacked", "decoded", "encoded"]


def encoded(value: Any) -> str:
    """Compact JSON text."""
    return json.dumps(value, separators=(",", ":"))


def decoded(text: str, path: Any) -> Any:
    """The value of JSON text that a store held."""
    with naming(f"path={str(path)!r} is damaged"):
        return json_value(text)


class _Shared:
    """What an object and its clones have in common: the store and the counts."""

    def __init__(self, path: Any) -> None:
        self.path = path
        self.store: Store = open_store(path)
        self.n_hits = 0
        self.n_misses = 0
        self._lock = threading.Lock()

    def count_hits(self, n: int) -> None:
        with self._lock:
            self.n_hits += n

    def count_misses(self, n: int) -> None:
        with self._lock:
            self.n_misses += n


class StoreBacked(BaseEstimator, abc.ABC):
    """Base of the caches: sharing by clones, pickling, counts, JSON Lines.

    A subclass has a parameter `path`; `_kind` names its kind of results in the store, and
    `_source_field` their fingerprint in JSON Lines.
    """

    _kind: ClassVar[str]
    _source_field: ClassVar[str]
    path: Any

    @property
    def n_hits_(self) -> int:
        """Results served from the cache, by this object and its clones in this process."""
        return self._shared().n_hits

    @property
    def n_misses_(self) -> int:
        """Results that had to be made."""
        return self._shared().n_misses

    def stats(self) -> dict[str, Any]:
        """How full the cache is and how much it saves.

        Returns
        -------
        dict
            ``n_hits``, ``n_misses`` and ``hit_rate`` (of this object and its clones in this
            process; NaN before the first use), ``n_stored`` (under this object's fingerprint),
            ``n_stored_in_all`` (of this kind, under any) and ``n_bytes`` (of the whole file).
        """
        shared = self._shared()
        used = shared.n_hits + shared.n_misses
        return {
            "n_hits": shared.n_hits,
            "n_misses": shared.n_misses,
            "hit_rate": shared.n_hits / used if used else float("nan"),
            "n_stored": shared.store.count(*self._space()),
            "n_stored_in_all": shared.store.count(self._kind),
            "n_bytes": shared.store.n_bytes(),
        }

    def export_jsonl(self, path: str | os.PathLike[str], *, every_fingerprint: bool = False) -> int:
        """Write what is kept to a file in JSON Lines, one result a line.

        Parameters
        ----------
        path : str or path
            The file, replaced where it exists.
        every_fingerprint : bool, default=False
            Whether to write what is kept under other fingerprints, too. Each line names its own.

        Returns
        -------
        int
            Number of lines.
        """
        space = (self._kind,) if every_fingerprint else self._space()
        n_lines = 0
        with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
            for row in self._shared().store.rows(*space):
                file.write(json.dumps(self._row_record(row)) + "\n")
                n_lines += 1
        return n_lines

    def import_jsonl(self, path: str | os.PathLike[str]) -> int:
        """Keep the results in a file that :meth:`export_jsonl` (or a user) wrote.

        Parameters
        ----------
        path : str or path
            The file. Lines with no fingerprint are taken for results of this object. Results that
            are kept already stay as they are.

        Returns
        -------
        int
            Number of results that are new.

        Raises
        ------
        ValueError
            If a line cannot be read (the message names it); then none is kept.
        """
        return self._shared().store.put_all(self._parsed(path))

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        twin = type(self)(**{name: clone(value, safe=False) for name, value in params.items()})
        twin._shared_state = self._shared()
        return twin

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _shared_state=self._shared())
        return twin

    def __deepcopy__(self, memo: Any) -> Self:
        shared = self._shared()
        state = {name: value for name, value in vars(self).items() if name != "_shared_state"}
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(state, memo), _shared_state=shared)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_shared_state", None)
        return state

    def _shared(self) -> _Shared:
        shared: _Shared | None = self.__dict__.get("_shared_state")
        if shared is None or shared.path != self.path:
            shared = self._shared_state = _Shared(self.path)
        return shared

    def _space(self) -> Space:
        return Space(self._kind, self.fingerprint())

    def _parsed(self, path: str | os.PathLike[str]) -> Iterator[Row]:
        for where, record in json_lines(path):
            with naming(f"{where} cannot be read"):
                digest, content = self._record_key(record)
                source = record.get(self._source_field) or self.fingerprint()
                if not isinstance(source, str):
                    raise ValueError(f"{self._source_field} must be text, got {source!r:.40}")
                source.encode("utf-8")  # half of a surrogate pair cannot be stored
                place = whole_number(record, "seed", 0), whole_number(record, "draw", 0)
                value = self._record_value(record)
            yield Row(Space(self._kind, source), digest, content, *place, value)

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Name that results are kept under."""

    @abc.abstractmethod
    def _row_record(self, row: Row) -> dict[str, Any]:
        """Fields of an exported line."""

    @abc.abstractmethod
    def _record_key(self, record: dict[str, Any]) -> tuple[bytes, str | None]:
        """Digest and content of an imported line."""

    @abc.abstractmethod
    def _record_value(self, record: dict[str, Any]) -> str:
        """Value of an imported line, as JSON text."""
