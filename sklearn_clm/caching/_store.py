"""A SQLite file that keeps what was expensive to get, each value under its key.

Values are JSON text under (space, key, seed, draw): the space says what it is (a draw, a judgement)
and whose (the fingerprint of the generator or of the judge), the key is a digest of the prompt or
of the pair that was judged. A value is written in a transaction of its own as soon as it is known.
In write-ahead mode, what was committed survives the death of the process at any moment.

A transaction is ``with connection:``, whose end, commit or rollback, no signal comes between.

Each value carries a checksum over itself and its key, so that a damaged file is noticed. Values of
format 1 have none; such a file becomes format 2 when it is opened, its values as they are.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import hashlib
import json
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from sklearn.base import BaseEstimator, clone

from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators._records import json_lines, json_value, key_digest, naming, whole_number

if TYPE_CHECKING:
    import sqlite3

Record: TypeAlias = Mapping[str, Any]  # a line of a file in JSON Lines

_APPLICATION_ID = 0x53434C4D
_SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE spaces (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
    UNIQUE (kind, name));
CREATE TABLE keys (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, content TEXT);
CREATE TABLE entries (
    space INTEGER NOT NULL, key INTEGER NOT NULL, seed INTEGER NOT NULL, draw INTEGER NOT NULL,
    value TEXT NOT NULL, checksum BLOB, PRIMARY KEY (space, key, seed, draw)) WITHOUT ROWID;
"""
_FROM_VERSION_1 = "ALTER TABLE entries ADD COLUMN checksum BLOB"
_BUSY_SECONDS = 60.0
_LOOKUP_KEYS = 400  # stays below SQLite's historical limit of 999 bound parameters

Identity = tuple[str, int, int]
_open_stores: weakref.WeakValueDictionary[Identity, Store] = weakref.WeakValueDictionary()
_opening: dict[str, threading.Lock] = {}  # held from the look-up of a file to its connection
_connected: dict[int, Identity | None] = {}  # files of the connections that live, by their id
# connections of a parent process, which a child must not close
_inherited: list[sqlite3.Connection | None] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_opening.clear)


class Space(NamedTuple):
    """Kind of a value ("draws", ...) and name of who made it."""

    kind: str
    name: str


class Row(NamedTuple):
    """One stored value with its key; `content` is JSON text of what the digest stands for."""

    space: Space
    digest: bytes
    content: str | None
    seed: int
    draw: int
    value: str


