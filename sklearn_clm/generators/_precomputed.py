"""Draws that the user already has."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from sklearn_clm.generators.base import OPEN_PROMPTS, BaseGenerator, Prompts
from sklearn_clm.generators.draws import Generation, prompt_bytes
from sklearn_clm.generators.logs import Record, SampleLog, aligned
from sklearn_clm.generators.prompts import as_python, is_number, listed, prompt_line
from sklearn_clm.generators.queue import DrawQueue
from sklearn_clm.generators.records import (
    draw_from_record,
    draw_to_record,
    json_lines,
    key_digest,
    locating_errors,
)

_NAMED = ("prompt", "response", "logprob", "n_tokens")  # fields that may have other names
_OTHERS = ("responses", "token_logprobs", "token_spans", "finish_reason")


class PrecomputedGenerator(BaseGenerator):
    """Serve draws that were made before, outside this package.

    Draw ``j`` of a prompt is the ``j``-th response that was given for it. The draws of one prompt
    must be independent draws from one distribution, in the order in which they were made: sorted
    or filtered responses break the guarantee. Prompts may have draws of different number, whatever
    ended them: to calibrate, what is missing counts against the certificate, and ``predict`` says
    of which prompts the rule needs further draws.

    Parameters
    ----------
    prompts : sequence of length n
        The prompts. A prompt that occurs several times owns all the responses given for its
        occurrences, in order.
    responses : sequence of n sequences, or array or data frame of shape (n, K)
        The draws of each prompt: responses (text or numbers), or :class:`Generation` objects where
        more is known of them. Of pandas objects the positions count, not the index.
    key : str, default=None
        Names the model and its settings, such as "llama-8b, temperature 0.7". None: these draws
        are a generator of their own, and a calibration serves no others. With a key, it serves
        the draws of other prompts under the same key, which must come from the same model.

    Notes
    -----
    The `seed` of ``sample`` has no effect: there is one set of draws.

    Examples
    --------
    >>> from sklearn_clm.generators import PrecomputedGenerator
    >>> generator = PrecomputedGenerator(
    ...     ["Capital of France?", "Capital of Spain?"],
    ...     [["Paris", "Lyon", "Paris"], ["Madrid", "Madrid", "Lisbon"]],
    ... )
    >>> [[g.response for g in row] for row in generator.sample(["Capital of Spain?"], 2, start=1)]
    [['Madrid', 'Lisbon']]
    """

    def __init__(
        self, prompts: Prompts, responses: Sequence[Sequence[object]], *, key: str | None = None
    ) -> None:
        self.prompts = prompts
        self.responses = responses
        self.key = key

    @classmethod
    def from_jsonl(
        cls,
        path: str | os.PathLike[str],
        *,
        prompt: str = "prompt",
        response: str = "response",
        logprob: str = "logprob",
        n_tokens: str = "n_tokens",
        key: str | None = None,
    ) -> Self:
        """Read draws from a file in JSON Lines.

        Parameters
        ----------
        path : str or path
            Each line is an object. It holds one draw (the response, and where known ``logprob``,
            ``n_tokens``, ``token_logprobs``, ``token_spans`` and ``finish_reason``), or all draws
            of a prompt: a list under ``responses``, with ``logprob`` and ``n_tokens`` as lists
            beside it.
        prompt, response, logprob, n_tokens : str
            The names of these fields. The prompt, the response and what another name is given for
            must be there.
        key : str, default=None
            As in the class.
        """
        return cls._of_records(json_lines(path), (prompt, response, logprob, n_tokens), key)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        prompt: str = "prompt",
        response: str = "response",
        logprob: str = "logprob",
        n_tokens: str = "n_tokens",
        key: str | None = None,
    ) -> Self:
        """Read draws from a data frame or mapping of columns.

        Parameters
        ----------
        frame : data frame
            One row for each draw, in the order in which they were made, with columns as the fields
            of :meth:`from_jsonl`.
        prompt, response, logprob, n_tokens, key
            As in :meth:`from_jsonl`.
        """
        if not (hasattr(frame, "columns") or isinstance(frame, Mapping)):
            raise TypeError(
                "frame must be a data frame or a mapping of columns, got a "
                f"{type(frame).__name__} instead; a Dataset has to_pandas()."
            )
        names = list(getattr(frame, "columns", frame))
        rows = zip(*(listed(frame[name]) for name in names), strict=True)
        records = ((f"row {i} of frame", dict(zip(names, row))) for i, row in enumerate(rows))
        return cls._of_records(records, (prompt, response, logprob, n_tokens), key)

    @classmethod
    def _of_records(cls, records: Iterable[Record], named: Iterable[str], key: str | None) -> Self:
        names = dict(zip(_NAMED, named, strict=True)) | {name: name for name in _OTHERS}
        log = SampleLog.of(records, names)
        return cls(log.prompts, log.draws, key=key)

    @property
    def gives_logprobs(self) -> bool:  # type: ignore[override]
        """Whether every draw comes with its log-probability."""
        rows = self._index_of_draws().draws.values()
        return all(draw.logprob is not None for row in rows for draw in row)

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, as in :meth:`QueueGenerator.serve`.

        A prompt that is unknown, or has fewer draws than asked for, is a ValueError.
        """
        draws = self._index_of_draws().draws
        while requests := queue.take(max_prompts=OPEN_PROMPTS):
            for i, start, stop in requests:
                prompt = queue.prompts[i]
                row = draws.get(_key(prompt), [])
                if not row:
                    raise ValueError(
                        f"prompts[{i}] must be one of the {len(draws)} prompts that have draws, "
                        f"got {prompt_line(prompt)} instead. Drop it, or draw for it."
                    )
                if len(row) < stop:
                    n_enough = sum(len(drawn) >= stop for drawn in draws.values())
                    raise ValueError(
                        f"prompts[{i}] = {prompt_line(prompt)} must have {stop} draws, got "
                        f"{len(row)} instead; {n_enough} of {len(draws)} prompts have as many. "
                        "Draw more, or calibrate with a lower k_max; drop the others only if their "
                        "draws ended whatever was drawn."
                    )
                for j in range(start, stop):
                    queue.put(i, j, row[j])

    def n_available(self, prompts: Prompts) -> list[int]:
        """How many draws of each prompt there are."""
        draws = self._index_of_draws().draws
        return [len(draws.get(_key(prompt), [])) for prompt in prompts]

    def fingerprint(self) -> str:
        """Hexadecimal digest of all draws, or the `key`."""
        if self.key is not None:
            return self.key  # as of a CachedGenerator: thresholds of a table serve a service
        return self._index_of_draws().fingerprint

    def __repr__(self, *args: Any) -> str:
        key = "" if self.key is None else f", key={self.key!r}"
        return f"PrecomputedGenerator(<{len(self.prompts)} prompts>{key})"

    def __sklearn_clone__(self) -> Self:
        # the draws are read only: a search over many candidates must not copy them for each
        return type(self)(**self.get_params(deep=False))

    def _index_of_draws(self) -> "_Index":
        index: _Index | None = getattr(self, "_index", None)
        parameters = (self.prompts, self.responses)
        # parameters may have been set since: what was indexed is known by identity, which costs
        # nothing
        if index is None or any(a is not b for a, b in zip(index.given, parameters)):
            index = self._index = _Index(self.prompts, self.responses)
        return index


