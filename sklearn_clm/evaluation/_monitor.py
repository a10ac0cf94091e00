"""A monitor of the risk in use."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Self
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.caching._store import open_store
from sklearn_clm.calibration import keep_by_weight
from sklearn_clm.calibration.betting import RiskEProcess, check_losses, confidence_sequence
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.claim import reasons_of_nulls
from sklearn_clm.calibration.digests import next_digests
from sklearn_clm.calibration.rows import random_stream
from sklearn_clm.calibration.words import counted

if TYPE_CHECKING:
    import sqlite3

_TABLES = """
CREATE TABLE IF NOT EXISTS monitor (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS audits (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, loss REAL NOT NULL)
"""
_AFTER_ALARM = (
    "The risk is above {epsilon:g}, or an event of probability {alpha:g} has occurred. Stop "
    "relying on the guarantee. Calibrate again on new prompts of the present kind, and start a new "
    "monitor. Do not calibrate on the audited prompts alone: they are the reason for the alarm, "
    "and a certificate from them needs at least a fresh random split of them and newer ones."
)
_NO_ALARM = "No alarm. This renews no certificate: it is no evidence that the risk is below {:g}."


class RiskMonitor:
    """Alarm when the risk in use exceeds what was promised.

    After deployment, some sets are *audited*: it is judged whether they were in error. The monitor
    bets against the hypothesis that the risk of each audited request, given those before,
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
    complained say nothing about the risk, and calibration prompts are no audits. A table that is
    sorted by outcome, or by topic, is a run of errors, and would be a false alarm almost surely:
    the outcomes of one call count in an order that their requests and the seed determine. Without
    requests, and from call to call, they must come as the requests came.

    *After an alarm* do what ``str(monitor)`` says. An alarm may also mean that calibration was
    unlucky, without any change since, which delta allows; with a marginal guarantee, which holds on
    average over calibrations, that is no rare event. Without an alarm no certificate is renewed.

    Parameters
    ----------
    target : ConformalSampler, ComponentSelector or float
        A calibrated estimator, whose epsilon (of a selector or of answers: alpha) is watched, or
        the tolerated risk itself, in (0, 1). Where nothing is certified for some group, or to watch
        one group alone, give the risk, and outcomes of sets that are ``guaranteed``.
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
        watched = None
        if isinstance(target, Real):
            self.epsilon = check_level(target, "target")
        else:
            self.epsilon, watched = _level_and_digest(target)
        self.alpha = check_level(alpha, "alpha")
        check_scalar(share, "share", Real, min_val=0, max_val=1, include_boundaries="right")
        check_scalar(seed, "seed", Integral, min_val=0)
        self.share = float(share)
        self.seed = int(seed)
        self.path = path
        self._losses: list[float] = []
        self._e_values: list[float] = []
        self._process = RiskEProcess(self.epsilon)
        self._lock = threading.Lock()  # else two threads would both take what one of them wrote
        self._store = open_store(path)
        self._store.add_tables(_TABLES)
        settings = {"epsilon": self.epsilon, "alpha": self.alpha, "share": self.share}
        self._go_on({**settings, "seed": self.seed, "target": watched})

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
        return bool(self._chosen([_digest_of_request(request)])[0])

    def update(self, outcomes: ArrayLike, requests: Sequence[object] | None = None) -> Self:
        """Go on with further outcomes.

        Parameters
        ----------
        outcomes : array-like of shape (n,)
            Losses of audited sets: 1 or True for an error, 0 or False for none, or a number in
            between where the loss is a share.
        requests : sequence of length n, default=None
            Their requests, as :meth:`should_audit` takes them, which determine the order in which
            outcomes of this call count: of a long log report a part after the other, and a rise
            within it is seen. None: outcomes count as they stand, in order of arrival and never
            sorted, and neither whether they were chosen at random nor whether they were reported
            before can be checked.

        Notes
        -----
        Nothing of a call counts that raises an error, of its arguments or of the file. Sets and
        references give losses by ``set_loss(references, sets, average=False)`` of
        :mod:`sklearn_clm.metrics`, selected components by ``component_loss``. People who say
        whether a set holds an admissible response give the opposite of a loss. Of a sampler with an
        :class:`sklearn_clm.policies.AnswerPolicy` report its answers alone, those of
        ``sets[sets.answered]``: nothing is promised of prompts that were escalated.
        """
        losses = check_losses(outcomes)
        if losses.ndim != 1:
            raise ValueError(f"outcomes must have shape (n,), got {losses.shape} instead.")
        digests: Sequence[bytes | None] = [None] * len(losses)
        if requests is not None:
            digests = self._audited(requests, len(losses))
            # bets must not see an order that who reports has chosen, such as errors first
            order = self._order(digests, losses)
            digests = [digests[i] for i in order]
            losses = losses[order]
        rows = list(zip(digests, losses.tolist()))

        def append(connection: sqlite3.Connection) -> list[float]:
            unseen = self._unseen(connection)
            for row in rows:
                # in one transaction: of a call either all outcomes count or none does
                query = "INSERT OR IGNORE INTO audits (digest, loss) VALUES (?, ?)"
                if not connection.execute(query, row).rowcount:
                    raise ValueError(
                        "requests must be reported once, got one again instead. A prompt that "
                        "comes again is a request of its own."
                    )
            return [*unseen, *losses.tolist()]

        self._take_from(append)
        return self

    @property
    def n_audited_(self) -> int:
        """Outcomes so far."""
        return len(self._losses)

    @property
    def losses_(self) -> np.ndarray:
        """The outcomes in the order in which they count."""
        return np.array(self._losses)

    @property
    def risk_(self) -> float:
        """Mean loss so far; NaN before the first outcome."""
        return float(np.mean(self._losses)) if self._losses else float("nan")

    @property
    def risk_interval_(self) -> tuple[float, float]:
        """Confidence sequence at 1 - alpha, for a constant risk."""
        low, high = confidence_sequence(float(np.sum(self._losses)), self.n_audited_, self.alpha)
        return float(low), float(high)

    @property
    def e_values_(self) -> np.ndarray:
        """The e-value after each outcome."""
        return np.array(self._e_values)

    @property
    def alarm_at_(self) -> int | None:
        """Number of outcomes at the alarm; None for no alarm."""
        # by Ville's inequality this happens with probability alpha at most, ever, while the risk is
        # at most epsilon
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
            text = _AFTER_ALARM.format(epsilon=self.epsilon, alpha=self.alpha)
            lines.append(f"ALARM after {counted(self.alarm_at_ or 0, 'outcome')}. {text}")
        else:
            lines.append(_NO_ALARM.format(self.epsilon))
        return "\n".join(lines)

    def _chosen(self, digests: Sequence[bytes]) -> np.ndarray:
        """Which requests are audited, by digest and seed."""
        keys = _digest_numbers(digests)
        return keep_by_weight(np.full(len(keys), self.share), 1.0, keys, seed=self.seed)

    def _order(self, digests: Sequence[bytes], losses: np.ndarray) -> np.ndarray:
        """Positions in a random order, wherever outcomes stand."""
        keys = _digest_numbers(digests)
        by_key = np.argsort(keys)
        # where requests are numbers of sorted rows, they alone would make a fixed order of these
        content = next_digests(keys[by_key], losses[by_key, np.newaxis])
        order = random_stream(content, self.seed).permutation(len(keys))
        return np.asarray(by_key[order])

    def _audited(self, requests: Sequence[object], n: int) -> list[bytes]:
        """Digests of the requests, all of them to be audited."""
        if len(requests) != n:
            raise ValueError(
                f"requests must be as many as outcomes, {n}, got {len(requests)} instead."
            )
        digests = [_digest_of_request(request) for request in requests]
        if digests and not self._chosen(digests).all():
            raise ValueError(
                "requests must be those that should_audit chose, got others instead. Outcomes that "
                "were not chosen at random say nothing about the risk."
            )
        return digests

    def _go_on(self, settings: dict[str, object]) -> None:
        """Take the outcomes in a file of the same settings."""

        def unseen(connection: sqlite3.Connection) -> list[float]:
            saved = connection.execute("SELECT settings FROM monitor").fetchone()
            if saved is None:
                connection.execute("INSERT INTO monitor VALUES (?)", (json.dumps(settings),))
            elif differences := settings.items() - json.loads(saved[0]).items():
                raise ValueError(
                    f"path={os.fspath(self.path or '')!r} must be the file of a monitor with "
                    f"{dict(differences)}, got that of another instead. A new monitor needs a new "
                    "file."
                )
            return self._unseen(connection)

        self._take_from(unseen)

    def _unseen(self, connection: sqlite3.Connection) -> list[float]:
        """Losses in the file that this object has not taken."""
        query = "SELECT loss FROM audits WHERE id > ? ORDER BY id"
        return [loss for (loss,) in connection.execute(query, (self.n_audited_,))]

    def _take_from(self, work: Callable[[sqlite3.Connection], list[float]]) -> None:
        """Take the losses that a transaction gives."""
        with self._lock:
            # on the disk before it counts: an alarm must not be lost with its process
            losses = self._store.write(work, durable=True)
            self._e_values += self._process.update(losses).tolist()
            self._losses += losses


def _level_and_digest(target: object) -> tuple[float, str]:
    """Level of a certified estimator, with a digest of it."""
    if not isinstance(target, (ConformalSampler, ComponentSelector)):
        raise TypeError(
            "target must be a calibrated ConformalSampler or ComponentSelector, or a number in "
            f"(0, 1), got {type(target).__name__} instead."
        )
    check_is_fitted(target, "calibration_")
    record = target.calibration_
    # a null promises nothing that could be broken
    if (nulls := reasons_of_nulls(record.claims_in_use)) is not None:
        raise ValueError(
            "target must be certified, in all groups, to give its level, got one of which this "
            f"holds instead:\n{nulls}\nGive the level that is watched, and update with losses of "
            "guaranteed sets."
        )
    text = f"{record.digest} {record.provenance}"
    return float(record.claim.level), hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest_numbers(digests: Sequence[bytes]) -> np.ndarray:
    return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)


def _digest_of_request(request: object) -> bytes:
    """Digest of a request, unlike that of any prompt."""
    if not isinstance(request, (str, int, np.integer, UUID)):
        raise TypeError(
            "requests must be identifiers (str, int or UUID) that no other request has, got "
            f"{type(request).__name__} instead."
        )
    # with a person of its own: an identifier that is also a prompt must not share its digest, which
    # calibration has used to choose
    text = str(request).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8, person=b"audit").digest()
