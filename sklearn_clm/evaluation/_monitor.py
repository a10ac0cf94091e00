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
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._results import counted
from sklearn_clm.caching._store import Store, open_store
from sklearn_clm.calibration import Claim, keep_by_weight
from sklearn_clm.calibration._betting import RiskEProcess, check_losses, confidence_sequence
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.generators._prompts import check_prompts
from sklearn_clm.policies import Groups
from sklearn_clm.policies._calibration import (
    SamplerCalibration,
    SelectorCalibration,
    groups_in_use,
)

if TYPE_CHECKING:
    import sqlite3

Outcome = tuple[bytes | None, float]  # digest of the request, where it is known, and the loss
_TABLES = """
CREATE TABLE IF NOT EXISTS monitor (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS audits (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, loss REAL NOT NULL)
"""
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

    *Why one may look at any time.* No factor is negative and, under the hypothesis, none has a mean
    above 1. Hence the e-value is a nonnegative supermartingale that starts at 1, and by Ville's
    inequality it *ever* reaches 1 / alpha with probability at most alpha.

    *What it needs.* The audited requests must be all requests or a random share of them. With
    `share` below 1 :meth:`should_audit` chooses, by the request and the seed alone. A prompt that
    is asked again is another request and counts again: the promise is about requests, and without
    the repeats frequent prompts would count too little. Outcomes that arrive because somebody
    complained say nothing about the risk. Calibration prompts are no audits.

    *Groups.* Only prompts of certified groups count: nothing is promised to the others, so
    :meth:`update` leaves their outcomes out, and their sets (``guaranteed`` is False) need no
    audit. To watch one group, give its outcomes to a monitor of its own, ``RiskMonitor(epsilon)``.

    *After an alarm* do what ``str(monitor)`` says. An alarm may also mean that calibration was
    unlucky, without any change since, which delta allows; with a marginal guarantee, which holds on
    average over calibrations, that is no rare event. Without an alarm no certificate is renewed.

    Parameters
    ----------
    target : ConformalSampler, ComponentSelector or float
        A calibrated estimator, whose epsilon (of a selector: alpha) is watched, or the tolerated
        risk itself, in (0, 1).
    alpha : float, default=0.05
        Probability of ever a false alarm, in (0, 1).
    share : float, default=1.0
        Share of the requests that is audited, in (0, 1].
    seed : int, default=0
        Seed of the choice of requests.
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
        seed: int = 0,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._claims: dict[Hashable | None, Claim] = {}
        self._groups: Groups | None = None
        self._watched: str | None = None  # digest of what predicts, where it is known
        if isinstance(target, Real):
            self.epsilon = check_level(target, "target")
        else:
            record = _certified(target)
            self.epsilon = float(record.claim.level)
            self._claims, self._groups = record.claims_in_use, record.groups
            text = f"{record.digest} {record.provenance}"
            self._watched = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self.alpha = check_level(alpha, "alpha")
        check_scalar(share, "share", Real, min_val=0, max_val=1, include_boundaries="right")
        check_scalar(seed, "seed", Integral, min_val=0)
        self.share, self.seed, self.path = float(share), int(seed), path
        self._losses: list[float] = []
        self._e_values: list[float] = []
        self._digests: set[bytes] = set()
        self.n_unchecked_ = 0
        self._process = RiskEProcess(self.epsilon)
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
            If an outcome is no loss, a request was reported before or not chosen, or the file
            cannot be written to. Nothing of the call counts then.

        Examples
        --------
        Sets and references give losses by :func:`sklearn_clm.metrics.set_loss`; selected components
        by :func:`~sklearn_clm.metrics.component_loss`. People who say whether a set holds an
        admissible response give the opposite of a loss.

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
        """
        losses = check_losses(outcomes)
        if losses.ndim != 1:
            raise ValueError(f"outcomes must have shape (n,), got {losses.shape} instead.")
        digests: list[bytes | None] = [None] * len(losses)
        if requests is not None:
            digests = self._check_requests(requests, len(losses))
        # what is promised nothing is no evidence for or against the promise
        promised = self._promised(groups, len(losses), prompts)
        self._keep(list(compress(zip(digests, losses.tolist(), strict=True), promised)))
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
        above = self.e_values_ >= 1.0 / self.alpha
        return int(np.argmax(above)) + 1 if above.any() else None

    @property
    def alarm_(self) -> bool:
        """Whether the e-value has ever reached 1 / alpha."""
        return self.alarm_at_ is not None

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
        return "\n".join(lines)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_store"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._store = None
        if self.path is not None:
            self._open()

    def _chosen(self, digests: Sequence[bytes]) -> np.ndarray:
        keys = np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)
        return keep_by_weight(np.full(len(keys), self.share), 1.0, keys, seed=self.seed)

    def _promised(self, groups: object, n: int, prompts: Sequence[object] | None) -> list[bool]:
        """Whether the prompts are among those to which something is promised."""
        holds = [claim.holds for claim in self._claims.values()]
        checked = check_prompts(prompts) if prompts is not None and len(prompts) else None
        if not n or (groups is None and all(holds)):
            return [True] * n
        names = groups_in_use(self._claims, self._groups, groups, n, checked)
        return [self._claims[name].holds for name in names]

    def _check_requests(self, requests: Sequence[object], n: int) -> list[bytes | None]:
        """Digests of the requests, all of them to be audited."""
        if len(requests) != n:
            raise ValueError(
                f"requests must be as many as outcomes, {n}, got {len(requests)} instead."
            )
        digests = [_digest(request) for request in requests]
        if digests and not self._chosen(digests).all():
            raise ValueError(
                "requests must be those that should_audit chose, got others instead. Outcomes that "
                "were not chosen at random say nothing about the risk."
            )
        return list(digests)

    def _keep(self, rows: list[Outcome]) -> None:
        """Count what is new once it is on the disk, after what others wrote before."""
        if self._store is None:
            self._refuse_repeats(rows)
        else:

            def append(connection: sqlite3.Connection) -> list[Outcome]:
                unseen = [*self._unseen(connection), *rows]
                self._refuse_repeats(unseen)
                connection.executemany("INSERT INTO audits (digest, loss) VALUES (?, ?)", rows)
                return unseen

            rows = self._store.write(append, durable=True)
        self._take(rows)

    def _refuse_repeats(self, rows: list[Outcome]) -> None:
        digests = [digest for digest, _ in rows if digest is not None]
        if len(set(digests)) < len(digests) or not self._digests.isdisjoint(digests):
            raise ValueError(
                "requests must be reported once, got one again instead. A prompt that comes again "
                "is a request of its own."
            )

    def _take(self, rows: list[Outcome]) -> None:
        losses = [loss for _, loss in rows]
        self._e_values += self._process.update(losses).tolist()
        self._losses += losses
        self._digests |= {digest for digest, _ in rows if digest is not None}
        self.n_unchecked_ += sum(digest is None for digest, _ in rows)

    def _open(self) -> None:
        """Connect with the file, and go on from where it stands."""
        self._store = open_store(self.path)
        self._store.add_tables(_TABLES)
        settings = {name: getattr(self, name) for name in ("epsilon", "alpha", "share", "seed")}
        settings["target"] = self._watched

        def go_on(connection: sqlite3.Connection) -> list[Outcome]:
            saved = connection.execute("SELECT settings FROM monitor").fetchone()
            if saved is None:
                connection.execute("INSERT INTO monitor VALUES (?)", (json.dumps(settings),))
            elif others := settings.items() - json.loads(saved[0]).items():
                raise ValueError(
                    f"path={os.fspath(self.path or '')!r} must be the file of a monitor with "
                    f"{dict(others)}, got that of another instead. A new monitor needs a new file."
                )
            return self._unseen(connection)

        self._take(self._store.write(go_on, durable=True))

    def _unseen(self, connection: sqlite3.Connection) -> list[Outcome]:
        """Outcomes in the file that this object has not taken yet."""
        return connection.execute(
            "SELECT digest, loss FROM audits WHERE id > ? ORDER BY id", (self.n_audited_,)
        ).fetchall()


def _certified(target: object) -> SamplerCalibration | SelectorCalibration:
    """What a target was calibrated to: something that can be watched."""
    if not isinstance(target, (ConformalSampler, ComponentSelector)):
        raise TypeError(
            "target must be a calibrated ConformalSampler or ComponentSelector, or a number in "
            f"(0, 1), got {type(target).__name__} instead."
        )
    check_is_fitted(target, "calibration_")
    record = target.calibration_
    if not record.certified or record.claim.about == "answers":
        raise ValueError(
            "target must be certified to give what is admissible, got one of which this holds "
            f"instead: {record.claim.sentence()} Give the level that is watched, and update with "
            "the loss that it bounds."
        )
    return record


def _digest(request: object) -> bytes:
    """What a request is known by. It has nothing in common with the digest of a prompt."""
    if not isinstance(request, (str, int, np.integer, UUID)):
        raise TypeError(
            "requests must be identifiers (str, int or UUID) that no other request has, got "
            f"{type(request).__name__} instead."
        )
    text = str(request).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8, person=b"audit").digest()
