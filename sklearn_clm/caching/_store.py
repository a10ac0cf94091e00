"""A SQLite file of expensive values, each under its key.

Values are JSON text under (space, key, seed, draw): the space says what it is (a draw, a judgement)
and whose (the fingerprint of the generator or of the judge), the key is a digest of the prompt or
of the pair that was judged. A value is written in a transaction of its own as soon as it is known.
In write-ahead mode, what was committed survives the death of the process at any moment.

Locks and transactions are ``with`` statements over objects of C, where no signal comes between the
beginning and the body: an interrupt leaves nothing locked, as it may within a context manager of
Python. The file is opened by SQLite alone: whoever else closes it within a process drops all locks
that SQLite holds on it there. Each value carries a checksum over itself and its key, so that a
damaged file is noticed. So is a file that is deleted or replaced while it is open: SQLite would go
on writing to what has no name any more.

A value that cannot be written, since the disk is full or another process keeps the file locked, is
held in memory. Whoever puts it is told by an error, and is to pay for nothing more: what is held is
written before anything else is looked up.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sklearn_clm.generators.records import json_value, locating_errors

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

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
_BUSY_SECONDS = 60.0  # how long a lock of another process is waited for
LOOKUP_KEYS = 400  # stays below SQLite's historical limit of 999 bound parameters

# connections of a parent process, which a child must not close
_inherited: list[sqlite3.Connection | None] = []

_locks: dict[int, threading.RLock] = {}  # of the stores of this process
_gate = threading.RLock()  # held while a store is made or closed; its holder waits for no other
_paused = threading.local()


class Space(NamedTuple):
    """Kind of a value ("draws", ...) and its maker's name."""

    kind: str
    name: str


class StoredRow(NamedTuple):
    """A stored value with its key; `content` is JSON."""

    space: Space
    digest: bytes
    content: str | None
    seed: int
    draw: int
    value: str


class Store:
    """A SQLite file, or one in memory, shared by threads."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        with _gate:
            self._lock = _locks[id(self)] = threading.RLock()
        weakref.finalize(self, _locks.pop, id(self), None)
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._files: dict[str, os.stat_result] = {}  # what was opened
        self._added: set[str] = set()
        self._held: dict[tuple[Space, bytes, int, int], StoredRow] = {}
        self._failure: OSError | None = None  # why rows are held

    def lookup(
        self, space: Space, digests: Sequence[bytes], seed: int, start: int, stop: int
    ) -> dict[tuple[bytes, int], str]:
        """Stored values of some draws of the given keys."""
        if self._held:
            self.check_writable()
        stored = {}
        for first in range(0, len(digests), LOOKUP_KEYS):
            chunk = digests[first : first + LOOKUP_KEYS]
            marks = ",".join("?" * len(chunk))
            # nothing but question marks is put in
            query = (
                "SELECT keys.digest, entries.draw, entries.value, entries.checksum "  # nosec B608
                "FROM keys "
                "CROSS JOIN entries ON entries.key = keys.id WHERE entries.space = "
                "(SELECT id FROM spaces WHERE kind = ? AND name = ?) AND entries.seed = ? "
                f"AND entries.draw >= ? AND entries.draw < ? AND keys.digest IN ({marks})"
            )
            rows = self.select(query, (*space, seed, start, stop, *chunk))

            for digest, draw, value, checksum in rows:
                row = StoredRow(space, digest, None, seed, draw, value)
                # SQLite lets a column hold values of any type
                is_typed = all(map(isinstance, row[1:], (bytes, str | None, int, int, str)))
                if not is_typed or checksum != _checksum(row):
                    raise ValueError(
                        f"path={self.path!r} is damaged: it holds {value!r:.40} in a wrong place "
                        "or not as it was written."
                    )
                stored[digest, draw] = value
        return stored

    def put(self, row: StoredRow) -> str:
        """Store a value; return the first one under its key.

        One that cannot be written is held; after that no other is tried, which might take as long
        as a lock that another process keeps.
        """
        failure = self._failure
        if failure is None:
            try:
                if self.write(lambda connection: _insert(connection, row)):
                    return row.value
                stored = self.lookup(row.space, [row.digest], row.seed, row.draw, row.draw + 1)
                return stored[row.digest, row.draw]
            except OSError as error:
                failure = self._failure = error
                error.add_note(
                    "What was made is held in the memory of this process; whatever uses the file "
                    "next writes it first."
                )
        self._held[row.space, row.digest, row.seed, row.draw] = row
        raise failure

    def check_writable(self) -> None:
        """Write what is held; refuse where nothing can be kept.

        Asked before anything is paid for.
        """
        held = dict(self._held)

        def write_held(connection: sqlite3.Connection) -> None:
            # it changes nothing, and fails where nothing can be written
            connection.execute("DELETE FROM spaces WHERE FALSE")
            for row in held.values():
                _insert(connection, row)

        self.write(write_held)
        self._failure = None
        for key in held:
            self._held.pop(key, None)

    def add_tables(self, schema: str) -> None:
        """Make tables where they are missing."""
        if schema not in self._added:
            statements = schema.split(";")
            self.write(lambda connection: [*map(connection.execute, statements)])
        self._added.add(schema)

    def select(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows that a query finds."""
        return self._do(lambda connection: connection.execute(query, values).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """Work in a transaction, which is on disk if `durable`."""

        def transaction(connection: sqlite3.Connection) -> T:
            self._check_files()
            # NORMAL survives the death of the process, FULL that of the machine
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                return work(connection)

        return self._do(transaction)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Work with this process's connection; translate its errors."""
        import sqlite3

        if self._pid != os.getpid():
            self._after_fork()
        with self._lock:
            try:
                if self._connection is None:
                    self._check_files()
                    self._connection = _connect(self.path)
                    self._files = {} if self.path is None else _files_of(self.path)
                    weakref.finalize(self, _close, self._connection, os.getpid())
                return work(self._connection)
            except sqlite3.OperationalError as error:
                raise OSError(f"cache path={self.path!r} cannot be used: {error}.") from error
            # text that is no UTF-8 can be in the very message of an error of SQLite
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise ValueError(
                    f"path={self.path!r} is damaged, or is no cache of this package ({error}); "
                    "it is left as it is. Wanted a file that a cache wrote, or a new path."
                ) from error

    def _check_files(self) -> None:
        """Refuse files that are not the opened ones."""
        for name, opened in self._files.items():
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(name), opened):
                    continue
            raise OSError(
                f"cache path={self.path!r}: {name} was deleted, moved or replaced while this "
                "process used it: what is written would be lost. Put it back, or start Python "
                "anew, with that file or a new one."
            )

    def _after_fork(self) -> None:
        """Forget what belongs to the parent process."""
        self._pid = os.getpid()
        self._lock = _locks[id(self)] = threading.RLock()
        if self.path is not None:
            _inherited.append(self._connection)
            self._connection = None
            # the parent may have closed the others since, which removes them
            self._files = {name: file for name, file in self._files.items() if name == self.path}


