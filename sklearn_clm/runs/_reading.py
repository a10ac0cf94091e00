"""Runs from tables and logs."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sklearn_clm.generators._logs import SAYS, inspect_samples, read_records
from sklearn_clm.generators.prompts import is_missing
from sklearn_clm.generators.records import locating_errors


class Runs(NamedTuple):
    """Runs as :class:`RunGate` takes them, and their names."""

    runs: list[list[Any]]
    succeeded: list[bool | None]  # None: unfinished
    names: list[str]


def read_runs(
    path: str | os.PathLike[str],
    *,
    run: str = "run",
    step: str = "step",
    score: str | Sequence[str] = "score",
    success: str = "success",
    scores_of: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None,
) -> Runs:
    """Read runs from a table of steps or a log.

    Parameters
    ----------
    path : str or path
        CSV, TSV, JSON Lines or Parquet; or a log of Inspect (``.eval`` or ``.json``), in which each
        epoch of a sample is a run. One that an error or a limit ended is unfinished, and left out
        if it has no step yet.
    run, step, success : str
        Columns: the name of the run, the number of the step, by which steps are sorted, and whether
        the run succeeds, which is empty where it is unfinished. Of a log `success` is the scorer,
        where there are several.
    score : str or sequence of d str, default="score"
        The column, or the columns, of the score. Of a log: the key under which the metadata of a
        message of the assistant hold the score of that step.
    scores_of : callable, default=None
        Of a log: ``scores_of(sample)``, the scores of the steps of a sample, which is a dict.

    Raises
    ------
    ValueError
        If a row does not fit; the message names its place.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn_clm.runs import read_runs
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "runs.csv")
    >>> _ = open(path, "w").write("run,step,score,success\\na,1,.9,1\\nb,1,.2,\\na,2,.8,1\\n")
    >>> read_runs(path)
    Runs(runs=[[0.9, 0.8], [0.2]], succeeded=[True, None], names=['a', 'b'])
    """
    columns = [score] if isinstance(score, str) else list(score)
    if Path(path).suffix.lower() in (".eval", ".json"):
        return _of_inspect(path, columns, success, scores_of)
    steps: dict[str, dict[float, list[float]]] = {}
    outcomes: dict[str, bool | None] = {}
    for where, record in read_records(path):
        with locating_errors(where):
            for name in (run, step, success, *columns):
                if name not in record:
                    raise ValueError(f"the table must have a column {name!r}, has {[*record]}")
            name = str(record[run])
            number = float(record[step])
            if number in steps.setdefault(name, {}) or not math.isfinite(number):
                raise ValueError(f"steps of run {name!r} must be distinct numbers, got {number:g}")
            steps[name][number] = [float(record[column]) for column in columns]
            outcome = _outcome(record[success])
            if outcomes.setdefault(name, outcome) != outcome:
                raise ValueError(f"run {name!r} must succeed or fail, got both")
    runs: list[list[Any]] = [[row for _, row in sorted(rows.items())] for rows in steps.values()]
    if len(columns) == 1:
        runs = [[number for (number,) in rows] for rows in runs]
    return Runs(runs, list(outcomes.values()), list(steps))


def _of_inspect(
    path: str | os.PathLike[str],
    columns: list[str],
    success: str,
    scores_of: Callable[[Mapping[str, Any]], Sequence[Any]] | None,
) -> Runs:
    """Epochs as runs, unfinished after an error or a limit."""
    runs = Runs([], [], [])

    def of_messages(sample: Mapping[str, Any]) -> list[Any]:
        messages = [message for message in sample["messages"] if message["role"] == "assistant"]
        metadata = [message.get("metadata") or {} for message in messages]
        scored = [fields for fields in metadata if columns[0] in fields]
        if len(columns) == 1:
            return [fields[columns[0]] for fields in scored]
        return [[fields[name] for name in columns] for fields in scored]

    with inspect_samples(path) as (_, samples):
        for where, sample in samples:
            with locating_errors(where):
                steps = list((scores_of or of_messages)(sample))
                is_unfinished = any(map(sample.get, ("error", "limit", "invalidation")))
                if is_unfinished and not steps:
                    continue  # nothing could have stopped it
                if not steps:
                    raise ValueError(
                        f"no message of the assistant has {columns[0]!r} in its metadata; give "
                        "scores_of"
                    )
                scores = sample.get("scores") or {}
                if len(scores) > 1 and success not in scores:
                    raise ValueError(f"success must name one of the scorers {[*scores]}")
                verdict: Mapping[str, Any] = scores.get(success) or next(iter(scores.values()), {})
                runs.runs.append(steps)
                runs.succeeded.append(None if is_unfinished else _outcome(verdict.get("value")))
                runs.names.append(f"{sample.get('id')} ({sample.get('epoch')})")
    return runs


def _outcome(value: object) -> bool | None:
    """Whether a run succeeds; None where it is unfinished."""
    text = "" if is_missing(value) else str(value).strip().lower()
    if text in ("", "none", "nan"):
        return None
    number = SAYS.get(text, text)
    if number not in (0.0, 1.0, "0", "1", "0.0", "1.0"):
        raise ValueError(f"success must be true or false, 1 or 0, or empty, got {value!r:.40}")
    return float(number) == 1.0
