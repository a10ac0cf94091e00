"""Base of caches: their results are in a shared store."""

import abc
import os
import threading
from typing import ClassVar, Self

from sklearn.base import BaseEstimator

from sklearn_clm.caching._store import Space, Store, open_store
from sklearn_clm.generators.identity import Recorded, cloned


class Shared:
    """The store and the counts that an object's clones share."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self.n_hits = 0
        self.n_misses = 0
        self._store: Store | None = None
        self._locks: dict[int, threading.Lock] = {}  # by process, as those of a DrawMemory

    @property
    def _lock(self) -> threading.Lock:
        return self._locks.setdefault(os.getpid(), threading.Lock())

    @property
    def store(self) -> Store:
        """The store, opened when it is first used."""
        with self._lock:
            if self._store is None:
                self._store = open_store(self.path)
            return self._store

    def count(self, hits: int, misses: int) -> None:
        """Add to the counts."""
        with self._lock:
            self.n_hits += hits
            self.n_misses += misses

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> tuple[type["Shared"], tuple[object]]:
        return type(self), (self.path,)  # pickles hold nothing of what is kept


class StoreBacked(BaseEstimator):
    """Base of objects with a store that clones share."""

    path: str | os.PathLike[str] | None

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        twin = type(self)(**{name: cloned(value) for name, value in params.items()})
        # a search clones for each candidate: what one has paid for, the others find
        twin._shared_state = self._shared()
        return twin

    def _shared(self) -> Shared:
        # made when first needed: `__init__` of an estimator only stores its parameters
        shared: Shared | None = self.__dict__.get("_shared_state")
        if shared is None:  # of several threads, all get what the first one made
            shared = self.__dict__.setdefault("_shared_state", Shared(self.path))
        if shared.path != self.path:
            shared = self._shared_state = Shared(self.path)
        return shared


class ResultCache(StoreBacked, Recorded, abc.ABC):
    """Base of the caches: counts, and a name for results.

    `_kind` names a subclass's kind of results in the store.
    """

    _kind: ClassVar[str]

    @property
    def n_hits_(self) -> int:
        """Results served from the cache in this process, clones included."""
        return self._shared().n_hits

    @property
    def n_misses_(self) -> int:
        """Results that had to be made."""
        return self._shared().n_misses

    def _space(self) -> Space:
        return Space(self._kind, self.recorded_fingerprint())

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Name that results are kept under."""
