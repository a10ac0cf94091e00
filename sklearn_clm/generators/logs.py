"""Samples in tables, and logs of lm-evaluation-harness and Inspect."""

import contextlib
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from sklearn_clm._exceptions import optional_module, warn
from sklearn_clm.generators.base import Rows
from sklearn_clm.generators.prompts import is_missing, listed, prompt_line
from sklearn_clm.generators.records import (
    csv_table,
    draw_from_record,
    json_lines,
    json_value,
    key_digest,
    locating_errors,
)

Record: TypeAlias = tuple[str, Mapping[str, Any]]  # the words that name its place, and its fields
AnyPath: TypeAlias = str | os.PathLike[str]

_ABSENT = object()  # a field may hold None
_OF_A_DRAW = ("logprob", "n_tokens", "label", "quality")
# the letters are Inspect's: correct, partly correct, incorrect, no answer
SAYS = {"true": 1.0, "yes": 1.0, "c": 1.0, "p": 0.5, "false": 0.0, "no": 0.0, "i": 0.0, "n": 0.0}
_LM_EVAL = {"doc", "resps", "filtered_resps"}
STOPS_BY_OTHERS = "verdicts on other samples left out epochs"  # in logs of InspectStopping
_SAMPLE = re.compile(r"samples/.*_epoch_\d+(\.json|/sample\.json)", re.DOTALL)
_LARGEST_MEMBER = 2**28  # bytes of a sample in an archive, unpacked
_LARGEST_ARCHIVE = 2**32  # bytes of all of them, as they are held at once
# those of Inspect, 93 is Zstandard; of others zipfile makes gigabytes at once of some bytes
_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93}
_PIECE = 2**12  # bytes that are unpacked at once; zipfile takes no fewer
_AS_JSON = "write the log as JSON (inspect log convert --to json)."


class _Row(NamedTuple):
    """One draw, and what its record says of it."""

    draw: Any
    reference: Any
    verdict: bool | None
    quality: float | None
    id: Any
    group: Any
    place: str  # the words that name it in its table


@dataclass(frozen=True)
class SampleLog:
    """Prompts with their draws, and what is known of them."""

    prompts: list[object]
    draws: Rows
    references: list[Any] | None
    verdicts: list[dict[Any, bool]] | None  # of a text: whether each of its draws is right
    quality: list[list[float]] | None
    ids: list[Any]
    groups: list[str] | None
    stops: str | None = None  # what ended draws beyond those of the prompt itself, if known

    @classmethod
    def of(
        cls, records: Iterable[Record], names: Mapping[str, str], threshold: float | None = None
    ) -> Self:
        """The samples in records of one or of all draws.

        A label that is a number stands for "admissible" from `threshold` on, or is 0 or 1.
        """
        prompts: dict[bytes, object] = {}
        rows_of_prompt: dict[bytes, list[_Row]] = {}
        stops = None
        for where, record in records:
            stops = record.get(STOPS_BY_OTHERS) or stops
            with locating_errors(where):
                for fields in _fields_of_draws(record, names):
                    prompt = fields.get("prompt")
                    label = fields.get("label")
                    quality = fields.get("quality")
                    if is_missing(prompt) or (isinstance(prompt, str) and not prompt.strip()):
                        raise ValueError(f"the prompt is missing ({prompt!r}).")
                    key = key_digest(prompt)
                    prompts.setdefault(key, prompt)
                    row = _Row(
                        draw_from_record(fields),
                        fields.get("reference"),
                        None if is_missing(label) else verdict_of(label, threshold),
                        None if quality is None else float(quality),
                        fields.get("id"),
                        fields.get("group"),
                        where,
                    )
                    rows_of_prompt.setdefault(key, []).append(row)
        distinct_prompts = list(prompts.values())

        def column(name: str) -> list[list[Any]]:
            return [[getattr(row, name) for row in rows] for rows in rows_of_prompt.values()]

        draws = column("draw")
        verdicts = column("verdict")
        has_verdicts = _are_known("label", verdicts, distinct_prompts)
        places = column("place")
        groups = _of_prompts("group", column("group"), distinct_prompts, places, names)
        references = _of_prompts("reference", column("reference"), distinct_prompts, places, names)
        quality_of_draws = column("quality")
        has_quality = _are_known("quality", quality_of_draws, distinct_prompts)
        return cls(
            distinct_prompts,
            draws,
            references,
            [*map(_by_text, draws, verdicts)] if has_verdicts else None,
            quality_of_draws if has_quality else None,
            [rows[0].id for rows in rows_of_prompt.values()],
            # as text: a cell of CSV has no other kind
            None if groups is None else list(map(str, groups)),
            stops,
        )

    def where(self, keep: np.ndarray) -> Self:
        """The samples of the prompts to keep."""
        kept: dict[str, Any] = {
            name: [*compress(part, keep)]
            for name, part in vars(self).items()
            if isinstance(part, list)
        }
        return replace(self, **kept)

    @property
    def has_logprobs(self) -> bool:
        """Whether likelihoods can be computed.

        Samples of which only some have what it takes are refused.
        """
        values = (
            [[getattr(draw, name) for draw in row] for row in self.draws]
            for name in ("logprob", "n_tokens")
        )
        return all(map(_are_known, ("logprob", "n_tokens"), values, [self.prompts] * 2))

    @property
    def admissions(self) -> list[Any]:
        """For each prompt its verdicts by text, or its references."""
        if self.verdicts is not None:
            return [row.__getitem__ for row in self.verdicts]
        if self.references is None:
            raise ValueError(
                "SAMPLES must have verdicts or references, got neither: name their column by "
                "--label, --reference or --references (of lm-evaluation-harness a metric, or "
                "target; of Inspect a scorer, or target)."
            )
        return self.references


