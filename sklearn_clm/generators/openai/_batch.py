"""Batch files: requests in the JSON Lines format of OpenAI's Batch API, and their answers."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators._draws import Generation, Prompt
from sklearn_clm.generators._records import json_lines, json_value, key_digest
from sklearn_clm.generators.openai._service import ResponseFormatError

DrawKey = tuple[bytes, int]
Record = dict[str, object]

# limits of one file of OpenAI's Batch API
_MOST_REQUESTS = 50_000
_MOST_BYTES = 200_000_000
# a custom_id: generator and seed, prompt, first draw, number of draws; in 64 characters at most
_ID = re.compile(r"([\w-]{11})([\w-]{43})-(0|[1-9]\d*)-([1-9]\d*)", re.ASCII)
_MOST_CHARACTERS = 64


def run_name(fingerprint: str, seed: int) -> str:
    """Short digest of what all draws of one run have in common."""
    return _text(hashlib.blake2b(f"{fingerprint} {seed}".encode(), digest_size=8).digest())


def missing_draws(
    run: str,
    prompts: Iterable[Prompt],
    draws: range,
    known: Collection[DrawKey],
    n_per_request: int,
) -> Iterator[tuple[str, Prompt, Sequence[int]]]:
    """The custom_id, the prompt and the draws of each request for what is not known."""
    # ids are unique in a file, and equal prompts have equal draws
    for digest, prompt in {key_digest(prompt): prompt for prompt in prompts}.items():
        missing = [j for j in draws if (digest, j) not in known]
        while missing:
            start = missing[0]
            several = [j for k, j in enumerate(missing[:n_per_request]) if j == start + k]
            missing = missing[len(several) :]
            yield f"{run}{_text(digest)}-{start}-{len(several)}", prompt, several


def write_requests(path: str | os.PathLike[str], records: Iterable[Record]) -> list[Path]:
    """Write requests to as many files as it takes.

    Files of an earlier round under these names go: their draws would be paid for once more.
    """
    lines = (json.dumps(record).encode() + b"\n" for record in records)
    paths: list[Path] = []
    line = next(lines, None)
    while line is not None:
        target = _numbered(path, len(paths) + 1)
        if target.is_file() and not _holds_requests(target):
            raise ValueError(
                f"path must be new, or a file of requests to replace, got {target} instead, which "
                "holds something else."
            )
        paths.append(target)
        n_bytes = n_requests = 0
        with replacing(target) as unfinished, open(unfinished, "wb") as file:
            while line is not None and n_requests < _MOST_REQUESTS:
                if n_requests and n_bytes + len(line) > _MOST_BYTES:
                    break
                file.write(line)
                n_bytes, n_requests = n_bytes + len(line), n_requests + 1
                line = next(lines, None)
    number = len(paths) + 1
    while (earlier := _numbered(path, number)).is_file() and _holds_requests(earlier):
        earlier.unlink()
        number += 1
    return paths


def answered_draws(
    paths: Iterable[str | os.PathLike[str]],
    run: str,
    understand: Callable[[object, int], list[Generation | None]],
) -> Iterator[tuple[bytes, int, Generation]]:
    """Draws in the answers to batch files; each once, and none of an answer that is an error."""
    seen: set[DrawKey] = set()
    for path in paths:
        for where, record in json_lines(path):
            parts = _parts(record.get("custom_id"))
            if parts is None or parts[0] != run:
                raise ValueError(
                    f"custom_id must be one that write_batch gave for this generator and seed, got "
                    f"{record.get('custom_id')!r:.80} instead ({where})."
                )
            _, digest, start, n_draws = parts
            try:
                choices = understand(_body(record), n_draws)
            except ResponseFormatError:
                continue  # it stays missing, and is asked for again
            for j, generation in enumerate(choices, start):
                if generation is not None and (digest, j) not in seen:
                    seen.add((digest, j))
                    yield digest, j, generation


def _body(record: Record) -> object:
    """What a line answers; older versions of vLLM leave the envelope out."""
    response = record.get("response")
    if not isinstance(response, dict):
        return None
    body = response.get("body") if "body" in response else response
    return body if response.get("status_code", 200) == 200 else None


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _parts(custom_id: object) -> tuple[str, bytes, int, int] | None:
    """The parts of a custom_id; None where it is none of ours."""
    if not isinstance(custom_id, str) or len(custom_id) > _MOST_CHARACTERS:
        return None
    match = _ID.fullmatch(custom_id)
    if match is None:
        return None
    return match[1], base64.urlsafe_b64decode(match[2] + "="), int(match[3]), int(match[4])


def _numbered(path: str | os.PathLike[str], number: int) -> Path:
    first = Path(path)
    return first if number == 1 else first.with_name(f"{first.stem}-{number}{first.suffix}")


def _holds_requests(path: Path) -> bool:
    """Whether a file begins with a request, or is empty; answers, say, are paid for."""
    with open(path, "rb") as file:
        line = file.readline(_MOST_BYTES)
    try:
        record = json_value(line)
    except ValueError:
        return not line
    is_record = isinstance(record, dict) and "body" in record
    return is_record and _parts(record.get("custom_id")) is not None
