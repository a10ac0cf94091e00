"""A watch on the risk of a calibrated estimator in use."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Sequence
from itertools import compress
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import InputTags, check_scalar
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._results import counted
from sklearn_clm.caching._store import Store, open_store
from sklearn_clm.calibration import Claim, keep_by_weight
from sklearn_clm.calibration._binomial import check_probability
from sklearn_clm.calibration._e_processes import (
    ConformalTestMartingale,
    RiskEProcess,
    confidence_sequence,
)
from sklearn_clm.generators._prompts import CheckedPrompts, check_prompts
from sklearn_clm.policies import Groups
from sklearn_clm.policies._calibration import places_of_groups

if TYPE_CHECKING:
    import sqlite3

Outcome = tuple[bytes | None, float]  # digest of the request, where it is known, and the loss
_TABLES = """
CREATE TABLE IF NOT EXISTS monitor (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS audits (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, loss REAL NOT NULL);
CREATE TABLE IF NOT EXISTS monitored_scores (id INTEGER PRIMARY KEY, score REAL NOT NULL)
"""
_ANY_PROMPT = InputTags(dict=True, allow_nan=True)  # only groups are read from them
AFTER_ALARM = (
    "The risk is above {epsilon:g}, or an event of probability {alpha:g} has occurred. Stop "
    "relying on the guarantee. Calibrate again on new prompts of the present kind, and start a new "
    "monitor. Do not calibrate on the audited prompts alone: they are the reason for the alarm, "
    "and a certificate from them needs at least a fresh random split of them and newer ones."
)
_NO_ALARM = "No alarm. This renews no certificate: it is no evidence that the risk is below {:g}."


class RiskMonitor:
    """Alarm when the risk in use exceeds what was promised.

    After deployment, some sets are *audited*: it is judged whether they were in error. The monitor
    bets against the hypothesis that the risk of each audited prompt, given those before,
    is at most epsilon. Its wealth, the *e-value*, is a mixture of products of
    1 + b (loss - epsilon), over stakes b and over the time at which the betting starts, all with
    weights that were fixed beforehand. The alarm goes off when it reaches 1 / alpha.

    *Why one may look at any time.* Each stake leaves every factor positive, and under the
    hypothesis no factor has a mean above 1. Hence the e-value is a nonnegative supermartingale
    that starts at 1, and by Ville's inequality it *ever* reaches 1 / alpha with probability at
    most alpha.

    *What it needs.* The audited requests must be all requests or a random share of them. With
    `share` below 1 :meth:`should_audit` chooses, by the request and the seed alone. A prompt that
    is asked again is another request and counts again: the promise is about requests, and without
    the repeats frequent prompts would count too little. Outcomes that arrive because somebody
    complained say nothing about the risk. Calibration prompts are no audits.

    *Groups.* Only prompts of certified groups count: nothing is promised to the others, so
    :meth:`update` leaves their outcomes out, and their sets (``guaranteed`` is False) need no
    audit. To watch one group, give its outcomes to a monitor of its own, ``RiskMonitor(epsilon)``.

    *After an alarm.* Stop relying on the guarantee, calibrate again on new prompts, and start a new
    monitor. The alarmed prompts were singled out by the alarm: never calibrate on them without a
    fresh random split together with newer ones. The absence of an alarm renews no certificate. An
    alarm may also mean that calibration was unlucky, without any change since, which delta allows;
    with a marginal guarantee, which holds on average over calibrations, that is no rare event.

    Parameters
    ----------
    target : ConformalSampler, ComponentSelector or float
        A calibrated estimator, whose epsilon (of a selector: alpha) is watched, or the tolerated
        risk itself, in (0, 1).
    alpha : float, default=0.05
        Probability of ever a false alarm, in (0, 1).
    share : float, default=1.0
        Share of the requests that is audited, in (0, 1].
    reference_scores : array-like of shape (n,), default=None
        Scores of the calibration prompts, such as their length or the likelihood of the first
        draw; for :meth:`update_scores`.
    seed : int, default=0
        Seed of the choice of requests and of the ties among scores.
    path : str or path, default=None
        A SQLite file that keeps the state. Each update is written whole or not at all before it
        counts; a file that exists is gone on with, also by several processes. Do not move or edit
        it while a monitor has it open: what is reported then is lost. None: kept in memory alone.

    Attributes
    ----------
    epsilon : float
        The watched risk.
    n_unchecked_ : int
        Audited outcomes without a request: nobody knows whether they were chosen at random, or
        were reported twice.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.evaluation import RiskMonitor
    >>> monitor = RiskMonitor(0.3, share=0.5)
    >>> audited = [request for request in range(1000) if monitor.should_audit(request)]
    >>> errors = np.random.default_rng(0).random(len(audited)) < 0.45  # judged by people
    >>> monitor.update(errors, audited).alarm_
    True
    >>> monitor.alarm_at_ < len(audited)
    True
    """

    def __init__(
        self,
        target: ConformalSampler | ComponentSelector | float,
        alpha: float = 0.05,
        *,
        share: float = 1.0,
        reference_scores: ArrayLike | None = None,
        seed: int = 0,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.epsilon, self._watched = _watched(target)
        self._claims: dict[Hashable | None, Claim] = {}
        self._groups: Groups | None = None
        if isinstance(target, (ConformalSampler, ComponentSelector)):
            self._claims = target.calibration_.claims_in_use
            self._groups = target.calibration_.groups
        self.alpha = float(check_probability(alpha, "alpha"))
        if isinstance(share, bool) or not 0.0 < share <= 1.0:
            raise ValueError(f"share must lie in (0, 1], got {share!r} instead.")
        check_scalar(seed, "seed", Integral, min_val=0)
        self.share, self.seed, self.path = float(share), int(seed), path
        self._losses: list[float] = []
        self._e_values: list[float] = []
        self._digests: set[bytes] = set()
        self.n_unchecked_ = 0
        self._process = RiskEProcess(self.epsilon)
        self._scores: list[float] = []
        self._shift_e_values: list[float] = []
        self._martingale: ConformalTestMartingale | None = None
        self._reference: str | None = None
        if reference_scores is not None:
            reference = _numbers(reference_scores, "reference_scores")
            if not len(reference):
                raise ValueError("reference_scores must hold at least one score, got none.")
            self._martingale = ConformalTestMartingale(reference, seed=self.seed)
            self._reference = hashlib.blake2b(reference.tobytes(), digest_size=16).hexdigest()
        self._store: Store | None = None
        if path is not None:
            self._open()

    def should_audit(self, request: object) -> bool:
        """Whether to judge the outcome of a request.

        Parameters
        ----------
        request : str, int or UUID
            What no other request has, such as its number in the log. Not the prompt, which may
            come again.

        Returns
        -------
        bool
            True with probability `share`, by the request and the seed alone.

        Examples
        --------
        >>> from sklearn_clm.evaluation import RiskMonitor
        >>> RiskMonitor(0.3).should_audit("every request, where share=1")
        True
        """
        return bool(self._chosen([_digest(request)])[0])

    def update(
        self,
        outcomes: ArrayLike,
        requests: Sequence[object] | None = None,
        *,
        prompts: Sequence[object] | None = None,
        groups: object = None,
    ) -> Self:
        """Go on with further outcomes.

        Parameters
        ----------
        outcomes : array-like of shape (n,)
            Losses of audited sets in order of arrival: 1 or True for an error, 0 or False for
            none, or a number in between where the loss is a share.
        requests : sequence of length n, default=None
            Their requests, as :meth:`should_audit` takes them. None: neither whether they were
            chosen at random nor whether they were reported before can be checked; they count in
            `n_unchecked_`.
        prompts, groups : sequence of length n, default=None
            Their prompts and groups, as ``predict`` takes them. Where nothing is certified for a
            group of the estimator, either the groups are needed, or the prompts if
            ``Groups(by=...)`` reads groups from them.

        Returns
        -------
        RiskMonitor
            This monitor.

        Raises
        ------
        ValueError, OSError
            If an outcome is no loss, a request was audited before or was not chosen by
            :meth:`should_audit`, or the file cannot be written to. Nothing of the call counts then.

        Examples
        --------
        Sets and references give losses by :func:`sklearn_clm.metrics.set_loss`; selected components
        by :func:`~sklearn_clm.metrics.component_loss`.

        >>> from sklearn.datasets import load_digits
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from sklearn_clm import ConformalSampler
        >>> from sklearn_clm.evaluation import RiskMonitor
        >>> from sklearn_clm.generators import EstimatorGenerator
        >>> from sklearn_clm.metrics import set_loss
        >>> X, y = load_digits(return_X_y=True)
        >>> generator = EstimatorGenerator(GaussianNB(var_smoothing=0.1))
        >>> sampler = ConformalSampler(generator, k_max=5, epsilon=0.2, random_state=0)
        >>> monitor = RiskMonitor(sampler.fit(X[:1000], y[:1000]), share=0.2)
        >>> audited = [i for i in range(1000, 1400) if monitor.should_audit(i)]
        >>> losses = set_loss(y[audited], sampler.predict(X[audited]), average=False)
        >>> monitor.update(losses, audited).alarm_
        False

        People who say whether a set holds an admissible response give the opposite of a loss:

        >>> audited = [i for i in range(1400, 1797) if monitor.should_audit(i)]
        >>> verdicts = [str(y[i]) in map(str, sampler.predict(X[[i]])[0]) for i in audited]
        >>> monitor.update([not verdict for verdict in verdicts], audited).alarm_
        False
        """
        losses = _numbers(outcomes, "outcomes")
        if not np.all((losses >= 0.0) & (losses <= 1.0)):
            raise ValueError(
                f"outcomes must be losses in [0, 1], got {losses.min()} to {losses.max()} instead."
            )
        digests: list[bytes | None] = [None] * len(losses)
        if requests is not None and (len(requests) or len(losses)):
            digests = self._check_requests(requests, len(losses))
        checked = None
        if prompts is not None and len(prompts):
            checked = check_prompts(prompts, tags=_ANY_PROMPT)
        promised = self._promised(groups, len(losses), checked)
        # what is promised nothing is no evidence for or against the promise
        rows = list(compress(zip(digests, losses.tolist(), strict=True), promised))
        self._keep(rows, [], digests)
        return self

    def update_scores(self, scores: ArrayLike) -> Self:
        """Go on with further scores of prompts, audited or not.

        A test of whether scores of new prompts are of the same kind as `reference_scores`. It
        needs no labels. It is no statement on the risk: scores may shift while the risk stays,
        and the risk may rise while they stay.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Scores of new prompts in order of arrival, computed like those of the reference.

        Returns
        -------
        RiskMonitor
            This monitor, with `shift_e_values_` and `shift_alarm_`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_clm.evaluation import RiskMonitor
        >>> rng = np.random.default_rng(0)
        >>> monitor = RiskMonitor(0.3, reference_scores=rng.normal(size=300))
        >>> monitor.update_scores(rng.normal(size=300)).shift_alarm_
        False
        >>> monitor.update_scores(rng.normal(loc=1.0, size=300)).shift_alarm_
        True
        >>> monitor.alarm_  # nothing is known of the risk
        False
        """
        if self._martingale is None:
            raise ValueError("reference_scores must be given to the monitor for update_scores.")
        self._keep([], _numbers(scores, "scores").tolist())
        return self

    @property
    def n_audited_(self) -> int:
        """Outcomes so far."""
        return len(self._losses)

    @property
    def losses_(self) -> np.ndarray:
        """The outcomes in order of arrival."""
        return np.array(self._losses)

    @property
    def risk_(self) -> float:
        """Mean loss so far; NaN before the first outcome."""
        return float(np.mean(self._losses)) if self._losses else float("nan")

    @property
    def risk_interval_(self) -> tuple[float, float]:
        """Limits of a risk that does not change: right at all times with probability 1 - alpha."""
        low, high = confidence_sequence(float(np.sum(self._losses)), self.n_audited_, self.alpha)
        return float(low), float(high)

    @property
    def e_values_(self) -> np.ndarray:
        """The e-value after each outcome."""
        return np.array(self._e_values)

    @property
    def alarm_at_(self) -> int | None:
        """Number of outcomes at the alarm; None for no alarm."""
        return first_alarm(self.e_values_, self.alpha)

    @property
    def alarm_(self) -> bool:
        """Whether the e-value has ever reached 1 / alpha."""
        return self.alarm_at_ is not None

    @property
    def shift_e_values_(self) -> np.ndarray:
        """E-value after each score, against their being of the same kind as the reference."""
        return np.array(self._shift_e_values)

    @property
    def shift_alarm_(self) -> bool:
        """Whether the scores have shifted: no statement on the risk."""
        return first_alarm(self.shift_e_values_, self.alpha) is not None

    def __repr__(self) -> str:
        return (
            f"RiskMonitor(epsilon={self.epsilon:g}, alpha={self.alpha:g}, "
            f"n_audited={self.n_audited_}, alarm={self.alarm_})"
        )

    def __str__(self) -> str:
        lines = [f"{counted(self.n_audited_, 'outcome')} audited, epsilon = {self.epsilon:g}."]
        if self._losses:
            low, high = self.risk_interval_
            lines.append(
                f"Risk {self.risk_:.3f}; between {low:.3f} and {high:.3f} with confidence "
                f"{1 - self.alpha:g} at all times, if it does not change. E-value "
                f"{self._e_values[-1]:.3g}, at most {max(self._e_values):.3g} so far; alarm at "
                f"{1 / self.alpha:g}."
            )
        if self.alarm_:
            text = AFTER_ALARM.format(epsilon=self.epsilon, alpha=self.alpha)
            lines.append(f"ALARM after {counted(self.alarm_at_ or 0, 'outcome')}. {text}")
        else:
            lines.append(_NO_ALARM.format(self.epsilon))
        groups = {group: claim for group, claim in self._claims.items() if group is not None}
        if nulls := [repr(group) for group, claim in groups.items() if not claim.holds]:
            lines.append(
                f"Prompts of {len(nulls)} of {counted(len(groups), 'group')} do "
                f"not count, nothing is promised to them: {', '.join(nulls)[:200]}."
            )
        if any(claim.guarantee == "marginal" for claim in self._claims.values()):
            lines.append(
                "The guarantee holds on average over calibrations: an alarm may tell of no change."
            )
        if self.n_unchecked_:
            lines.append(
                f"{counted(self.n_unchecked_, 'outcome')} came without a request: whether they "
                "were chosen at random, and once, is not known."
            )
        if self._martingale is not None:
            verdict = "have shifted" if self.shift_alarm_ else "show no shift"
            lines.append(
                f"Scores of {counted(len(self._scores), 'prompt')} {verdict}. This is no statement "
                "on the risk."
            )
        return "\n".join(lines)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_store"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._store = None
        if self.path is not None:
            self._open()

    def _chosen(self, digests: Sequence[bytes]) -> np.ndarray:
        keys = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)
        return keep_by_weight(np.full(len(keys), self.share), 1.0, keys, seed=self.seed)

    def _promised(self, groups: object, n: int, prompts: CheckedPrompts | None) -> list[bool]:
        """Whether the prompts are among those to which something is promised."""
        holds = [claim.holds for claim in self._claims.values()]
        if not n or (groups is None and all(holds)):
            return [True] * n
        places = places_of_groups(self._claims, self._groups, groups, n, prompts)
        return [True] * n if places is None else [holds[place] for place in places]

    def _check_requests(self, requests: Sequence[object], n: int) -> list[bytes | None]:
        """Digests of the requests, all of them to be audited and different."""
        if len(requests) != n:
            raise ValueError(
                f"requests must be as many as outcomes, {n}, got {len(requests)} instead."
            )
        digests = [_digest(request) for request in requests]
        chosen = self._chosen(digests)
        if not chosen.all():
            i = int(np.argmin(chosen))
            raise ValueError(
                f"requests must be those that should_audit chose, got {requests[i]!r} at position "
                f"{i} instead. Outcomes that were not chosen at random say nothing about the risk."
            )
        return list(digests)

    def _keep(
        self, rows: list[Outcome], scores: list[float], digests: Sequence[bytes | None] = ()
    ) -> None:
        """Write what is new; it counts once it is on the disk, after what others wrote before."""
        if self._store is None:
            self._refuse_repeats(digests, [])
        else:
            with self._store.writing(durable=True) as connection:
                earlier, earlier_scores = self._unseen(connection)
                self._refuse_repeats(digests, earlier)
                connection.executemany("INSERT INTO audits (digest, loss) VALUES (?, ?)", rows)
                new = [(score,) for score in scores]
                connection.executemany("INSERT INTO monitored_scores (score) VALUES (?)", new)
            rows, scores = earlier + rows, earlier_scores + scores
        self._take(rows, scores)

    def _refuse_repeats(self, digests: Sequence[bytes | None], earlier: Sequence[Outcome]) -> None:
        known = self._digests.union(digest for digest, _ in earlier if digest is not None)
        for i, digest in enumerate(digests):
            if digest in known:
                raise ValueError(
                    f"requests must be reported once, got the one at position {i} again. A prompt "
                    "that comes again is a request of its own."
                )
            if digest is not None:
                known.add(digest)

    def _take(self, rows: Sequence[Outcome], scores: Sequence[float]) -> None:
        losses = [loss for _, loss in rows]
        self._e_values += self._process.update(losses).tolist()
        self._losses += losses
        self._digests |= {digest for digest, _ in rows if digest is not None}
        self.n_unchecked_ += sum(digest is None for digest, _ in rows)
        if self._martingale is not None:
            self._shift_e_values += self._martingale.update(scores).tolist()
            self._scores += scores

    def _open(self) -> None:
        """Connect with the file, and go on from where it stands."""
        self._store = open_store(self.path)
        self._store.add_tables(_TABLES)
        settings = {name: getattr(self, name) for name in ("epsilon", "alpha", "share", "seed")}
        settings |= {"target": self._watched, "reference_scores": self._reference}
        with self._store.writing(durable=True) as connection:
            saved = connection.execute("SELECT settings FROM monitor").fetchone()
            if saved is None:
                connection.execute("INSERT INTO monitor VALUES (?)", (json.dumps(settings),))
            else:
                self._refuse_others(saved[0], settings)
            rows, scores = self._unseen(connection)
        self._take(rows, scores)

    def _refuse_others(self, saved: str, settings: dict[str, float | str | None]) -> None:
        known = json.loads(saved)
        for name, value in settings.items():
            if known.get(name) != value:
                raise ValueError(
                    f"path={os.fspath(self.path or '')!r} must be of this monitor, got one whose "
                    f"{name} is {known.get(name)!r}, not {value!r}. A new monitor needs a new file."
                )

    def _unseen(self, connection: sqlite3.Connection) -> tuple[list[Outcome], list[float]]:
        """Outcomes and scores in the file that this object has not taken yet."""
        rows = connection.execute(
            "SELECT digest, loss FROM audits WHERE id > ? ORDER BY id", (self.n_audited_,)
        ).fetchall()
        scores = connection.execute(
            "SELECT score FROM monitored_scores WHERE id > ? ORDER BY id", (len(self._scores),)
        ).fetchall()
        return rows, [score for (score,) in scores]


def _watched(target: ConformalSampler | ComponentSelector | float) -> tuple[float, str | None]:
    """The watched risk, and a digest of what predicts, where it is known."""
    if not isinstance(target, (ConformalSampler, ComponentSelector)):
        if isinstance(target, bool) or not isinstance(target, Real):
            raise TypeError(
                "target must be a calibrated ConformalSampler or ComponentSelector, or a number in "
                f"(0, 1), got {type(target).__name__} instead."
            )
        return float(check_probability(target, "target")), None
    check_is_fitted(target, "calibration_")
    if not target.calibration_.certified:
        raise ValueError(
            f"target must be certified, got a {type(target).__name__} that certifies nothing "
            "instead: it promises nothing that could be watched; give the tolerated risk."
        )
    if isinstance(target, ConformalSampler):
        record = target.calibration_
        if not record.claim.admission:
            raise ValueError(
                "target must promise an admissible response to each prompt, got one that promises "
                "other losses, or answers, instead: give the level that is watched, and update "
                "with that loss, or with the prompts answered alone."
            )
        risk, text = record.epsilon, f"{record.digest} {record.provenance}"
    else:
        selected = target.calibration_
        risk, text = selected.alpha, f"{list(selected.thresholds.items())!r} {selected.provenance}"
    return float(risk), hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest(request: object) -> bytes:
    """What a request is known by. It has nothing in common with the digest of a prompt."""
    if not isinstance(request, (str, int, np.integer, UUID)):
        raise TypeError(
            "requests must be identifiers (str, int or UUID) that no other request has, got "
            f"{type(request).__name__} instead."
        )
    text = str(request).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8, person=b"audit").digest()


def _numbers(values: ArrayLike, name: str) -> np.ndarray:
    """Values as an array of float64 without NaN."""
    try:
        array = np.asarray(values)
    except ValueError:  # of rows of different lengths
        array = np.asarray(values, dtype=object)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise ValueError(
            f"{name} must be numbers of shape (n,) without NaN, got {values!r:.100} instead."
        )
    return array.astype(np.float64)


def first_alarm(e_values: np.ndarray, alpha: float) -> int | None:
    """Number of e-values up to the first that raises an alarm; None for no alarm."""
    above = e_values >= 1.0 / alpha
    return int(np.argmax(above)) + 1 if above.any() else None
