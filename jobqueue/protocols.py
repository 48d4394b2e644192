"""The seam between the operations and a database: whole named statements, inside one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Args = Mapping[str, Any]
Row = tuple[Any, ...]


class Transaction(Protocol):
    """An open transaction. Statements are named, and are the same in both dialects.

    Below this seam an id is 16 bytes, an instant or duration an integer of microseconds, JSON its text. ``last`` says
    that nothing follows whatever the answer is, so that the commit can be sent along; a claim is always the last.
    """

    @property
    def now_us(self) -> int | None:
        """The now of this call (spec §7); None means that the database's statement supplies it."""

    def rows(self, statement: str, args: Args, *, last: bool = False) -> list[Row]:
        """Run a statement and fetch its rows."""

    def run(self, statement: str, args: Args, *, last: bool = False) -> int:
        """Run a statement that returns no rows; the number of rows that it changed."""

    def run_many(self, statement: str, args: Sequence[Args], *, last: bool = False) -> int:
        """Run a statement once for each of ``args``; the number of rows that it changed in all."""

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        """Find and mark up to n due jobs of ``types`` (T-2), in order: the one step whose statements differ by dialect.

        A row is what the job is after its claim: id, fence, worker, type, priority, attempts, max_attempts, seq,
        scheduled_at, created_at, started_at, lease_expires_at, timeout, unique_key, error, payload.
        """

    def run_and_claim(self, statement: str, args: Args, types: tuple[str, ...], claim: Args) -> tuple[int, list[Row]]:
        """run, then claim, whatever the first one changed: the whole transaction can then be one message."""


class Database(Protocol):
    """Where one queue's table lives."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do ``work`` in a write transaction of its own and commit it.

        ``work`` may be run again after a conflict, so it must have no effect but through the transaction.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Do ``work`` in a transaction that writes nothing and blocks no writer."""

    def joined(self, connection: Any) -> Joined:
        """The same table through the caller's own connection: what is written there commits with the caller's data."""

    def close(self) -> None:
        """Release every connection. The handle cannot be used afterwards."""

    def wakeup(self) -> Wakeup:
        """A new watch on changes that others make to this database."""

    def own_transaction(self) -> AbstractContextManager[tuple[Any, Callable[[], Transaction]]]:
        """A write transaction on a connection that the caller may use for its own writes: (connection, same).

        ``same()`` is that transaction for the library's own last writes, called once, at the end; WrongUse if the
        caller has ended it. It commits when the block ends, and is rolled back when the block raises.
        """


class Joined(Protocol):
    """One queue's table through a connection, and in a transaction, of the caller's."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do ``work``, all or nothing, as part of the caller's transaction. Never commits or rolls that back."""


class Wakeup(Protocol):
    """A sleep that ends early when the database changes.

    ``arm`` before the poll that finds nothing, then ``wait`` (W-9).
    """

    def arm(self) -> None:
        """Take the baseline: a change from now on ends ``wait``."""

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; True as soon as something changed since ``arm``, or ``wake`` was called."""

    def wake(self) -> None:
        """End ``wait`` now; from any thread."""

    def close(self) -> None:
        """Release what the watch holds."""


BLOCK = "jobqueue_block"  # The savepoint that is gone once a block's transaction was ended inside the block.
ENDED = "the transaction was ended inside the block; leave commit and rollback to it"


class CommitUnknown(Exception):
    """Internal: the connection was lost at commit, so nobody knows whether it happened. Never leaves the library."""


class Inside(threading.local):
    """The connection of the ``completing`` block that a thread is inside of: its other calls are refused meanwhile."""

    connection: Any = None
