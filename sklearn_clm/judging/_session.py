"""One person's way through the pairs that are wanted.

All that is known about verdicts is read from the file of the judge, so that a server which was
killed goes on where it stopped, and several servers on one file agree.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from sklearn_clm.caching import (
    Context,
    HumanJudge,
    JudgedPrompt,
    Verdict,
    VerdictsWanted,
    WantedVerdict,
)
from sklearn_clm.generators._records import json_lines, key_digest, naming

Wanted: TypeAlias = Sequence[WantedVerdict] | Callable[[], object]
"""Pairs to judge; or a function that raises :class:`VerdictsWanted` as long as it wants verdicts,
and then returns what it found, whose text is shown."""

_TABS = 64  # windows that are remembered, so that no two show the same pair
_NOT_OPEN = "The last one was judged meanwhile, or is no longer wanted. Nothing was changed."


class Turn(NamedTuple):
    """What the page shows next.

    `pair` is None where nothing is left to judge; `undo` is the id that "undo" takes back; `n_more`
    bounds how many more will be wanted, where that is known, and else counts those known now.
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
    judge : HumanJudge
        Keeps the verdicts.
    wanted : sequence of WantedVerdict or callable, default=()
        The pairs; or a function that raises :class:`sklearn_clm.caching.VerdictsWanted` as long
        as it wants verdicts, such as one that runs a calibration. It is called again whenever all
        that it wanted is judged. What it returns in the end is shown as text. What a model said
        that people audit is told after their verdict. Each person is
        given the prompts in an order of their own, the responses of a prompt one after the other.
    judged_by : str, default=None
        Who judges; None is what the judge says.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict
    >>> from sklearn_clm.judging import JudgingSession
    >>> folder = tempfile.TemporaryDirectory()
    >>> judge = HumanJudge(folder.name + "/verdicts.sqlite", judge="Ada")
    >>> session = JudgingSession(judge, [WantedVerdict(JudgedPrompt("2+2?"), "four")])
    >>> pair = session.turn("window").pair
    >>> session.act("window", pair.id, "y").conclusion
    'Nothing is left to judge: 1 of 1 judged. Now run the calibration again: it may ask for more.'
    """

    def __init__(
        self, judge: HumanJudge, wanted: Wanted = (), *, judged_by: str | None = None
    ) -> None:
        self.judge = judge
        self.judged_by = judge._who(judged_by)
        self._ask = wanted if callable(wanted) else None
        self._lock = threading.Lock()
        self._n_rows = 0
        self._said: dict[str, Verdict] = {}  # the newest row on each pair
        self._done: dict[str, None] = {}  # what this person did, the last at the end
        self._skipped: dict[str, None] = {}
        self._shown: dict[str, str] = {}  # by each window
        self._pairs: dict[str, WantedVerdict] = {}
        self._wanted: dict[str, None] = {}  # now or in an earlier round
        self._by_model: dict[str, bool] = {}  # of a model that this person audits
        self._n_later: int | None = None
        self._conclusion = ""
        self._read()
        if callable(wanted):
            self._wanted = {id_: None for id_ in self._said if not self._is_open(id_)}
        else:
            self._start_round(wanted)

    @property
    def n_judged(self) -> int:
        """How many of the pairs that were wanted so far are judged."""
        return len(self._wanted) - len(self._open())

    def turn(self, tab: str) -> Turn:
        """What a window shows: the same pair until it is judged.

        Parameters
        ----------
        tab : str
            Name of the window. Different windows are given different pairs.

        Returns
        -------
        Turn
        """
        with self._lock:
            self._read()
            return self._turn(tab, "")

    def act(self, tab: str, id_: str, key: str, note: str = "") -> Turn:
        """Keep what a person says about a pair; a verdict is on the disk when this returns.

        A pair that has a verdict keeps it until it is taken back, so that the same message, sent
        twice, counts once.

        Parameters
        ----------
        tab : str
            Name of the window.
        id_ : str
            Of the pair.
        key : {"y", "n", "s", "u"}
            Acceptable, not acceptable, skip, or take back what was said about this pair.
        note : str, default=""
            A remark, kept with a verdict.

        Returns
        -------
        Turn
            What comes next.

        Raises
        ------
        KeyError
            If no pair that was shown has this id.
        """
        if key not in ("y", "n", "s", "u"):
            raise ValueError(f"key must be one of y, n, s, u, got {key!r:.20} instead.")
        with self._lock:
            self._read()
            if not self._open() and not self._conclusion:
                self._next_round()
            if key == "u":
                notice = self._take_back(tab, id_)
            elif id_ in self._wanted and self._is_open(id_):
                notice = self._say(tab, id_, key, note)
            elif self.pair(id_) is None:
                raise KeyError(id_)
            else:
                notice = "" if self._has_said(id_, key) else _NOT_OPEN
            return self._turn(tab, notice)

    def pair(self, id_: str) -> WantedVerdict | None:
        """The pair of an id, where this session or the file knows it."""
        known = self._pairs.get(id_)
        if known is None:
            known = self.judge.pair(id_)
            if known is not None:
                self._pairs[id_] = known
        return known

    def _read(self) -> None:
        """Take in what was said since, by this person or another, here or elsewhere."""
        new = self.judge.history(self._n_rows)
        self._n_rows += len(new)
        for row in new:
            # what was imported may be older than what is known
            if row.id not in self._said or row.time >= self._said[row.id].time:
                self._said[row.id] = row
            self._skipped.pop(row.id, None)
            if row.judge == self.judged_by:
                self._done.pop(row.id, None)
                if row.verdict is not None:
                    self._done[row.id] = None
        if new:
            self._conclusion = ""  # a changed verdict may change what was found

    def _is_open(self, id_: str) -> bool:
        return id_ not in self._said or self._said[id_].verdict is None

    def _open(self) -> list[str]:
        """What is wanted, lacks a verdict and can be shown."""
        return [id_ for id_ in self._wanted if self._is_open(id_) and self.pair(id_) is not None]

    def _has_said(self, id_: str, key: str) -> bool:
        """Whether this verdict of this person counts."""
        said = self._said.get(id_)
        if said is None or said.verdict is None:
            return False
        return (said.judge, "ny"[said.verdict]) == (self.judged_by, key)

    def _say(self, tab: str, id_: str, key: str, note: str) -> str:
        """Keep a verdict, or that there is none yet; what to tell."""
        self._shown.pop(tab, None)
        self._skipped.pop(id_, None)
        if key == "s":
            self._skipped[id_] = None
            self._done.pop(id_, None)
            self._done[id_] = None
            return "Skipped. It comes again at the end."
        judge, pair = self.judge, self._pairs[id_]
        # somebody else may have judged it since it was read
        judge.record(pair, key == "y", judge=self.judged_by, note=note, if_open=True)
        self._read()
        if not self._has_said(id_, key):
            return _NOT_OPEN
        said = self._by_model.get(id_)  # told now, and never before
        agrees = ", too" if said is (key == "y") else ""
        return "" if said is None else f"The model says {'yes' if said else 'no'}{agrees}."

    def _take_back(self, tab: str, id_: str) -> str:
        """Take back what this person did; what to tell."""
        pair, notice = self.pair(id_), ""
        if pair is None:
            if id_ in self._said:
                return "This one cannot be shown any more. Nothing was changed."
            raise KeyError(id_)
        if id_ in self._skipped:
            del self._skipped[id_]
            self._done.pop(id_, None)
            notice = "No longer skipped."
        elif not self._is_open(id_):
            said = self._said[id_]
            if said.judge != self.judged_by:
                return f"{said.judge} has judged this one since. Nothing was changed."
            self._wanted[id_] = None
            self.judge.record(pair, None, judge=self.judged_by)
            self._read()
            notice = f"Taken back: {'yes' if said.verdict else 'no'}."
        if id_ in self._wanted:
            self._shown[tab] = id_
        return notice

    def _turn(self, tab: str, notice: str) -> Turn:
        if not self._open() and not self._conclusion:
            notice = self._next_round() or notice
        left = self._open()
        shown = self._shown.pop(tab, None)
        if shown not in left:
            shown = self._next_id(left)
        if shown is not None:
            self._shown[tab] = shown
            while len(self._shown) > _TABS:
                del self._shown[next(iter(self._shown))]
        # where no bound is known, at least what is left now
        n_more = len(left) + (0 if self._conclusion else self._n_later or 0)
        return Turn(
            None if shown is None else self._pairs[shown],
            next(reversed(self._done), None),
            len(self._wanted) - len(left),
            n_more,
            self._estimate(len(left), n_more),
            self._conclusion,
            notice,
        )

    def _next_id(self, left: list[str]) -> str | None:
        """The first pair that no other window shows, those that were skipped at last."""
        elsewhere = set(self._shown.values())
        fresh = [id_ for id_ in left if id_ not in self._skipped]
        free = (id_ for id_ in [*fresh, *self._skipped] if id_ not in elsewhere)
        return next(free, next(iter(left), None))

    def _next_round(self) -> str:
        """Find what is wanted next, or that nothing is; what went wrong, in words."""
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
            self._by_model |= error.by_model
            self._start_round(error.wanted, error.n_at_most)
        except Exception as error:  # the verdicts are safe, and people should read why
            return f"What asks for verdicts stopped. {type(error).__name__}: {error}"
        if not self._open() and not self._conclusion:
            return (
                "What asks for verdicts wants some that are there. Does it read this file, with "
                "this question?"
            )
        return ""

    def _start_round(self, wanted: Sequence[WantedVerdict], n_at_most: int | None = None) -> None:
        def place(pair: WantedVerdict) -> bytes:
            return key_digest([self.judged_by, pair.asked.prompt, list(pair.asked.references)])

        # an order of prompts of this person's own, so that two people seldom meet
        pairs = {pair.id: pair for pair in sorted(wanted, key=place)}
        self._pairs.update(pairs)
        self._wanted.update(dict.fromkeys(pairs))
        self._n_later = None if n_at_most is None else max(n_at_most - len(self._open()), 0)

    def _estimate(self, n_left: int, n_more: int) -> str:
        """What is left, in words that promise no more than is known."""
        if not n_left:
            return ""
        if self._n_later is not None:
            return f"Decided after at most {n_more} more."
        if self._ask is not None:
            return f"{n_left} left in this round. More may be wanted then."
        return f"{n_left} left."


def wanted_from_file(path: str | os.PathLike[str]) -> list[WantedVerdict]:
    """Read the pairs of a file in JSON Lines, such as :meth:`HumanJudge.export` writes.

    Parameters
    ----------
    path : str or path
        Each line holds ``response`` and, where there are some, ``prompt``, ``references`` and
        ``context`` (a whole response, and the start and stop in it of the component that
        ``response`` then is). A verdict in it is not looked at.

    Returns
    -------
    list of WantedVerdict

    Examples
    --------
    >>> import tempfile
    >>> from sklearn_clm.judging import wanted_from_file
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
    ...     _ = file.write('{"prompt": "2+2?", "references": ["4"], "response": "four"}')
    >>> wanted_from_file(file.name)[0].response
    'four'
    """
    pairs = []
    for where, record in json_lines(path):
        with naming(f"{where} cannot be read"):
            references = record.get("references") or []
            if not isinstance(references, list):
                raise ValueError(f"references must be a list, got {references!r:.40} instead")
            context = record.get("context")
            around = None if context is None else Context(*context)
            asked = JudgedPrompt(record.get("prompt"), tuple(references), around)
            pair = WantedVerdict(asked, record["response"])
            if record.get("id") not in (None, pair.id):
                raise ValueError(
                    "the id is of another pair; prompts that no text can hold, such as images, "
                    "cannot be read from a file"
                )
        pairs.append(pair)
    return pairs
