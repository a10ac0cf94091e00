"""Runs from tables and logs."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from sklearn_clm.generators.logs import (
    early_stopping,
    inspect_samples,
    read_records,
    verdict_of,
)
from sklearn_clm.generators.prompts import is_missing
from sklearn_clm.generators.records import locating_errors

AnyPath: TypeAlias = str | os.PathLike[str]
Runs: TypeAlias = tuple[list[list[Any]], list[bool | None]]


def read_runs(
    path: AnyPath,
    *,
    run: str = "run",
    step: str = "step",
    score: str = "score",
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
    run, step, score, success : str
        Columns: the name of the run, the number of the step, by which steps are sorted, its score,
        or a list of d scores, and whether the run succeeds, which is empty where it is unfinished.
        Of a log `score` is the key under which the metadata of a message of the assistant hold the
        score of that step, and `success` the scorer, where there are several.
    scores_of : callable, default=None
        Of a log: ``scores_of(sample)``, the scores of the steps of a sample, which is a dict.

    Returns
    -------
    runs, succeeded : list of n lists, and list of n of True, False or None
        As :meth:`RunGate.fit` takes them, in the order in which runs begin in the file; None where
        a run is unfinished.

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
    ([[0.9, 0.8], [0.2]], [True, None])
    """
    if Path(path).suffix.lower() in (".eval", ".json"):
        return _runs_of_inspect(path, score, success, scores_of)
    steps: dict[str, dict[float, Any]] = {}
    outcomes: dict[str, bool | None] = {}
    for where, record in read_records(path):
        with locating_errors(where):
            if lacking := {run, step, score, success} - record.keys():
                raise ValueError(f"the table must have columns {lacking}, has {[*record]}")
            name = str(record[run])
            number = float(record[step])  # rows may stand in any order: steps are sorted by it
            of_run = steps.setdefault(name, {})
            if number in of_run or not math.isfinite(number):
                raise ValueError(f"steps of run {name!r} must be distinct numbers, got {number:g}")
            of_run[number] = np.asarray(record[score], dtype=np.float64).tolist()
            outcome = _outcome(record[success])
            if outcomes.setdefault(name, outcome) != outcome:
                raise ValueError(f"run {name!r} must succeed or fail, got both")
    runs = [[of_run[number] for number in sorted(of_run)] for of_run in steps.values()]
    return runs, [*outcomes.values()]


def _runs_of_inspect(
    path: AnyPath,
    score: str,
    success: str,
    scores_of: Callable[[Mapping[str, Any]], Sequence[Any]] | None,
) -> Runs:
    """Epochs as runs, unfinished after an error or a limit."""
    runs: list[list[Any]] = []
    succeeded: list[bool | None] = []
    with inspect_samples(path) as (log, samples):
        if early_stopping(log) is not None:
            raise ValueError(
                f"{path} must hold all epochs of its samples, got a log of which early stopping "
                "left out some instead: where it looked at successes, the runs that are left are "
                "no random ones."
            )
        for where, sample in samples:
            with locating_errors(where):
                if scores_of is not None:
                    steps = list(scores_of(sample))
                else:
                    messages = [one for one in sample["messages"] if one["role"] == "assistant"]
                    metadata = [one.get("metadata") or {} for one in messages]
                    steps = [fields[score] for fields in metadata if score in fields]
                is_unfinished = any(map(sample.get, ("error", "limit", "invalidation")))
                if not steps and is_unfinished:
                    continue  # nothing could have stopped it
                if not steps:
                    raise ValueError(f"no message has the metadata {score!r}; give scores_of")
                verdicts = sample.get("scores") or {}
                if len(verdicts) > 1 and success not in verdicts:
                    raise ValueError(f"success must name one of the scorers {[*verdicts]}")
                # of a log with one scorer its name need not be given
                first_verdict: dict[str, Any] = next(iter(verdicts.values()), {})
                verdict: dict[str, Any] = verdicts.get(success) or first_verdict
                runs.append(steps)
                succeeded.append(None if is_unfinished else _outcome(verdict.get("value")))
    return runs, succeeded


def _outcome(value: Any) -> bool | None:
    """Whether a run succeeds; None where it is unfinished."""
    if is_missing(value) or value == "":
        return None
    return verdict_of(value, None)
