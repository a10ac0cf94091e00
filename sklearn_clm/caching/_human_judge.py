"""An admission whose verdicts come from people."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sklearn_clm.caching._cache import StoreBacked
from sklearn_clm.caching._verdict_files import read_lines, write_lines
from sklearn_clm.caching._verdicts import (
    JudgedPrompt,
    Verdict,
    VerdictLog,
    VerdictsWanted,
    WantedVerdict,
    as_judged,
    identify,
)
from sklearn_clm.generators._identity import digest_of
from sklearn_clm.scoring._protocols import PairJudge, Prompt, Reference, Response

if TYPE_CHECKING:
    import sqlite3


class ImportedVerdicts(NamedTuple):
    """What became of the lines of a file: how many are new, known and empty; those refused."""

    n_new: int
    n_known: int
    n_empty: int
    refused: tuple[str, ...]


class HumanJudge(StoreBacked, PairJudge):
    """An admission whose verdicts come from people and are kept in a SQLite file.

    Asked about a response that nobody has judged, it raises :class:`VerdictsWanted`, which lists
    all that are missing. People then judge, by :meth:`record` or by file (:meth:`export` and
    :meth:`import_`), and the same call goes on from there. Nothing is ever overwritten: a
    correction is a new row, and the newest verdict counts. Where verdicts have changed since they
    were last used in this process, a warning says how many.

    Parameters
    ----------
    path : str or path
        The SQLite file, created where there is none. It may be that of other caches.
    question : str, default="Is the response acceptable?"
        What people are asked. Verdicts on another question are kept apart.
    judge : str, default=None
        Who judges where nobody else is named; None is the name of the user.

    See Also
    --------
    CachedAdmission : Keeps the verdicts of a model or of a rule.

    Notes
    -----
    Lines of a file are imported in any order, partially and repeatedly: a line that was imported
    before has no effect. Where lines carry a ``time`` (ISO 8601, UTC), the latest counts, whatever
    the order of the files; a time in the future is that of the import. What is recorded counts from
    then on, whatever the clock says.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn_clm.caching import HumanJudge, VerdictsWanted
    >>> folder = tempfile.TemporaryDirectory()
    >>> judge = HumanJudge(folder.name + "/verdicts.sqlite", judge="Ada")
    >>> asked = judge.asked(["2+2?"], ["4"])  # in place of references, so that prompts are shown
    >>> try:
    ...     judge(asked[0], "four")
    ... except VerdictsWanted as error:
    ...     judge.record(error.wanted[0], True)
    >>> judge(asked[0], "four")
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        question: str = "Is the response acceptable?",
        judge: str | None = None,
    ) -> None:
        self.path = path
        self.question = question
        self.judge = judge

    def asked(
        self, prompts: Sequence[Prompt], references: Sequence[Reference] | None = None
    ) -> list[JudgedPrompt]:
        """What to pass as `admissions` so that people see prompts and all references.

        Parameters
        ----------
        prompts : sequence of length n
            The prompts.
        references : sequence of length n, default=None
            A reference for each prompt, or a list of them; None where there are none.

        Returns
        -------
        list of n JudgedPrompt
        """
        if references is None:
            return [JudgedPrompt(prompt) for prompt in prompts]
        if len(references) != len(prompts):
            raise ValueError(
                f"references must have length {len(prompts)}, one for each prompt, got "
                f"{len(references)} instead."
            )
        return [
            JudgedPrompt(prompt, tuple(one) if isinstance(one, (list, tuple)) else (one,))
            for prompt, one in zip(prompts, references)
        ]

    def judge_pairs(
        self, references: Sequence[Reference], responses: Sequence[Response]
    ) -> Iterator[tuple[int, bool]]:
        """Verdict on each pair, as in :class:`sklearn_clm.scoring.PairJudge`.

        A reference is what :meth:`asked` gave, or anything else that is shown as a reference.
        :class:`VerdictsWanted` lists the pairs that have not been judged.
        """
        log = self._log()
        self._warn_of_changes(log)
        pairs = [WantedVerdict(as_judged(one), text) for one, text in zip(references, responses)]
        verdicts = self.verdicts(pairs)
        missing: dict[str, WantedVerdict] = {}
        known: list[bool] = []
        for pair, verdict in zip(pairs, verdicts):
            if verdict is None:
                missing[pair.id] = pair
            else:
                known.append(verdict)
                self._shared().in_use[self.question, pair.id] = verdict
        if missing:
            wanted = list(missing.values())
            log.want(wanted)
            raise VerdictsWanted(wanted)
        return enumerate(known)

    def verdicts(self, pairs: Sequence[WantedVerdict]) -> list[bool | None]:
        """The verdict that counts for each pair; None where there is none.

        Parameters
        ----------
        pairs : sequence of WantedVerdict
            The pairs.

        Returns
        -------
        list of bool or None
        """
        digests = [pair._digest for pair in pairs]
        known = self._log().newest(digests)
        return [known.get(digest.hex()) for digest in digests]

    def record(
        self,
        pair: WantedVerdict,
        verdict: bool | None,
        *,
        judge: str | None = None,
        note: str = "",
        if_open: bool = False,
    ) -> None:
        """Keep a verdict; it is on the disk when this returns.

        Parameters
        ----------
        pair : WantedVerdict
            What was judged.
        verdict : bool or None
            Whether it is acceptable; None takes the last verdict back.
        judge : str, default=None
            Who judged; None is the parameter `judge`.
        note : str, default=""
            A remark.
        if_open : bool, default=False
            Whether to keep nothing where a verdict counts already, whoever gave it.
        """
        if verdict is not None and not isinstance(verdict, (bool, np.bool_)):
            raise TypeError(f"verdict must be True, False or None, got {verdict!r:.40} instead.")
        said, log = None if verdict is None else bool(verdict), self._log()

        def record(connection: "sqlite3.Connection") -> None:
            # in the transaction, for two processes may ask at once
            if not if_open or self.verdicts([pair]) == [None]:
                identify(connection, [pair])
                log.add(connection, pair._digest, said, self._who(judge), str(note))

        log.store.write(record, durable=True)

    def wanted(self) -> list[WantedVerdict]:
        """What the last :class:`VerdictsWanted` listed and nobody has judged since.

        It is kept in the file, so that people can judge in another process. Prompts that no text
        can hold, such as images, are known to the process alone that asked for them.

        Returns
        -------
        list of WantedVerdict
        """
        pairs = self._log().wanted()
        return [pair for pair, known in zip(pairs, self.verdicts(pairs)) if known is None]

    def questions(self) -> list[str]:
        """The questions on which the file holds verdicts, or wants some, in alphabetical order.

        Returns
        -------
        list of str
        """
        query = "SELECT question FROM verdicts UNION SELECT question FROM wanted ORDER BY question"
        return [question for (question,) in self._log().store.select(query)]

    def pair(self, id_: str) -> WantedVerdict | None:
        """The response and what was asked about it, by its id.

        Parameters
        ----------
        id_ : str
            Of a pair that was judged, wanted or exported.

        Returns
        -------
        WantedVerdict or None
            None where the file does not hold it, or holds its digest alone.
        """
        return self._log().pair(bytes.fromhex(id_))

    def history(self, start: int = 0) -> list[Verdict]:
        """All that was ever said on this question, in the order in which it was kept.

        Parameters
        ----------
        start : int, default=0
            How many of the first to leave out.

        Returns
        -------
        list of Verdict
        """
        return list(self._log().rows(start=start))

    def fingerprint(self) -> str:
        """Digest of the question, which tells this judge from others."""
        return digest_of(type(self), {"question": self.question})

    def export(self, path: str | os.PathLike[str], pairs: Iterable[WantedVerdict]) -> int:
        """Write pairs to a file for people who judge elsewhere.

        Parameters
        ----------
        path : str or path
            The file, replaced where it exists: CSV where its name ends in ``.csv``, JSON Lines
            where it ends in ``.jsonl``, ``.ndjson`` or ``.json``. In CSV the references of a prompt
            are one cell, a list in JSON. Both are UTF-8; CSV that is not ASCII alone begins with a
            byte order mark, by which spreadsheets know it ("utf-8-sig" in Python). Most of these
            cut a cell after 32,767 characters, and lines that were cut are refused: responses that
            long belong in JSON Lines.
        pairs : iterable of WantedVerdict
            What is wanted, for instance of a :class:`VerdictsWanted`.

        Returns
        -------
        int
            Number of pairs.
        """
        pairs = list(pairs)
        self._log().store.write(lambda connection: identify(connection, pairs))
        write_lines(path, [pair.line() for pair in pairs])
        return len(pairs)

    def import_(self, path: str | os.PathLike[str]) -> ImportedVerdicts:
        """Keep the verdicts in a file that :meth:`export` wrote and people filled in.

        Lines may be missing, in any order, and imported repeatedly. The verdict of a line is one
        of y, n, yes, no, true, false, 1, 0, or empty; ``judge``, ``note`` and ``time`` are
        optional. A line that does not fit is refused with a warning; the others are kept.

        Parameters
        ----------
        path : str or path
            The file: CSV where its name ends in ``.csv``, with commas, semicolons or tabs, as
            spreadsheets save it; JSON Lines otherwise. In UTF-8, or UTF-16 with its mark.

        Returns
        -------
        ImportedVerdicts

        Raises
        ------
        ValueError
            If the file is of another encoding, or has no columns id and verdict. Nothing is kept
            of it, and what was recorded before is as it was.
        """
        log, judge = self._log(), self._who(None)
        added: list[bool | None] = []
        refused: list[str] = []

        def add(connection: "sqlite3.Connection") -> None:
            for where, line in read_lines(path):
                try:
                    added.append(log.add_line(connection, line, judge))
                except (ValueError, TypeError, OverflowError) as error:
                    refused.append(f"{where}: {error}")

        log.store.write(add, durable=True)
        if refused:
            shown = "\n".join(refused[:20])
            warnings.warn(
                f"{len(refused)} lines of {os.fspath(path)!s} were refused:\n{shown}", stacklevel=2
            )
        n_new, n_known, n_empty = map(added.count, (True, False, None))
        return ImportedVerdicts(n_new, n_known, n_empty, tuple(refused))

    def _warn_of_changes(self, log: VerdictLog) -> None:
        """Say how many of the verdicts that were given out are no longer the same."""
        shared, question, last = self._shared(), self.question, log.last_row()
        if shared.last_row.get(question) == last:
            return
        shared.last_row[question] = last
        newest = log.newest()
        changed = [
            id_
            for (asked, id_), verdict in shared.in_use.items()
            if asked == question and newest.get(id_) is not verdict
        ]
        for id_ in changed:
            del shared.in_use[question, id_]
        if changed:
            are = "verdict has" if len(changed) == 1 else "verdicts have"
            warnings.warn(
                f"{len(changed)} {are} changed since the last use (ids {', '.join(changed)[:80]}); "
                "what was calibrated with the earlier ones no longer holds, and the newest count "
                "from now on.",
                stacklevel=3,
            )

    def _who(self, judge: str | None) -> str:
        import getpass

        return str(judge or self.judge or getpass.getuser())

    def _log(self) -> VerdictLog:
        if self.path is None or str(self.path) == ":memory:":
            raise TypeError(f"path must be a file, got {self.path!r} instead.")
        return VerdictLog(self._shared().store, self.question)
