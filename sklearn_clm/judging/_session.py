"""One person's way through the pairs that are wanted.

All that is known about verdicts is read from the file of the judge, so that a server which was
killed goes on where it stopped, and several servers on one file agree.
"""

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
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

    `pair` is None where nothing is left to judge; `undo` is the id that "undo" takes back; of the
    pairs known now `n_left` are left, and `n_more` bounds all that will be, where that is known.
    """

    pair: WantedVerdict | None
    undo: str | None
    n_judged: int
    n_left: int
    n_more: int
    n_skipped: int
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
        that it wanted is judged. What it returns in the end is shown as text. Each person is
        given the prompts in an order of their own, the responses of a prompt one after the other.
    judged_by : str, default=None
        Who judges; None is what the judge says.
    second_opinions : float, default=0
        Share of the pairs judged by others that this person judges, too, without seeing their
        verdicts. The pairs are drawn at random, the same at every start. Where it is 0, the
        person gives first opinions.

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
    'Nothing is left to judge: 1 of 1 judged.'
    """

    def __init__(
        self,
        judge: HumanJudge,
        wanted: Wanted = (),
        *,
        judged_by: str | None = None,
        second_opinions: float = 0.0,
    ) -> None:
        if not 0 <= second_opinions <= 1:
            raise ValueError(
                f"second_opinions must be a share from 0 to 1, got {second_opinions!r} instead."
            )
        self.judge = judge
        self.judged_by = judge._who(judged_by)
        self.second_opinions = second_opinions
        self._ask = wanted if callable(wanted) and not second_opinions else None
        self._lock = threading.Lock()
        self._n_rows = 0
        self._first: dict[str, Verdict] = {}  # the verdicts that count
        self._second: dict[str, Verdict] = {}
        self._own_second: dict[str, Verdict] = {}
        self._done: dict[str, None] = {}  # what this person did, the last at the end
        self._skipped: dict[str, None] = {}
        self._shown: dict[str, str] = {}  # by each window
        self._pairs: dict[str, WantedVerdict] = {}
        self._round: set[str] = set()
        self._open: dict[str, None] = {}
        self._n_at_most: int | None = None
        self._n_open_at_start = 0
        self._conclusion = ""
        self._read()
        if self._ask is not None:
            self._round.update(filter(self._is_said, self._first))
        elif not callable(wanted):
            self._pairs = {pair.id: pair for pair in wanted}
            if not second_opinions:
                self._start_round(self._pairs)

    @property
    def n_judged(self) -> int:
        """How many of the pairs that were wanted so far are judged."""
        return len(self._round) - len(self._open)

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
            if not self._open and not self._conclusion:
                self._next_round()
            notice = ""
            if key == "u":
                notice = self._take_back(tab, id_)
            elif id_ in self._open:
                self._shown.pop(tab, None)
                self._skipped.pop(id_, None)
                if key == "s":
                    self._skipped[id_] = None
                    self._done.pop(id_, None)
                    self._done[id_] = None
                    notice = "Skipped. It comes again at the end."
                else:
                    self._record(id_, key == "y", note)
                    notice = "" if self._was_said(id_, key == "y") else _NOT_OPEN
            elif self.pair(id_) is None:
                raise KeyError(id_)
            elif key == "s" or not self._was_said(id_, key == "y"):
                notice = _NOT_OPEN
            return self._turn(tab, notice)

    def pair(self, id_: str) -> WantedVerdict | None:
        """The pair of an id, where this session or the file knows it."""
        known = self._pairs.get(id_)
        if known is None:
            known = self.judge.pair(id_)
            if known is not None:
                self._pairs[id_] = known
        return known

    def agreement(self) -> str:
        """How many second opinions agree, in words; empty where there are none."""
        both = [
            (self._first[id_].verdict, row.verdict)
            for id_, row in self._second.items()
            if row.verdict is not None
            and id_ in self._first
            and self._first[id_].verdict is not None
        ]
        if not both:
            return ""
        n_agreements = sum(first == second for first, second in both)
        return (
            f"Second opinions agree on {n_agreements} of {len(both)} "
            f"({n_agreements / len(both):.0%})."
        )

    def _read(self) -> None:
        """Take in what was said since, by this person or another, here or elsewhere."""
        new = self.judge.history(self._n_rows)
        self._n_rows += len(new)
        for row in new:
            opinions = [self._second if row.blind else self._first]
            if row.blind and row.judge == self.judged_by:
                opinions.append(self._own_second)
            for known in opinions:
                # what was imported may be older than what is known
                if row.id not in known or row.time >= known[row.id].time:
                    known[row.id] = row
            if row.judge == self.judged_by and row.blind == bool(self.second_opinions):
                self._done.pop(row.id, None)
                if row.verdict is not None:
                    self._done[row.id] = None
            if row.id in self._round:
                if self._is_said(row.id):
                    self._open.pop(row.id, None)
                    self._skipped.pop(row.id, None)
                elif self.pair(row.id) is not None:
                    self._open[row.id] = None
        if new:
            self._conclusion = ""  # a changed verdict may change what was found

    def _said(self, id_: str) -> Verdict | None:
        return (self._own_second if self.second_opinions else self._first).get(id_)

    def _is_said(self, id_: str) -> bool:
        said = self._said(id_)
        return said is not None and said.verdict is not None

    def _was_said(self, id_: str, verdict: bool) -> bool:
        said = self._said(id_)
        return said is not None and (said.verdict, said.judge) == (verdict, self.judged_by)

    def _record(self, id_: str, verdict: bool | None, note: str = "") -> None:
        blind = bool(self.second_opinions)
        self.judge.record(
            self._pairs[id_],
            verdict,
            judge=self.judged_by,
            note=note,
            blind=blind,
            if_open=verdict is not None and not blind,
        )
        self._read()

    def _take_back(self, tab: str, id_: str) -> str:
        if self.pair(id_) is None:
            if id_ in self._first:
                return "This one cannot be shown any more. Nothing was changed."
            raise KeyError(id_)
        said = self._said(id_)
        notice = ""
        if id_ in self._skipped:
            del self._skipped[id_]
            self._done.pop(id_, None)
            notice = "No longer skipped."
        elif said is not None and said.verdict is not None:
            if said.judge != self.judged_by:
                return f"{said.judge} has judged this one since. Nothing was changed."
            self._round.add(id_)
            self._record(id_, None)
            notice = f"Taken back: {'yes' if said.verdict else 'no'}."
        if id_ in self._open:
            self._shown[tab] = id_
        return notice

    def _turn(self, tab: str, notice: str) -> Turn:
        if not self._open and not self._conclusion:
            notice = self._next_round() or notice
        shown: str | None = self._shown.pop(tab, None)
        if shown not in self._open:
            shown = self._next_id()
        if shown is not None:
            self._shown[tab] = shown
            while len(self._shown) > _TABS:
                del self._shown[next(iter(self._shown))]
        return Turn(
            None if shown is None else self._pairs[shown],
            next(reversed(self._done), None),
            self.n_judged,
            len(self._open),
            self._n_more(),
            len(self._skipped),
            self._estimate(),
            self._conclusion,
            notice,
        )

    def _next_id(self) -> str | None:
        """The first pair that no other window shows, those that were skipped at last."""
        elsewhere = set(self._shown.values())
        fresh = (id_ for id_ in self._open if id_ not in self._skipped)
        free = (id_ for id_ in itertools.chain(fresh, self._skipped) if id_ not in elsewhere)
        return next(free, next(iter(self._open), None))

    def _next_round(self) -> str:
        """Find what is wanted next, or that nothing is; what went wrong, in words."""
        if self.second_opinions:
            self._start_round(self._for_second_opinions())
        elif self._ask is not None:
            try:
                found = self._ask()
            except VerdictsWanted as error:
                self._start_round({pair.id: pair for pair in error.wanted}, error.n_at_most)
            except Exception as error:  # the verdicts are safe, and people should read why
                return f"What asks for verdicts stopped. {type(error).__name__}: {error}"
            else:
                self._conclusion = str(found)
            if not self._open and not self._conclusion:
                return (
                    "What asks for verdicts wants some that are there. Does it read this file, "
                    "with this question?"
                )
        if not self._open and not self._conclusion:
            n = len(self._round)
            self._conclusion = f"Nothing is left to judge: {n} of {n} judged."
        return ""

    def _start_round(
        self, pairs: Mapping[str, WantedVerdict], n_at_most: int | None = None
    ) -> None:
        self._pairs.update(pairs)
        self._round.update(pairs)
        self._open = {id_: None for id_ in self._ordered(pairs) if not self._is_said(id_)}
        self._n_at_most, self._n_open_at_start = n_at_most, len(self._open)

    def _ordered(self, pairs: Mapping[str, WantedVerdict]) -> list[str]:
        """The prompts in an order of this person's own, so that two people seldom meet."""

        def place(id_: str) -> bytes:
            asked = pairs[id_].asked
            return key_digest([self.judged_by, asked.prompt, list(asked.references)])

        return sorted(pairs, key=place)  # stable: the responses of a prompt stay in order

    def _for_second_opinions(self) -> dict[str, WantedVerdict]:
        """The random part of what others have judged, as far as it can be shown."""
        ids = sorted(
            id_
            for id_, row in self._first.items()
            if row.verdict is not None
            and row.judge != self.judged_by
            # an id is a digest, and so a random number
            and int(id_[:16], 16) < self.second_opinions * 2**64
        )
        found = {id_: self.pair(id_) for id_ in ids}
        return {id_: pair for id_, pair in found.items() if pair is not None}

    def _n_more(self) -> int:
        n_open = len(self._open)
        if self._n_at_most is None or self._conclusion:
            return n_open
        return max(self._n_at_most - (self._n_open_at_start - n_open), n_open)

    def _estimate(self) -> str:
        """What is left, in words that promise no more than is known."""
        n_open = len(self._open)
        if not n_open:
            return ""
        if self._n_at_most is not None:
            return f"Decided after at most {self._n_more()} more."
        if self._ask is not None:
            return f"{n_open} left in this round. More may be wanted then."
        return f"{n_open} left."


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
            around = None if context is None else _context(context)
            asked = JudgedPrompt(record.get("prompt"), tuple(references), around)
            pair = WantedVerdict(asked, record["response"])
            if record.get("id") not in (None, pair.id):
                raise ValueError(
                    "the id is of another pair; prompts that no text can hold, such as images, "
                    "cannot be read from a file"
                )
        pairs.append(pair)
    return pairs


def _context(value: object) -> Context:
    if (
        not isinstance(value, list)
        or [type(part) for part in value] != [str, int, int]
        or not 0 <= value[1] <= value[2] <= len(value[0])
    ):
        raise ValueError(f"context must be [response, start, stop], got {value!r:.40} instead")
    return Context(*value)
