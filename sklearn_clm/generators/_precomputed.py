"""Draws that the user already has."""

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from sklearn_clm.generators._base import BaseGenerator, Prompts, Rows
from sklearn_clm.generators._draws import Generation, is_missing, prompt_bytes
from sklearn_clm.generators._prompts import is_number, plain_prompt
from sklearn_clm.generators._records import (
    draw_from_record,
    draw_to_record,
    json_lines,
    key_digest,
    naming,
    whole_number,
)


class PrecomputedGenerator(BaseGenerator):
    """Serve draws that were made before, outside this package.

    Draw ``j`` of a prompt is the ``j``-th response that was given for it. The draws of one prompt
    must be independent draws from one distribution, in the order in which they were made: sorted
    or filtered responses break the guarantee.

    Parameters
    ----------
    prompts : sequence of length n
        The prompts. A prompt that occurs several times owns all the responses given for its
        occurrences, in order.
    responses : sequence of n sequences, or array or data frame of shape (n, K)
        The draws of each prompt: responses (text or numbers) or :class:`Generation` objects. Of
        pandas objects the positions count, not the index.
    logprobs : array or data frame of shape (n, K) or sequence of n sequences, default=None
        Log-probability of each response under the base model, natural logarithm.
    n_tokens : array or data frame of shape (n, K) or sequence of n sequences, default=None
        Number of generated tokens of each response.
    key : str, default=None
        Names the model and its settings, such as "llama-8b, temperature 0.7". None: these draws
        are a generator of their own, and a calibration serves no others. With a key, it serves
        the draws of other prompts under the same key, which must come from the same model.

    Notes
    -----
    The `seed` of :meth:`sample` has no effect: there is one set of draws.

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
        self,
        prompts: Prompts,
        responses: Sequence[Sequence[object]],
        *,
        logprobs: Any = None,
        n_tokens: Any = None,
        key: str | None = None,
    ) -> None:
        self.prompts = prompts
        self.responses = responses
        self.logprobs = logprobs
        self.n_tokens = n_tokens
        self.key = key

    @classmethod
    def from_jsonl(
        cls,
        path: str | os.PathLike[str],
        *,
        prompt: str = "prompt",
        response: str = "response",
        draw: str = "draw",
        logprob: str = "logprob",
        n_tokens: str = "n_tokens",
        key: str | None = None,
    ) -> Self:
        """Read draws from a file in JSON Lines.

        Parameters
        ----------
        path : str or path
            Each line is an object. It holds one draw (the response, and where known ``logprob``,
            ``n_tokens``, ``token_logprobs``, ``token_spans``, ``finish_reason``, and ``draw``, its
            index; without it, draws count in the order of the lines), or all draws of a prompt: a
            list of responses, or of such objects, under ``responses``, where ``logprob`` and
            ``n_tokens`` may be lists beside it.
        prompt, response : str, default="prompt", "response"
            The names of the fields with the prompt and the response.
        draw, logprob, n_tokens : str, default="draw", "logprob", "n_tokens"
            The names of these fields, which must be there where another name is given.
        key : str, default=None
            As in the class.

        Returns
        -------
        PrecomputedGenerator

        Raises
        ------
        ValueError
            If a line cannot be read (the message names it), a draw is missing or given twice, or
            the draws come from several generators or seeds.
        """
        named = _Names(response, draw, logprob, n_tokens)
        table = _DrawTable()
        for where, record in json_lines(path):
            if prompt not in record:
                raise ValueError(f"{where}: no field {prompt!r}; it has {sorted(record)}.")
            source = (record.get("generator"), record.get("seed"))
            with naming(where):
                records = _records_of_line(record, named)
            for fields in records:
                table.add(where, record[prompt], fields, source)
        return cls(*table.lists(), key=key)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        prompt: str = "prompt",
        response: str = "response",
        draw: str = "draw",
        logprob: str = "logprob",
        n_tokens: str = "n_tokens",
        key: str | None = None,
    ) -> Self:
        """Read draws from a data frame (pandas, polars, or a mapping of columns).

        Parameters
        ----------
        frame : data frame
            One row for each draw. The columns ``draw``, ``logprob``, ``n_tokens`` and
            ``finish_reason`` are used where there are any; without ``draw``, draws count in the
            order of the rows.
        prompt, response : str, default="prompt", "response"
            The names of the columns with the prompt and the response.
        draw, logprob, n_tokens : str, default="draw", "logprob", "n_tokens"
            The names of these columns, which must be there where another name is given.
        key : str, default=None
            As in the class.

        Returns
        -------
        PrecomputedGenerator

        Raises
        ------
        ValueError
            If a column or a response is missing (the message names the rows), or draws are.
        """
        if not (hasattr(frame, "columns") or isinstance(frame, Mapping)):
            raise TypeError(
                "frame must be a data frame or a mapping of columns, got a "
                f"{type(frame).__name__} instead; a Dataset has to_pandas()."
            )
        names = list(getattr(frame, "columns", frame))
        named = _Names(response, draw, logprob, n_tokens)
        unknown = [name for name in (prompt, *named.needed()) if name not in names]
        if unknown:
            raise ValueError(f"frame has no column {unknown[0]!r}; it has {names!r:.200}.")
        plain = [name for name in ("finish_reason", "generator", "seed") if name in names]
        used = {field: name for field, name in named._asdict().items() if name in names}
        used |= {name: name for name in plain}
        texts = _listed(frame[prompt])
        columns = {field: _listed(frame[name]) for field, name in used.items() if name != prompt}
        _refuse_missing(columns["response"], response)
        table = _DrawTable()
        for i, (text, *row) in enumerate(zip(texts, *columns.values(), strict=True)):
            fields = {k: v for k, v in zip(columns, row) if not is_missing(v)}
            if isinstance(fields["response"], np.generic):
                fields["response"] = fields["response"].item()
            source = (fields.get("generator"), fields.get("seed"))
            table.add(f"row {i} of frame", text, fields, source)
        return cls(*table.lists(), key=key)

    @property
    def gives_logprobs(self) -> bool:  # type: ignore[override]
        """Whether every draw comes with its log-probability."""
        return self._index_of_draws().gives_logprobs

    def sample(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Rows:
        """Serve draws of known prompts, as in :meth:`BaseGenerator.sample`.

        A prompt that is unknown, or has fewer draws than asked for, is a ValueError.
        """
        known = self._index_of_draws().draws
        stop = start + n_samples
        rows = [known.get(_key(prompt)) for prompt in prompts]
        for i, row in enumerate(rows):
            if row is None:
                raise ValueError(
                    f"prompts[{i}] = {_shortened(prompts[i])} is unknown; there are draws for "
                    f"{len(known)} other prompts."
                )
            if len(row) < stop:
                n_short = sum(len(one) < stop for one in known.values())
                raise ValueError(
                    f"prompts[{i}] = {_shortened(prompts[i])} has too few draws, {len(row)}; "
                    f"wanted at least {stop} of each prompt, which {n_short} of the {len(known)} "
                    "prompts with draws lack. Drop these prompts, or lower k_max."
                )
        return [list(row[start:stop]) for row in rows if row is not None]

    def fingerprint(self) -> str:
        """Hexadecimal digest of all prompts and draws, or of the key, where there is one."""
        if self.key is not None:
            return hashlib.blake2b(prompt_bytes(["key", self.key]), digest_size=16).hexdigest()
        index = self._index_of_draws()
        if not index.fingerprint:  # of many draws it takes a while, and they stay what they are
            digest = hashlib.blake2b(digest_size=16)
            for key, draws in sorted(index.draws.items()):
                # length-prefixed parts, so no two sets of draws run into the same bytes
                digest.update(key + prompt_bytes([prompt_bytes(draw_to_record(g)) for g in draws]))
            index.fingerprint.append(digest.hexdigest())
        return index.fingerprint[0]

    def __repr__(self, *args: Any) -> str:
        key = "" if self.key is None else f", key={self.key!r}"
        return f"PrecomputedGenerator(<{len(self.prompts)} prompts>{key})"

    def __sklearn_clone__(self) -> Self:
        # the draws are read only: a search over many candidates must not copy them for each
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> dict[str, object]:
        state = dict(super().__getstate__())
        state.pop("_index", None)
        return state

    def _index_of_draws(self) -> "_Index":
        given = (self.prompts, self.responses, self.logprobs, self.n_tokens)
        index: _Index | None = getattr(self, "_index", None)
        if index is None or any(a is not b for a, b in zip(index.given, given)):
            index = self._index = _indexed(*given)
        return index


class _Index(NamedTuple):
    """Draws by prompt, and what they were made from."""

    given: tuple[object, ...]
    draws: dict[bytes, list[Generation]]
    gives_logprobs: bool
    fingerprint: list[str]  # empty until it is known


class _Names(NamedTuple):
    """What the fields of a draw are called in a table."""

    response: str
    draw: str
    logprob: str
    n_tokens: str

    def needed(self) -> list[str]:
        """Those that must be there: the response, and those that somebody has named."""
        return [
            name for field, name in self._asdict().items() if field == "response" or name != field
        ]

    def own_fields(self, record: Mapping[str, object]) -> dict[str, object]:
        """The record under our names."""
        for name in self.needed():
            if name not in record:
                raise ValueError(f"no field {name!r}; it has {sorted(record)}.")
        given = {field: record[name] for field, name in self._asdict().items() if name in record}
        return {**record, **given}


def _records_of_line(record: dict[str, Any], named: _Names) -> list[dict[str, object]]:
    """The draws of a line: one, or a list of them with all that is known of each."""
    responses = record.get("responses")
    if "responses" not in record:
        return [named.own_fields(record)]
    if not isinstance(responses, list):
        raise ValueError(f"responses must be a list, got a {type(responses).__name__}.")
    beside = {
        field: record[name]
        for field, name in (("logprob", named.logprob), ("n_tokens", named.n_tokens))
        if isinstance(record.get(name), list)
    }
    for field, values in beside.items():
        if len(values) != len(responses):
            raise ValueError(f"{field} has {len(values)} values for {len(responses)} responses.")
    records = []
    for j, item in enumerate(responses):
        fields = {field: values[j] for field, values in beside.items()}
        records.append({**fields, **(item if isinstance(item, dict) else {"response": item})})
    return records


class _DrawTable:
    """Draws read one by one, with or without their index."""

    def __init__(self) -> None:
        self.prompts: dict[bytes, object] = {}
        self.rows: dict[bytes, dict[int, Generation]] = {}
        self.source: tuple[object, object] | None = None
        self.without_logprob: list[str] = []

    def add(
        self,
        where: str,
        prompt: object,
        fields: Mapping[str, object],
        source: tuple[object, object],
    ) -> None:
        if self.source not in (None, source):
            raise ValueError(
                f"{where}: draws of several generators or seeds ((generator, seed) = "
                f"{self.source} before, {source} here); wanted those of one."
            )
        self.source = source
        with naming(where):
            if "response" not in fields:
                raise ValueError(f"no field 'response'; it has {sorted(fields)}.")
            if is_missing(prompt):
                raise ValueError(f"the prompt is missing ({prompt!r}).")
            generation = draw_from_record(fields)
            key = key_digest(prompt)
            self.prompts.setdefault(key, prompt)
            row = self.rows.setdefault(key, {})
            draw = whole_number(fields, "draw", len(row))
            if draw in row:
                raise ValueError(f"draw {draw} of {_shortened(prompt)} is given twice.")
            row[draw] = generation
        if generation.logprob is None:
            self.without_logprob.append(where)

    def lists(self) -> tuple[list[object], Rows]:
        for key, row in self.rows.items():
            gap = next((j for j in range(len(row)) if j not in row), None)
            if gap is not None:
                raise ValueError(
                    f"draw {gap} of {_shortened(self.prompts[key])} is missing; it has draws up to "
                    f"{max(row)}."
                )
        rows = [[row[j] for j in range(len(row))] for row in self.rows.values()]
        _warn_of_unknown(self.without_logprob, sum(map(len, rows)))
        return list(self.prompts.values()), rows


def _indexed(
    prompts: Prompts, responses: Sequence[Sequence[Any]], logprobs: Any, n_tokens: Any
) -> _Index:
    given = (prompts, responses, logprobs, n_tokens)
    for name, value in (("responses", responses), ("logprobs", logprobs), ("n_tokens", n_tokens)):
        if value is not None and len(value) != len(prompts):
            raise ValueError(f"{name} has {len(value)} rows for {len(prompts)} prompts.")
    responses, logprobs, n_tokens = _rows(responses), _rows(logprobs), _rows(n_tokens)
    index: dict[bytes, list[Generation]] = {}
    unknown: list[str] = []
    n_draws = 0
    for i, prompt in enumerate(_listed(prompts)):
        row = responses[i]
        if isinstance(row, str) or not hasattr(row, "__len__"):
            raise TypeError(
                f"responses[{i}] must be a sequence of responses, got a {type(row).__name__}."
            )
        columns = []
        for name, value in (("logprobs", logprobs), ("n_tokens", n_tokens)):
            if value is not None and len(value[i]) != len(row):
                raise ValueError(f"{name}[{i}] has {len(value[i])} values for {len(row)} draws.")
            columns.append([None] * len(row) if value is None else value[i])
        draws = [_generation(i, j, *fields) for j, fields in enumerate(zip(row, *columns))]
        n_draws += len(draws)
        unknown += [f"logprobs[{i}][{j}]" for j, draw in enumerate(draws) if draw.logprob is None]
        index.setdefault(_key(prompt), []).extend(draws)
    if logprobs is not None:
        _warn_of_unknown(unknown, n_draws)
    return _Index(given, index, not unknown, [])


def _warn_of_unknown(places: Sequence[str], n_draws: int) -> None:
    """Name the draws without a log-probability, where others have one."""
    if 0 < len(places) < n_draws:
        warnings.warn(
            f"{len(places)} of {n_draws} draws have no log-probability, which "
            f'quality="likelihood" needs of all: {_a_few(places)}.',
            stacklevel=4,
        )


def _refuse_missing(column: Sequence[object], name: str) -> None:
    rows = [str(i) for i, value in enumerate(column) if is_missing(value)]
    if rows:
        raise ValueError(
            f"column {name!r} of frame must hold a response in each row, got none in "
            f"{len(rows)} of {len(column)} rows: {_a_few(rows)}. Drop them first."
        )


def _a_few(items: Sequence[str]) -> str:
    return ", ".join(items[:10]) + (", ..." if len(items) > 10 else "")


def _rows(values: Any) -> Any:
    """The rows by position: a pandas Series looks numbers up among its labels, a frame columns."""
    if hasattr(values, "columns"):
        return values.to_numpy()
    return values if values is None else _listed(values)


def _listed(column: Iterable[Any]) -> list[Any]:
    # what polars iterates over is of its own types
    return list(column.to_list() if hasattr(column, "to_list") else column)


def _key(prompt: object) -> bytes:
    # the estimators make an array of a list of numbers
    if isinstance(prompt, (list, tuple)) and prompt and all(map(is_number, prompt)):
        prompt = np.asarray(prompt)
    return key_digest(plain_prompt(prompt))


def _generation(i: int, j: int, response: object, logprob: object, n_tokens: object) -> Generation:
    if isinstance(response, Generation):
        return response
    if isinstance(response, np.generic):
        response = response.item()
    if is_missing(response):
        raise ValueError(f"responses[{i}][{j}] is missing ({response!r}).")
    record = {"response": response, "logprob": logprob, "n_tokens": n_tokens}
    try:
        return draw_from_record(record)
    except ValueError as error:
        raise ValueError(f"responses[{i}][{j}]: {error}") from error


def _shortened(prompt: object) -> str:
    text = repr(prompt)
    return text if len(text) <= 60 else text[:57] + "..."
