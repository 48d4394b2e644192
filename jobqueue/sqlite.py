"""SQLite: one connection that writes, one that reads, and every driver error as one of ours.

A write begins IMMEDIATE, so that it never reads what it cannot then change; waiting for the lock is done here, in short
jittered waits, because SQLite's own busy handler sleeps ever longer while others take the lock.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from jobqueue import filesystem
from jobqueue.clock import Clock
from jobqueue.errors import DatabaseUnavailable, InvalidArgument, JobQueueError, SchemaMismatch, WrongUse
from jobqueue.forks import abandon_in_children
from jobqueue.protocols import BLOCK, ENDED, CommitUnknown, Inside, Transaction, Wakeup
from jobqueue.sql import for_queue
from jobqueue.sqlite_schema import prepare, version
from jobqueue.sqlite_transaction import SqliteTransaction
from jobqueue.wakeup import memory_changed, wakeup_for

A = TypeVar("A")
T = TypeVar("T")
OLDEST_SQLITE = (3, 35, 0)
WAL_LIMIT = 64 * 1024 * 1024
SAME_FOR = 0.001  # Seconds from one look at the files to the next: a look is a fifth of a quick call.
SHORTEST_WAIT, LONGEST_WAIT = 0.0005, 0.01  # Seconds between two tries for the write lock.
LEGACY_TRANSACTIONS = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 does not name.
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
STALE = (
    "the transaction cannot write: another connection writes now, or has written since this one read; roll it back, and"
    " start again with BEGIN IMMEDIATE"
)
AWAY = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the file cannot be read or written (I/O error)",
}
BROKEN = {
    sqlite3.SQLITE_READONLY: "the file or its directory is read-only, or was moved; make it writable, or open it anew",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that its directory exists and may be written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_PERM: "access to the file is denied",
    sqlite3.SQLITE_AUTH: "access to the file is denied",
}


class SqliteDatabase:
    """The table of one queue in an SQLite file, or in memory (protocols.Database)."""

    def __init__(
        self, path: str, queue: str, *, synchronous: str, busy_timeout_us: int, clock: Clock, create: bool = True
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise DatabaseUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed", transient=False
            )
        if synchronous not in ("full", "normal"):
            raise InvalidArgument(f"synchronous is 'full' or 'normal', not {synchronous!r}")
        self.path = None if path == ":memory:" else os.path.abspath(path)
        self.queue = queue
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout_us / 1_000_000
        self._clock = clock
        self._statements = for_queue("sqlite", queue)
        self._pid = os.getpid()
        self._inside = Inside()
        self._lent: set[sqlite3.Connection] = set()
        self._writing, self._reading = threading.RLock(), threading.RLock()
        self._closed = False
        self._refuse_network_files()
        if not create:
            self._require_there()
        self._writer = self._open()
        self._reader = self._writer
        try:
            self._seen_at = -inf
            self._identities: list[tuple[str, tuple[int, int] | None]] = []
            if self.path is None:
                self._reading = self._writing  # One connection in memory: one at a time.
                self._prepare()
            else:
                self._remember(self.path)
                self._prepare()
                self._remember(f"{self.path}-wal")  # It is there, and stays, while any connection is open.
                self._reader = self._open()
        except BaseException:
            self.close()
            raise
        abandon_in_children(self)

    # Opening and closing

    def _remember(self, path: str) -> None:
        self._identities.append((path, filesystem.identity(path)))

    def _require_same_files(self) -> None:
        """Nothing is stored in, or told from, files that nobody else sees any more, but for a moment at most."""
        now = self._clock.monotonic()
        if now - self._seen_at >= SAME_FOR:
            self._look_at_files()
            self._seen_at = now

    def _look_at_files(self) -> None:
        for path, known in self._identities:
            if filesystem.identity(path) != known:
                message = f"{path} was moved, deleted or replaced; open the queue again"
                raise DatabaseUnavailable(message, transient=False)

    def _refuse_network_files(self) -> None:
        found = self.path and filesystem.kind(os.path.dirname(self.path))
        if found in filesystem.NETWORK:
            raise DatabaseUnavailable(
                f"{self.path} lies on a network file system ({found}), where SQLite's locks cannot be trusted;"
                " use a local disk, or PostgreSQL",
                transient=False,
            )

    def _require_there(self) -> None:
        """Look without leaving a trace: not even a file, or another journal mode."""
        found = None
        if self.path is not None and os.path.exists(self.path):
            try:
                with closing(sqlite3.connect(f"{Path(self.path).as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
                    found = self._patiently(lambda queue: version(connection, queue), self.queue)
            except sqlite3.Error as error:
                raise self.mapped(error) from error
        if found is None:
            raise SchemaMismatch(f"{self.path or ':memory:'} has no queue {self.queue!r}")

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path or ":memory:", timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        except sqlite3.Error as error:
            raise self.mapped(error) from error
        try:
            self._patiently(self._configure, connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise self.mapped(error) from error
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
        if mode != ("memory" if self.path is None else "wal"):
            raise DatabaseUnavailable(
                f"{self.path} cannot use write-ahead logging (journal mode is {mode}); use a local disk",
                transient=False,
            )
        connection.execute(f"pragma synchronous = {self._synchronous}")
        connection.execute(f"pragma journal_size_limit = {WAL_LIMIT}")

    def _prepare(self) -> None:
        """Create or check the schema under the write lock: which also proves that the file can be written."""
        self._transact(self._writer, lambda tx: prepare(self._writer, self.queue, self._statements["schema"]))

    def close(self) -> None:
        """Close both connections; waits for calls in progress."""
        self._closed = True
        if os.getpid() != self._pid:
            return  # They are the parent's; closing them here would harm its locks.
        with self._writing, self._reading:
            self._writer.close()
            self._reader.close()

    def connections(self) -> tuple[sqlite3.Connection, ...]:
        """What a forked child must leave alone."""
        return self._writer, self._reader, *self._lent

    # Transactions

    def write(self, work: Callable[[Transaction], T]) -> T:
        self._require_usable()
        with self._writing:
            return self._transact(self._writer, work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._require_usable()
        with self._reading:
            self._require_same_files()
            try:
                # Each reading operation is one statement, and one statement is one snapshot.
                return self._patiently(work, self.transaction(self._reader))
            except sqlite3.Error as error:
                raise self.mapped(error) from error

    @contextmanager
    def own_transaction(self) -> Iterator[tuple[sqlite3.Connection, Callable[[], Transaction]]]:
        self._require_usable()
        if self.path is None:
            with self._writing, self._entered(self._writer):
                yield self._writer, partial(self._same, self._writer)
            return
        self._look_at_files()  # Before a new connection, which would create a new file.
        connection = self._open()
        self._lent.add(connection)
        try:
            with self._entered(connection):
                yield connection, partial(self._same, connection)
        finally:
            if os.getpid() == self._pid:
                self._lent.discard(connection)
                connection.close()

    @contextmanager
    def _entered(self, connection: sqlite3.Connection) -> Iterator[None]:
        """A transaction around the caller's own block, during which this thread's other calls are refused."""
        self._begin(connection)
        self._inside.connection = connection
        try:
            connection.execute(f"savepoint {BLOCK}")
            yield
            self._commit(connection)
        except BaseException:
            if os.getpid() == self._pid and connection.in_transaction:  # Never in a child that was forked inside.
                connection.rollback()
            raise
        finally:
            self._inside.connection = None

    def _same(self, connection: sqlite3.Connection) -> SqliteTransaction:
        """The transaction that was begun before the block, and not one that the block has begun after it."""
        try:
            connection.execute(f"release {BLOCK}")
        except sqlite3.Error as error:
            raise WrongUse(ENDED) if _primary(error) == sqlite3.SQLITE_ERROR else self.mapped(error) from error
        return self.transaction(connection)

    def joined(self, connection: Any) -> JoinedDatabase:
        self._require_open()
        if not isinstance(connection, sqlite3.Connection):
            raise WrongUse(
                f"transaction= takes an sqlite3.Connection to the queue's file, not a {type(connection).__name__}"
            )
        return JoinedDatabase(self, connection)

    def wakeup(self) -> Wakeup:
        self._require_open()
        return wakeup_for(self.path, self._clock)

    def transaction(self, connection: sqlite3.Connection) -> SqliteTransaction:
        return SqliteTransaction(connection, self._statements, self._clock.now_us())

    def _transact(self, connection: sqlite3.Connection, work: Callable[[Transaction], T]) -> T:
        self._begin(connection)
        try:
            result = work(self.transaction(connection))
        except BaseException as error:
            if connection.in_transaction:
                connection.rollback()
            if isinstance(error, sqlite3.Error):
                raise self.mapped(error) from error
            raise
        self._commit(connection)
        return result

    def _begin(self, connection: sqlite3.Connection) -> None:
        try:
            self._patiently(connection.execute, "begin immediate")
        except sqlite3.Error as error:
            raise self.mapped(error) from error
        try:
            self._require_same_files()
        except DatabaseUnavailable:
            connection.rollback()
            raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            self._patiently(connection.execute, "commit")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.rollback()
            if _primary(error) == sqlite3.SQLITE_IOERR:
                raise CommitUnknown(f"{self.path}: the commit met an I/O error") from error
            raise self.mapped(error) from error
        if self.path is None:
            memory_changed()

    def _patiently(self, step: Callable[[A], T], argument: A) -> T:
        """Do ``step``.

        While another process has the lock, again after a short jittered wait, up to the busy timeout.
        """
        deadline, wait = None, SHORTEST_WAIT
        while True:
            try:
                return step(argument)
            except sqlite3.OperationalError as error:
                now = self._clock.monotonic()
                deadline = now + self._busy_timeout if deadline is None else deadline
                if _primary(error) not in BUSY or now >= deadline or self._closed:
                    raise
            self._clock.sleep(wait * (0.5 + self._clock.draw()))
            wait = min(wait * 2, LONGEST_WAIT)

    # Misuse and errors

    def _require_open(self) -> None:
        if self._closed:
            raise WrongUse("this queue is closed; open it again")
        if os.getpid() != self._pid:
            raise WrongUse("this queue was opened before a fork; open another one in the child process")

    def _require_usable(self) -> None:
        self._require_open()
        if self._inside.connection is not None:
            raise WrongUse("inside completing(), pass its connection as transaction=: this call would wait for itself")

    def mapped(self, error: sqlite3.Error) -> JobQueueError:
        """Our error for the driver's."""
        code, where = _primary(error), self.path or ":memory:"
        if code in BUSY:
            return DatabaseUnavailable(
                f"{where} stayed locked for {self._busy_timeout:g} s; another process holds a write transaction,"
                " or another connection of this one (then pass it as transaction=)",
                transient=True,
            )
        if code in AWAY:
            return DatabaseUnavailable(f"{where}: {AWAY[code]}", transient=True)
        if code in BROKEN:
            return DatabaseUnavailable(f"{where}: {BROKEN[code]}", transient=False)
        if code == sqlite3.SQLITE_TOOBIG or isinstance(error, sqlite3.DataError):
            return InvalidArgument("a value is too large for SQLite")
        return DatabaseUnavailable(f"{where}: {error}", transient=False)