class Store:
    """One SQLite file (or a database in memory where `path` is None); safe to share by threads."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._spaces: dict[Space, int] = {}
        self._added: set[str] = set()
        with self.reading():
            self.read_only = _is_read_only(path)

    def identity(self) -> Identity | None:
        """The file that has the name of this one, which is another after it was replaced."""
        return None if self.path is None else _identity(self.path)

    def check_writable(self, what: str) -> None:
        """Refuse to get what could not be kept."""
        if self.read_only:
            raise OSError(
                f"cache path={self.path!r} is read-only and lacks some of the {what} that are "
                "wanted. Copy it to where it can be written to."
            )

    def lookup(
        self, space: Space, digests: Sequence[bytes], seed: int, start: int, stop: int
    ) -> dict[tuple[bytes, int], str]:
        """Stored values of the draws ``start`` to ``stop - 1`` of the given keys."""
        found = {}
        for first in range(0, len(digests), _LOOKUP_KEYS):
            chunk = digests[first : first + _LOOKUP_KEYS]
            marks = ",".join("?" * len(chunk))
            # nothing but question marks is put in
            query = (
                "SELECT keys.digest, entries.draw, entries.value, entries.checksum "  # nosec B608
                "FROM keys "
                "CROSS JOIN entries ON entries.key = keys.id WHERE entries.space = "
                "(SELECT id FROM spaces WHERE kind = ? AND name = ?) AND entries.seed = ? "
                f"AND entries.draw >= ? AND entries.draw < ? AND keys.digest IN ({marks})"
            )
            with self.reading() as connection:
                rows = connection.execute(query, (*space, seed, start, stop, *chunk)).fetchall()
            for digest, draw, value, checksum in rows:
                row = Row(space, digest, None, seed, draw, value)
                found[digest, draw] = self._checked(row, checksum).value
        return found

    def put(self, row: Row) -> str:
        """Store a value; the first one stored under a key stays, and is what is returned."""
        with self.reading() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            if self._insert(connection, row):
                return row.value
            value, checksum = connection.execute(
                "SELECT value, checksum FROM entries WHERE space = ? AND seed = ? AND draw = ? "
                "AND key = (SELECT id FROM keys WHERE digest = ?)",
                (self._spaces[row.space], row.seed, row.draw, row.digest),
            ).fetchone()
        return self._checked(row._replace(value=value), checksum).value

    def put_all(self, rows: Iterable[Row]) -> int:
        """Store many values at once, all or (where `rows` raises) none; the number that is new."""
        with self.reading() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            return sum(self._insert(connection, row) for row in rows)

    def add_tables(self, schema: str) -> None:
        """Make tables of another kind of record where they are missing."""
        if schema not in self._added and not self.read_only:
            with self.writing() as connection:
                for statement in schema.split(";"):
                    connection.execute(statement)
        self._added.add(schema)

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction; where `durable`, what it wrote is on the disk when it ends."""
        with self.reading() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection

    def rows(self, kind: str, name: str | None = None) -> Iterator[Row]:
        """All stored values of a kind (under one name), in order of their keys."""
        query = "SELECT id, kind, name FROM spaces WHERE kind = ? AND name = ifnull(?, name)"
        with self.reading() as connection:
            spaces = connection.execute(query, (kind, name)).fetchall()
        for number, *space in spaces:
            yield from self._rows_of(number, Space(*space))

    def _rows_of(self, number: int, space: Space) -> Iterator[Row]:
        query = (
            "SELECT keys.digest, keys.content, entries.seed, entries.draw, entries.value, "
            "entries.checksum, entries.key FROM entries CROSS JOIN keys ON keys.id = entries.key "
            "WHERE entries.space = ? AND (entries.key, entries.seed, entries.draw) > (?, ?, ?) "
            "ORDER BY entries.key, entries.seed, entries.draw LIMIT 1000"
        )
        # pages, not one long cursor: the lock is free, and writers go on, between two of them
        last = (-1, -1, -1)
        while True:
            with self.reading() as connection:
                page = connection.execute(query, (number, *last)).fetchall()
            for *fields, checksum, _ in page:
                yield self._checked(Row(space, *fields), checksum)
            if not page:
                return
            last = (page[-1][6], page[-1][2], page[-1][3])

    def count(self, kind: str, name: str | None = None) -> int:
        """Number of stored values of a kind (under one name)."""
        query = (
            "SELECT count(*) FROM entries JOIN spaces ON spaces.id = entries.space "
            "WHERE spaces.kind = ? AND spaces.name = ifnull(?, spaces.name)"
        )
        with self.reading() as connection:
            return int(connection.execute(query, (kind, name)).fetchone()[0])

    def first_value(self, space: Space) -> str | None:
        """Some stored value of a space, or None."""
        query = (
            "SELECT value FROM entries WHERE space = "
            "(SELECT id FROM spaces WHERE kind = ? AND name = ?) LIMIT 1"
        )
        with self.reading() as connection:
            row = connection.execute(query, tuple(space)).fetchone()
        return None if row is None else str(row[0])

    def n_bytes(self) -> int:
        """Size of the database, the write-ahead log included."""
        with self.reading() as connection:
            if self.path is None:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                (size,) = connection.execute("PRAGMA page_size").fetchone()
                return int(pages * size)
        return os.stat(self.path).st_size + _log_size(self.path)

    def _checked(self, row: Row, checksum: bytes | None) -> Row:
        # SQLite lets a column hold values of any type
        types = bytes, str | None, int, int, str
        if not all(map(isinstance, row[1:], types)) or checksum not in (None, _checksum(row)):
            raise ValueError(
                f"path={self.path!r} is damaged: it holds {row.value!r:.40} in a wrong place or "
                "not as it was written."
            )
        return row

    def _insert(self, connection: sqlite3.Connection, row: Row) -> bool:
        if row.space not in self._spaces:
            query = "INSERT OR IGNORE INTO spaces (kind, name) VALUES (?, ?)"
            connection.execute(query, tuple(row.space))
            query = "SELECT id FROM spaces WHERE kind = ? AND name = ?"
            (self._spaces[row.space],) = connection.execute(query, tuple(row.space)).fetchone()
        connection.execute(
            "INSERT OR IGNORE INTO keys (digest, content) VALUES (?, ?)", (row.digest, row.content)
        )
        cursor = connection.execute(
            "INSERT OR IGNORE INTO entries (space, key, seed, draw, value, checksum) "
            "SELECT ?, id, ?, ?, ?, ? FROM keys WHERE digest = ?",
            (self._spaces[row.space], *row[3:], _checksum(row), row.digest),
        )
        return cursor.rowcount == 1

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection of this process, held by one thread at a time; its errors, translated."""
        import sqlite3

        if self._pid != os.getpid():
            self._after_fork()
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _connect(self.path)
                    _connected[id(self._connection)] = self.identity()
                    weakref.finalize(self, _close, self._connection, os.getpid())
                yield self._connection
            except sqlite3.OperationalError as error:
                self._spaces.clear()
                raise OSError(f"cache path={self.path!r} cannot be used: {error}.") from error
            # text that is no UTF-8 can be in the very message of an error of SQLite
            except (sqlite3.Error, UnicodeDecodeError) as error:
                self._spaces.clear()
                raise ValueError(
                    f"path={self.path!r} is damaged, or is no cache of this package ({error}); "
                    "it is left as it is. Wanted a file that a cache wrote, or a new path."
                ) from error
            except OverflowError as error:
                self._spaces.clear()
                raise ValueError(
                    "seed and the indices of draws must be below 2**63, to be kept in a cache."
                ) from error
            except BaseException:
                self._spaces.clear()  # ids seen in a transaction that was rolled back
                raise

    def _after_fork(self) -> None:
        self._pid, self._lock = os.getpid(), threading.RLock()
        if self.path is not None:
            _inherited.append(self._connection)
            self._connection = None


def open_store(path: str | os.PathLike[str] | None) -> Store:
    """The store of a path, one for each file and process; a new one where it is in memory."""
    if path is None or path == ":memory:":
        return Store(None)
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path must be a str, a path, or None (in memory), got a {type(path).__name__}."
        )
    name = os.fspath(path)
    if isinstance(name, bytes) or "\0" in name:
        raise TypeError(f"path must be text without NUL characters, got {path!r}.")
    name = os.path.realpath(name)
    # may wait for another process, so one lock for each file
    with _opening.setdefault(name, threading.Lock()):
        _refuse_hard_links(name)
        identity = _identity(name)
        store = None if identity is None else _open_stores.get(identity)
        if store is None:
            store = Store(name)
            identity = _identity(name)
            if identity is not None:
                _open_stores[identity] = store
    return store


def _refuse_hard_links(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name)
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            raise OSError(
                f"cache path={name!r} has {status.st_nlink} names (hard links), and SQLite would "
                "keep a log of its own for each. Remove the others, or copy the file and use the "
                "copy."
            )


def _identity(name: str) -> Identity | None:
    # a file that was deleted and made anew under the same name is another file
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name)
        return name, status.st_dev, status.st_ino
    return None


def _checksum(row: Row) -> bytes:
    key = f"{row.space.kind} {row.space.name} {row.seed} {row.draw} {row.value}"
    content = row.digest + key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).digest()


def _connect(path: str | None) -> sqlite3.Connection:
    import sqlite3

    if path is None:
        return _prepared(_opened(":memory:"), path)
    # to close a file drops all locks that this process has on it, those of SQLite, too
    if _identity(path) not in list(_connected.values()):
        _check_header(path)
    try:
        return _prepared(_opened(path), path)
    except sqlite3.OperationalError:
        if not _is_read_only(path) or _log_size(path):
            raise
        # beside a file on a read-only medium SQLite cannot make the log that it wants to read
        return _prepared(_opened(f"{Path(path).as_uri()}?immutable=1", uri=True), path)


def _is_read_only(path: str | None) -> bool:
    if path is None or not os.path.exists(path):
        return False
    return not (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK))


def _log_size(path: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path + "-wal").st_size
    return 0


def _opened(name: str, *, uri: bool = False) -> sqlite3.Connection:
    import sqlite3

    return sqlite3.connect(
        name, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri
    )


def _prepared(connection: sqlite3.Connection, path: str | None) -> sqlite3.Connection:
    try:
        if _application_id(connection) != _APPLICATION_ID:
            _create(connection, path)
        _check_version(connection, path)
        if path is not None and not _is_read_only(path):
            _write_ahead(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_header(path: str) -> None:
    """Refuse foreign files by their first bytes, before SQLite may touch them."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(f"cache path={path!r} cannot be read: {error.strerror}.") from error
    foreign = None
    if header and (len(header) < 100 or header[:16] != b"SQLite format 3\0"):
        foreign = "not a SQLite file"
    elif header and int.from_bytes(header[68:72], "big") != _APPLICATION_ID:
        foreign = "a SQLite file of another application"
    if foreign is not None:
        raise ValueError(
            f"path={path!r} is {foreign}; it is left as it is. Wanted a file that a cache wrote, "
            "or a new path."
        )