class _Index:
    """Draws by prompt."""

    def __init__(self, prompts: Any, responses: Any) -> None:
        self.given = (prompts, responses)
        self.draws: dict[bytes, list[Generation]] = {}
        prompts = listed(prompts)
        for i, (prompt, row) in enumerate(zip(prompts, aligned("responses", responses, prompts))):
            if isinstance(row, str) or not hasattr(row, "__len__"):
                raise TypeError(
                    f"responses[{i}] must be a sequence of responses, got {row!r:.60} instead."
                )
            # a prompt that stands in several rows has the draws of all of them, in order
            drawn = self.draws.setdefault(_key(prompt), [])
            # checked at once, so that the first request does not find the last row wrong
            for j, response in enumerate(listed(row)):
                with locating_errors(f"responses[{i}][{j}]"):
                    is_draw = isinstance(response, Generation)
                    drawn.append(response if is_draw else draw_from_record({"response": response}))

    @property
    def fingerprint(self) -> str:
        """Digest of all prompts and draws."""
        # no cached_property: under Python 3.11 it has one lock for all requests, and for forks
        known: str | None = self.__dict__.get("_fingerprint")
        if known is None:
            known = self.__dict__["_fingerprint"] = self._digest()
        return known

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for key, draws in sorted(self.draws.items()):
            # length-prefixed parts, so no two sets of draws run into the same bytes
            digest.update(key + prompt_bytes([prompt_bytes(draw_to_record(g)) for g in draws]))
        return digest.hexdigest()


def _key(prompt: object) -> bytes:
    # the estimators make an array of a list of numbers
    if isinstance(prompt, (list, tuple)) and prompt and all(map(is_number, prompt)):
        prompt = np.asarray(prompt)
    return key_digest(as_python(prompt))
