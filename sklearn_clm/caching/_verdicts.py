"""Verdicts of people: what is asked, what is said, and which of it counts."""

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sklearn_clm.caching._store import LOOKUP_KEYS, Store, decoded
from sklearn_clm.caching._verdict_files import FIELDS, Line, as_verdict, is_text_of
from sklearn_clm.generators._records import content_json, key_digest
from sklearn_clm.scoring._protocols import Prompt, Reference, Response

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, key INTEGER NOT NULL,
    verdict INTEGER, judge TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL,
    source BLOB UNIQUE, checksum BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS verdicts_by_key ON verdicts (question, key);
CREATE TABLE IF NOT EXISTS wanted (
    question TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (question, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contexts (key INTEGER PRIMARY KEY, content TEXT NOT NULL)
"""


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
    """

    prompt: Prompt = None
    references: tuple[Reference, ...] = ()
    context: Context | None = field(default=None, compare=False)


def as_judged(reference: Reference) -> JudgedPrompt:
    """What a person sees besides the response, where this stands in place of a reference."""
    return reference if isinstance(reference, JudgedPrompt) else JudgedPrompt(None, (reference,))


class WantedVerdict(NamedTuple):
    """A response that a person should judge.

    Examples
    --------
    >>> from sklearn_clm.caching import JudgedPrompt, WantedVerdict
    >>> WantedVerdict(JudgedPrompt("2+2?", references=("4",)), "four").response
    'four'
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

    def line(self) -> Line:
        """The fields of a line of a file, with those that people fill in."""
        prompt, references, response = self._content
        if content_json(self._content) is None:
            prompt = None  # an image, say, which no text can hold
        context = self.asked.context and list(self.asked.context)
        return dict(zip(FIELDS, (self.id, prompt, references, context, response, "", "", "")))


class Verdict(NamedTuple):
    """What a person said about a response, and when.

    `verdict` is None where the person took an earlier verdict back.
    """

    id: str
    verdict: bool | None
    judge: str
    time: str
    note: str


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
    by_model : mapping of str to bool, default={}
        Where people audit a model: what it says of these pairs, by their ids. People are shown it
        once they have judged, never before.

    Attributes
    ----------
    wanted, n_at_most, later, by_model
        As given.
    """

    def __init__(
        self,
        wanted: Sequence[WantedVerdict],
        n_at_most: int | None = None,
        later: Sequence[WantedVerdict] = (),
        by_model: Mapping[str, bool] | None = None,
    ) -> None:
        self.wanted, self.later = tuple(wanted), tuple(later)
        self.n_at_most, self.by_model = n_at_most, dict(by_model or {})
        text = f"{len(self.wanted)} verdict{'' if len(self.wanted) == 1 else 's'} wanted next"
        super().__init__(text if n_at_most is None else f"{text}, at most {n_at_most} in all")
        self.add_note(
            "Let people judge: by file, with judge.export(path, error.wanted) and "
            "judge.import_(path); or on a page, with sklearn_clm.judging.serve(judge), or "
            "sklearn-clm judge STORE. Then make the same call again."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.wanted, self.n_at_most, self.later, self.by_model)


class VerdictLog:
    """The verdicts on one question in a store.

    Nothing is ever overwritten: a correction, and taking a verdict back, is a new row. The row of
    the latest time counts, of equal times the one that was kept last. A verdict that is given now
    is never earlier than those on the same pair, whatever the clock says.
    """

    def __init__(self, store: Store, question: str) -> None:
        store.add_tables(_SCHEMA)
        self.store = store
        self.question = question

    def last_row(self) -> int | None:
        """Number of the newest row on any question, which tells whether there are new ones."""
        ((last,),) = self.store.select("SELECT max(id) FROM verdicts")
        return last

    def newest(self, digests: Sequence[bytes] | None = None) -> dict[str, bool]:
        """The verdict that counts on each of some pairs (None: on all that have one), by id."""
        if digests is None:
            return _counting(self.rows())
        known: dict[str, bool] = {}
        for first in range(0, len(digests), LOOKUP_KEYS):
            chunk = digests[first : first + LOOKUP_KEYS]
            marks = ",".join("?" * len(chunk))
            known.update(_counting(self.rows(f"AND keys.digest IN ({marks})", chunk)))
        return known

    def add(
        self,
        connection: "sqlite3.Connection",
        digest: bytes,
        verdict: bool | None,
        judge: str,
        note: str,
        *,
        time: str | None = None,
        source: bytes | None = None,
    ) -> bool:
        """Add a row; False where the one of this source is there already.

        A `time` in the future is that of the import.
        """
        query = (
            "SELECT max(time) FROM verdicts JOIN keys ON keys.id = verdicts.key "
            "WHERE question = ? AND digest = ?"
        )
        (newest,) = connection.execute(query, (self.question, digest)).fetchone()
        now = max(_utc(dt.datetime.now(dt.UTC)), newest or "")
        time = now if time is None else min(now, _utc(dt.datetime.fromisoformat(time)))
        row = Verdict(digest.hex(), verdict, judge, time, note)
        cursor = connection.execute(
            "INSERT INTO verdicts (question, key, verdict, judge, time, note, source, checksum) "
            "SELECT ?, id, ?, ?, ?, ?, ?, ? FROM keys WHERE digest = ? "
            "ON CONFLICT (source) DO NOTHING",
            (self.question, *row[1:], source, self._checksum(row), digest),
        )
        return cursor.rowcount == 1

    def add_line(self, connection: "sqlite3.Connection", line: Line, judge: str) -> bool | None:
        """Add the verdict in a line of a file; None where nobody has judged yet."""
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
        note = "" if line.get("note") is None else str(line["note"])
        judge = str(line["judge"]) if line.get("judge") else judge
        time = str(line["time"]) if line.get("time") else None
        # what makes it the same line when it is imported again
        parts = [self.question, digest.hex(), verdict]
        parts += [line.get(name) for name in ("judge", "note", "time")]
        text = json.dumps(parts, default=str)
        source = hashlib.blake2b(text.encode(), digest_size=16).digest()
        f"{judge}{note}".encode()  # half of a pair of surrogates is no text
        return self.add(connection, digest, verdict, judge, note, time=time, source=source)

    def want(self, pairs: Sequence[WantedVerdict]) -> None:
        """Note what is wanted, in place of what was wanted before."""
        if self.store.read_only:
            return

        def want(connection: "sqlite3.Connection") -> None:
            connection.execute("DELETE FROM wanted WHERE question = ?", (self.question,))
            identify(connection, pairs)
            connection.executemany(
                "INSERT INTO wanted (question, key) SELECT ?, id FROM keys WHERE digest = ?",
                [(self.question, pair._digest) for pair in pairs],
            )

        self.store.write(want)

    def wanted(self) -> list[WantedVerdict]:
        """What was wanted last, in the order in which it came."""
        return self._pairs("JOIN wanted ON wanted.key = keys.id WHERE question = ?", self.question)

    def pair(self, digest: bytes) -> WantedVerdict | None:
        """The pair of a digest, where the store holds its content."""
        return next(iter(self._pairs("WHERE digest = ?", digest)), None)

    def _pairs(self, condition: str, value: str | bytes) -> list[WantedVerdict]:
        # `condition` is this module's own
        query = (
            "SELECT digest, keys.content, contexts.content FROM keys "  # nosec B608
            f"LEFT JOIN contexts ON contexts.key = keys.id {condition} ORDER BY keys.id"
        )
        pairs = []
        for digest, content, context in self.store.select(query, (value,)):
            if content is not None:
                prompt, references, response = decoded(content, self.store.path)
                around = None if context is None else Context(*decoded(context, self.store.path))
                asked = JudgedPrompt(prompt, tuple(references), around)
                pairs.append(WantedVerdict(asked, response))
                if pairs[-1]._digest != bytes(digest):
                    raise ValueError(
                        f"path={self.store.path!r} is damaged: {response!r:.40} was altered."
                    )
        return pairs

    def rows(
        self, condition: str = "", values: Sequence[bytes] = (), start: int = 0
    ) -> Iterator[Verdict]:
        """All rows but the first ones, in the order in which they were kept."""
        # `condition` is this module's own
        query = (
            "SELECT keys.digest, verdict, judge, time, note, checksum FROM verdicts "  # nosec B608
            "JOIN keys ON keys.id = verdicts.key WHERE question = ? "
            f"{condition} ORDER BY verdicts.id LIMIT -1 OFFSET ?"
        )
        rows = self.store.select(query, (self.question, *values, start))
        for digest, verdict, judge, time, note, checksum in rows:
            said = None if verdict is None else bool(verdict)
            row = Verdict(bytes(digest).hex(), said, judge, time, note)
            if checksum != self._checksum(row):
                raise ValueError(
                    f"path={self.store.path!r} is damaged: a verdict by {judge!r:.40} is not as it "
                    "was written."
                )
            yield row

    def _checksum(self, row: Verdict) -> bytes:
        return hashlib.blake2b(json.dumps([self.question, *row]).encode(), digest_size=8).digest()


def identify(connection: "sqlite3.Connection", pairs: Iterable[WantedVerdict]) -> None:
    """Store what pairs are, so that they are found by their ids."""
    for pair in pairs:
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


def _counting(rows: Iterable[Verdict]) -> dict[str, bool]:
    # stable: of equal times the later row counts
    newest = {row.id: row.verdict for row in sorted(rows, key=lambda row: row.time)}
    return {id_: verdict for id_, verdict in newest.items() if verdict is not None}


def _utc(time: dt.datetime) -> str:
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return time.astimezone(dt.UTC).isoformat(timespec="microseconds")
