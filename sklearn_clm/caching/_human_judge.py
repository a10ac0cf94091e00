"""An admission whose verdicts come from people."""

import datetime as dt
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sklearn_clm._exceptions import warn
from sklearn_clm.caching._cache import StoreBacked
from sklearn_clm.caching._store import LOOKUP_KEYS, Store, decoded
from sklearn_clm.caching._verdicts import (
    Context,
    JudgedPrompt,
    Verdict,
    VerdictsWanted,
    WantedVerdict,
    as_judged,
)
from sklearn_clm.caching.verdict_files import (
    as_verdict,
    read_lines,
    read_questionnaire,
    signature,
    text_of,
    write_lines,
)
from sklearn_clm.generators.identity import digest_of
from sklearn_clm.generators.records import content_json
from sklearn_clm.scoring.protocols import PairJudge, Prompt, Reference, Response

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, key INTEGER NOT NULL,
    verdict INTEGER, judge TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL,
    checksum BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS verdicts_by_key ON verdicts (question, key);
CREATE TABLE IF NOT EXISTS wanted (
    question TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (question, key)) WITHOUT ROWID
"""
_COLUMNS = ("id", "prompt", "references", "context", "response", "verdict", "judge", "note")
_COMPARED = 1000  # characters of a response; spreadsheets cut long cells


class HumanJudge(StoreBacked, PairJudge):
    """An admission by people, whose verdicts a SQLite file keeps.

    Asked about a response that nobody has judged, it raises :class:`VerdictsWanted`, which lists
    all that are missing. People then judge, by :meth:`record`, by file (:meth:`export` and
    :meth:`import_`) or on a page (:func:`sklearn_clm.judging.serve`), and the same call goes on
    from there. Nothing is ever overwritten: a correction is a new row, and the last one counts.

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
        """Admissions that show people the prompts and all references.

        Give these to ``fit`` as `y`, in the place of the references.

        Parameters
        ----------
        prompts : sequence of length n
            The prompts.
        references : sequence of length n, default=None
            A reference for each prompt, or a list of them; None where there are none.
        """
        if references is None:
            return [JudgedPrompt(prompt) for prompt in prompts]
        if len(references) != len(prompts):
            raise ValueError(
                f"references must have length {len(prompts)}, one for each prompt, got "
                f"{len(references)} instead."
            )
        return [
            JudgedPrompt(
                prompt, tuple(reference) if isinstance(reference, (list, tuple)) else (reference,)
            )
            for prompt, reference in zip(prompts, references)
        ]

    def judge_pairs(
        self, references: Sequence[Reference], responses: Sequence[Response]
    ) -> Iterator[tuple[int, bool]]:
        """Verdict on each pair, as in :class:`sklearn_clm.scoring.PairJudge`.

        A reference is what :meth:`asked` gave, or anything else that is shown as a reference.
        :class:`VerdictsWanted` lists the pairs that have not been judged.
        """
        pairs = [
            WantedVerdict(as_judged(reference), text)
            for reference, text in zip(references, responses)
        ]
        verdicts = self.verdicts(pairs)
        # all that is missing is asked for at once, equal pairs once
        missing = {pair.id: pair for pair, verdict in zip(pairs, verdicts) if verdict is None}
        if missing:
            wanted = list(missing.values())
            self.want(wanted)
            raise VerdictsWanted(wanted)
        return enumerate(map(bool, verdicts))

    def verdicts(self, pairs: Sequence[WantedVerdict]) -> list[bool | None]:
        """The newest verdict on each pair; None where none is."""
        digests = [bytes.fromhex(pair.id) for pair in pairs]
        # rows come in the order of arrival: the last verdict on a pair counts
        newest: dict[str, bool | None] = {}
        for first in range(0, len(digests), LOOKUP_KEYS):
            chunk = digests[first : first + LOOKUP_KEYS]
            marks = ",".join("?" * len(chunk))
            rows = self._rows(f"AND keys.digest IN ({marks})", chunk)
            newest.update({row.id: row.verdict for row in rows})
        return [newest.get(digest.hex()) for digest in digests]

    def record(
        self,
        pair: WantedVerdict,
        verdict: bool | None,
        *,
        judge: str | None = None,
        note: str = "",
    ) -> None:
        """Keep a verdict on the disk.

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
        """
        self._record(pair, verdict, judge, note)

    def record_if_open(
        self,
        pair: WantedVerdict,
        verdict: bool,
        *,
        judge: str | None = None,
        note: str = "",
    ) -> bool:
        """Keep a verdict unless one counts already.

        Parameters
        ----------
        pair, verdict, judge, note
            As in :meth:`record`.

        Returns
        -------
        bool
            Whether it was kept.
        """
        return self._record(pair, verdict, judge, note, if_open=True)

    def _record(
        self,
        pair: WantedVerdict,
        verdict: bool | None,
        judge: str | None,
        note: str,
        *,
        if_open: bool = False,
    ) -> bool:
        # a 2, or a text, would be kept as a yes
        if verdict is not None and not isinstance(verdict, (bool, np.bool_)):
            raise TypeError(f"verdict must be True, False or None, got {verdict!r:.40} instead.")
        stored = None if verdict is None else bool(verdict)

        def record(connection: "sqlite3.Connection") -> bool:
            # in the transaction, for two processes may ask at once
            if if_open and self.verdicts([pair]) != [None]:
                return False
            _identify(connection, [pair])
            self._add(connection, pair.id, stored, signature(judge, self.judge), note)
            return True

        return self._store().write(record, durable=True)

    def want(self, pairs: Sequence[WantedVerdict]) -> None:
        """Keep what is wanted, for people in other processes.

        Parameters
        ----------
        pairs : sequence of WantedVerdict
            What is wanted, in place of what was wanted before. A :class:`VerdictsWanted` that this
            judge raised has done so.
        """

        def want(connection: "sqlite3.Connection") -> None:
            connection.execute("DELETE FROM wanted WHERE question = ?", (self.question,))
            _identify(connection, pairs)
            connection.executemany(
                "INSERT OR IGNORE INTO wanted (question, key) "
                "SELECT ?, id FROM keys WHERE digest = ?",
                [(self.question, bytes.fromhex(pair.id)) for pair in pairs],
            )

        self._store().write(want)

    def wanted(self) -> list[WantedVerdict]:
        """What :meth:`want` kept last and nobody has judged since.

        Prompts that no text can hold, such as images, are known to the process alone that asked.
        """
        pairs = self._pairs("JOIN wanted ON wanted.key = keys.id WHERE question = ?", self.question)
        return [pair for pair, verdict in zip(pairs, self.verdicts(pairs)) if verdict is None]

    def questions(self) -> list[str]:
        """The questions of the file, in alphabetical order."""
        query = "SELECT question FROM verdicts UNION SELECT question FROM wanted ORDER BY question"
        return [question for (question,) in self._store().select(query)]

    def pair(self, id_: str) -> WantedVerdict | None:
        """The judged, wanted or exported pair with an id.

        None where the file does not hold it, or holds its digest alone.
        """
        try:
            digest = bytes.fromhex(id_)
        except ValueError:  # whatever a page sends
            return None
        return next(iter(self._pairs("WHERE digest = ?", digest)), None)

    def history(self, start: int = 0) -> list[Verdict]:
        """All verdicts on this question, from number `start` on."""
        return list(self._rows(start=start))

    def fingerprint(self) -> str:
        """Digest of the question, which tells this judge from others."""
        return f"HumanJudge:{digest_of(type(self), {'question': self.question})}"

    def expect(self, pairs: Sequence[WantedVerdict]) -> None:
        """Keep pairs whose verdicts come back by file."""
        self._store().write(lambda connection: _identify(connection, pairs))

    def export(self, path: str | os.PathLike[str], pairs: Iterable[WantedVerdict]) -> None:
        """Write pairs to a CSV file for people elsewhere.

        Parameters
        ----------
        path : str or path
            The file, replaced where it exists: UTF-8, with the mark by which spreadsheets know it.
            What is no text, such as the list of references, is JSON.
        pairs : iterable of WantedVerdict
            What is wanted, for instance of a :class:`VerdictsWanted`.
        """
        pairs = list(pairs)
        self.expect(pairs)
        lines = []
        for pair in pairs:
            judged_prompt = pair.asked
            # no text holds an image
            prompt = None if _content(pair) is None else judged_prompt.prompt
            cells = (
                pair.id,
                prompt,
                list(judged_prompt.references),
                judged_prompt.context,
                pair.response,
            )
            lines.append(dict.fromkeys(_COLUMNS, "") | dict(zip(_COLUMNS, cells)))
        write_lines(path, lines, _COLUMNS)

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Keep the verdicts of a file that people filled in.

        Lines may be missing, in any order, and imported repeatedly: what the same person said
        before, with the same note, has no effect, unless it was taken back since.

        Parameters
        ----------
        path : str or path
            The file, with commas, semicolons or tabs, as spreadsheets save it. The column
            ``verdict`` holds y, n, yes, no, true, false, 1, 0, or nothing; ``judge`` and ``note``
            are optional. Or the JSON file (``.json``) that a questionnaire of
            :func:`sklearn_clm.judging.export_questionnaire` saved, for the same question.

        Returns
        -------
        int
            Number of verdicts that are new.

        Raises
        ------
        ValueError
            If the file is no such table. A line that does not fit, such as one whose response is
            not that of its id, is left out with a warning.
        """

        def add(connection: "sqlite3.Connection") -> int:
            n_new = 0
            for where, line in lines:
                try:
                    n_new += self._add_line(connection, line)
                except (ValueError, OverflowError) as error:
                    refused.append(f"{where}: {error}")
            return n_new

        is_json = os.fspath(path).lower().endswith(".json")
        lines = list(
            read_questionnaire(path, self.question)
            if is_json
            else read_lines(path, ("id", "verdict"))
        )
        refused: list[str] = []
        n_new: int = self._store().write(add, durable=True)
        if refused:
            warn(f"lines were not kept: {len(refused)}, the first of them {refused[0]}")
        return n_new

    def _add_line(self, connection: "sqlite3.Connection", line: dict[str, str]) -> bool:
        """Add a line's verdict; return whether it is new."""
        verdict = as_verdict(line["verdict"])
        if verdict is None:
            return False

        # the id is a digest of what was judged: spreadsheets may sort, cut and add lines
        digest = bytes.fromhex(line["id"])
        query = "SELECT id, content FROM keys WHERE digest = ?"
        key_row = connection.execute(query, (digest,)).fetchone()
        if key_row is None:
            raise ValueError(f"id {line['id']!r:.80} is of no pair that was exported here")
        key, content = key_row
        if content is not None and "response" in line:
            response = json.loads(content)[2]
            if text_of(line["response"])[:_COMPARED] != text_of(response)[:_COMPARED]:
                raise ValueError("the response is not the one that was exported under this id")

        judge = line.get("judge") or signature(self.judge)
        note = line.get("note", "")
        query = (
            "SELECT verdict, note FROM verdicts WHERE question = ? AND key = ? AND judge = ? "
            "ORDER BY id DESC"
        )
        for row in connection.execute(query, (self.question, key, judge)):
            if row == (verdict, note):
                return False
            if row[0] is None:  # what was said before was taken back
                break
        self._add(connection, digest.hex(), verdict, judge, note)
        return True

    def _add(
        self,
        connection: "sqlite3.Connection",
        id_: str,
        verdict: bool | None,
        judge: str,
        note: str,
    ) -> None:
        """Add a verdict as a row; earlier ones stay."""
        time = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        row = Verdict(id_, verdict, judge, time, note)
        connection.execute(
            "INSERT INTO verdicts (question, key, verdict, judge, time, note, checksum) "
            "SELECT ?, id, ?, ?, ?, ?, ? FROM keys WHERE digest = ?",
            (self.question, *row[1:], self._checksum(row), bytes.fromhex(id_)),
        )

    def _rows(
        self, condition: str = "", values: Sequence[bytes] = (), start: int = 0
    ) -> Iterator[Verdict]:
        """Rows from `start` on, in the order of arrival."""
        # `condition` is this module's own
        query = (
            "SELECT keys.digest, verdict, judge, time, note, checksum FROM verdicts "  # nosec B608
            "JOIN keys ON keys.id = verdicts.key WHERE question = ? "
            f"{condition} ORDER BY verdicts.id LIMIT -1 OFFSET ?"
        )
        rows = self._store().select(query, (self.question, *values, start))
        for digest, verdict, judge, time, note, checksum in rows:
            stored = None if verdict is None else bool(verdict)
            row = Verdict(bytes(digest).hex(), stored, judge, time, note)
            if checksum != self._checksum(row):
                raise ValueError(
                    f"path={str(self.path)!r} is damaged: a verdict by {judge!r:.40} is not as it "
                    "was written."
                )
            yield row

    def _pairs(self, condition: str, value: str | bytes) -> list[WantedVerdict]:
        """Pairs whose content the file holds."""
        # `condition` is this module's own
        query = f"SELECT digest, content FROM keys {condition} ORDER BY keys.id"  # nosec B608
        pairs = []
        for digest, content in self._store().select(query, (value,)):
            if content is not None:
                prompt, references, response, *around = decoded(content, self.path)
                context = None
                if around:
                    text, start, stop, *passages = around[0]
                    # files of earlier versions hold no passages
                    context = Context(text, start, stop, *map(tuple, passages))
                pairs.append(
                    WantedVerdict(JudgedPrompt(prompt, tuple(references), context), response)
                )
                if pairs[-1].id != bytes(digest).hex():
                    raise ValueError(
                        f"path={str(self.path)!r} is damaged: {response!r:.40} was altered."
                    )
        return pairs

    def _checksum(self, row: Verdict) -> bytes:
        content = json.dumps([self.question, *row])
        return hashlib.blake2b(content.encode(), digest_size=8).digest()

    def _store(self) -> Store:
        store = self._shared().store
        store.add_tables(_SCHEMA)
        return store


def _identify(connection: "sqlite3.Connection", pairs: Iterable[WantedVerdict]) -> None:
    """Store the content of pairs under their ids."""
    connection.executemany(
        "INSERT OR IGNORE INTO keys (digest, content) VALUES (?, ?)",
        [(bytes.fromhex(pair.id), _content(pair)) for pair in pairs],
    )


def _content(pair: WantedVerdict) -> str | None:
    """The content of a pair as JSON, where JSON can."""
    judged_prompt = pair.asked
    around = [judged_prompt.context] if judged_prompt.context else []
    return content_json(
        [judged_prompt.prompt, list(judged_prompt.references), pair.response, *around]
    )