def open_store(path: str | os.PathLike[str] | None) -> Store:
    """The store of a path, or one in memory."""
    if path is None or path == ":memory:":
        return Store(None)
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path must be a str, a path, or None (in memory), got a {type(path).__name__}."
        )
    return Store(os.path.abspath(os.fspath(path)))


def encoded(value: object) -> str:
    """Compact JSON text."""
    return json.dumps(value, separators=(",", ":"))


def decoded(text: str, path: str | os.PathLike[str] | None) -> Any:
    """The value of JSON text that a store held."""
    with locating_errors(f"path={str(path)!r} is damaged"):
        return json_value(text)


def _insert(connection: sqlite3.Connection, row: StoredRow) -> bool:
    """Add a row; whether it is new."""
    connection.execute("INSERT OR IGNORE INTO spaces (kind, name) VALUES (?, ?)", tuple(row.space))
    connection.execute(
        "INSERT OR IGNORE INTO keys (digest, content) VALUES (?, ?)", (row.digest, row.content)
    )
    cursor = connection.execute(
        "INSERT OR IGNORE INTO entries (space, key, seed, draw, value, checksum) "
        "SELECT spaces.id, keys.id, ?, ?, ?, ? FROM spaces, keys "
        "WHERE spaces.kind = ? AND spaces.name = ? AND keys.digest = ?",
        (*row[3:], _checksum(row), *row.space, row.digest),
    )
    return cursor.rowcount == 1


def _checksum(row: StoredRow) -> bytes:
    """Digest of a value and its key, to notice damage."""
    key = f"{row.space.kind} {row.space.name} {row.seed} {row.draw} {row.value}"
    content = row.digest + key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).digest()


def _connect(path: str | None) -> sqlite3.Connection:
    import sqlite3

    connection = sqlite3.connect(
        path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if _pragma(connection, "application_id") != _APPLICATION_ID:
            _create(connection, path)
        version = _pragma(connection, "user_version")
        # a file of paid draws is never rewritten by a guess
        if version != _SCHEMA_VERSION:
            raise ValueError(
                f"path={path!r} is a cache in format {version}; this version of the package reads "
                f"format {_SCHEMA_VERSION}. It is left as it is."
            )
        if path is not None:
            _write_ahead(connection)
            _pragma(connection, "user_version")  # it opens the file of what is written last
    except BaseException:
        connection.close()
        raise
    return connection


def _pragma(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _create(connection: sqlite3.Connection, path: str | None) -> None:
    """Make the tables, in a file without any."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if _pragma(connection, "application_id") == _APPLICATION_ID:
            return  # another process was faster
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise ValueError(
                f"path={path!r} is a SQLite file of another application; it is left as it is. "
                "Wanted a file that a cache wrote, or a new path."
            )
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _write_ahead(connection: sqlite3.Connection) -> None:
    import sqlite3

    # the change of mode does not wait for the lock of a process that is just doing the same
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _files_of(path: str) -> dict[str, os.stat_result]:
    """Files of an open store, with what stands beside it."""
    beside = os.path.realpath(path)
    names = (path, f"{beside}-wal", f"{beside}-shm")
    return {name: os.stat(name) for name in names if os.path.exists(name)}


def _close(connection: sqlite3.Connection, pid: int) -> None:
    # a child that closed its parent's connection would drop the parent's locks
    if pid == os.getpid():
        with _gate:
            connection.close()
    else:
        _inherited.append(connection)


def _pause_stores() -> None:
    """Let no thread be within SQLite, which has locks itself."""
    tried: set[int] = set()
    _paused.locks = []
    while True:
        for lock in list(_locks.values()):
            if id(lock) not in tried and lock.acquire(timeout=_BUSY_SECONDS):
                _paused.locks.append(lock)
            tried.add(id(lock))
        # whoever makes or closes a store waits for no other lock meanwhile
        _gate.acquire()
        if tried.issuperset(map(id, list(_locks.values()))):
            _paused.locks.append(_gate)
            return
        _gate.release()  # a store was made meanwhile


def _resume_stores() -> None:
    for lock in _paused.locks:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pause_stores, after_in_parent=_resume_stores, after_in_child=_resume_stores
    )