class JoinedDatabase:
    """The same table through the caller's connection and transaction, which are never committed or rolled back here.

    A savepoint keeps one call all or nothing. BUSY is raised at once: only the caller can start its transaction again.
    """

    def __init__(self, home: SqliteDatabase, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._path = home.path
        self._transaction = home.transaction
        self._mapped = home.mapped

    def write(self, work: Callable[[Transaction], T]) -> T:
        try:
            with self._plain():
                self._require_attached()
                if not self._connection.in_transaction:
                    self._begin()
                return self._all_or_nothing(work)
        except sqlite3.Error as error:
            if _primary(error) in BUSY:
                raise DatabaseUnavailable(STALE, transient=True) from error
            raise self._mapped(error) from error

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """Rows come as tuples and text as str, as the library expects, whatever the caller has set."""
        connection = self._connection
        rows, text = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        try:
            yield
        finally:
            connection.row_factory, connection.text_factory = rows, text

    def _require_attached(self) -> None:
        """What goes through a connection to another file would be stored there, or nowhere."""
        files = [file for _, _, file in self._connection.execute("pragma database_list")]
        if self._path is not None and all(
            filesystem.identity(file) != filesystem.identity(self._path) for file in files
        ):
            raise WrongUse(f"the connection of transaction= is not one to {self._path}")

    def _begin(self) -> None:
        # Python's own implicit BEGIN does not cover every statement (WITH … INSERT), so it is not relied upon.
        mode = getattr(self._connection, "autocommit", LEGACY_TRANSACTIONS)
        if mode is True or (mode == LEGACY_TRANSACTIONS and self._connection.isolation_level is None):
            raise WrongUse(
                "the connection is in autocommit mode with no transaction open; execute('BEGIN IMMEDIATE') first"
            )
        self._connection.execute("begin immediate")

    def _all_or_nothing(self, work: Callable[[Transaction], T]) -> T:
        connection = self._connection
        connection.execute("savepoint jobqueue")
        try:
            result = work(self._transaction(connection))
        except BaseException:
            if connection.in_transaction:  # Some errors (a full disk) have ended the caller's transaction already.
                connection.execute("rollback to jobqueue")
                connection.execute("release jobqueue")
            raise
        connection.execute("release jobqueue")
        return result


def _primary(error: sqlite3.Error) -> int:
    """The driver's primary result code; 0 where the error is not the database's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
