"""Outcomes: what certification found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypedDict

import numpy as np

from sklearn_clm.calibration._two_phase import AuditRecord
from sklearn_clm.calibration.certify import SequenceResult
from sklearn_clm.calibration.path import TablePath
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.calibration.tests import errors_at, n_counted_at, open_prompts
from sklearn_clm.calibration.words import Bound, ErrorCount


class TestOfOne(TypedDict):
    """Fields of a sequence of one test."""

    n_valid: int
    position: int | None
    n_errors: np.ndarray
    p_values: np.ndarray
    exact: np.ndarray
    n_calibration: int
    delta: float
    audit: AuditRecord


class LeftOpen(TypedDict):
    """What draws that end early leave open at a step."""

    n_open: int  # prompts that err because their draws end before they decide
    stops_known: bool  # whether the draws of all prompts reach their stop


@dataclass(frozen=True)
class Audited:
    """What an audit found of the step that it tested."""

    record: AuditRecord
    p_value: float
    delta: float
    smallest_level: float  # level at which the audit certifies
    n_optimization: int

    def tests(self) -> TestOfOne:
        """The fields of a sequence of this one test."""
        passes = self.p_value <= self.delta
        return {
            "n_valid": int(passes),
            "position": 0 if passes else None,
            "n_errors": np.array([self.record.n_refused]),
            "p_values": np.array([self.p_value]),
            "exact": np.ones(1, dtype=bool),
            "n_calibration": self.record.n_prompts,
            "delta": self.delta,
            "audit": self.record,
        }


class SafestStep(NamedTuple):
    """The first step that is tested, which should err least."""

    n_errors: int
    words: str = "taking all draws"  # what it is, in a report


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What tests found of the chosen step, or the safest.

    It is about the safest step where none passed. Of the n prompts that tested the step some count
    for the risk, and `errors` says how many of these err.
    """

    step: int | None  # the chosen step of its path; None where none passed
    errors: ErrorCount
    # (n,), of the tested prompts in their table
    rows: np.ndarray = field(compare=False, repr=False)
    n_errors_allowed: int | None = None  # None where that is not what was tested
    n_open: int = 0  # of the errors, prompts whose draws end before they decide
    stops_known: bool = True  # whether the draws of all prompts reach their stop
    safest: SafestStep | None = None  # None where its errors are unknown
    sizes: np.ndarray = field(compare=False, repr=False)  # (n,), of the sets
    draws: np.ndarray = field(compare=False, repr=False)  # (n,), for each prompt
    smallest_level: float = np.nan  # level at which these prompts certify; NaN where unknown
    smallest_bound: Bound = Bound.EXACT
    n_optimization: int = 0  # prompts that laid out the path
    n_judgements: int | None = None  # with lazy judging: responses of the calibration part
    parts: tuple[str, str] = ("", "")  # what the two parts of the data are for
    means: Mapping[str, float] = field(default_factory=dict)  # of other losses, by name
    audit: AuditRecord | None = field(default=None, repr=False)  # with people who audit a model
    tests: SequenceResult | None = field(default=None, repr=False)  # of all steps, if counted

    @classmethod
    def at(
        cls,
        path: TablePath,
        risk: Risk,
        step: int,
        *,
        passed: bool,
        n_errors_allowed: int | None = None,
        safest: SafestStep | None = None,
        smallest_level: float = np.nan,
    ) -> Self:
        """What is known of a step of a path."""
        left_open = cls.left_open(path, risk, step)
        fewest, most = errors_at(path, risk, step)
        # where the table has no judge to ask, what is not known counts as an error
        if passed or not path.table.is_lazy:
            n_errors = most
            bound = Bound.AT_MOST
        else:
            # no verdict can settle what is open
            n_errors = fewest + left_open["n_open"]
            bound = Bound.AT_LEAST
        if fewest == most:
            bound = Bound.EXACT
        return cls(
            step=step if passed else None,
            errors=ErrorCount(n_errors, n_counted_at(path, risk, step), bound),
            rows=path.rows,
            sizes=path.sizes(step),
            draws=path.draws(step),
            n_errors_allowed=n_errors_allowed,
            safest=safest,
            smallest_level=smallest_level,
            **left_open,
        )

    @staticmethod
    def left_open(path: TablePath, risk: Risk, step: int) -> LeftOpen:
        """What holes of its table leave open at a step."""
        if not path.table.has_holes:
            return {"n_open": 0, "stops_known": True}
        n_open = int(open_prompts(path, risk, step).sum())
        stops_known = not path.unfinished(step).any()
        return {"n_open": n_open, "stops_known": stops_known}

    @property
    def n_errors(self) -> int:
        """Errors of the step, or a bound of them."""
        return self.errors.n_errors

    @property
    def n_counted(self) -> int:
        """How many prompts count at the step."""
        return self.errors.n_counted

    @property
    def n_calibration(self) -> int:
        """Number of prompts in the calibration part."""
        return len(self.sizes)

    @property
    def size(self) -> float:
        """Mean size of these sets; NaN if unknown."""
        return float(self.sizes.mean()) if self.stops_known else np.nan

    @property
    def samples(self) -> float:
        """Mean number of their draws; NaN if unknown."""
        return float(self.draws.mean()) if self.stops_known else np.nan
