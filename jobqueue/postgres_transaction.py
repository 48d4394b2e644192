"""One transaction on PostgreSQL, in as few messages as will do: each of them is a journey to the server and back.

The begin travels with the first statement, and the commit with a statement that is said to be the last. Several
statements are one message only in the simple protocol, whose values the driver puts into the text and whose rows come
as text; statements between the first and the last go by themselves, with their values beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from jobqueue.postgres_errors import mapped
from jobqueue.postgres_pool import Session
from jobqueue.postgres_values import columns, typed
from jobqueue.protocols import Args, CommitUnknown, Row
from jobqueue.values import types_text

T = TypeVar("T")
Bound: TypeAlias = tuple[str, dict[str, object]]
BEGIN = "begin isolation level read committed"
FOR_SOON = frozenset({"enqueue", "requeue"})
FOR_LATER = frozenset({"release", "retry", "sweep_retry"})


@dataclass(frozen=True, slots=True)
class Frame:
    """What begins and ends the library's own transactions: statements, without their semicolons.

    ``notify`` tells those who wait for jobs, as part of a commit; it is empty where nobody is to be told.
    """

    opening: tuple[str, ...] = (BEGIN,)
    notify: tuple[str, ...] = ()


class PostgresTransaction:
    """A transaction on one connection (protocols.Transaction).

    With a ``frame`` it begins itself, at its first statement; without, it is part of one that is open.
    """

    def __init__(
        self, session: Session, statements: dict[str, str], now_us: int | None, frame: Frame | None = None
    ) -> None:
        self._session = session
        self._statements = statements
        self._frame = frame
        self._begun = frame is None
        self._ended = False
        self._answer: psycopg.Cursor[Row] = session.cursor
        self.now_us = now_us
        self.wakes = False  # Whether it makes a job claimable, so that those who wait for jobs are to be told.

    def rows(self, statement: str, args: Args, *, last: bool = False) -> list[Row]:
        self._execute([(self._statements[statement], typed(args))], last=last)
        return self._answer.fetchall()

    def run(self, statement: str, args: Args, *, last: bool = False) -> int:
        return self.run_many(statement, [args], last=last)

    def run_many(self, statement: str, args: Sequence[Args], *, last: bool = False) -> int:
        if not args:
            return 0
        wakes = _wakes(statement, args)
        if len(args) == 1:
            self._execute([(self._statements[statement], typed(args[0]))], wakes=wakes, last=last)
        elif many := self._statements.get(f"{statement}_many"):
            self._execute([(many, columns(many, args))], wakes=wakes, last=last)
        else:
            self.begin()
            self._answer = self._session.cursor
            self._answer.executemany(self._statements[statement], [typed(each) for each in args])
        changed = self._answer.rowcount
        self.wakes = self.wakes or (wakes and changed > 0)
        return changed

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        """Found and marked in one statement, for others may write at the same time."""
        return sorted(self.rows("dequeue", {"types": types_text(types), **args}, last=True), key=_order)

    def run_and_claim(self, statement: str, args: Args, types: tuple[str, ...], claim: Args) -> tuple[int, list[Row]]:
        if self._frame is None:
            return self.run(statement, args), self.claim(types, claim)
        wanted = typed({"types": types_text(types), **claim})
        both = [(self._statements[statement], typed(args)), (self._statements["dequeue"], wanted)]
        self._execute(both, wakes=_wakes(statement, [args]), last=True)
        changed = self._answer.rowcount
        self._answer.nextset()
        return changed, sorted(self._answer.fetchall(), key=_order)

    def begin(self) -> None:
        """Begin, if that has not been done."""
        if not self._begun and self._frame is not None:
            self._begun = True
            self._session.cursor.execute("; ".join(self._frame.opening))

    def commit(self) -> None:
        """Commit, unless that is done, or nothing was begun. Who waits for jobs is told by the commit itself."""
        if self._begun and not self._ended:
            self._ended = True
            self._send(self._session.cursor, "; ".join(self._closing(self.wakes)))

    def roll_back(self) -> None:
        """End the transaction, or else the connection, which comes to the same."""
        connection = self._session.connection
        try:
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                self._session.cursor.execute("rollback")
        except psycopg.Error:
            connection.close()

    def _closing(self, wakes: bool) -> tuple[str, ...]:
        return (*(self._frame.notify if wakes and self._frame else ()), "commit")

    def _execute(self, statements: Sequence[Bound], *, wakes: bool = False, last: bool = False) -> None:
        """Execute statements, with the begin before the first of the transaction and the commit behind the last.

        The answer is then that of the first one here.
        """
        assert not self._ended, "nothing follows the last statement"
        before = () if self._begun or self._frame is None else self._frame.opening
        after = self._closing(wakes or self.wakes) if last and self._frame is not None else ()
        self._begun = True
        if not before and not after:
            [(text, args)] = statements
            self._answer = self._session.cursor
            self._answer.execute(text, args, prepare=False, binary=True)
            return
        self._answer = messages = self._session.messages
        self._ended = bool(after)
        if len(statements) == 1:
            [(text, args)] = statements
            self._send(messages, "; ".join((*before, text, *after)), args)
        else:  # Each with its own values under names that the other may have, too.
            bound = [messages.mogrify(text, args) for text, args in statements]
            self._send(messages, "; ".join((*before, *bound, *after)))
        for _ in before:
            messages.nextset()

    def _send(self, cursor: psycopg.Cursor[Row], message: str, args: dict[str, object] | None = None) -> None:
        """Send a message. If it commits and its answer does not come, nobody knows."""
        try:
            cursor.execute(message, args)
        except psycopg.Error as error:
            if self._ended and self._session.connection.closed:
                raise CommitUnknown from error
            raise
        except BaseException:
            self._session.connection.close()  # Interrupted on the way: the connection is of no more use.
            raise


def _wakes(statement: str, args: Sequence[Args]) -> bool:
    """Whether what this statement changes can be claimed at once."""
    return statement in FOR_SOON or (statement in FOR_LATER and any(not each["delay"] for each in args))


def _order(row: Row) -> tuple[int, int, int]:
    """The key of §6 in a row of ``dequeue``."""
    return -row[4], row[8], row[7]


class MappedTransaction:
    """A transaction inside the caller's block, where the driver's errors are the caller's, but not these."""

    def __init__(self, tx: PostgresTransaction, where: str) -> None:
        self._tx = tx
        self._where = where
        self.now_us = tx.now_us

    def rows(self, statement: str, args: Args, *, last: bool = False) -> list[Row]:
        return self._mapped(lambda: self._tx.rows(statement, args))

    def run(self, statement: str, args: Args, *, last: bool = False) -> int:
        return self._mapped(lambda: self._tx.run(statement, args))

    def run_many(self, statement: str, args: Sequence[Args], *, last: bool = False) -> int:
        return self._mapped(lambda: self._tx.run_many(statement, args))

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        return self._mapped(lambda: self._tx.claim(types, args))

    def run_and_claim(self, statement: str, args: Args, types: tuple[str, ...], claim: Args) -> tuple[int, list[Row]]:
        return self._mapped(lambda: self._tx.run_and_claim(statement, args, types, claim))

    def _mapped(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except psycopg.Error as error:
            raise mapped(error, self._where) from error
