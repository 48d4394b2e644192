"""PostgreSQL: short READ COMMITTED transactions, no state in the session, and every driver error as one of ours.

Whatever the role's defaults are, a transaction of the library's own says its isolation when it begins. It is done again
after a deadlock, and when the connection is lost before the commit was sent; when it is lost later, nobody knows.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2s
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from jobqueue import postgres_schema
from jobqueue.clock import Clock, SystemClock
from jobqueue.errors import SchemaMismatch, WrongUse
from jobqueue.postgres_errors import CONFLICT, NOT_THERE, lost, mapped, passing
from jobqueue.postgres_listen import Listener, NotifyWakeup
from jobqueue.postgres_pool import Address, Pool, Session
from jobqueue.postgres_transaction import BEGIN, Frame, MappedTransaction, PostgresTransaction
from jobqueue.protocols import BLOCK, ENDED, Inside, Transaction, Wakeup
from jobqueue.sql import for_queue

T = TypeVar("T")
SHORTEST_WAIT, LONGEST_WAIT = 0.005, 1.0  # Seconds before a transaction is tried again.
log = logging.getLogger("jobqueue")
COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


class PostgresDatabase:
    """The table of one queue in a PostgreSQL database (protocols.Database).

    ``server_time`` (default: unless a test gives a clock of its own) leaves now to the server. ``listen`` False, or a
    pooler that does not pass notifications on, leaves waiting workers to their polling; a URL there is where to listen
    instead, past a pooler. ``notify`` False tells no worker of new jobs: for producers that commit side by side at such
    a rate that the lock which all notifying commits of a database share is in their way.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        busy_timeout_us: int = 30_000_000,
        clock: Clock | None = None,
        server_time: bool | None = None,
        listen: bool | str = True,
        notify: bool = True,
        create: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._server_time = isinstance(self._clock, SystemClock) if server_time is None else server_time
        self._busy_timeout = busy_timeout_us / 1_000_000
        self.queue = queue
        self.address = Address(url)
        self._listening = self.address if listen is True else Address(listen) if listen else None
        self._listener: Listener | None = None
        self._listener_lock = threading.Lock()
        self._pid = os.getpid()
        self._inside = Inside()
        self._closed = False
        self._pool = Pool(self.address)
        try:
            self.schema = self._prepared(create)
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                raise mapped(error, self.address.shown) from error
            raise
        name = postgres_schema.quoted(self.schema)
        self._statements = {
            key: COMMENT.sub("", text.replace("{schema}", name)).rstrip(";")
            for key, text in for_queue("postgres", queue).items()
        }
        # Short enough for any schema's name, and no two schemas share it. Never a payload: a channel is not a secret.
        self.channel = f"jobqueue:{queue}:{blake2s(self.schema.encode(), digest_size=6).hexdigest()}"
        told = (f'notify "{self.channel}"',) if notify else ()
        self.frame = Frame((BEGIN, f"set local lock_timeout = {max(1, busy_timeout_us // 1000)}"), told)
        # Locks are waited for as the role says: the transaction is the caller's.
        self._lent = Frame((BEGIN, f"savepoint {BLOCK}"), told)

    # Opening and closing

    def _prepared(self, create: bool) -> str:
        """The schema that holds the queue, made now if there is none and ``create`` says so."""
        with self._pool.session() as session:
            postgres_schema.require_supported(session.connection)
            if not postgres_schema.durable(session.cursor):
                log.warning(
                    "%s: synchronous_commit is off, so a crash of the server may undo what was acknowledged;"
                    " alter role … set synchronous_commit = on",
                    self.address,
                )
            found = postgres_schema.find(session.cursor, self.queue)
            if found is None and not create:
                raise SchemaMismatch(f"{self.address} has no queue {self.queue!r}")
            if found is None:
                with session.connection.transaction():
                    session.cursor.execute("set transaction isolation level read committed")
                    parts = for_queue("postgres", self.queue)
                    postgres_schema.create(session.cursor, self.queue, parts["schema"] + parts["due"])
                found = postgres_schema.find(session.cursor, self.queue)
            assert found is not None, "it was created in the first schema of the search path"
            return found

    def close(self) -> None:
        """Close every connection; calls in progress finish first, each closing its own."""
        self._closed = True
        if os.getpid() != self._pid:
            return  # They are the parent's, and so is its listener.
        with self._listener_lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self._pool.close()

    # Transactions

    def write(self, work: Callable[[Transaction], T]) -> T:
        self._require_usable()
        return self._patiently(lambda: self._written(work))

    def _written(self, work: Callable[[Transaction], T]) -> T:
        with self._pool.session() as session:
            tx = self.transaction(session, self.frame)
            try:
                result = work(tx)
                tx.commit()
            except BaseException:
                tx.roll_back()
                raise
            return result

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._require_usable()
        return self._patiently(lambda: self._read(work))

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with self._pool.session() as session:
            tx = self.transaction(session, Frame())
            try:
                tx.begin()  # By itself: the rows of a read come in binary.
                return work(tx)
            finally:
                tx.roll_back()

    @contextmanager
    def own_transaction(self) -> Iterator[tuple[psycopg.Connection[Any], Callable[[], Transaction]]]:
        self._require_usable()
        with ExitStack() as lent:
            session, tx = self._patiently(lambda: self._begun(lent))
            connection = self._inside.connection = session.connection
            try:
                yield connection, lambda: self._same(session, tx)
                tx.commit()
            except BaseException:
                if os.getpid() == self._pid:  # Never in a child that was forked inside.
                    tx.roll_back()
                raise
            finally:
                self._inside.connection = None

    def _begun(self, lent: ExitStack) -> tuple[Session, PostgresTransaction]:
        """A session with a transaction open, over a connection that works."""
        session = lent.enter_context(self._pool.extra_session())
        tx = self.transaction(session, self._lent)
        tx.begin()
        return session, tx

    def _same(self, session: Session, tx: PostgresTransaction) -> MappedTransaction:
        """The transaction that was begun before the block, and not one that the block has begun after it."""
        try:
            session.cursor.execute(f"release savepoint {BLOCK}")
        except psycopg.Error as error:
            raise WrongUse(ENDED) if error.sqlstate in NOT_THERE else mapped(error, self.address.shown) from error
        return MappedTransaction(tx, self.address.shown)

    def joined(self, connection: Any) -> JoinedDatabase:
        self._require_open()
        if not isinstance(connection, psycopg.Connection):
            raise WrongUse(
                f"transaction= takes a psycopg.Connection to the queue's database, not a {type(connection).__name__}"
            )
        return JoinedDatabase(self, connection)

    def transaction(self, session: Session, frame: Frame | None) -> PostgresTransaction:
        """A transaction of the library's own, or without a ``frame`` what it does inside one that is open."""
        now_us = None if self._server_time else self._clock.now_us()
        return PostgresTransaction(session, self._statements, now_us, frame)

    def _patiently(self, step: Callable[[], T]) -> T:
        """Do ``step``; after a deadlock or a lost connection again, in growing waits, up to the busy timeout."""
        deadline, wait = None, SHORTEST_WAIT
        while True:
            try:
                return step()
            except psycopg.Error as error:
                now = self._clock.monotonic()
                deadline = now + self._busy_timeout if deadline is None else deadline
                if lost(error):
                    self._pool.drop_idle()
                if not passing(error) or now >= deadline:
                    raise mapped(error, self.address.shown) from error
            self._clock.sleep(wait * (0.5 + self._clock.draw()))
            wait = min(wait * 2, LONGEST_WAIT)

    # Waiting for jobs

    def wakeup(self) -> Wakeup:
        """A watch that this queue's notifications end. All watches of a handle share one listening connection."""
        self._require_open()
        if self._listening is None:
            return NotifyWakeup(None)
        with self._listener_lock:
            if self._listener is None:
                self._listener = Listener(self._listening, self.channel, self._clock.draw)
            return NotifyWakeup(self._listener)

    # Misuse

    def _require_open(self) -> None:
        if self._closed:
            raise WrongUse("this queue is closed; open it again")
        if os.getpid() != self._pid:
            raise WrongUse("this queue was opened before a fork; open another one in the child process")

    def _require_usable(self) -> None:
        self._require_open()
        if self._inside.connection is not None:
            raise WrongUse("inside completing(), pass its connection as transaction=: this call is no part of it")


