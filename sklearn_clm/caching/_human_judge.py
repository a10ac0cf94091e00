"""Verdicts of people, kept in the file of a cache."""

import datetime as dt
import getpass
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sklearn_clm.caching._store import Store, StoreBacked, decoded
from sklearn_clm.caching._verdict_files import (
    Line,
    as_verdict,
    check_ending,
    is_text_of,
    read_lines,
    write_lines,
)
from sklearn_clm.generators._fingerprint import digest_of
from sklearn_clm.generators._records import content_json, key_digest
from sklearn_clm.scoring._protocols import PairJudge, Prompt, Reference, Response

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, key INTEGER NOT NULL,
    verdict INTEGER, judge TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL,
    blind INTEGER NOT NULL, source BLOB UNIQUE, checksum BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS verdicts_by_key ON verdicts (question, key);
CREATE TABLE IF NOT EXISTS wanted (
    question TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (question, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contexts (key INTEGER PRIMARY KEY, content TEXT NOT NULL)
"""
_FIELDS = ("id", "prompt", "references", "context", "response", "verdict", "judge", "note")
_LOOKUP_KEYS = 400


class Context(NamedTuple):
    """A whole response, and where in it the component is that is judged.

    Examples
    --------
    >>> from sklearn_clm.caching import Context
    >>> context = Context("It is warm. It may rain.", 12, 24)
    >>> context.response[context.start : context.stop]
    'It may rain.'
    """

    response: str
    start: int
    stop: int


@dataclass(frozen=True)
class JudgedPrompt:
    """What a person sees besides the response.

    Parameters
    ----------
    prompt : object, default=None
        The prompt; None where only references are known.
    references : tuple, default=()
        Good responses, where there are some.
    context : Context, default=None
        Where a component is judged: the response around it. It is shown, but a verdict is one on
        the component whatever response holds it.

    Examples
    --------
    >>> from sklearn_clm.caching import JudgedPrompt
    >>> JudgedPrompt("2+2?", ("4",)).references
    ('4',)
    """

    prompt: Prompt = None
    references: tuple[Reference, ...] = ()
    context: Context | None = field(default=None, compare=False)


class WantedVerdict(NamedTuple):
    """A response that a person should judge.

    Examples
    --------
    >>> from sklearn_clm.caching import JudgedPrompt, WantedVerdict
    >>> WantedVerdict(JudgedPrompt("2+2?"), "4").response
    '4'
    """

    asked: JudgedPrompt
    response: Response

    @property
    def id(self) -> str:
        """Name of this response to this prompt, in files and in the store."""
        return self._digest.hex()

    @property
    def _content(self) -> list[object]:
        return [self.asked.prompt, list(self.asked.references), self.response]

    @property
    def _digest(self) -> bytes:
        return key_digest(self._content)


class Verdict(NamedTuple):
    """What a person said about a response, and when.

    `verdict` is None where the person took an earlier verdict back.
    """

    id: str
    verdict: bool | None
    judge: str
    time: str
    note: str


class ImportedVerdicts(NamedTuple):
    """What became of the lines of a file: how many are new, known and empty; those refused."""

    n_new: int
    n_known: int
    n_empty: int
    refused: tuple[str, ...]


class VerdictsWanted(RuntimeError):
    """Raised where a calibration cannot go on before people have judged.

    Nothing is lost: once the verdicts are given, the same call goes on from there.

    Parameters
    ----------
    wanted : sequence of WantedVerdict
        What is wanted next.
    n_at_most : int, default=None
        How many more may be wanted in all, these included; None where unknown.
    later : sequence of WantedVerdict, default=()
        What may be wanted after these, as far as it is known, first draws before later ones. To
        judge in fewer rounds, ask for some of it in advance:
        ``judge.export(path, [*error.wanted, *error.later[:50]])``. What is found is the same.

    Attributes
    ----------
    wanted, n_at_most, later
        As given.
    """

    def __init__(
        self,
        wanted: Sequence[WantedVerdict],
        n_at_most: int | None = None,
        later: Sequence[WantedVerdict] = (),
    ) -> None:
        self.wanted, self.later = tuple(wanted), tuple(later)
        self.n_at_most = n_at_most
        text = f"{len(self.wanted)} verdict{'' if len(self.wanted) == 1 else 's'} wanted next"
        super().__init__(text if n_at_most is None else f"{text}, at most {n_at_most} in all")
        self.add_note(
            "Let people judge: by file, with judge.export(path, error.wanted) and "
            "judge.import_(path); or on a page, with sklearn_clm.judging.serve(judge), or "
            "python -m sklearn_clm judge STORE. Then make the same call again."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.wanted, self.n_at_most, self.later)


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
        self._warn_of_changes()
        pairs = list(map(self.wanted_pair, references, responses))
        verdicts = self.verdicts(pairs)
        in_use = self._shared().in_use
        missing = {}
        known = []
        for pair, verdict in zip(pairs, verdicts):
            if verdict is None:
                missing[pair.id] = pair
            else:
                in_use[self.question, pair.id] = verdict
                known.append(verdict)
        if missing:
            self._want(missing.values())
            raise VerdictsWanted(list(missing.values()))
        return enumerate(known)

    @staticmethod
    def wanted_pair(reference: Reference, response: Response) -> WantedVerdict:
        """What people are asked about a response.

        Parameters
        ----------
        reference : JudgedPrompt or object
            What :meth:`asked` gave, or anything else that is shown as a reference.
        response : object
            The response.

        Returns
        -------
        WantedVerdict
        """
        return WantedVerdict(_asked(reference), response)

    def within(
        self, reference: Reference, response: Response, start: int, stop: int
    ) -> JudgedPrompt:
        """What to pass in place of a reference so that people see a component in its response.

        Parameters
        ----------
        reference : JudgedPrompt or object
            What :meth:`asked` gave, or anything else that is shown as a reference.
        response : str
            The whole response.
        start, stop : int
            Where the component is in it.

        Returns
        -------
        JudgedPrompt
        """
        return replace(_asked(reference), context=Context(response, start, stop))

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
        known: dict[str, bool | None] = {}
        for first in range(0, len(digests), _LOOKUP_KEYS):
            chunk = digests[first : first + _LOOKUP_KEYS]
            marks = ",".join("?" * len(chunk))
            known.update(self._newest(f"AND keys.digest IN ({marks})", chunk))
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
        if not isinstance(pair, WantedVerdict):
            raise TypeError(f"pair must be a WantedVerdict, got {pair!r:.60} instead.")
        if verdict is not None and not isinstance(verdict, (bool, np.bool_)):
            raise TypeError(f"verdict must be True, False or None, got {verdict!r:.40} instead.")
        said = None if verdict is None else bool(verdict)
        with self._log().writing(durable=True) as connection:
            # in the transaction, for two processes may ask at once
            if if_open and self.verdicts([pair]) != [None]:
                return
            _identify(connection, pair)
            time = self._latest(connection, pair._digest)
            row = Verdict(pair.id, said, self._who(judge), time, str(note))
            self._append(connection, row, None)

    def wanted(self) -> list[WantedVerdict]:
        """What the last :class:`VerdictsWanted` listed and nobody has judged since.

        It is kept in the file, so that people can judge in another process. Prompts that no text
        can hold, such as images, are known to the process alone that asked for them.

        Returns
        -------
        list of WantedVerdict
        """
        condition = "JOIN wanted ON wanted.key = keys.id WHERE wanted.question = ?"
        pairs = self._pairs(condition, self.question)
        return [pair for pair, known in zip(pairs, self.verdicts(pairs)) if known is None]

    def questions(self) -> list[str]:
        """The questions on which the file holds verdicts, or wants some, in alphabetical order.

        Returns
        -------
        list of str
        """
        query = "SELECT question FROM verdicts UNION SELECT question FROM wanted ORDER BY question"
        with self._log().reading() as connection:
            return [question for (question,) in connection.execute(query)]

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
        found = self._pairs("WHERE digest = ?", bytes.fromhex(id_))
        return found[0] if found else None

    def judged(self) -> list[tuple[WantedVerdict, bool]]:
        """All that is judged, with the verdict that counts.

        Returns
        -------
        list of (WantedVerdict, bool)
            Without prompts that no text can hold, such as images.
        """
        pairs = ((self.pair(id_), verdict) for id_, verdict in self._newest("", ()).items())
        return [
            (pair, verdict) for pair, verdict in pairs if pair is not None and verdict is not None
        ]

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
        return list(self._rows("", (), start))

    def fingerprint(self) -> str:
        """Digest of the question, which tells this judge from others."""
        return digest_of(type(self), {"question": self.question})

    def state(self) -> str:
        """Digest of all verdicts that count, which changes with every correction.

        Returns
        -------
        str
            Compare it before and after to see whether a calibration should be run again.
        """
        content = json.dumps(sorted(self._newest("", ()).items()))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

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
        check_ending(path)
        pairs = list(pairs)
        with self._log().writing() as connection:
            for pair in pairs:
                _identify(connection, pair)
        write_lines(path, _FIELDS, map(_line, pairs))
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
        n_new = n_known = n_empty = 0
        refused: list[str] = []
        with self._log().writing(durable=True) as connection:
            for where, line in read_lines(path):
                try:
                    row = self._imported(connection, line)
                except (ValueError, TypeError, OverflowError) as error:
                    refused.append(f"{where}: {error}")
                    continue
                if row is None:
                    n_empty += 1
                elif self._append(connection, row, self._source(line, row)):
                    n_new += 1
                else:
                    n_known += 1
        if refused:
            shown = "\n".join(refused[:20])
            warnings.warn(
                f"{len(refused)} lines of {os.fspath(path)!s} were refused:\n{shown}", stacklevel=2
            )
        return ImportedVerdicts(n_new, n_known, n_empty, tuple(refused))

    def _warn_of_changes(self) -> None:
        """Say how many of the verdicts that were given out are no longer the same."""
        shared, question = self._shared(), self.question
        with self._log().reading() as connection:
            (last,) = connection.execute("SELECT max(id) FROM verdicts").fetchone()
        if shared.last_row.get(question) == last:
            return
        shared.last_row[question] = last
        newest = self._newest("", ())
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

    def _imported(self, connection: "sqlite3.Connection", line: Line) -> Verdict | None:
        """The verdict of a line; None where nobody has judged yet."""
        verdict = as_verdict(line.get("verdict"))
        if verdict is None:
            return None
        digest = bytes.fromhex(str(line.get("id") or ""))
        query = "SELECT content FROM keys WHERE digest = ?"
        known = connection.execute(query, (digest,)).fetchone()
        if known is None:
            raise ValueError(f"id {line.get('id')!r:.80} is of no pair that was exported here")
        content, response = known[0], line.get("response")
        if None not in (content, response) and not is_text_of(response, json.loads(content)[2]):
            raise ValueError("the response is not the one that was exported under this id")
        time = self._latest(connection, digest)
        if line.get("time"):
            time = min(time, _utc(dt.datetime.fromisoformat(str(line["time"]))))
        note = "" if line.get("note") is None else str(line["note"])
        who = self._who(str(line["judge"]) if line.get("judge") else None)
        f"{who}{note}".encode()  # half of a pair of surrogates is no text
        return Verdict(digest.hex(), verdict, who, time, note)

    def _latest(self, connection: "sqlite3.Connection", digest: bytes) -> str:
        """The time of a verdict that is given now: never before those of the same pair.

        Clocks are set back, and those of two machines differ.
        """
        query = (
            "SELECT max(time) FROM verdicts JOIN keys ON keys.id = verdicts.key "
            "WHERE question = ? AND digest = ?"
        )
        (newest,) = connection.execute(query, (self.question, digest)).fetchone()
        return max(_now(), newest or "")

    def _source(self, line: Line, row: Verdict) -> bytes:
        """What makes a line the same line when it is imported again."""
        parts = [self.question, row.id, row.verdict]
        parts += [line.get(name) for name in ("judge", "note", "time")]
        return hashlib.blake2b(json.dumps(parts, default=str).encode(), digest_size=16).digest()

    def _append(self, connection: "sqlite3.Connection", row: Verdict, source: bytes | None) -> bool:
        """Add a row; whether it is new."""
        cursor = connection.execute(
            "INSERT OR IGNORE INTO verdicts "
            "(question, key, verdict, judge, time, note, blind, source, checksum) "
            "SELECT ?, id, ?, ?, ?, ?, 0, ?, ? FROM keys WHERE digest = ?",
            (self.question, *row[1:], source, self._checksum(row), bytes.fromhex(row.id)),
        )
        return cursor.rowcount == 1

    def _want(self, pairs: Iterable[WantedVerdict]) -> None:
        """Note in the file what is wanted, in place of what was wanted before."""
        store = self._log()
        if store.read_only:
            return
        with store.writing() as connection:
            connection.execute("DELETE FROM wanted WHERE question = ?", (self.question,))
            for pair in pairs:
                _identify(connection, pair)
                connection.execute(
                    "INSERT INTO wanted (question, key) SELECT ?, id FROM keys WHERE digest = ?",
                    (self.question, pair._digest),
                )

    def _pairs(self, condition: str, value: str | bytes) -> list[WantedVerdict]:
        """The pairs whose content the file holds, in the order in which they came."""
        # `condition` is this module's own
        query = (
            "SELECT digest, keys.content, contexts.content FROM keys "  # nosec B608
            f"LEFT JOIN contexts ON contexts.key = keys.id {condition} ORDER BY keys.id"
        )
        with self._log().reading() as connection:
            rows = connection.execute(query, (value,)).fetchall()
        pairs = []
        for digest, content, context in rows:
            if content is not None:
                prompt, references, response = decoded(content, self.path)
                around = None if context is None else Context(*decoded(context, self.path))
                asked = JudgedPrompt(prompt, tuple(references), around)
                pairs.append(WantedVerdict(asked, response))
                if pairs[-1]._digest != bytes(digest):
                    raise ValueError(
                        f"path={str(self.path)!r} is damaged: {response!r:.40} was altered."
                    )
        return pairs

    def _newest(self, condition: str, values: Sequence[bytes]) -> dict[str, bool | None]:
        """The verdict that counts for each pair, by its id; None where it was taken back."""
        # stable: of equal times the later row counts
        rows = sorted(self._rows(condition, values), key=lambda row: row.time)
        newest = {row.id: row.verdict for row in rows}
        return {id_: verdict for id_, verdict in newest.items() if verdict is not None}

    def _rows(self, condition: str, values: Sequence[bytes], start: int = 0) -> Iterator[Verdict]:
        # `condition` is this module's own; earlier versions kept blind verdicts, which do not count
        query = (
            "SELECT keys.digest, verdict, judge, time, note, checksum FROM verdicts "  # nosec B608
            "JOIN keys ON keys.id = verdicts.key WHERE question = ? AND blind = 0 "
            f"{condition} ORDER BY verdicts.id LIMIT -1 OFFSET ?"
        )
        with self._log().reading() as connection:
            rows = connection.execute(query, (self.question, *values, start)).fetchall()
        for digest, verdict, judge, time, note, checksum in rows:
            said = None if verdict is None else bool(verdict)
            row = Verdict(bytes(digest).hex(), said, judge, time, note)
            if checksum != self._checksum(row):
                raise ValueError(
                    f"path={str(self.path)!r} is damaged: a verdict by {judge!r:.40} is not as it "
                    "was written."
                )
            yield row

    def _checksum(self, row: Verdict) -> bytes:
        content = json.dumps([self.question, *row, False]).encode()  # not blind
        return hashlib.blake2b(content, digest_size=8).digest()

    def _who(self, judge: str | None) -> str:
        name = judge or self.judge or getpass.getuser()
        if not isinstance(name, str):
            raise TypeError(f"judge must be a str or None, got {name!r:.60} instead.")
        return name

    def _log(self) -> Store:
        if self.path is None or str(self.path) == ":memory:":
            raise TypeError(f"path must be a file, got {self.path!r} instead.")
        if not isinstance(self.question, str):
            raise TypeError(f"question must be a str, got {self.question!r:.60} instead.")
        store = self._shared().store
        store.add_tables(_SCHEMA)
        return store


def _identify(connection: "sqlite3.Connection", pair: WantedVerdict) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO keys (digest, content) VALUES (?, ?)",
        (pair._digest, content_json(pair._content)),
    )
    if pair.asked.context is not None:
        connection.execute(
            "INSERT OR REPLACE INTO contexts (key, content) SELECT id, ? FROM keys "
            "WHERE digest = ?",
            (json.dumps(pair.asked.context), pair._digest),
        )


def _line(pair: WantedVerdict) -> dict[str, object]:
    """The fields of a line of a file."""
    prompt, references, response = pair._content
    if content_json(pair._content) is None:
        prompt = None  # an image, say, which no text can hold
    context = pair.asked.context and list(pair.asked.context)
    return dict(zip(_FIELDS, (pair.id, prompt, references, context, response, "", "", "")))


def _asked(reference: Reference) -> JudgedPrompt:
    return reference if isinstance(reference, JudgedPrompt) else JudgedPrompt(None, (reference,))


def _now() -> str:
    return _utc(dt.datetime.now(dt.UTC))


def _utc(time: dt.datetime) -> str:
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return time.astimezone(dt.UTC).isoformat(timespec="microseconds")
