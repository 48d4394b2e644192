"""Operations in transactions, and what to do about a commit that got no answer: find out, or say so (spec §5).

A reply is never a guess. What can safely be done twice is done twice; a settlement looks at its row; anything else is
reported as OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from jobqueue import store
from jobqueue.backoff import Backoff
from jobqueue.clock import Clock
from jobqueue.errors import DatabaseUnavailable, OutcomeUnknown
from jobqueue.protocols import CommitUnknown, Database, Transaction
from jobqueue.store import Claim
from jobqueue.types import Complete, Exchange, Reply, Settlement

T = TypeVar("T")
Settling = Callable[[Transaction, Sequence[Settlement], Backoff, Sequence[float]], list[Reply] | None]


class _SomeLost(Exception):
    """Internal: rolls back an exchange of which some lease is lost: then each settlement is answered by itself."""


def always(reply: object) -> bool:
    """The reply of a second try is right whether or not the first one happened."""
    return True


def never(reply: object) -> bool:
    """The reply of a second try leaves out what the first one may have done."""
    return False


class Commits:
    """Writes to one queue's database."""

    def __init__(self, database: Database, backoff: Backoff, clock: Clock) -> None:
        self._database = database
        self._backoff = backoff
        self._clock = clock

    def write(
        self, work: Callable[[Transaction], T], transaction: Any = None, *, sure: Callable[[T], bool] = always
    ) -> T:
        """Do ``work`` in a transaction of its own, or in the caller's.

        If the commit gets no answer it is done once more; ``sure`` tells of which replies that can then be trusted.
        """
        if transaction is not None:
            return self._database.joined(transaction).write(work)
        try:
            return self._database.write(work)
        except CommitUnknown as unknown:
            return self._again(work, sure, unknown)

    def _again(self, work: Callable[[Transaction], T], sure: Callable[[T], bool], why: CommitUnknown) -> T:
        try:
            reply = self._database.write(work)
        except (CommitUnknown, DatabaseUnavailable) as still:
            raise _unknown(still) from why
        if not sure(reply):
            raise OutcomeUnknown("the connection was lost at commit; the call may have happened already") from why
        return reply

    def exchange(self, settlements: Sequence[Settlement], claim: Claim | None) -> Exchange:
        """Settle, then claim, in one transaction; each settlement is answered by itself."""
        draws = [self._clock.draw() for _ in settlements]
        try:
            if len(settlements) == 1:
                return self._database.write(partial(self._exchange_one, settlements[0], draws[0], claim))
            with suppress(_SomeLost):
                return self._database.write(partial(self._exchange_many, store.settle_held, settlements, draws, claim))
            return self._database.write(partial(self._exchange_many, store.settle_many, settlements, draws, claim))
        except CommitUnknown as unknown:
            return self._resolved(settlements, draws, unknown)

    def _exchange_one(self, settlement: Settlement, draw: float, claim: Claim | None, tx: Transaction) -> Exchange:
        if claim is None:
            return Exchange([store.settle(tx, settlement, self._backoff, draw, alone=True)], [])
        reply, jobs = store.settle_and_dequeue(tx, settlement, self._backoff, draw, claim)
        return Exchange([reply], jobs)

    def _exchange_many(
        self,
        settle: Settling,
        settlements: Sequence[Settlement],
        draws: Sequence[float],
        claim: Claim | None,
        tx: Transaction,
    ) -> Exchange:
        replies = settle(tx, settlements, self._backoff, draws)
        if replies is None:
            raise _SomeLost
        return Exchange(replies, store.dequeue(tx, claim) if claim else [])

    def _resolved(self, settlements: Sequence[Settlement], draws: Sequence[float], why: CommitUnknown) -> Exchange:
        """Each settlement looks at its row, and is tried again if it has not happened.

        Claims that the exchange may have made are left to the sweep: nobody was told of them, so nobody has begun them.
        """

        def work(tx: Transaction) -> list[Reply]:
            return [
                store.settled_as(tx, settlement, self._backoff, draw)
                or store.settle(tx, settlement, self._backoff, draw)
                for settlement, draw in zip(settlements, draws, strict=True)
            ]

        try:
            return Exchange(self._database.write(work), [])
        except (CommitUnknown, DatabaseUnavailable, LookupError) as still:
            raise _unknown(still) from why

    def require_completed(self, settlement: Complete, why: CommitUnknown) -> None:
        """After a commit of ``completing`` that got no answer: return only if the row tells that it happened."""
        try:
            happened = self._database.read(lambda tx: store.settled_as(tx, settlement, self._backoff, 0.0))
        except (DatabaseUnavailable, LookupError) as still:
            raise _unknown(still) from why
        if happened is None:
            raise DatabaseUnavailable("the connection was lost at commit; nothing was stored", transient=True) from why


def _unknown(still: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(f"the connection was lost at commit, and then: {still}")
