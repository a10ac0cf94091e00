"""Runs from tables and logs."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sklearn_clm.generators._logs import inspect_log, read_records
from sklearn_clm.generators._records import naming

_SUCCESS = {"true": True, "1": True, "1.0": True, "yes": True, "c": True}
_FAILURE = {"false": False, "0": False, "0.0": False, "no": False, "i": False, "n": False}
_SAYS: Mapping[str, bool | None] = {**_SUCCESS, **_FAILURE, "": None, "none": None, "nan": None}


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
        epoch of a sample is a run.
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
    steps: dict[str, list[tuple[float, Any]]] = {}
    outcomes: dict[str, bool | None] = {}
    for where, record in read_records(path):
        with naming(where):
            if lacking := [name for name in (run, step, success, *columns) if name not in record]:
                raise ValueError(f"the table must have a column {lacking[0]!r}, has {[*record]}")
            name, outcome = str(record[run]), _outcome(record[success])
            scores = [float(record[column]) for column in columns]
            taken = scores[0] if isinstance(score, str) else scores
            steps.setdefault(name, []).append((float(record[step]), taken))
            if outcomes.setdefault(name, outcome) != outcome:
                raise ValueError(f"run {name!r} must succeed or fail, got both")
    runs = []
    for name, rows in steps.items():
        numbers = [number for number, _ in rows]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{path}: run {name!r} must have each step once, got one again.")
        runs.append([taken for _, taken in sorted(rows, key=lambda row: row[0])])
    return Runs(runs, list(outcomes.values()), list(steps))


def _of_inspect(
    path: str | os.PathLike[str],
    columns: list[str],
    success: str,
    scores_of: Callable[[Mapping[str, Any]], Sequence[Any]] | None,
) -> Runs:
    """Epochs as runs; what a limit ended is unfinished."""
    found = Runs([], [], [])

    def of_messages(sample: Mapping[str, Any]) -> list[Any]:
        rows = [
            [one["metadata"][column] for column in columns]
            for one in sample.get("messages", [])
            if one.get("role") == "assistant" and columns[0] in (one.get("metadata") or {})
        ]
        return [row[0] for row in rows] if len(columns) == 1 else rows

    with inspect_log(path) as (_, samples):
        for where, sample in samples:
            with naming(where):
                steps = list((scores_of or of_messages)(sample))
                if not steps:
                    raise ValueError(
                        f"no message of the assistant has {columns[0]!r} in its metadata; give "
                        "scores_of"
                    )
                scores = sample.get("scores") or {}
                if len(scores) > 1 and success not in scores:
                    raise ValueError(f"success must name one of the scorers {[*scores]}")
                score: Mapping[str, Any] = scores.get(success) or next(iter(scores.values()), {})
                # an error or a limit ended it before its end
                ended = sample.get("error") or sample.get("limit")
                outcome = None if ended else _outcome(score.get("value"))
                found.runs.append(steps)
                found.succeeded.append(outcome)
                found.names.append(f"{sample.get('id')} ({sample.get('epoch')})")
    return found


def _outcome(value: object) -> bool | None:
    """Whether a run succeeds; None where it is unfinished."""
    said = "" if value is None else str(value).strip().lower()
    if said not in _SAYS:
        raise ValueError(f"success must be true or false, 1 or 0, or empty, got {value!r:.40}")
    return _SAYS[said]
