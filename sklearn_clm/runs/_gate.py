"""RunGate: stop, or hand over, runs that are going wrong."""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_array, check_is_fitted

from sklearn_clm._estimators import claim_content, claim_of, reading, write_content
from sklearn_clm._exceptions import report_null
from sklearn_clm.calibration import Claim, clopper_pearson
from sklearn_clm.calibration.claim import nothing_passed, nulls_of, too_few
from sklearn_clm.calibration.digests import next_digests, numbered, repeated
from sklearn_clm.calibration.rows import Part, RandomState, optimization_size, split_prompts
from sklearn_clm.calibration.words import percent
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.generators.prompts import is_missing
from sklearn_clm.generators.records import json_value, locating_errors
from sklearn_clm.inspection import CalibrationReport, Section
from sklearn_clm.policies import Groups
from sklearn_clm.policies._groups import asked_groups, groups_of
from sklearn_clm.runs._features import (
    LinearRisk,
    PrefixState,
    Risk,
    features_of,
    learnt,
    scores_of,
)
from sklearn_clm.runs._levels import (
    Level,
    level_that_keeps,
    level_that_passes,
    levels_to_test,
    start_of,
)

_FORMAT = "sklearn_clm.run_gate/2"
_N_FOLDS = 5


class RunGate(BaseEstimator):
    """Stop, or hand over, runs by their scores so far.

    A run of an agent or of a reasoning model is a sequence of steps, each with a score, such as a
    judge's probability of success, a log-probability or a reward; in the end it succeeds or fails.
    After each step a risk of failure is predicted from the scores so far, and the run is stopped at
    the first prefix whose risk reaches a calibrated level.

    Parameters
    ----------
    scorer : classifier or "score", default=None
        Predicts failure from the features of a prefix. None: a logistic regression that is learnt
        on the optimisation part, and that a service evaluates in microseconds. A classifier with
        ``predict_proba`` is cloned and learnt there. "score": minus the score itself, larger scores
        being better; nothing is learnt.
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
        numbers or sequences of d numbers.
    groups : Groups, default=None
        A level and a claim for each group of runs: known before the run begins.
    unfinished : {"raise", "failed", "succeeded", "leave_out"}, default="raise"
        What becomes of runs whose success is None or NaN, as a budget or an error ended them. They
        are neither successes nor failures by themselves. Left out, they have no part in the
        promise either. `score` and reports count them in the same way.
    optimization_fraction : float, default=1/3
        Share of the runs from which risk and levels are learnt, in (0, 1).
    on_null : {"warn", "raise"}, default="warn"
        What happens where nothing is certified.
    random_state : int, RandomState instance or None, default=None
        Chooses the optimisation part. None: the runs themselves do.

    Attributes
    ----------
    threshold_ : float
        Level of risk at which runs are stopped; with groups that of all runs together, which no
        prediction uses.
    levels_ : dict
        The :class:`~sklearn_clm.runs.Level` of each group, and of all runs under None.
    claims_ : dict
        The claim of each group, and of all runs under None.
    n_scores_ : int
        Number d of scores of a step.
    n_unfinished_ : int
        Unfinished runs in ``fit``.

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
        "scorer": [None, StrOptions({"score"}), HasMethods(["fit", "predict_proba"])],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "promise": [StrOptions({"keeps", "passes"})],
        "features": [None, callable],
        "groups": [None, Groups],
        "unfinished": [StrOptions({"raise", "failed", "succeeded", "leave_out"})],
        "optimization_fraction": [Interval(Real, 0, 1, closed="neither")],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        scorer: Any = None,
        *,
        alpha: float = 0.1,
        delta: float = 0.05,
        promise: Literal["keeps", "passes"] = "keeps",
        features: Callable[[list[Any]], Sequence[float]] | None = None,
        groups: Groups | None = None,
        unfinished: Literal["raise", "failed", "succeeded", "leave_out"] = "raise",
        optimization_fraction: float = 1 / 3,
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
        self.optimization_fraction = optimization_fraction
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
            If the runs that count are too few for any level to be certified.
        """
        self._validate_params()
        if self.groups is not None:
            self.groups._validate_params()
        runs = self._arrays(X)
        succeeded, counts = self._outcomes(y, len(runs))
        names = groups_of(self.groups, groups, len(runs), list(X))  # type: ignore[arg-type]
        kept = np.flatnonzero(counts)
        if len(kept) < 2:
            raise ValueError(
                f"X must hold at least 2 runs that are finished, got {len(kept)} sample instead."
            )
        runs = [runs[i] for i in kept]
        succeeded = succeeded[kept]
        names = None if names is None else [names[i] for i in kept]

        searched, tested = self._split(runs, succeeded)
        features = [features_of(run) for run in runs]
        to_learn = [features[i] for i in searched]
        failed = ~succeeded[searched]
        risk = learnt(self.scorer, to_learn, failed, features[0].shape[1])
        largest_risks = np.array([risk.of(rows).max() for rows in features])
        out_of_fold = (
            self._out_of_fold(to_learn, failed) if self.promise == "passes" else failed[:0]
        )

        def calibrated(part: Part) -> Level:
            risks = largest_risks[part.rows]
            outcomes = succeeded[part.rows]
            if self.promise == "keeps":
                return level_that_keeps(risks, outcomes, self.alpha, part.delta)
            levels = levels_to_test(out_of_fold)
            start = start_of(levels, out_of_fold, ~failed, len(risks), self.alpha, part.delta)
            return level_that_passes(levels, start, risks, outcomes, self.alpha, part.delta)

        claims: dict[Hashable | None, Claim] = {}
        levels: dict[Hashable | None, Level] = {}
        for part in (self.groups or Groups()).parts(searched, tested, self.delta, names):
            levels[part.group] = calibrated(part)
            claims[part.group] = self._claim(part, levels[part.group], succeeded, names is not None)
        nulls = [claim for claim in _in_use(claims).values() if not claim.holds]
        if nulls:
            report_null(nulls_of(nulls), self.on_null, nulls[0].sentence())

        self._fitted_with = self._asked()
        self._risk = risk
        self.levels_ = levels
        self.claims_ = claims
        self.n_scores_ = runs[0].shape[1]
        self.n_unfinished_ = _n_unfinished(y)
        return self

    @property
    def threshold_(self) -> float:
        """Level of all runs together."""
        return self.levels_[None].level

    def decision_function(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Predicted risk after each step of each run.

        Log-odds of a failure by the default scorer, a probability by a classifier, minus the score
        by "score".
        """
        check_is_fitted(self, "levels_")
        return [self._risk.of(features_of(run)) for run in self._arrays(X, self.n_scores_)]

    def predict(self, X: Sequence[Any], *, groups: object = None) -> np.ndarray:
        """Steps until each run is stopped, or all."""
        stops = self._stops(X, groups)
        return np.where(stops > 0, stops, [len(run) for run in X])

    def stopped(self, X: Sequence[Any], *, groups: object = None) -> np.ndarray:
        """Whether each run is stopped, bool (n,)."""
        return self._stops(X, groups) > 0

    def score(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> float:
        """Share of failing runs stopped; -inf where null."""
        check_is_fitted(self, "levels_")
        if not any(claim.holds for claim in _in_use(self.claims_).values()):
            return -np.inf
        succeeded, counts = self._outcomes(y, len(X))
        return share(self.stopped(X, groups=groups), counts & ~succeeded)

    def report(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> CalibrationReport:
        """Report on new runs.

        It is Markdown in print and HTML in a notebook; its ``save`` writes a file.
        """
        stops = self._stops(X, groups)
        stopped = stops > 0
        succeeded, counts = self._outcomes(y, len(X))
        lengths = np.array([len(run) for run in X])
        saved = 1.0 - np.where(stopped, stops, lengths).sum() / lengths.sum()

        def row(name: str, chosen: np.ndarray, errors: np.ndarray) -> tuple[str, ...]:
            n = int(chosen.sum())
            k = int(errors[chosen].sum())
            if n == 0:
                return name, "0 of 0", ""
            low, high = clopper_pearson(k, n)
            return name, f"{k} of {n}", f"{percent(k / n)} ({percent(low)} to {percent(high)})"

        table = (
            ("what", "runs", "share (95 % interval)"),
            row("succeed, and are stopped", counts & succeeded, stopped),
            row("fail, and are stopped", counts & ~succeeded, stopped),
            row("are let through, and fail", counts & ~stopped, ~succeeded),
        )
        remarks = (
            f"Steps not taken: {percent(saved)}.",
            f"Unfinished runs: {_n_unfinished(y)}; in calibration {self.n_unfinished_} "
            f"(unfinished={self.unfinished!r}).",
        )
        promises = tuple(claim.sentence() for claim in _in_use(self.claims_).values())
        sections = (Section("Guarantee", promises), Section("New runs", remarks, table))
        return CalibrationReport(sections)

    def open(self, *, group: Hashable | None = None, state: str | None = None) -> "OpenRun":
        """Begin a live run, or continue a kept one.

        Parameters
        ----------
        group : hashable, default=None
            The group of the run, where the gate has groups.
        state : str, default=None
            What ``to_json`` gave of a run of this gate, to go on with.
        """
        check_is_fitted(self, "levels_")
        level = self._level_of(group)
        return OpenRun(self._risk, level, self.n_scores_, self.features, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the gate as JSON, for default scorer and "score"."""
        check_is_fitted(self, "levels_")
        if self._fitted_with["scorer"] not in (None, "score"):
            raise TypeError(
                "scorer must be None or 'score' for a JSON file, got a classifier instead; pickle "
                "the gate."
            )
        rules = [
            {**claim_content(group, claim), "of_level": asdict(self.levels_[group])}
            for group, claim in self.claims_.items()
        ]
        content = {
            "format": _FORMAT,
            **self._fitted_with,
            "risk": asdict(self._risk),
            "n_scores": self.n_scores_,
            "n_unfinished": self.n_unfinished_,
            "rules": rules,
        }
        write_content(path, content)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over a saved gate of the same parameters."""
        self._validate_params()
        levels: dict[Hashable | None, Level] = {}
        claims: dict[Hashable | None, Claim] = {}
        with reading(path, _FORMAT) as content:
            risk = LinearRisk(tuple(content["risk"]["coef"]), content["risk"]["intercept"])
            for rule in content["rules"]:
                level = float(rule["of_level"].pop("level"))  # which may be "inf"
                levels[rule["group"]] = Level(level, **rule["of_level"])
                claims[rule["group"]] = claim_of(rule)
        for name, value in self._asked().items():
            if content[name] != value:
                raise ValueError(
                    f"{name} must be {content[name]!r}, as calibrated in {os.fspath(path)!r}, got "
                    f"{value!r} instead."
                )
        self._fitted_with = self._asked()
        self._risk = risk
        self.levels_ = levels
        self.claims_ = claims
        self.n_scores_ = content["n_scores"]
        self.n_unfinished_ = content["n_unfinished"]
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _asked(self) -> dict[str, Any]:
        """Parameters that a file must agree with."""
        return {
            "scorer": self.scorer,
            "promise": self.promise,
            "alpha": self.alpha,
            "delta": self.delta,
            "features": None if self.features is None else score_fingerprint(self.features),
            **asked_groups(self.groups),
        }

    def _arrays(self, X: Any, n_scores: int | None = None) -> list[np.ndarray]:
        """Runs as arrays of shape (T, d)."""
        is_table = isinstance(X, np.ndarray) and (X.ndim > 1 or X.dtype != object)
        if issparse(X) or (is_table and self.features is None):
            X = check_array(X, allow_nd=True)  # whose rows are runs of equal length
        if isinstance(X, (str, bytes)) or not hasattr(X, "__len__"):
            raise TypeError(f"X must be a sequence of runs, got {type(X).__name__} instead.")
        if len(X) == 0:
            raise ValueError("X must hold at least one run, got none instead.")
        arrays: list[np.ndarray] = []
        for i, run in enumerate(X):
            steps = run if self.features is None else self._described(run)
            array = scores_of(steps)
            if array is None:
                by = "" if self.features is None else " by features"
                raise ValueError(
                    f"X[{i}] must be{by} a non-empty run of finite numbers, or of d in each "
                    f"step, got {steps!r:.80} instead."
                )
            n_scores = n_scores or array.shape[1]
            if array.shape[1] != n_scores:
                raise ValueError(
                    f"X[{i}] must have {n_scores} scores in a step, got {array.shape[1]} instead."
                )
            arrays.append(array)
        return arrays

    def _described(self, run: Sequence[Any]) -> list[Sequence[float]]:
        """What `features` says of each prefix."""
        prefix: list[Any] = []
        described = []
        for step in run:
            prefix.append(step)
            described.append(self.features(prefix))  # type: ignore[misc]
        return described

    def _outcomes(self, y: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Whether runs succeed, and whether they count, bool (n,)."""
        if y is None:
            raise ValueError("RunGate requires y to be passed, but the target y is None.")
        outcomes = np.asarray(y, dtype=object)
        if outcomes.shape != (n,):
            raise ValueError(
                f"y must have shape ({n},), one for each run, got {outcomes.shape} instead."
            )
        unfinished = np.array([is_missing(outcome) for outcome in outcomes])
        for outcome in outcomes[~unfinished]:
            if outcome not in (0, 1):
                raise ValueError(f"y must be booleans, or 0 and 1, got {outcome!r:.40} instead.")
        if self.unfinished == "raise" and unfinished.any():
            raise ValueError(
                "y must say of each run whether it succeeds, got None or NaN for "
                f"{unfinished.sum()} instead; unfinished='failed', 'succeeded' or 'leave_out' says "
                "what these are."
            )
        succeeded = np.where(unfinished, self.unfinished == "succeeded", outcomes).astype(bool)
        return succeeded, ~unfinished | (self.unfinished != "leave_out")

    def _split(
        self, runs: list[np.ndarray], succeeded: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the two parts, by content."""
        if self.promise == "keeps" and self.scorer == "score":
            return np.arange(0), np.arange(len(runs))  # nothing to learn
        contents = np.array([_digest(run) for run in runs], dtype=np.uint64)
        # outcomes of equal runs have a part in the seed, or a fixed share of them would always test
        tied = repeated(contents)
        contents[tied] = next_digests(contents[tied], succeeded[tied, np.newaxis])
        n_first = optimization_size(len(runs), self.optimization_fraction)
        return split_prompts(numbered(contents), n_first, self.random_state)

    def _out_of_fold(self, features: list[np.ndarray], failed: np.ndarray) -> np.ndarray:
        """M of runs by risks learnt from others."""
        largest = np.empty(len(features))
        folds = np.arange(len(features)) % _N_FOLDS  # runs are in the order of their digests
        for fold in range(_N_FOLDS):
            other_folds = [rows for rows, k in zip(features, folds) if k != fold]
            risk = learnt(self.scorer, other_folds, failed[folds != fold], features[0].shape[1])
            for i in np.flatnonzero(folds == fold):
                largest[i] = risk.of(features[i]).max()
        return largest

    def _claim(self, part: Part, level: Level, succeeded: np.ndarray, grouped: bool) -> Claim:
        claim = Claim(
            self.alpha,
            part.delta,
            about="runs that succeed" if self.promise == "keeps" else "runs that pass",
            group=part.group,
            within_groups=(self.groups or Groups()).guarantee if grouped else None,
        )
        if level.certified:
            return claim
        n = int(succeeded[part.rows].sum()) if self.promise == "keeps" else len(part.rows)
        if n < claim.fewest_prompts and not grouped:
            raise ValueError(f"X must hold more runs: {too_few(n, claim)}")
        if n < claim.fewest_prompts:
            return claim.nullified(too_few(n, claim))
        first = f"Of {level.n} that the first level lets through {level.n_errors} fail."
        return claim.nullified(nothing_passed(claim, n, "level", np.nan, advice=first))

    def _stops(self, X: Sequence[Any], groups: object) -> np.ndarray:
        """Step after which each run is stopped, or 0."""
        risks = self.decision_function(X)
        names: Sequence[Hashable | None] | None = None
        if self.groups is not None or groups is not None:
            names = groups_of(self.groups, groups, len(risks), list(X))  # type: ignore[arg-type]
        levels = [self._level_of(name) for name in names or [None] * len(risks)]
        reached = [risk >= level for risk, level in zip(risks, levels)]
        return np.array(
            [int(is_reached.argmax()) + 1 if is_reached.any() else 0 for is_reached in reached],
            np.intp,
        )

    def _level_of(self, group: Hashable | None) -> float:
        if group not in _in_use(self.levels_):
            raise ValueError(
                f"groups must be among those that were calibrated, got {group!r:.80} instead."
            )
        return self.levels_[group].level


class OpenRun:
    """One run while it goes on, safe for threads.

    Attributes
    ----------
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

    def __init__(
        self,
        risk: Risk,
        level: float,
        n_scores: int,
        features: Callable[[list[Any]], Sequence[float]] | None,
        state: str | None,
    ) -> None:
        self._risk = risk
        self._level = level
        self._n_scores = n_scores
        self._features = features
        self._steps: list[Any] = []  # kept only where `features` looks at them
        self._state = PrefixState()
        self._lock = threading.Lock()
        self.risk = float("-inf")
        self.stopped = False
        if state is not None:
            self._restore(state)

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return self._state.n_steps

    def step(self, score: Any) -> bool:
        """Take a step's score; return whether to go on.

        Once a run is stopped it stays so, whatever comes. A step that is refused does not count.
        """
        with self._lock:
            steps = self._steps if self._features is None else [*self._steps, score]
            described = score if self._features is None else self._features(steps)
            scores = scores_of([described])
            if scores is None or scores.shape[1] != self._n_scores:
                raise ValueError(
                    f"score must be {self._n_scores} finite numbers, got {score!r:.80} instead."
                )
            self._steps = steps
            features = self._state.update(scores[0].tolist())
            self.risk = float(self._risk.of(np.array([features]))[0])
            self.stopped = self.stopped or self.risk >= self._level
            return not self.stopped

    def to_json(self) -> str:
        """The state, for a restart."""
        with self._lock:
            state = {**asdict(self._state), "steps": self._steps, "stopped": self.stopped}
            return json.dumps({**state, "digest": self._digest(state)})

    def _restore(self, state: str) -> None:
        with locating_errors("state must be what to_json gave of a run of this gate and group"):
            content = json_value(state)
            if content.pop("digest") != self._digest(content):
                raise ValueError("it is of another one, or was changed")
            self.stopped = content.pop("stopped")
            self._steps = content.pop("steps")
            self._state = PrefixState(**content)

    def _digest(self, state: dict[str, Any]) -> str:
        """Digest of a state and of its gate."""
        content = [repr(self._risk), self._level, state]
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode()).hexdigest()


def share(errors: np.ndarray, chosen: np.ndarray) -> float:
    """Share of errors among chosen runs; NaN without any."""
    return float(errors[chosen].mean()) if chosen.any() else np.nan


def _in_use(by_group: dict[Hashable | None, Any]) -> dict[Hashable | None, Any]:
    """What is of each group, or of all runs."""
    groups = {group: rule for group, rule in by_group.items() if group is not None}
    return groups or by_group


def _n_unfinished(y: Any) -> int:
    return sum(map(is_missing, y))


def _digest(run: np.ndarray) -> int:
    content = np.ascontiguousarray(run + 0.0).tobytes()  # -0.0 becomes 0.0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
