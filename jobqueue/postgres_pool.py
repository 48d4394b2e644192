"""The connections of one handle: opened when a call needs one, kept for the next, dropped together when one breaks."""

from __future__ import annotations

import os
import selectors
import threading
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from jobqueue.errors import InvalidArgument
from jobqueue.postgres_values import LibraryCursor, MessageCursor

Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
AT_ONCE = 10  # Calls of one handle that may be in the database at the same time; more wait for their turn.
DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "fallback_application_name": "jobqueue",
    # A peer that vanished without a word is noticed within a minute, not after the system's two hours.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Address:
    """Where the database is: a URL or libpq's keywords. Shown without its password."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # Its text may quote the password.
            raise InvalidArgument("this is not a PostgreSQL URL; write postgresql://user@host:5432/database") from None
        self._conninfo = make_conninfo("", **{**DEFAULTS, **given, "client_encoding": "UTF8"})
        host, port = given.get("host") or given.get("hostaddr") or "", given.get("port") or ""
        self.shown = f"postgresql://{host}{':' if port else ''}{port}/{given.get('dbname') or ''}"

    def __repr__(self) -> str:
        return self.shown

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection. Transactions are begun and ended in so many words; nothing is kept in the session."""
        return psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)


class Session:
    """A connection and the cursors that the library uses on it: for single statements, and for several in a message."""

    __slots__ = ("_ear", "_messages", "connection", "cursor", "pid")

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.cursor = LibraryCursor(connection)
        self.pid = os.getpid()
        self._messages: MessageCursor | None = None
        self._ear: selectors.BaseSelector | None = None

    @property
    def messages(self) -> MessageCursor:
        if self._messages is None:
            self._messages = MessageCursor(self.connection)
        return self._messages

    @property
    def idle(self) -> bool:
        """Whether the connection works and has no transaction open."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def silent(self) -> bool:
        """Whether the server has said nothing since the last answer. To an idle session it says hardly more than that
        it has ended; what is then sent is lost, and whether it was would not be known."""
        if self.connection.closed:
            return False
        if self._ear is None:
            self._ear = Selector()
            self._ear.register(self.connection.fileno(), selectors.EVENT_READ)
        return not self._ear.select(0)


class Loan:
    """A session for the length of a block; thrown away unless its transaction has ended by then."""

    __slots__ = ("_in_turn", "_pool", "_session")

    def __init__(self, pool: Pool, *, in_turn: bool) -> None:
        self._pool, self._in_turn = pool, in_turn

    def __enter__(self) -> Session:
        if self._in_turn:
            self._pool.take_turn()
        try:
            self._session = self._pool.take()
        except BaseException:
            self._end_turn()
            raise
        return self._session

    def __exit__(self, *_: object) -> None:
        if os.getpid() == self._session.pid:  # A child that was forked inside leaves its parent's connection alone.
            self._pool.take_back(self._session)
            self._end_turn()

    def _end_turn(self) -> None:
        if self._in_turn:
            self._pool.end_turn()


class Pool:
    """Sessions, lent one at a time. Needs no thread of its own."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Session] = []
        self._busy = 0  # Calls that have their turn.
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._closed = False

    def session(self) -> Loan:
        """A session for one call, which waits for its turn where too many are in the database."""
        return Loan(self, in_turn=True)

    def extra_session(self) -> Loan:
        """A session out of turn: for a block of the caller's, which may take its time."""
        return Loan(self, in_turn=False)

    def take_turn(self) -> None:
        with self._lock:
            while self._busy >= AT_ONCE:
                self._turn.wait()
            self._busy += 1

    def end_turn(self) -> None:
        with self._lock:
            self._busy -= 1
            self._turn.notify()

    def take(self) -> Session:
        """An idle session that is still of use, or a new one."""
        while True:
            with self._lock:
                session = self._idle.pop() if self._idle else None
            if session is None:
                return Session(self._address.connect())
            if session.silent():
                return session
            session.connection.close()

    def take_back(self, session: Session) -> None:
        with self._lock:
            keep = session.idle and not self._closed and len(self._idle) < AT_ONCE
            if keep:
                self._idle.append(session)
        if keep:
            return
        session.connection.close()
        if session.connection.broken:
            self.drop_idle()

    def drop_idle(self) -> None:
        """Close the idle sessions: when one connection broke, the others are likely to be dead too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.connection.close()

    def close(self) -> None:
        """Close what is idle now, and what is lent as it comes back."""
        self._closed = True
        self.drop_idle()
