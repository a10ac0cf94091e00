"""RunGate: stop, or hand over, runs that are going wrong."""

import dataclasses
import hashlib
import json
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_array, check_is_fitted

from sklearn_clm._estimators import claim_content, reading, write_content
from sklearn_clm._exceptions import report_null
from sklearn_clm.calibration import Claim, clopper_pearson
from sklearn_clm.calibration._arrays import next_digests, numbered, repeated
from sklearn_clm.calibration._claim import nulls_of, percent
from sklearn_clm.calibration._rows import Part, RandomState, optimization_size, split_prompts
from sklearn_clm.policies import Groups
from sklearn_clm.policies._groups import groups_of
from sklearn_clm.runs._features import (
    ClassifierRisk,
    LinearRisk,
    PrefixState,
    Risk,
    ScoreRisk,
    features_of,
)
from sklearn_clm.runs._levels import (
    Level,
    level_that_keeps,
    level_that_passes,
    levels_to_test,
    start_of,
)

_FORMAT = "sklearn_clm.run_gate/1"
_N_FOLDS = 5
_NULL_OUTCOMES = {
    "keeps": "No run is stopped, which keeps this promise.",
    "passes": "Every run is handed over after its first step: nothing is promised of any.",
}


@dataclass(frozen=True)
class RunClaim(Claim):
    """Guarantee of a gate about runs."""

    promise: Literal["keeps", "passes"] = "keeps"

    @property
    def level_name(self) -> str:
        return "alpha"

    def nullified(self, why: str) -> "RunClaim":
        """The same claim as a null, with its reason."""
        return dataclasses.replace(self, null=why)

    def sentence(self) -> str:
        """The guarantee in words."""
        if not self.holds:
            return f"None. {_NULL_OUTCOMES[self.promise]}"
        who = "a new run" if self.group is None else f"a new run of group {self.group!r}"
        what = "that would succeed is not stopped"
        if self.promise == "passes":
            what = "that is let through to its end succeeds"
        return (
            f"With confidence {percent(1 - self.delta)} over the calibration runs, {who} from the "
            f"same distribution {what} with probability at least {percent(1 - self.level)}. This "
            "is an average over new runs, not a statement about any one of them, and it is about "
            "the agent, tools, tasks and scores that were calibrated."
        )


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
    unfinished : {"raise", "failed", "leave_out"}, default="raise"
        What becomes of runs whose success is None or NaN, as a budget or an error ended them. They
        are neither successes nor failures by themselves. Left out, they have no part in the
        promise either.
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
    Runs must be independent, and new ones come from the same agent, tools and tasks. Stopping
    changes which runs finish: never calibrate again on runs that a gate let through, unless a
    random share goes ungated, and on that share alone.

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
        "unfinished": [StrOptions({"raise", "failed", "leave_out"})],
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
        unfinished: Literal["raise", "failed", "leave_out"] = "raise",
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
        succeeded, is_finished = _outcomes(y, len(runs), self.unfinished)
        names = groups_of(self.groups, groups, len(runs), list(X))  # type: ignore[arg-type]
        kept = np.flatnonzero(is_finished)
        runs = [runs[i] for i in kept]
        succeeded = succeeded[kept]
        names = None if names is None else [names[i] for i in kept]
        if len(runs) < 2:
            raise ValueError(
                f"X must hold at least 2 runs that are finished, got {len(runs)} sample instead."
            )

        searched, tested = self._split(runs, succeeded)
        self.n_scores_ = runs[0].shape[1]
        self.n_unfinished_ = int(len(is_finished) - len(kept))
        features = [features_of(run) for run in runs]
        self._risk = self._learnt([features[i] for i in searched], ~succeeded[searched])
        largest_risks = np.array([self._risk.of(rows).max() for rows in features])
        levels, starts = np.array([np.inf]), largest_risks[:0]
        if self.promise == "passes":
            starts = self._out_of_fold([features[i] for i in searched], ~succeeded[searched])
            levels = levels_to_test(starts)

        def calibrated(part: Part) -> Level:
            rows = part.rows
            if self.promise == "keeps":
                return level_that_keeps(
                    largest_risks[rows], succeeded[rows], self.alpha, part.delta
                )
            start = start_of(levels, starts, succeeded[searched], len(rows), self.alpha, part.delta)
            return level_that_passes(
                levels, start, largest_risks[rows], succeeded[rows], self.alpha, part.delta
            )

        options = self.groups or Groups()
        parts = options.parts(searched, tested, self.delta, names)
        self.levels_ = {part.group: calibrated(part) for part in parts}
        self.claims_ = {part.group: self._claim(part, names) for part in parts}
        self.threshold_ = self.levels_[None].level
        if names is None:
            self._refuse_too_few()
        in_use = [claim for group, claim in self.claims_.items() if self._is_used(group)]
        report_null(nulls_of(in_use), self.on_null, _NULL_OUTCOMES[self.promise])
        return self

    def decision_function(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Predicted risk after each step of each run.

        Log-odds of a failure by the default scorer, a probability by a classifier, minus the score
        by "score".
        """
        check_is_fitted(self, "levels_")
        return [self._risk.of(features_of(run)) for run in self._arrays(X, self.n_scores_)]

    def predict(self, X: Sequence[Any], *, groups: object = None) -> np.ndarray:
        """Steps until each run is stopped, or all."""
        steps = [
            (int(np.argmax(risks >= level)) + 1 if (risks >= level).any() else len(risks))
            for risks, level in zip(self.decision_function(X), self._levels_of(X, groups))
        ]
        return np.array(steps, dtype=np.intp)

    def stopped(self, X: Sequence[Any], *, groups: object = None) -> np.ndarray:
        """Whether each run is stopped, bool (n,)."""
        risks = self.decision_function(X)
        return np.array(
            [bool((one >= t).any()) for one, t in zip(risks, self._levels_of(X, groups))], bool
        )

    def score(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> float:
        """Share of failing runs stopped; -inf where null."""
        check_is_fitted(self, "levels_")
        if not any(claim.holds for claim in self.claims_.values()):
            return -np.inf
        succeeded, is_finished = _outcomes(y, len(X), "leave_out")
        stopped = self.stopped(X, groups=groups)[is_finished & ~succeeded]
        return float(stopped.mean()) if len(stopped) else float("nan")

    def report(self, X: Sequence[Any], y: ArrayLike, *, groups: object = None) -> str:
        """Report on new runs, in Markdown."""
        succeeded, is_finished = _outcomes(y, len(X), "leave_out")
        stopped = self.stopped(X, groups=groups)
        steps = self.predict(X, groups=groups)
        lengths = np.array([len(run) for run in X])
        fails = is_finished & ~succeeded

        def row(name: str, chosen: np.ndarray, counted: np.ndarray) -> str:
            n, k = int(chosen.sum()), int(counted[chosen].sum())
            if n == 0:
                return f"| {name} | 0 of 0 | |"
            low, high = clopper_pearson(k, n)
            return f"| {name} | {k} of {n} | {percent(k / n)} ({percent(low)} to {percent(high)}) |"

        sentences = [
            claim.sentence() for group, claim in self.claims_.items() if self._is_used(group)
        ]
        saved = 1.0 - steps.sum() / lengths.sum()
        lines = [
            "## Guarantee",
            "",
            *sentences,
            "",
            "## New runs",
            "",
            "| what | runs | share (95 % interval) |",
            "| --- | --- | --- |",
            row("succeed, and are stopped", is_finished & succeeded, stopped),
            row("fail, and are stopped", fails, stopped),
            row("are let through, and fail", is_finished & ~stopped, ~succeeded),
            "",
            f"Steps not taken: {percent(saved)}. Unfinished runs, which are left out: "
            f"{int(np.sum(~is_finished))}; in calibration {self.n_unfinished_}.",
        ]
        return "\n".join(lines)

    def open(self, *, group: Hashable | None = None, state: str | None = None) -> "OpenRun":
        """Begin a live run, or continue a kept one."""
        check_is_fitted(self, "levels_")
        if group not in self.levels_ or not self._is_used(group):
            raise ValueError(f"group must be one that was calibrated, got {group!r} instead.")
        return OpenRun(self._risk, self.levels_[group].level, self.n_scores_, self.features, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the gate as JSON, without data."""
        check_is_fitted(self, "levels_")
        if isinstance(self._risk, ClassifierRisk):
            raise TypeError(
                "scorer must be None or 'score' for a JSON file, got a classifier instead; pickle "
                "the gate."
            )
        rules = [
            {**claim_content(group, claim), "of_level": dataclasses.asdict(self.levels_[group])}
            for group, claim in self.claims_.items()
        ]
        content = {
            "format": _FORMAT,
            "promise": self.promise,
            "alpha": self.alpha,
            "delta": self.delta,
            "grouped": len(self.levels_) > 1,
            "risk": None if isinstance(self._risk, ScoreRisk) else dataclasses.asdict(self._risk),
            "n_scores": self.n_scores_,
            "n_unfinished": self.n_unfinished_,
            "rules": rules,
        }
        write_content(path, content)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Read a gate that was saved."""
        self._validate_params()
        with reading(path, _FORMAT) as content:
            for name in ("promise", "alpha", "delta"):
                if content[name] != getattr(self, name):
                    raise ValueError(
                        f"{name} must be {content[name]!r}, as calibrated, got "
                        f"{getattr(self, name)!r} instead"
                    )
            risk = content["risk"]
            loaded = (
                ScoreRisk() if risk is None else LinearRisk(tuple(risk["coef"]), risk["intercept"])
            )
            levels: dict[Hashable, Level] = {}
            claims: dict[Hashable, RunClaim] = {}
            for rule in content["rules"]:
                level = {**rule["of_level"], "level": float(rule["of_level"]["level"])}
                levels[rule["group"]] = Level(**level)
                claim = {**rule["claim"], "unknown": tuple(rule["claim"]["unknown"])}
                claims[rule["group"]] = RunClaim(**claim)
        self._risk, self.levels_, self.claims_ = loaded, levels, claims
        self.n_scores_, self.n_unfinished_ = content["n_scores"], content["n_unfinished"]
        self.threshold_ = levels[None].level
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = False
        return tags

    def _arrays(self, runs: Sequence[Any], n_scores: int | None = None) -> list[np.ndarray]:
        """Runs as arrays of shape (T, d)."""
        is_table = isinstance(runs, np.ndarray) and (runs.ndim > 1 or runs.dtype != object)
        if issparse(runs) or (is_table and self.features is None):
            runs = check_array(runs, allow_nd=True)  # whose rows are runs of equal length
        if isinstance(runs, (str, bytes)) or not hasattr(runs, "__len__"):
            raise TypeError(f"X must be a sequence of runs, got {type(runs).__name__} instead.")
        if len(runs) == 0:
            raise ValueError("X must hold at least one run, got none instead.")
        arrays: list[np.ndarray] = []
        for i, run in enumerate(runs):
            steps = run if self.features is None else _described(run, self.features)
            try:
                array = np.asarray(steps, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"X[{i}] must be a run of numbers, or of d numbers each, got {error} instead."
                ) from None
            if array.ndim == 1:
                array = array[:, np.newaxis]
            if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
                raise ValueError(
                    f"X[{i}] must be a non-empty run of finite scores, got shape {array.shape}"
                    f"{'' if np.isfinite(array).all() else ' with NaN or infinity'} instead."
                )
            wanted = n_scores or arrays[0].shape[1] if arrays or n_scores else array.shape[1]
            if array.shape[1] != wanted:
                raise ValueError(
                    f"X[{i}] must have {wanted} scores in a step, got {array.shape[1]} instead."
                )
            arrays.append(array)
        return arrays

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

    def _learnt(self, features: list[np.ndarray], failed: np.ndarray) -> Risk:
        if isinstance(self.scorer, str):
            return ScoreRisk()
        if self.scorer is None:
            return LinearRisk.learnt(features, failed)
        if len(np.unique(failed)) < 2:
            return LinearRisk.learnt(features, failed)  # a constant
        lengths = [len(rows) for rows in features]
        outcomes = np.repeat(failed, lengths)
        return ClassifierRisk(clone(self.scorer).fit(np.vstack(features), outcomes))

    def _out_of_fold(self, features: list[np.ndarray], failed: np.ndarray) -> np.ndarray:
        """M of runs, out-of-fold."""
        largest = np.empty(len(features))
        if len(features) < 2 * _N_FOLDS:
            return np.array([self._risk.of(rows).max() for rows in features])
        for learning, left_out in KFold(_N_FOLDS).split(failed):
            risk = self._learnt([features[i] for i in learning], failed[learning])
            for i in left_out:
                largest[i] = risk.of(features[i]).max()
        return largest

    def _claim(self, part: Part, names: list[Hashable] | None) -> RunClaim:
        level = self.levels_[part.group]
        within: Literal["each", "all"] | None = None
        if names is not None:
            within = (self.groups or Groups()).guarantee
        claim = RunClaim(
            self.alpha, part.delta, group=part.group, within_groups=within, promise=self.promise
        )
        if level.certified:
            return claim
        if self.promise == "keeps":
            return claim.nullified(
                f"{level.n} calibration runs succeed, and at alpha={self.alpha:g}, "
                f"delta={part.delta:g} it takes {claim.fewest_prompts} at least."
            )
        return claim.nullified(
            f"no level is certified at alpha={self.alpha:g}, delta={part.delta:g}: of the "
            f"{level.n} calibration runs that the first would let through {level.n_errors} fail."
        )

    def _refuse_too_few(self) -> None:
        claim, n = self.claims_[None], self.levels_[None].n
        if self.promise == "keeps" and not claim.holds:
            raise ValueError(
                f"X must hold more runs that succeed: {n} of those in the calibration part do, and "
                f"at alpha={self.alpha:g}, delta={self.delta:g} it takes {claim.fewest_prompts}."
            )

    def _is_used(self, group: Hashable | None) -> bool:
        return (group is None) == (len(self.levels_) == 1)

    def _levels_of(self, runs: Sequence[Any], groups: object) -> list[float]:
        check_is_fitted(self, "levels_")
        options = self.groups
        if options is None and groups is None and len(self.levels_) == 1:
            return [self.threshold_] * len(runs)
        names = groups_of(options, groups, len(runs), list(runs))  # type: ignore[arg-type]
        for name in names or []:
            if name not in self.levels_:
                raise ValueError(
                    f"groups must be among those that were calibrated, got {name!r} instead."
                )
        return [self.levels_[name].level for name in names or []]


class OpenRun:
    """One run while it goes on, safe for threads.

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
        features: Callable[[list[Any]], Sequence[float]] | None = None,
        state: str | None = None,
    ) -> None:
        self._risk, self._level, self._n_scores = risk, level, n_scores
        self._features = features
        self._steps: list[Any] = []  # kept only where `features` looks at them
        self._state = PrefixState.begun(n_scores)
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

        Once a run is stopped it stays so, whatever comes.
        """
        with self._lock:
            if self._features is not None:
                self._steps.append(score)
                score = self._features(self._steps)
            scores = [float(score)] if self._n_scores == 1 and np.ndim(score) == 0 else score
            scores = [float(one) for one in scores]
            if len(scores) != self._n_scores or not all(map(np.isfinite, scores)):
                raise ValueError(
                    f"score must be {self._n_scores} finite numbers, got {scores!r:.80} instead."
                )
            self.risk = self._risk.of_one(self._state.update(scores))
            self.stopped = self.stopped or self.risk >= self._level
            return not self.stopped

    def to_json(self) -> str:
        """The state, for a restart."""
        with self._lock:
            state = dataclasses.asdict(self._state)
            return json.dumps({**state, "stopped": self.stopped, "steps": self._steps})

    def _restore(self, state: str) -> None:
        content = json.loads(state)
        self.stopped = bool(content.pop("stopped"))
        self._steps = list(content.pop("steps"))
        self._state = PrefixState(**content)
        if len(self._state.last) != self._n_scores:
            raise ValueError(
                f"state must be of a run with {self._n_scores} scores in a step, got "
                f"{len(self._state.last)} instead."
            )


def _outcomes(y: Any, n: int, unfinished: str) -> tuple[np.ndarray, np.ndarray]:
    """Whether runs succeed, and whether they are finished, bool (n,)."""
    if y is None:
        raise ValueError("RunGate requires y to be passed, but the target y is None.")
    outcomes = np.asarray(y, dtype=object)
    if outcomes.shape != (n,):
        raise ValueError(
            f"y must have shape ({n},), one for each run, got {outcomes.shape} instead."
        )
    is_finished = np.array([one is not None and one == one for one in outcomes], dtype=bool)
    for one in outcomes[is_finished]:
        if one not in (0, 1):
            raise ValueError(f"y must be booleans, or 0 and 1, got {one!r:.40} instead.")
    if unfinished == "raise" and not is_finished.all():
        raise ValueError(
            f"y must say of each run whether it succeeds, got None or NaN for "
            f"{int(np.sum(~is_finished))} instead; unfinished='failed' or 'leave_out' says what "
            "these are."
        )
    succeeded = np.array([bool(one) for one in np.where(is_finished, outcomes, False)])
    if unfinished == "failed":
        is_finished = np.ones(n, dtype=bool)
    return succeeded, is_finished


def _described(run: Sequence[Any], features: Callable[[list[Any]], Sequence[float]]) -> list[Any]:
    steps = list(run)
    return [features(steps[:k]) for k in range(1, len(steps) + 1)]


def _digest(run: np.ndarray) -> int:
    content = np.ascontiguousarray(run + 0.0).tobytes()  # -0.0 becomes 0.0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
