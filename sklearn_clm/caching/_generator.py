"""Draws that are made once and never lost."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from sklearn_clm.caching._store import Row, StoreBacked, decoded, encoded
from sklearn_clm.generators import _base
from sklearn_clm.generators._base import BaseGenerator
from sklearn_clm.generators._draws import Generation, prompt_bytes
from sklearn_clm.generators._fingerprint import UnidentifiedError, strictly
from sklearn_clm.generators._records import (
    content_json,
    draw_from_record,
    draw_to_record,
    json_value,
    key_digest,
    naming,
)

__all__ = ["CachedGenerator"]


def _can_be_fitted(cached: "CachedGenerator") -> bool:
    return hasattr(cached.generator, "fit")


class CachedGenerator(StoreBacked, BaseGenerator):
    """Keep every draw of a generator in a SQLite file the moment it arrives.

    Draws are kept by the generator's fingerprint (so another model, temperature or prompt template
    is another key), the prompt, the seed and the index of the draw. A process that is killed at
    any moment loses none; the next run asks only for what is missing. A prompt that occurs several
    times in a call is asked about once. Several threads and processes may share a file: where two
    of them make the same draw, the one stored first is what both return.

    So a service that cannot repeat a draw, or a GPU whose rounding depends on the batch, gives
    draws that depend on (generator, prompt, seed, draw) alone.

    Parameters
    ----------
    generator : object with a method ``sample``
        Where missing draws come from. Its own ``stream`` is used where it has one.
    path : str or path, default=None
        The SQLite file, created where there is none. None (or ``":memory:"``) keeps draws in
        this process, shared by this object and its clones.
    key : str, default=None
        Stands in for the generator's fingerprint. For one whose address changed, say; draws of
        different generators under one key would be taken for each other's.

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
    _source_field = "generator"

    def __init__(
        self, generator: Any, path: str | os.PathLike[str] | None = None, *, key: str | None = None
    ) -> None:
        self.generator = generator
        self.path = path
        self.key = key

    @property
    def chunk_size(self) -> int:  # type: ignore[override]
        """The inner generator's."""
        return int(getattr(self.generator, "chunk_size", BaseGenerator.chunk_size))

    @property
    def gives_logprobs(self) -> bool:
        """Whether draws come with log-probabilities: as those kept do, else as the inner says."""
        kept = self._shared().store.first_value(self._space())
        if kept is not None:
            return self._restored(kept).logprob is not None
        return bool(getattr(self._inner(), "gives_logprobs", True))

    @property
    def usage_(self) -> dict[str, Any]:
        """What the inner generator used so far (requests, tokens, money), where it counts."""
        return dict(getattr(self._inner(), "usage_", {}))

    @available_if(_can_be_fitted)
    def fit(self, prompts: Sequence[Any], references: Sequence[Any]) -> "CachedGenerator":
        """Fit a clone of the inner generator; only there where the inner one has a ``fit``.

        Parameters
        ----------
        prompts, references
            As the inner generator's ``fit`` takes them; they become part of the draws' key.

        Returns
        -------
        self
        """
        self.generator_ = clone(self.generator, safe=False).fit(prompts, references)
        training = hashlib.blake2b(digest_size=16)
        for part in (prompts, references):
            for item in part:
                training.update(prompt_bytes(item))
            training.update(b"|")
        self._training = training.hexdigest()
        return self

    def stream(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> Iterator[tuple[int, int, Generation]]:
        """Yield kept draws, then the missing ones as they arrive and are stored.

        Parameters
        ----------
        prompts, n_samples, start, seed
            As in :meth:`BaseGenerator.stream`.

        Yields
        ------
        (int, int, Generation)
            Position of the prompt, index of the draw, the draw.
        """
        prompts = list(prompts)  # a pandas Series looks positions up among its labels
        positions: dict[bytes, list[int]] = {}
        for i, prompt in enumerate(prompts):
            positions.setdefault(key_digest(prompt), []).append(i)
        digests = list(positions)
        space, chunk_size = self._space(), self.chunk_size
        for first in range(0, len(digests), chunk_size):
            chunk = digests[first : first + chunk_size]
            missing: dict[tuple[int, int], list[bytes]] = {}
            kept = self._shared().store.lookup(space, chunk, seed, start, start + n_samples)
            for digest in chunk:
                wanted = range(start, start + n_samples)
                for j in wanted:
                    value = kept.get((digest, j))
                    if value is not None:
                        generation = self._restored(value)
                        self._shared().count_hits(len(positions[digest]))
                        for i in positions[digest]:
                            yield i, j, generation
                for run in _runs([j for j in wanted if (digest, j) not in kept]):
                    missing.setdefault(run, []).append(digest)
            for (run_start, length), asked in missing.items():
                texts = [prompts[positions[digest][0]] for digest in asked]
                made = _base.stream(self._inner(), texts, length, start=run_start, seed=seed)
                contents: dict[int, str | None] = {}
                for k, j, generation in made:
                    if k not in contents:
                        contents[k] = content_json(texts[k])
                    value = encoded(draw_to_record(generation))
                    row = Row(space, asked[k], contents[k], seed, j, value)
                    generation = self._kept(row)
                    self._shared().count_misses(1)
                    self._shared().count_hits(len(positions[asked[k]]) - 1)
                    for i in positions[asked[k]]:
                        yield i, j, generation

    def fingerprint(self) -> str:
        """The inner generator's fingerprint (or `key`): keeping draws does not change them."""
        if self.key is not None:
            return str(self.key)
        try:
            with strictly():
                inner = _base.fingerprint(self._inner())
        except UnidentifiedError as error:
            raise ValueError(
                f"generator: {error}, so CachedGenerator cannot know its draws again; give it a "
                "key=."
            ) from error
        training = getattr(self, "_training", None)
        return inner if training is None else f"{inner}-{training}"

    def _inner(self) -> Any:
        return getattr(self, "generator_", self.generator)

    def _kept(self, row: Row) -> Generation:
        return self._restored(self._shared().store.put(row))

    def _restored(self, text: str) -> Generation:
        with naming(f"path={str(self.path)!r} is damaged"):
            return draw_from_record(json_value(text))

    def _record_key(self, record: dict[str, Any]) -> tuple[bytes, str | None]:
        if record.get("prompt_key"):
            digest = bytes.fromhex(record["prompt_key"])
        elif record.get("prompt") is None:
            raise ValueError("neither prompt nor prompt_key")
        else:
            digest = key_digest(record["prompt"])
        prompt = record.get("prompt")
        return digest, None if prompt is None else encoded(prompt)

    def _record_value(self, record: dict[str, Any]) -> str:
        return encoded(draw_to_record(draw_from_record(record)))

    def _row_record(self, row: Row) -> dict[str, Any]:
        prompt = None if row.content is None else decoded(row.content, self.path)
        return {
            "generator": row.space.name,
            "seed": row.seed,
            "draw": row.draw,
            "prompt": prompt,
            "prompt_key": row.digest.hex(),
            **draw_to_record(self._restored(row.value)),
        }


def _runs(draws: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive indices, as (first, length)."""
    runs: list[tuple[int, int]] = []
    for draw in draws:
        if runs and draw == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((draw, 1))
    return runs