def _fields_of_draws(
    record: Mapping[str, Any], names: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The fields of each draw of a record."""
    values_at = {field: _value_at(record, name) for field, name in names.items()}
    fields = {field: value for field, value in values_at.items() if value is not _ABSENT}
    for field, name in names.items():
        needed = field == "prompt" or (field == "response" and "responses" not in fields)
        if field not in fields and (needed or name != field):
            raise ValueError(f"it has no field {name!r}; it has {list(record)!r:.200}.")
    for field in ("reference", "group", *_OF_A_DRAW):
        if isinstance(cell := fields.get(field), str) and not cell:
            fields[field] = None  # an empty cell holds nothing; a response may well be empty
    if fields.get("references") not in (None, ""):
        fields["reference"] = _as_list("references", fields["references"])
    if "responses" not in fields:
        yield fields
        return
    responses = _as_list("responses", fields["responses"])
    for field in _OF_A_DRAW:
        values = fields.get(field)
        if is_missing(values):
            values = [None] * len(responses)
        elif len(responses) == 1 and not isinstance(values, list):
            values = [values]
        elif record.keys() >= _LM_EVAL and not isinstance(values, (list, str)):
            raise ValueError(
                f"{field} must be known for each of {len(responses)} responses, got "
                f"{names[field]!r} instead, a metric of lm-evaluation-harness, which is of the "
                "first response alone. Name what is right (--reference target), or give runs of "
                "one response each, with other seeds."
            )
        fields[field] = aligned(field, _as_list(field, values), responses)
    for j, response in enumerate(responses):
        yield {**fields, **{field: fields[field][j] for field in _OF_A_DRAW}, "response": response}


def _value_at(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or of a nested "doc.question"."""
    value: Any = record
    for part in [name] if name in record else name.split("."):
        value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return value


def _as_list(name: str, value: Any) -> list[Any]:
    """A list, which a table of text holds as JSON."""
    values = json_value(value) if isinstance(value, str) and value.startswith("[") else value
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list (in a table JSON), got {value!r:.60} instead.")
    return values


def aligned(name: str, values: Any, others: Sequence[Any]) -> Any:
    """Values by position, one for each of `others`.

    A pandas Series would look positions up among its labels, and a data frame among its columns.
    """
    if len(values) != len(others):
        raise ValueError(f"{name} must have length {len(others)}, got {len(values)} instead.")
    return values.to_numpy() if hasattr(values, "columns") else listed(values)


def verdict_of(label: Any, threshold: float | None) -> bool:
    """Whether a label says "admissible"."""
    try:
        number = SAYS.get(label.strip().lower(), label) if isinstance(label, str) else label
        value = float(number)
    except (TypeError, ValueError):
        value = math.nan
    if value not in (0.0, 1.0) and (threshold is None or math.isnan(value)):
        raise ValueError(
            f"a label must be a verdict, true or false, got {label!r:.60} instead; of numbers, "
            "--threshold says which is the least that is admissible."
        )
    return value >= (1.0 if threshold is None else threshold)


def _by_text(draws: Sequence[Any], labels: Sequence[bool]) -> dict[Any, bool]:
    """Verdicts by text; the strictest counts for equal texts."""
    verdicts: dict[Any, bool] = {}
    for draw, label in zip(draws, labels):
        verdicts[draw.response] = label and verdicts.get(draw.response, True)
    return verdicts


def _are_known(name: str, rows: list[list[Any]], prompts: Sequence[object]) -> bool:
    """Whether values are known of each draw, or of none."""
    missing = [
        (i, j) for i, row in enumerate(rows) for j, value in enumerate(row) if is_missing(value)
    ]
    n = sum(map(len, rows))
    if 0 < len(missing) < n:
        i, j = missing[0]
        raise ValueError(
            f"{name} must be known for every draw, or for none, got none for {len(missing)} of {n} "
            f"instead, such as draw {j} of {prompt_line(prompts[i])}."
        )
    return not missing


def _of_prompts(
    name: str,
    rows: list[list[Any]],
    prompts: Sequence[object],
    places: list[list[str]],
    names: Mapping[str, str],
) -> list[Any] | None:
    """The one reference, or group, of each prompt.

    `places` are where its rows stand, and `names` are those of fields.
    """
    of_prompts: list[Any] = []
    kinds = "one, or one list," if name == "reference" else "one"
    fields = " or ".join(repr(names[field]) for field in (name, f"{name}s") if field in names)
    is_known = [[not is_missing(value) for value in row] for row in rows]
    if not any(map(any, is_known)):
        return None
    for prompt, row, is_known_in_row, where in zip(prompts, rows, is_known, places):
        if not any(is_known_in_row):
            raise ValueError(
                f"{where[0]}: the {name} of {prompt_line(prompt)} must be given in the field "
                f"{fields}, of this row or another one, got none instead."
            )
        of_prompt = row[is_known_in_row.index(True)]
        for value, is_given, place in zip(row, is_known_in_row, where):
            if is_given and value != of_prompt:
                raise ValueError(
                    f"{place}: the {name} of {prompt_line(prompt)} must be {kinds} in all rows, "
                    f"got {value!r:.80} in the field {fields} instead of {of_prompt!r:.80}."
                )
        of_prompts.append(of_prompt)
    return of_prompts


def read_records(path: AnyPath, filtered: str | None = None) -> Iterator[Record]:
    """The samples in a table, or in a log."""
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise ValueError(
            f"the name of {path} must end in one of {', '.join(_READERS)}; of a spreadsheet, save "
            "the table as CSV in UTF-8."
        )
    filters: set[str] = set()
    for where, record in reader(path):
        if not record.keys() >= _LM_EVAL:
            yield where, record
            continue
        # lm-evaluation-harness writes the same responses once for each filter
        filter_name = str(record.get("filter"))
        filters.add(filter_name)
        if filtered is None and len(filters) > 1:
            raise ValueError(
                f"{path} holds each response under several filters, {sorted(filters)}: name one of "
                "them (--filter)."
            )
        if filtered in (None, filter_name):
            with locating_errors(where):
                draws = _of_lm_eval(record)
            yield where, draws


def _csv_rows(path: AnyPath) -> Iterator[Record]:
    tabs = {"delimiter": "\t"} if Path(path).suffix.lower() == ".tsv" else {}
    with csv_table(path, strict=True, **tabs) as rows:
        for row in rows:
            where = f"the row that ends on line {rows.line_num} of {path}"
            if None in row or None in row.values():
                raise ValueError(f"{where} must have {len(rows.fieldnames or ())} fields.")
            yield where, row


def _parquet_rows(path: AnyPath) -> Iterator[Record]:
    parquet = optional_module("pyarrow.parquet", "parquet", "reading Parquet")
    from pyarrow import ArrowException

    with open(path, "rb") as file:
        try:
            rows = parquet.ParquetFile(file).read().to_pylist()
        except ArrowException as error:
            raise ValueError(f"{path} is not a Parquet file: {error}") from error
    for i, row in enumerate(rows):
        yield f"row {i} of {path}", row


def _inspect_rows(path: AnyPath) -> Iterator[Record]:
    with inspect_samples(path) as (log, samples):
        stops = _stops_by_others(log)
        for where, record in _records_of_inspect(samples):
            yield where, record if stops is None else {**record, STOPS_BY_OTHERS: stops}


@contextlib.contextmanager
def inspect_samples(
    path: AnyPath,
) -> Iterator[tuple[Mapping[str, Any], Iterator[tuple[str, Any]]]]:
    """The head of a log of Inspect, and its samples."""
    if Path(path).suffix.lower() == ".json":
        with locating_errors(str(path)):
            content = json_value(Path(path).read_bytes())
        samples = content.get("samples") if isinstance(content, dict) else None
        if not isinstance(samples, list):
            raise ValueError(f"{path} must be a log of Inspect with its samples.")
        _refuse_unfinished(path, content)
        located = ((f"sample {i} of {path}", sample) for i, sample in enumerate(samples))
        yield content, located
        return
    # without it such an archive is refused below, with the advice to convert it
    with contextlib.suppress(ImportError):
        import zipfile_zstd  # noqa: F401  # zipfile learns what newer versions of Inspect write
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{path} is not an archive of Inspect: {error}") from error
    with archive:
        # an archive may hold several members of a name, as Inspect appends: the last one counts
        members = {entry.filename: entry for entry in archive.infolist()}
        header = members.get("header.json")
        samples = [entry for name, entry in members.items() if _SAMPLE.fullmatch(name)]
        if any(entry.filename.endswith("/sample.json") for entry in samples):
            raise ValueError(f"{path} holds samples in chunks, which are not read: {_AS_JSON}")
        n_bytes = sum(entry.file_size for entry in samples)
        if n_bytes > _LARGEST_ARCHIVE:
            raise ValueError(
                f"{path} must unpack to at most {_LARGEST_ARCHIVE} bytes of samples, is {n_bytes}: "
                "give logs of some of its samples each."
            )
        content = {} if header is None else _unpacked(archive, header)
        _refuse_unfinished(path, content)
        unpacked = ((f"{entry.filename} in {path}", _unpacked(archive, entry)) for entry in samples)
        yield content, unpacked


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """The JSON value in a member of bounded size."""
    where = f"{member.filename} in {archive.filename}"
    if member.file_size > _LARGEST_MEMBER:
        raise ValueError(f"{where} must be at most {_LARGEST_MEMBER} bytes, is {member.file_size}.")
    if member.compress_type not in _COMPRESSIONS:
        raise ValueError(
            f"{where} must be compressed as Inspect does, got method {member.compress_type} of zip "
            "files instead."
        )
    try:
        with archive.open(member) as file:
            # no more than its size, which it may understate, and in pieces: of Zstandard, zipfile
            # bounds what it reads, and not what becomes of it
            text = b"".join(iter(partial(file.read, _PIECE), b""))
    except Exception as error:  # of zipfile, zlib, Zstandard: the archive is damaged, or encrypted
        raise ValueError(
            f"{where} cannot be unpacked: {error}. Where Zstandard compressed it: pip install "
            f"'sklearn-clm[inspect]', or zipfile-zstd alone, or {_AS_JSON}"
        ) from error
    with locating_errors(where):
        return json_value(text)


def _of_lm_eval(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of lm-evaluation-harness as one record of all draws."""
    requests = line["resps"]
    filtered = line["filtered_resps"]
    if len(requests) != 1:
        raise ValueError(f"it must hold text that was generated, got {len(requests)} requests.")
    (raw,) = requests
    if len(filtered) == 1 and isinstance(filtered[0], list):
        (filtered,) = filtered
    # a filter that takes the first response, or a vote of all, leaves no draws
    responses = filtered if len(filtered) == len(raw) else raw
    record = {**line, "resps": raw, "filtered_resps": filtered, "responses": responses}
    prompt = _value_at(line, "arguments.gen_args_0.arg_0")
    if prompt is not _ABSENT:
        record["prompt"] = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    metrics = line.get("metrics") or []
    if len(raw) == 1 and len(metrics) == 1:
        record["label"] = line[metrics[0]]
    return record


def _refuse_unfinished(path: AnyPath, log: Any) -> None:
    """Refuse a log of Inspect that lacks samples."""
    status = log.get("status") if isinstance(log, dict) else log
    if status != "success":
        raise ValueError(
            f"{path} must be of an evaluation with status 'success', got {status!r:.80} "
            "instead: the samples that were ready first are no random ones."
        )


def _stops_by_others(log: Mapping[str, Any]) -> str | None:
    """What ended epochs, beside the sample's own draws."""
    stopping = early_stopping(log)
    if stopping is None:
        return None
    # our own manager notes whether it looked at others; another one may have looked at anything
    metadata = stopping.get("metadata")
    looks = not isinstance(metadata, dict) or metadata.get(STOPS_BY_OTHERS) is not False
    return "verdicts on other samples" if looks else None


def early_stopping(log: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a log of Inspect says of epochs left out."""
    results = log.get("results")
    stopping = results.get("early_stopping") if isinstance(results, dict) else None
    if not isinstance(stopping, dict) or stopping.get("early_stops") == []:
        return None
    return stopping


def _records_of_inspect(samples: Iterable[tuple[str, Any]]) -> Iterator[Record]:
    """Samples of Inspect as records of one draw."""
    records = []
    for where, sample in samples:
        with locating_errors(where):
            records.append((int(sample["epoch"]), where, _of_epoch(sample)))
    n_read: Counter[object] = Counter()
    n_left_out = 0
    for epoch, where, record in sorted(records, key=lambda item: item[0]):
        # early stopping ends epochs; what comes after a gap is no first draw
        if epoch != n_read[record["id"]] + 1:
            n_left_out += 1
            continue
        n_read[record["id"]] += 1
        yield where, record
    if n_left_out:
        warn(
            f"{n_left_out} of {len(records)} samples of a log of Inspect are left out: an "
            "earlier epoch of theirs is missing, and draws are the first ones, without gap."
        )


def _of_epoch(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a sample in one epoch."""
    if sample.get("error") or sample.get("invalidation"):
        raise ValueError(
            "it failed, or was invalidated, and its draw is missing; run inspect eval-retry."
        )
    prompt = sample["input"]
    output = sample["output"]
    scores = sample.get("scores") or {}
    if isinstance(prompt, list):  # without what differs from epoch to epoch
        prompt = [{"role": part["role"], "content": part["content"]} for part in prompt]
    # an epoch is one draw: of several choices the first, to which the scores belong
    choice = (output.get("choices") or [{}])[0]
    response = output.get("completion") or choice.get("message", {}).get("content", "")
    if isinstance(response, list):
        response = "\n".join(part["text"] for part in response if part["type"] == "text")
    record = {name: score["value"] for name, score in scores.items()}
    record |= {"id": sample.get("id"), "prompt": prompt, "response": response, "scores": scores}
    record["target"] = sample["target"]
    if len(scores) == 1:
        (score,) = scores.values()
        record |= {"label": score["value"], "answer": score.get("answer")}
    tokens = (choice.get("logprobs") or {}).get("content")
    if tokens:
        record |= {"logprob": sum(token["logprob"] for token in tokens), "n_tokens": len(tokens)}
    return record


_READERS: dict[str, Callable[[AnyPath], Iterator[Record]]] = {
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".jsonl": json_lines,
    ".parquet": _parquet_rows,
    ".json": _inspect_rows,
    ".eval": _inspect_rows,
}