def _application_id(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _create(connection: sqlite3.Connection, path: str | None) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if _application_id(connection) == _APPLICATION_ID:
            return  # another process was faster
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise ValueError(f"path={path!r} is a SQLite file of another application.")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _check_version(connection: sqlite3.Connection, path: str | None) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 1 and not _is_read_only(path):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 1:
                for statement in _FROM_VERSION_1.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
                version = _SCHEMA_VERSION
    if version == 1:
        raise OSError(
            f"cache path={path!r} is in format 1 and read-only; copy it to where it can be written "
            f"to, to be read as format {_SCHEMA_VERSION}."
        )
    if version != _SCHEMA_VERSION:
        raise ValueError(
            f"path={path!r} is a cache in format {version}; this version of the package reads "
            f"formats 1 and {_SCHEMA_VERSION}. It is left as it is."
        )


def _write_ahead(connection: sqlite3.Connection) -> None:
    import sqlite3

    # the change of mode does not wait for the lock of a process that is just doing the same
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if pid == os.getpid():
        connection.close()
        del _connected[id(connection)]
    else:
        _inherited.append(connection)


def encoded(value: object) -> str:
    """Compact JSON text."""
    return json.dumps(value, separators=(",", ":"))


def decoded(text: str, path: str | os.PathLike[str] | None) -> Any:
    """The value of JSON text that a store held."""
    with naming(f"path={str(path)!r} is damaged"):
        return json_value(text)


class Shared:
    """What an object and its clones have in common: the store and the counts."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self.store = open_store(path)
        self.n_hits = 0
        self.n_misses = 0
        self.in_use: dict[tuple[str, str], bool] = {}  # verdicts in use, by question and id
        self.last_row: dict[str, int | None] = {}  # of the verdicts that these were read from
        self._lock = threading.Lock()

    def count(self, hits: int, misses: int) -> None:
        """Add to the counts."""
        with self._lock:
            self.n_hits += hits
            self.n_misses += misses


class StoreBacked(BaseEstimator):
    """Base of what keeps something in a store, which clones share and pickles find again."""

    path: str | os.PathLike[str] | None

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        twin = type(self)(**{name: clone(value, safe=False) for name, value in params.items()})
        twin._shared_state = self._shared()
        return twin

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _shared_state=self._shared())
        return twin

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        shared = self._shared()
        state = {name: value for name, value in vars(self).items() if name != "_shared_state"}
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(state, memo), _shared_state=shared)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_shared_state", None)
        return state

    def _shared(self) -> Shared:
        shared: Shared | None = self.__dict__.get("_shared_state")
        if shared is None:  # of several threads, all get what the first one made
            shared = self.__dict__.setdefault("_shared_state", Shared(self.path))
        if shared.path != self.path:
            shared = self._shared_state = Shared(self.path)
        return shared


class ResultCache(StoreBacked, abc.ABC):
    """Base of the caches: counts, JSON Lines.

    `_kind` names a subclass's kind of results in the store, `_source_field` their fingerprint in
    JSON Lines, and `_key_field` what they belong to.
    """

    _kind: ClassVar[str]
    _source_field: ClassVar[str]
    _key_field: ClassVar[str]

    @property
    def n_hits_(self) -> int:
        """Results served from the cache, by this object and its clones in this process."""
        return self._shared().n_hits

    @property
    def n_misses_(self) -> int:
        """Results that had to be made."""
        return self._shared().n_misses

    def stats(self) -> dict[str, float]:
        """How full the cache is and how much it saves.

        Returns
        -------
        dict
            ``n_hits``, ``n_misses`` and ``hit_rate`` (of this object and its clones in this
            process; NaN before the first use), ``n_stored`` (under this object's fingerprint),
            ``n_stored_in_all`` (of this kind, under any) and ``n_bytes`` (of the whole file).
        """
        shared = self._shared()
        used = shared.n_hits + shared.n_misses
        return {
            "n_hits": shared.n_hits,
            "n_misses": shared.n_misses,
            "hit_rate": shared.n_hits / used if used else float("nan"),
            "n_stored": shared.store.count(*self._space()),
            "n_stored_in_all": shared.store.count(self._kind),
            "n_bytes": shared.store.n_bytes(),
        }

    def export_jsonl(self, path: str | os.PathLike[str], *, every_fingerprint: bool = False) -> int:
        """Write what is kept to a file in JSON Lines, one result a line.

        Parameters
        ----------
        path : str or path
            The file, replaced where it exists.
        every_fingerprint : bool, default=False
            Whether to write what is kept under other fingerprints, too. Each line names its own.

        Returns
        -------
        int
            Number of lines.
        """
        space = (self._kind,) if every_fingerprint else self._space()
        n_lines = 0
        with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
            for row in self._shared().store.rows(*space):
                file.write(json.dumps(self._row_record(row)) + "\n")
                n_lines += 1
        return n_lines

    def import_jsonl(self, path: str | os.PathLike[str]) -> int:
        """Keep the results in a file that :meth:`export_jsonl` (or a user) wrote.

        Parameters
        ----------
        path : str or path
            The file. Lines with no fingerprint are taken for results of this object. Results that
            are kept already stay as they are.

        Returns
        -------
        int
            Number of results that are new.

        Raises
        ------
        ValueError
            If a line cannot be read (the message names it); then none is kept.
        """
        return self._shared().store.put_all(self._parsed(path))

    def _space(self) -> Space:
        return Space(self._kind, self.fingerprint())

    def _parsed(self, path: str | os.PathLike[str]) -> Iterator[Row]:
        own = ""
        for where, record in json_lines(path):
            with naming(f"{where} cannot be read"):
                digest, content = self._record_key(record)
                source = record.get(self._source_field)
                if not source:
                    source = own = own or self.fingerprint()
                if not isinstance(source, str):
                    raise ValueError(f"{self._source_field} must be text, got {source!r:.40}")
                source.encode("utf-8")  # half of a surrogate pair cannot be stored
                place = whole_number(record, "seed", 0), whole_number(record, "draw", 0)
                value = self._record_value(record)
            yield Row(Space(self._kind, source), digest, content, *place, value)

    def _record_key(self, record: Record) -> tuple[bytes, str | None]:
        """Digest and content of an imported line."""
        name, content = self._key_field, self._record_content(record)
        given = record.get(f"{name}_key")
        if content is None:
            if not given:
                raise ValueError(f"neither {name} nor {name}_key")
            return bytes.fromhex(given), None
        digest = key_digest(content)
        if given and bytes.fromhex(given) != digest:
            raise ValueError(f"{name}_key {given!r:.20} belongs to another {name}")
        return digest, encoded(content)

    def _record_content(self, record: Record) -> Any:
        """What an imported line belongs to; None where only its key is there."""
        return record.get(self._key_field)

    def _content(self, row: Row) -> Any:
        """What a row belongs to; None where the store holds only its digest."""
        if row.content is None:
            return None
        content = decoded(row.content, self.path)
        if key_digest(content) != row.digest:
            raise ValueError(f"path={str(self.path)!r} is damaged: {content!r:.40} was altered.")
        return content

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Name that results are kept under."""

    @abc.abstractmethod
    def _row_record(self, row: Row) -> Record:
        """Fields of an exported line."""

    @abc.abstractmethod
    def _record_value(self, record: Record) -> str:
        """Value of an imported line, as JSON text."""
