"""One person's way through the pairs that are wanted.

All that is known about verdicts is read from the file of the judge, so that a server which was
killed goes on where it stopped, and several servers on one file agree.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from sklearn_clm.caching import HumanJudge, Verdict, VerdictsWanted, WantedVerdict
from sklearn_clm.caching.verdict_files import signature
from sklearn_clm.generators.records import key_digest

Wanted: TypeAlias = Sequence[WantedVerdict] | Callable[[], object]
"""Pairs to judge; or a function that raises :class:`VerdictsWanted` as long as it wants verdicts,
and then returns what it found, whose text is shown."""

_KEYS = ("y", "n", "s", "u")
_NOT_OPEN = "The last one was judged meanwhile, or is no longer wanted. Nothing was changed."


class Turn(NamedTuple):
    """What the page shows next.

    `pair` is None where nothing is left to judge; `undo` is the id whose verdict or skip "undo"
    takes back; `n_more` bounds how many more will be wanted, where that is known, and else counts
    those known now.
    """

    pair: WantedVerdict | None
    undo: str | None
    n_judged: int
    n_more: int
    estimate: str
    conclusion: str
    notice: str


class JudgingSession:
    """The pairs that one person judges, one after the other.

    Parameters
    ----------
    judge, wanted, judged_by
        As in :func:`serve`.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict
    >>> from sklearn_clm.judging import JudgingSession
    >>> folder = tempfile.TemporaryDirectory()
    >>> judge = HumanJudge(folder.name + "/verdicts.sqlite", judge="Ada")
    >>> session = JudgingSession(judge, [WantedVerdict(JudgedPrompt("2+2?"), "four")])
    >>> pair = session.turn().pair
    >>> session.act(pair.id, "y").conclusion
    'Nothing is left to judge: 1 of 1 judged. Now run the calibration again: it may ask for more.'
    """

    def __init__(
        self, judge: HumanJudge, wanted: Wanted = (), *, judged_by: str | None = None
    ) -> None:
        if not isinstance(judge, HumanJudge):
            raise TypeError(
                f"judge must be a HumanJudge, such as HumanJudge(path), got {judge!r:.80} instead."
            )
        self.judge = judge
        self.judged_by = signature(judged_by, judge.judge)
        self._ask = wanted if callable(wanted) else None
        self._lock = threading.Lock()
        self._n_rows = 0
        self._order = secrets.token_hex(8)  # of prompts
        self._newest: dict[str, Verdict] = {}  # the newest row on each pair, in order of arrival
        # what is wanted and lacks a verdict, the next one first
        self._unjudged: dict[str, None] = {}
        self._shown: str | None = None
        self._pairs: dict[str, WantedVerdict] = {}
        self._wanted: dict[str, None] = {}  # now or in an earlier round
        self._skipped: dict[str, None] = {}  # since the last verdict, the last one at the end
        self._n_later: int | None = None
        self._conclusion = ""
        self._read()
        # what this person judged, the last at the end: before, and from now on in this session, as
        # somebody else may judge under the same name
        self._judged_here: dict[str, None] = {
            id_: None
            for id_, row in self._newest.items()
            if row.verdict is not None and row.judge == self.judged_by
        }
        if callable(wanted):
            self._wanted = {
                id_: None for id_, row in self._newest.items() if row.verdict is not None
            }
        else:
            self._start_round(wanted)

    @property
    def n_judged(self) -> int:
        """How many of the wanted pairs are judged."""
        return len(self._wanted) - len(self._unjudged)

    def turn(self) -> Turn:
        """What is shown: the same pair until it is judged."""
        with self._lock:
            self._read()
            return self._turn("")

    def act(self, id_: str, key: str, note: str = "") -> Turn:
        """Keep what a person says; return what comes next.

        A pair that has a verdict keeps it until it is taken back, so that the same message, sent
        twice, counts once.

        Parameters
        ----------
        id_ : str
            Of the pair.
        key : {"y", "n", "s", "u"}
            Acceptable, not acceptable, skip, or take back the verdict on this pair, or its skip.
        note : str, default=""
            A remark, kept with a verdict.

        Raises
        ------
        KeyError
            If no pair is known that has this id.
        """
        if key not in _KEYS:
            raise ValueError(f"key must be one of y, n, s, u, got {key!r:.20} instead.")
        with self._lock:
            self._read()
            if not self._unjudged and not self._conclusion:
                self._next_round()
            pair = self.pair(id_)
            if pair is None:
                raise KeyError(id_)
            return self._turn(
                self._take_back(pair) if key == "u" else self._say(pair, key, str(note))
            )

    def pair(self, id_: str) -> WantedVerdict | None:
        """The pair of an id, where it is known."""
        if id_ not in self._pairs and (kept := self.judge.pair(id_)) is not None:
            self._pairs[id_] = kept
        return self._pairs.get(id_)

    def _read(self) -> None:
        """Take in verdicts given since, by anyone."""
        # several people may judge one file at once: what they said since the last look
        new = self.judge.history(self._n_rows)
        self._n_rows += len(new)
        for row in new:
            # out and in again: the newest row is the last
            self._newest.pop(row.id, None)
            self._newest[row.id] = row
            if row.verdict is not None:
                self._unjudged.pop(row.id, None)
            elif row.id in self._wanted and self.pair(row.id) is not None:
                self._unjudged[row.id] = None
        if new:
            self._conclusion = ""  # a changed verdict may change what was found

    def _say(self, pair: WantedVerdict, key: str, note: str) -> str:
        """Keep a verdict; return what to tell."""
        # sent twice, or judged by somebody else meanwhile
        if pair.id not in self._unjudged:
            return "" if self._has_said(pair, key) else _NOT_OPEN
        self._shown = None
        if key == "s":
            # taken out and put in anew, a key stands last: this pair comes last, and "undo" takes
            # back its skip first
            self._unjudged[pair.id] = self._unjudged.pop(pair.id)
            self._skipped.pop(pair.id, None)
            self._skipped[pair.id] = None
            return "Skipped. It comes again at the end."
        # somebody else may have judged it since it was read
        is_kept = self.judge.record_if_open(pair, key == "y", judge=self.judged_by, note=note)
        self._read()
        if not is_kept:
            return _NOT_OPEN
        self._judged_here[pair.id] = None
        self._skipped.clear()  # "undo" is now about this verdict
        return ""

    def _has_said(self, pair: WantedVerdict, key: str) -> bool:
        """Whether this person has said so, and it counts."""
        verdict = self._newest.get(pair.id)
        if verdict is None or pair.id not in self._judged_here:
            return False
        return verdict.verdict == (key == "y") and verdict.judge == self.judged_by

    def _take_back(self, pair: WantedVerdict) -> str:
        """Take back a skip or a verdict; what to tell."""
        if pair.id in self._skipped and pair.id in self._unjudged:
            del self._skipped[pair.id]
            self._shown = pair.id
            return "Here it is again."
        verdict = self._newest.get(pair.id)
        if verdict is None or verdict.verdict is None:
            return ""
        # nobody takes back what somebody else said
        if verdict.judge != self.judged_by:
            return f"{verdict.judge} has judged this one since. Nothing was changed."
        # it is to be judged anew, even where it was no part of this round
        self._wanted[pair.id] = None
        self._shown = pair.id
        self.judge.record(pair, None, judge=self.judged_by)
        self._judged_here.pop(pair.id, None)
        self._read()
        return f"Taken back: {'yes' if verdict.verdict else 'no'}."

    def _turn(self, notice: str) -> Turn:
        """What is shown, what can be undone, what is left."""
        if not self._unjudged and not self._conclusion:
            notice = self._next_round() or notice
        # somebody else may have judged what this person is shown
        if self._shown not in self._unjudged:
            self._shown = next(iter(self._unjudged), None)
        n_left = len(self._unjudged)
        # what was skipped comes before what was judged earlier
        to_undo = [*self._judged_here, *(id_ for id_ in self._skipped if id_ in self._unjudged)]
        n_more = n_left
        # where no bound is known, at least what is left now; after the end nothing follows
        if self._n_later is not None and not self._conclusion:
            n_more += self._n_later
        return Turn(
            pair=None if self._shown is None else self._pairs[self._shown],
            undo=to_undo[-1] if to_undo else None,
            n_judged=self.n_judged,
            n_more=n_more,
            estimate=self._estimate(n_left, n_more),
            conclusion=self._conclusion,
            notice=notice,
        )

    def _next_round(self) -> str:
        """Find what is wanted next; return what went wrong."""
        if self._ask is None:
            n = len(self._wanted)
            self._conclusion = (
                f"Nothing is left to judge: {n} of {n} judged. Now run the calibration again: it "
                "may ask for more."
            )
            return ""
        try:
            self._conclusion = str(self._ask())
        except VerdictsWanted as error:
            self._start_round(error.wanted, error.n_at_most)
        except Exception as error:  # the verdicts are safe, and people should read why
            return f"What asks for verdicts stopped. {type(error).__name__}: {error}"
        if not self._unjudged and not self._conclusion:
            return (
                "What asks for verdicts wants some that are there. Does it read this file, with "
                "this question?"
            )
        return ""

    def _start_round(self, wanted: Sequence[WantedVerdict], n_at_most: int | None = None) -> None:
        """Have some pairs judged, `n_at_most` with those to come."""

        def place(pair: WantedVerdict) -> bytes:
            return key_digest([self._order, pair.asked.prompt, list(pair.asked.references)])

        # an order of prompts of this session's own, so that two people seldom meet, be their names
        # the same
        pairs = {pair.id: pair for pair in sorted(wanted, key=place)}
        self._pairs.update(pairs)
        self._wanted.update(dict.fromkeys(pairs))
        judged = {id_ for id_, row in self._newest.items() if row.verdict is not None}
        self._unjudged.update(dict.fromkeys(id_ for id_ in pairs if id_ not in judged))
        self._n_later = None if n_at_most is None else max(n_at_most - len(self._unjudged), 0)

    def _estimate(self, n_left: int, n_more: int) -> str:
        """How much is left, as far as known."""
        if not n_left:
            return ""
        if self._n_later is not None:
            now = f", {n_left} of them in this round" if n_left < n_more else ""
            return f"Decided after at most {n_more} more{now}."
        if self._ask is not None:
            return f"{n_left} left in this round. More may be wanted then."
        return f"{n_left} left."
