"""The connections of one handle: opened when a call needs one, kept for the next, dropped together when one breaks."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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

    __slots__ = ("_ear", "_messages", "connection", "cursor")

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.cursor = LibraryCursor(connection)
        self._messages: MessageCursor | None = None
        self._ear = Selector()
        self._ear.register(connection.fileno(), selectors.EVENT_READ)

    @property
    def messages(self) -> MessageCursor:
        if self._messages is None:
            self._messages = MessageCursor(self.connection)
        return self._messages

    def silent(self) -> bool:
        """Whether the server has said nothing since the last answer. To an idle session it says hardly more than that
        it has ended; what is then sent is lost, and whether it was would not be known."""
        return not self.connection.closed and not self._ear.select(0)


class Pool:
    """Sessions, lent one at a time. Needs no thread of its own."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Session] = []
        self._turn = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session, back in the pool when the block ends; thrown away unless its transaction has ended by then."""
        with self._turn, self.extra_session() as session:
            yield session

    @contextmanager
    def extra_session(self) -> Iterator[Session]:
        """A session out of turn: for a block of the caller's, which may take its time."""
        session = self._usable() or Session(self._address.connect())
        pid = os.getpid()
        try:
            yield session
        finally:
            if os.getpid() == pid:  # A child that was forked inside leaves its parent's connection alone.
                self._take_back(session)

    def _usable(self) -> Session | None:
        """An idle session that is still of use."""
        while True:
            with self._lock:
                session = self._idle.pop() if self._idle else None
            if session is None or session.silent():
                return session
            session.connection.close()

    def _take_back(self, session: Session) -> None:
        usable = session.connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            keep = usable and not self._closed and len(self._idle) < AT_ONCE
            if keep:
                self._idle.append(session)
        if not keep:
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
