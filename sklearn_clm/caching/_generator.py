"""Draws that are made once and never lost."""

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn_clm.caching._cache import ResultCache, Shared
from sklearn_clm.caching._kept import DrawKeeper, serve_kept
from sklearn_clm.caching._store import Space, StoredRow, encoded
from sklearn_clm.generators import DrawQueue, Generation, Generator
from sklearn_clm.generators.base import WrappingGenerator
from sklearn_clm.generators.identity import TRAINED_ON, fingerprint, strictly
from sklearn_clm.generators.queue import DrawRequest
from sklearn_clm.generators.records import (
    content_json,
    draw_from_record,
    draw_to_record,
    json_value,
    locating_errors,
)

_MOST_READ = 1024  # prompts whose kept draws are held at once


class CachedGenerator(ResultCache, WrappingGenerator):
    """Keep every draw of a generator in a SQLite file.

    Draws are kept by the generator's fingerprint (so another model, temperature or prompt template
    is another key), the prompt, the seed and the index of the draw. A process that is killed at
    any moment loses none that had arrived; the next run asks only for what is missing. Draws arrive
    one by one from a generator with ``serve``, and otherwise when a call of ``sample`` returns,
    which is for `chunk_size` prompts (256, unless the generator says otherwise). A prompt that
    occurs several times in a call is asked about once. Several threads and processes may share a
    file: where two of them make the same draw, the one stored first is what both return.

    So a service that cannot repeat a draw, or a GPU whose rounding depends on the batch, gives
    draws that depend on (generator, prompt, seed, draw) alone.

    Parameters
    ----------
    generator : Generator
        Where missing draws come from.
    path : str or path, default=None
        The SQLite file, created where there is none, with one name alone (no hard links). None (or
        ``":memory:"``) keeps draws in this process, shared by this object and its clones.
    key : str, default=None
        Stands in for the generator's fingerprint. For one whose address changed, say, or whose
        code, which counts by its source where it is your own; draws of different generators
        under one key would be taken for each other's.

    Attributes
    ----------
    generator_ : object
        The fitted generator, where `generator` is one that is trained (see :meth:`fit`).
    n_hits_ : int
        Draws served from the cache by this object and its clones, in this process.
    n_misses_ : int
        Draws that had to be made.

    Notes
    -----
    Responses must be text or numbers; they are kept as JSON. The file holds prompts and responses
    in the clear.

    Examples
    --------
    >>> from sklearn_clm.caching import CachedGenerator
    >>> from sklearn_clm.generators import PrecomputedGenerator
    >>> inner = PrecomputedGenerator(["2+2?"], [["4", "5", "4"]])
    >>> cached = CachedGenerator(inner)
    >>> cached.sample(["2+2?"], 2) == cached.sample(["2+2?"], 2)
    True
    >>> cached.n_hits_, cached.n_misses_
    (2, 2)
    """

    _kind = "draws"

    def __init__(
        self,
        generator: Generator,
        path: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
    ) -> None:
        self.generator = generator
        self.path = path
        self.key = key

    @property
    def usage_(self) -> dict[str, Any]:
        """Requests and tokens that the inner generator counted so far."""
        return dict(getattr(self._inner(), "usage_", {}))

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue with kept draws, as in :meth:`QueueGenerator.serve`.

        The inner generator makes the others; each is stored before it is handed in.
        """
        keeper = _FileKeeper(self._shared(), self._space(), queue.seed, queue.n_draws)
        serve_kept(self._inner(), queue, keeper)

    def fingerprint(self) -> str:
        """Fingerprint of the inner generator (or `key`), with its training."""
        training = getattr(self._inner(), TRAINED_ON, None)
        with strictly("generator of CachedGenerator"):
            name = fingerprint(self._inner()) if self.key is None else str(self.key)
        return name if training is None else f"{name}-{training}"


class _FileKeeper(DrawKeeper):
    """The draws of one generator and seed in a file."""

    def __init__(self, shared: Shared, space: Space, seed: int, n_draws: int) -> None:
        self._shared = shared
        self._store = shared.store
        self.path = shared.store.path
        self._space = space
        self._seed = seed
        self._n_draws = n_draws
        # what is kept of the prompts that were looked up last, later draws included
        self._read: OrderedDict[bytes, dict[int, str]] = OrderedDict()

    def recall(
        self, keys: Sequence[bytes], requests: Sequence[DrawRequest]
    ) -> Sequence[Mapping[int, Generation]]:
        new = [key for key in dict.fromkeys(keys) if key not in self._read]
        self._read.update({key: {} for key in new})
        rows = self._store.lookup(self._space, new, self._seed, 0, self._n_draws)
        for (key, draw), value in rows.items():
            self._read[key][draw] = value
        recalled = []
        for key, (_, start, stop) in zip(keys, requests):
            values = self._read[key]
            kept = {
                j: _stored_draw(values[j], self.path) for j in range(start, stop) if j in values
            }
            recalled.append(kept)
        if any(
            len(kept) < request.stop - request.start for kept, request in zip(recalled, requests)
        ):
            # before the generator is asked for what is missing: a draw that cannot be kept is paid
            # for in vain
            self._store.check_writable()
        while len(self._read) > _MOST_READ:
            self._read.popitem(last=False)
        return recalled

    def keep(self, key: bytes, prompt: Any, draw: int, generation: Generation) -> Generation:
        value = encoded(draw_to_record(generation))
        row = StoredRow(self._space, key, content_json(prompt), self._seed, draw, value)
        # another process may have been faster: its draw is the one that counts
        value = self._store.put(row)
        if key in self._read:
            self._read[key][draw] = value
        return _stored_draw(value, self.path)

    def count(self, hits: int, misses: int) -> None:
        self._shared.count(hits, misses)


def _stored_draw(text: str, path: str | os.PathLike[str] | None) -> Generation:
    with locating_errors(f"path={str(path)!r} is damaged"):
        return draw_from_record(json_value(text))
