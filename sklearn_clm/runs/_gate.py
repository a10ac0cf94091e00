"""RunGate: stop, or hand over, runs that are going wrong."""

import json
import os
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sklearn_clm._estimators import (
    claim_content,
    claim_of,
    reading,
    refuse_differences,
    write_content,
)
from sklearn_clm._exceptions import check_parameters, naming_parameters, report_null
from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.claim import (
    nothing_passed,
    reasons_of_nulls,
    sentence_of_nulls,
    too_few,
)
from sklearn_clm.calibration.digests import numbered
from sklearn_clm.calibration.rows import RandomState, split_prompts
from sklearn_clm.calibration.words import percent
from sklearn_clm.generators.identity import frozen, score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.generators.records import json_value, key_digest, locating_errors
from sklearn_clm.inspection import CalibrationReport, Section
from sklearn_clm.inspection._sections import mean_in_words
from sklearn_clm.policies.groups import Groups, groups_of, parameters_of_groups
from sklearn_clm.runs._features import (
    N_FEATURES,
    Features,
    LinearRisk,
    Risk,
    features_of_runs,
    largest_risks,
    learnt_risk,
    next_features,
    out_of_fold,
    scores_of,
)
from sklearn_clm.runs._levels import keeping_level, let_through, levels_to_test, passing_level

_FORMAT = "sklearn_clm.run_gate/4"
_OPTIMIZATION_FRACTION = 1 / 3
_STATE = ("n_steps", "stopped", "_kept", "_steps")  # of a live run, in JSON
_UNFINISHED = {"raise": np.nan, "leave_out": np.nan, "failed": 0.0, "succeeded": 1.0}


class Followed(NamedTuple):
    """What a gate does with n runs."""

    n_taken: np.ndarray  # (n,): steps until a run is stopped, or all
    n_steps: np.ndarray  # (n,): all steps
    stopped: np.ndarray  # bool (n,)