class JoinedDatabase:
    """The same table through the caller's connection and transaction, which are never committed or rolled back here.

    A savepoint keeps one call all or nothing. What only a new transaction can mend (a deadlock, a serialization
    failure) is raised as the driver's own error, for the caller's retry to see; the isolation is the caller's choice.
    """

    def __init__(self, home: PostgresDatabase, connection: psycopg.Connection[Any]) -> None:
        self._home = home
        self._connection = connection

    def write(self, work: Callable[[Transaction], T]) -> T:
        status = self._connection.info.transaction_status
        if status is TransactionStatus.IDLE and self._connection.autocommit:
            raise WrongUse("the connection is in autocommit mode with no transaction open; open one first")
        try:
            return self._all_or_nothing(work)
        except psycopg.Error as error:
            if error.sqlstate in CONFLICT:
                raise
            raise mapped(error, self._home.address.shown) from error

    def _all_or_nothing(self, work: Callable[[Transaction], T]) -> T:
        session = Session(self._connection)
        cursor = session.cursor
        cursor.execute("savepoint jobqueue")  # Begins the transaction where none is open: the driver does so by itself.
        try:
            tx = self._home.transaction(session, None)
            result = work(tx)
            if tx.wakes and self._home.frame.notify:
                cursor.execute(*self._home.frame.notify)
        except BaseException:
            if self._connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                cursor.execute("rollback to savepoint jobqueue; release savepoint jobqueue")
            raise
        cursor.execute("release savepoint jobqueue")
        return result
