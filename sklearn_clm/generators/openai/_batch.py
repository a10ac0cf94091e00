"""Batch files: requests in the JSON Lines format of OpenAI's Batch API, and their answers."""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators._draws import Generation
from sklearn_clm.generators._records import json_value, key_digest
from sklearn_clm.generators.openai._requests import Request
from sklearn_clm.generators.openai._service import PATHS, ResponseFormatError

DrawKey = tuple[bytes, int]

# limits of one file of OpenAI's Batch API
_MOST_REQUESTS = 50_000
_MOST_BYTES = 200_000_000
# services take 64 characters at most: 11 + 43 + 2 separators leave 8 digits
_MOST_CHARACTERS = 64
_RUN_BYTES, _RUN_LENGTH, _DIGEST_LENGTH = 8, 11, 43


class _Id(NamedTuple):
    """A ``custom_id``: generator and seed, prompt, first draw, number of draws."""

    run: str
    digest: bytes
    start: int
    n_draws: int

    def __str__(self) -> str:
        return f"{self.run}{_text(self.digest)}-{self.start}-{self.n_draws}"

    @classmethod
    def parse(cls, text: object) -> "_Id | None":
        """The parts of a custom_id; None where it is none of ours."""
        if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
            return None
        end = _RUN_LENGTH + _DIGEST_LENGTH
        try:
            digest = base64.urlsafe_b64decode(text[_RUN_LENGTH:end] + "=")
            _, start, n_draws = text[end:].split("-")
            key = cls(text[:_RUN_LENGTH], digest, int(start), int(n_draws))
        except ValueError:
            return None
        return key if str(key) == text else None


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _run(fingerprint: str, seed: int) -> str:
    """Short digest of what all draws of one run have in common."""
    content = f"{fingerprint} {seed}".encode()
    return _text(hashlib.blake2b(content, digest_size=_RUN_BYTES).digest())


def write_requests(
    path: str | os.PathLike[str],
    prompts: Sequence[object],
    draws: range,
    request: Callable[[object, Sequence[int]], Request],
    *,
    endpoint: str,
    fingerprint: str,
    seed: int,
    n_per_request: int,
    known: Collection[DrawKey],
) -> list[Path]:
    """Write what asks for all draws that are not known, to as many files as it takes.

    Files of an earlier round under these names go: their draws would be paid for once more.
    """
    lines = _lines(prompts, draws, request, endpoint, _run(fingerprint, seed), n_per_request, known)
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


def _numbered(path: str | os.PathLike[str], number: int) -> Path:
    first = Path(path)
    return first if number == 1 else first.with_name(f"{first.stem}-{number}{first.suffix}")


def _holds_requests(path: Path) -> bool:
    """Whether a file begins with a request, or is empty; answers, say, are paid for."""
    with open(path, "rb") as file:
        line = file.readline(_MOST_BYTES)
    try:
        record = json_value(line) if line else None
    except ValueError:
        return False
    if not isinstance(record, dict):
        return not line
    return "body" in record and _Id.parse(record.get("custom_id")) is not None


def _lines(
    prompts: Iterable[object],
    draws: range,
    request: Callable[[object, Sequence[int]], Request],
    endpoint: str,
    run: str,
    n_per_request: int,
    known: Collection[DrawKey],
) -> Iterator[bytes]:
    seen: set[bytes] = set()
    for prompt in prompts:
        digest = key_digest(prompt)
        if digest in seen:
            continue  # ids are unique in a file, and equal prompts have equal draws
        seen.add(digest)
        missing = [j for j in draws if (digest, j) not in known]
        while missing:
            start = missing[0]
            several = [j for k, j in enumerate(missing[:n_per_request]) if j == start + k]
            missing = missing[len(several) :]
            record = {
                "custom_id": str(_Id(run, digest, start, len(several))),
                "method": "POST",
                "url": f"/v1{PATHS[endpoint]}",
                "body": request(prompt, several),
            }
            yield json.dumps(record).encode() + b"\n"


def answered_draws(
    paths: Iterable[str | os.PathLike[str]],
    parse: Callable[[object, int], list[Generation | None]],
    *,
    fingerprint: str,
    seed: int,
) -> Iterator[tuple[bytes, int, Generation]]:
    """Draws in the answers to batch files; each once, and none of an answer that is an error."""
    run = _run(fingerprint, seed)
    seen: set[DrawKey] = set()
    for path in paths:
        for where, record in _records(path):
            key = _Id.parse(record.get("custom_id"))
            if key is None or key.run != run:
                raise ValueError(
                    f"custom_id must be one that write_batch gave for this generator and seed, got "
                    f"{record.get('custom_id')!r:.80} instead ({where})."
                )
            try:
                found = parse(_body(record), key.n_draws)
            except ResponseFormatError:
                continue  # it stays missing, and is asked for again
            for j, generation in enumerate(found, start=key.start):
                if generation is not None and (key.digest, j) not in seen:
                    seen.add((key.digest, j))
                    yield key.digest, j, generation


def _records(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """The lines of a file; a last one that was cut off counts as not there."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"line {number} of {os.fspath(path)!s}"
            try:
                record = json_value(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise ValueError(f"{where}: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"{where}: a line must be an object, got {record!r:.40} instead.")
            yield where, record


def _body(record: dict[str, object]) -> object:
    """What a line answers; older versions of vLLM leave the envelope out."""
    response = record.get("response")
    if not isinstance(response, dict):
        return None
    body = response.get("body") if "body" in response else response
    return body if response.get("status_code", 200) == 200 else None