@dataclass(frozen=True)
class GateCalibration:
    """What the predictions of a gate depend on.

    `levels` and `claims` are of each group, or under None of all runs. A level is +inf or -inf,
    where no run is stopped, or each one, since nothing is certified.
    """

    parameters: dict[str, Any]  # parameters that a file must agree with
    features: Features | None
    groups: Groups | None = field(compare=False)  # in `parameters` by its fingerprint
    risk: Risk
    n_scores: int  # d of each step
    unfinished: str  # what becomes of such runs
    n_unfinished: int  # runs in `fit`
    levels: dict[Hashable | None, float]
    claims: dict[Hashable | None, Claim]

    def level_of(self, group: Hashable | None) -> float:
        """The level of a group of runs."""
        if group not in self.levels:
            raise ValueError(
                f"groups must be among those that were calibrated, got {group!r:.80} instead."
            )
        return self.levels[group]

    def risks_of(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Predicted risk after each step of each run."""
        features = features_of_runs(X, self.features, self.n_scores)
        return [self.risk(rows) for rows in features]

    def followed(self, X: Sequence[Any], groups: object) -> Followed:
        """When runs are stopped, and which."""
        risks = self.risks_of(X)
        n_steps = np.array([len(risk) for risk in risks])
        names = groups_of(self.groups, groups, len(risks), list(X))  # type: ignore[arg-type]
        before = np.empty(len(risks), dtype=np.intp)
        for i, risk in enumerate(risks):
            level = self.level_of(None if names is None else names[i])
            # at the latest after all steps
            before[i] = np.argmax(np.append(risk >= level, True))
        return Followed(np.minimum(before + 1, n_steps), n_steps, before < n_steps)


class RunGate(BaseEstimator):
    """Stop, or hand over, runs by their scores so far.

    A run of an agent or of a reasoning model is a sequence of steps, each with a score, such as a
    judge's probability of success, a log-probability or a reward; in the end it succeeds or fails.
    After each step a risk of failure is predicted from the scores so far, and the run is stopped at
    the first prefix whose risk reaches a calibrated level.

    Parameters
    ----------
    scorer : classifier with ``predict_proba``, default=None
        Predicts failure from the features of a prefix; a clone of it is learnt on the optimisation
        part, a third of the runs. None: log-odds that are linear in the features, of which the
        largest of a run predicts its failure; a service evaluates them in microseconds.
    alpha : float, default=0.1
        Tolerated share of errors, in (0, 1).
    delta : float, default=0.05
        Probability of an unlucky calibration, in (0, 1).
    promise : {"keeps", "passes"}, default="keeps"
        "keeps": of the runs that would succeed at most alpha are stopped. "passes": of the runs
        that are let through at most alpha fail.
    features : callable, default=None
        ``features(prefix) -> sequence of d numbers``, of the list of steps so far: its last values,
        their course and the number of steps are then features of the prefix. None where steps are
        numbers or sequences of d numbers. A live run keeps its steps for it, and hands over that
        very list after each one, without a copy: a function that looks at the last steps alone
        takes as long after the thousandth step as after the first.
    groups : Groups, default=None
        A level and a claim for each group of runs: known before the run begins.
    unfinished : {"raise", "failed", "succeeded", "leave_out"}, default="raise"
        What becomes of runs whose success is None or NaN, as a budget or an error ended them. They
        are neither successes nor failures by themselves. Left out, they have no part in the
        promise either. `score` and reports count them in the same way.
    on_null : {"warn", "raise"}, default="warn"
        Whether ``fit`` warns or raises if no level can be certified. After a warning no run is
        stopped, by "passes" each one after its first step.
    random_state : int, RandomState instance or None, default=None
        Chooses the optimisation part. None: the runs themselves do.

    Attributes
    ----------
    calibration_ : GateCalibration
        What predictions depend on, whatever parameters are set later: ``levels`` of risk at which
        runs are stopped and ``claims``, by group, or under None of all runs.

    Notes
    -----
    Runs must be independent, each once, and new ones come from the same agent, tools and tasks.
    Stopping changes which runs finish: never calibrate again on runs that a gate let through,
    unless a random share goes ungated, and on that share alone.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.runs import RunGate
    >>> rng = np.random.default_rng(0)
    >>> succeeded = rng.random(600) < 0.6
    >>> runs = [rng.normal(good, 1.0, size=rng.integers(2, 9)) for good in succeeded]
    >>> gate = RunGate(alpha=0.1).fit(runs[:400], succeeded[:400])
    >>> stopped = gate.stopped(runs[400:])
    >>> bool(stopped[succeeded[400:]].mean() <= 0.1)  # of those that would succeed
    True
    >>> gate.score(runs[400:], succeeded[400:]) > 0.3  # of those that would fail
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "scorer": [None, HasMethods(["fit", "predict_proba"])],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "promise": [StrOptions({"keeps", "passes"})],
        "features": [None, callable],
        "groups": [None, Groups],
        "unfinished": [StrOptions(set(_UNFINISHED))],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
    }

    @naming_parameters
    def __init__(
        self,
        scorer: Any = None,
        *,
        alpha: float = 0.1,
        delta: float = 0.05,
        promise: Literal["keeps", "passes"] = "keeps",
        features: Features | None = None,
        groups: Groups | None = None,
        unfinished: Literal["raise", "failed", "succeeded", "leave_out"] = "raise",
        on_null: Literal["warn", "raise"] = "warn",
        random_state: RandomState = None,
    ) -> None:
        self.scorer = scorer
        self.alpha = alpha
        self.delta = delta
        self.promise = promise
        self.features = features
        self.groups = groups
        self.unfinished = unfinished
        self.on_null = on_null
        self.random_state = random_state

    def fit(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> Self:
        """Learn the risk and calibrate the level.

        Parameters
        ----------
        X : sequence of n runs
            Each a non-empty sequence of steps: numbers, sequences of d numbers, or anything of
            which ``features`` makes such.
        y : array-like of shape (n,)
            Whether each run succeeds: booleans, or 0 and 1; None or NaN where it is unfinished.
        groups : array-like of shape (n,), default=None
            The group of each run, where the parameter `groups` does not compute it.

        Raises
        ------
        ValueError
            If an argument does not fit, or a run is unfinished and `unfinished` does not say what
            becomes of it.
        NullCalibrationError
            If nothing can be certified, by too few runs or too many errors, and
            ``on_null="raise"``; otherwise a :class:`NullCalibrationWarning`.
        """
        self._validate_params()
        features = features_of_runs(X, self.features)
        outcomes, n_unfinished = outcomes_of(y, len(features), self.unfinished)
        names = groups_of(self.groups, groups, len(features), list(X))  # type: ignore[arg-type]
        counts = ~np.isnan(outcomes)
        if counts.sum() < 2:
            raise ValueError(
                f"y must be of at least 2 runs that end, got {counts.sum()} sample instead."
            )
        features = [*compress(features, counts)]
        succeeded = outcomes[counts] == 1
        names = None if names is None else [*compress(names, counts)]

        # equal runs of other outcomes or groups differ, or the order of rows would split them
        of_groups = [""] * len(features) if names is None else [*map(repr, names)]
        contents = CheckedPrompts([*zip(features, succeeded.tolist(), of_groups)], numeric=False)
        n_first = round(_OPTIMIZATION_FRACTION * len(features))
        digests = numbered(contents.digests)
        searched, tested = split_prompts(digests, n_first, self.random_state)
        to_learn = [features[i] for i in searched]
        risk = learnt_risk(self.scorer, to_learn, ~succeeded[searched])
        largest = largest_risks(risk, features)
        # levels that are chosen by runs which taught would look better than they are
        if self.promise == "passes":
            largest[searched] = out_of_fold(self.scorer, to_learn, ~succeeded[searched])
        levels, claims = self._levels(largest, succeeded, searched, tested, names)
        report_null(
            reasons_of_nulls(claims.values()), self.on_null, sentence_of_nulls(claims.values())
        )

        self.calibration_ = GateCalibration(
            parameters=self._parameters_in_files(),
            features=frozen(self.features),
            groups=frozen(self.groups),
            risk=risk,
            n_scores=features[0].shape[1] // N_FEATURES,
            unfinished=self.unfinished,
            n_unfinished=n_unfinished,
            levels=levels,
            claims=claims,
        )
        return self

    def decision_function(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Predicted risk after each step of each run.

        Log-odds by the default scorer, the largest being those of the run's failure; by a
        classifier a probability.
        """
        check_is_fitted(self)
        return self.calibration_.risks_of(X)

    def predict(self, X: Sequence[Any], *, groups: object = None) -> np.ndarray:
        """Steps until each run is stopped, or all."""
        check_is_fitted(self)
        return self.calibration_.followed(X, groups).n_taken

    def stopped(self, X: Sequence[Any], *, groups: object = None) -> np.ndarray:
        """Whether each run is stopped, bool (n,)."""
        check_is_fitted(self)
        return self.calibration_.followed(X, groups).stopped

    def score(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> float:
        """Share of failing runs stopped; -inf where null.

        NaN where no run fails.
        """
        check_is_fitted(self)
        record = self.calibration_  # once: another thread may fit meanwhile
        stopped = record.followed(X, groups).stopped
        outcomes, _ = outcomes_of(y, len(stopped), record.unfinished)
        if not any(claim.holds for claim in record.claims.values()):
            return -np.inf
        of_failing = errors_of(stopped, outcomes)["stopped of those that fail"]
        return float(of_failing.mean()) if len(of_failing) else np.nan

    def report(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> CalibrationReport:
        """Report on new runs.

        It is Markdown in print and HTML in a notebook; its ``save`` writes a file.
        """
        check_is_fitted(self)
        record = self.calibration_
        taken, n_steps, stopped = record.followed(X, groups)
        outcomes, n_unfinished = outcomes_of(y, len(stopped), record.unfinished)
        saved = 1.0 - taken.sum() / n_steps.sum()
        remarks = (
            f"Steps not taken: {percent(saved)}.",
            f"Unfinished runs: {n_unfinished}; in calibration {record.n_unfinished} "
            f"(unfinished={record.unfinished!r}).",
        )
        rows = [
            (name, str(len(errors)), *mean_in_words(errors))
            for name, errors in errors_of(stopped, outcomes).items()
        ]
        promises = tuple(claim.sentence() for claim in record.claims.values())
        table = (("what", "of runs", "share", "95 % interval"), *rows)
        guarantee = Section("Guarantee", promises)
        return CalibrationReport((guarantee, Section("New runs", remarks, table)))

    def open(self, *, group: Hashable | None = None, state: str | None = None) -> "OpenRun":
        """Begin a live run, or continue a kept one.

        Parameters
        ----------
        group : hashable, default=None
            The group of the run, where the gate has groups.
        state : str, default=None
            What ``to_json`` gave of a run of this gate, to go on with.
        """
        check_is_fitted(self)
        record = self.calibration_
        return OpenRun(record, record.level_of(group), state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the gate as JSON, for the default scorer."""
        check_is_fitted(self)
        record = self.calibration_
        levels = [
            {**claim_content(group, claim), "level": record.levels[group]}
            for group, claim in record.claims.items()
        ]
        content = {
            "format": _FORMAT,
            "asked": record.parameters,
            "risk": vars(record.risk),
            "n_scores": record.n_scores,
            "unfinished": record.unfinished,
            "n_unfinished": record.n_unfinished,
            "levels": levels,
        }
        with locating_errors("scorer must be None for a JSON file; pickle the gate"):
            write_content(path, content)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over a saved gate of the same parameters."""
        self._validate_params()
        with reading(path, _FORMAT) as content:
            levels = content.pop("levels")
            record = GateCalibration(
                parameters=content["asked"],
                features=frozen(self.features),
                groups=frozen(self.groups),
                risk=LinearRisk(**content["risk"]),
                n_scores=content["n_scores"],
                unfinished=content["unfinished"],
                n_unfinished=content["n_unfinished"],
                levels={one["group"]: float(one["level"]) for one in levels},  # or "inf"
                claims={one["group"]: claim_of(one) for one in levels},
            )
        name = repr(os.fspath(path))
        wanted = self._parameters_in_files()
        refuse_differences(name, record.parameters, wanted, of_draws=False)
        self.calibration_ = record
        return self

    def _validate_params(self) -> None:
        check_parameters(self, super()._validate_params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _parameters_in_files(self) -> dict[str, Any]:
        """Parameters that a file must agree with."""
        parameters = {
            "scorer": self.scorer,
            "alpha": self.alpha,
            "delta": self.delta,
            "promise": self.promise,
            "features": None if self.features is None else score_fingerprint(self.features),
            **parameters_of_groups(self.groups),
        }
        # None would agree with anything
        return {name: "none" if value is None else value for name, value in parameters.items()}

    def _levels(
        self,
        largest: np.ndarray,
        succeeded: np.ndarray,
        searched: np.ndarray,
        tested: np.ndarray,
        names: list[Hashable] | None,
    ) -> tuple[dict[Hashable | None, float], dict[Hashable | None, Claim]]:
        """Level and claim of each group, or of all runs.

        `largest` and `succeeded`, of shape (n,), are of all runs, the M of those `searched`
        out-of-fold; `tested` are the positions of those that calibrate, and `names` the groups.
        """
        options = self.groups or Groups()
        options._validate_params()
        keeps = self.promise == "keeps"
        rows = tested[succeeded[tested]] if keeps else tested
        parts = options.parts(searched, rows, self.delta, names)
        levels: dict[Hashable | None, float] = {}
        claims: dict[Hashable | None, Claim] = {}
        # the last part is all runs together: with groups no prediction asks for it
        for part in parts[:-1] or parts:
            claim = Claim(
                self.alpha,
                part.delta,
                about="runs that succeed" if keeps else "runs that pass",
                group=part.group,
                within_groups=None if names is None else options.guarantee,
            )
            n = len(part.rows)
            risks = largest[part.rows]
            if n < claim.fewest_prompts:
                level = np.inf if keeps else -np.inf
                claim = claim.nullified(too_few(n, claim))
            elif keeps:
                level = keeping_level(risks, largest[tested], claim)
            else:
                ends = succeeded[part.rows]
                to_test = levels_to_test(largest[searched], succeeded[searched], n, claim)
                level = passing_level(to_test, risks, ends, claim)
                if level == -np.inf:
                    m, n_failed = let_through(to_test[:1], risks, ends)
                    first = f"Of {m[0]} that the first level lets through {n_failed[0]} fail."
                    null = nothing_passed(claim, n, "level", np.nan, advice=first)
                    claim = claim.nullified(null)
            levels[part.group] = level
            claims[part.group] = claim
        return levels, claims


class OpenRun:
    """One run while it goes on, safe for threads.

    Attributes
    ----------
    n_steps : int
        Steps so far.
    risk : float
        The risk after the last step; -inf before the first one.
    stopped : bool
        Whether the run is stopped; it stays so.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.runs import RunGate
    >>> rng = np.random.default_rng(0)
    >>> succeeded = rng.random(300) < 0.6
    >>> runs = [rng.normal(good, 1.0, size=rng.integers(2, 9)) for good in succeeded]
    >>> gate = RunGate(alpha=0.2).fit(runs, succeeded)
    >>> run = gate.open()
    >>> run.step(0.9)  # go on
    True
    >>> run = gate.open(state=run.to_json())  # after a restart
    >>> [run.step(-2.0) for _ in range(3)][-1]  # stop
    False
    """

    def __init__(self, gate: GateCalibration, level: float, state: str | None) -> None:
        self.n_steps = 0
        self.risk = float("-inf")
        self.stopped = False
        self._kept: list[list[float]] = []
        self._steps: list[Any] = []  # for `features` alone
        self._gate = gate
        self._level = level
        self._lock = threading.Lock()
        if state is not None:
            with locating_errors("state must be what to_json gave of a run of this gate and group"):
                content = json_value(state)
                if content.pop("digest") != self._digest(content):
                    raise ValueError("it is of another one, or was changed")
            vars(self).update(content)

    def step(self, score: Any) -> bool:
        """Take a step's score; return whether to go on.

        Once a run is stopped it stays so, whatever comes. A step that is refused does not count.
        """
        gate = self._gate
        with self._lock:
            if gate.features is not None:
                # the very list, not a copy; a step that was refused is replaced
                self._steps[self.n_steps :] = [score]
                score = gate.features(self._steps)
            (scores,) = scores_of([score], "score", gate.n_scores).tolist()
            # all that may fail comes first: a step that is refused leaves the run as it was
            features, kept = next_features(scores, self.n_steps + 1, self._kept)
            self.risk = float(gate.risk(np.array([features]))[0])
            self._kept = kept
            self.n_steps += 1
            self.stopped = self.stopped or self.risk >= self._level
            return not self.stopped

    def to_json(self) -> str:
        """The state, for a restart."""
        with self._lock:
            del self._steps[self.n_steps :]  # what a step that was refused left
            state = {name: getattr(self, name) for name in _STATE}
            with locating_errors("steps must be values of JSON, such as text, for a restart"):
                after_restart = json_value(json.dumps(state))
                digest = self._digest(state)
                if self._digest(after_restart) != digest:
                    raise ValueError("JSON gives back others")
            return json.dumps({**state, "digest": digest})

    def _digest(self, state: dict[str, Any]) -> str:
        """Digest of a state and of its gate."""
        return key_digest([repr(self._gate.risk), self._level, state]).hex()


def outcomes_of(y: ArrayLike, n: int, unfinished: str) -> tuple[np.ndarray, int]:
    """How n runs end, and how many are unfinished.

    1 stands for success, 0 for failure, and NaN for what does not count.
    """
    # what is wanted stands before each of these errors, which say what came
    with locating_errors(f"y must be {n} booleans, or 0 and 1, and None for unfinished runs"):
        outcomes = column_or_1d(y, dtype=np.float64)
        is_unfinished = np.isnan(outcomes)
        if len(outcomes) != n:
            raise ValueError(f"got {len(outcomes)} instead.")
        if not np.isin(outcomes[~is_unfinished], (0.0, 1.0)).all():
            raise ValueError(f"got {y!r:.80} instead.")
    n_unfinished = int(is_unfinished.sum())
    if unfinished == "raise" and n_unfinished:
        raise ValueError(
            "y must say of each run whether it succeeds, got None or NaN for "
            f"{n_unfinished} instead; unfinished='failed', 'succeeded' or 'leave_out' says "
            "what these are."
        )
    return np.where(is_unfinished, _UNFINISHED[unfinished], outcomes), n_unfinished


def errors_of(stopped: np.ndarray, outcomes: np.ndarray) -> dict[str, np.ndarray]:
    """Which runs err, bool, of those that count for it."""
    passing = ~stopped & ~np.isnan(outcomes)
    return {
        "stopped of those that succeed": stopped[outcomes == 1],
        "stopped of those that fail": stopped[outcomes == 0],
        "failing of those let through": outcomes[passing] == 0,
    }
