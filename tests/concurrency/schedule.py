"""Operations on connections of their own, each stopped before every statement; a schedule says who goes on.

The operations run in threads, but never two at once: a thread goes on only when the schedule gives it the turn, up to
its next stop. So a schedule, a list of small numbers, is the whole interleaving: it can be enumerated, replayed and
shrunk.

On SQLite a write transaction that finds the lock taken has not started: it is given its turn again after another
operation has moved. On PostgreSQL it waits in the server, which the observer sees there, and goes on by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jobqueue import DatabaseUnavailable
from jobqueue.protocols import Args, Database, Joined, Row, Transaction, Wakeup

T = TypeVar("T")
MOMENT = 0.01  # Seconds until the observer is asked whether a silent operation waits for a lock.
LONGEST = 30.0


class Actor:
    """One operation: where it stands, and when, in turns, it began and ended."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.reply: object = None
        self.began: int | None = None
        self.ended: int | None = None
        self.blocked = self.waiting = self.inside = self.done = False
        self.error: BaseException | None = None
        self._free = False
        self._turn, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        self._turn.acquire()
        try:
            self.reply = work()
        except BaseException as error:
            self.error = error
        self.done = True
        self._stopped.release()

    def stop(self) -> None:
        """Called by the operation itself: wait for the next turn."""
        self._stopped.release()
        if not self._free:
            self._turn.acquire()

    def let_go(self) -> None:
        """No more stops: so that a test that has failed leaves no operation half-way."""
        self._free = True
        self._turn.release()
        self._thread.join(LONGEST)

    def give_turn(self) -> None:
        self.blocked = False
        self._turn.release()

    def stopped(self, seconds: float) -> bool:
        """Whether it reached its next stop, or its end."""
        return self._stopped.acquire(timeout=seconds)


@dataclass(slots=True)
class Stops:
    """A Database that stops its operation before it begins, before each statement and before it commits."""

    inner: Database
    actor: Actor | None = None

    def stop(self) -> None:
        if self.actor is not None:
            self.actor.stop()

    def write(self, work: Callable[[Transaction], T]) -> T:
        started: list[Transaction] = []

        def stopping(tx: Transaction) -> T:
            started.append(tx)
            self.inside(True)
            result = work(_Statements(tx, self))
            self.stop()
            return result

        while True:
            try:
                return self.inner.write(stopping)
            except DatabaseUnavailable as busy:
                if self.actor is None or started or not busy.transient:
                    raise  # A transaction that has begun must never meet the lock.
                self.actor.blocked = True
                self.stop()
            finally:
                self.inside(False)

    def inside(self, now: bool) -> None:
        if self.actor is not None:
            self.actor.inside = now

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self.inner.read(lambda tx: work(_Statements(tx, self)))

    def joined(self, connection: Any) -> Joined:
        return self.inner.joined(connection)

    @contextmanager
    def own_transaction(self) -> Iterator[tuple[Any, Callable[[], Transaction]]]:
        with self.inner.own_transaction() as (connection, same):
            yield connection, lambda: _Statements(same(), self)

    def wakeup(self) -> Wakeup:
        return self.inner.wakeup()

    def close(self) -> None:
        self.inner.close()


class _Statements:
    """A Transaction that stops before each statement."""

    def __init__(self, inner: Transaction, stops: Stops) -> None:
        self._inner, self._stops = inner, stops

    @property
    def now_us(self) -> int | None:
        return self._inner.now_us

    def rows(self, statement: str, args: Args, *, last: bool = False) -> list[Row]:
        self._stops.stop()
        return self._inner.rows(statement, args, last=last)

    def run(self, statement: str, args: Args, *, last: bool = False) -> int:
        self._stops.stop()
        return self._inner.run(statement, args, last=last)

    def run_many(self, statement: str, args: Sequence[Args], *, last: bool = False) -> int:
        self._stops.stop()
        return self._inner.run_many(statement, args, last=last)

    def claim(self, types: tuple[str, ...], args: Args) -> list[Row]:
        self._stops.stop()
        return self._inner.claim(types, args)

    def run_and_claim(self, statement: str, args: Args, types: tuple[str, ...], claim: Args) -> tuple[int, list[Row]]:
        self._stops.stop()
        return self._inner.run_and_claim(statement, args, types, claim)


@dataclass(slots=True)
class Course:
    """One interleaving as it went: at each turn who could move, and who did."""

    actors: list[Actor]
    choices: list[tuple[int, int]] = field(default_factory=list)  # (chosen, out of how many)

    def story(self) -> str:
        return "\n".join(
            f"{actor.name}: turns {actor.began} to {actor.ended}, replied {actor.error or actor.reply}"
            for actor in self.actors
        )


def run(actors: list[Actor], schedule: Sequence[int], waits: Callable[[Actor], bool]) -> Course:
    """Let all actors end, in the order that the schedule says; beyond its end the first that can move does."""
    course = Course(actors)
    try:
        _let_all_end(course, schedule, waits)
    finally:
        for actor in actors:
            actor.let_go()
    return course


def _let_all_end(course: Course, schedule: Sequence[int], waits: Callable[[Actor], bool]) -> None:
    actors, turn = course.actors, 0
    while not all(actor.done for actor in actors):
        ready = [actor for actor in actors if not (actor.done or actor.blocked or actor.waiting)]
        if not ready:  # The server has not yet woken those that waited for a lock which is free now.
            for other in actors:
                if other.waiting:
                    _settle(other, turn, _nobody_waits)
            ready = [actor for actor in actors if not (actor.done or actor.blocked or actor.waiting)]
            if all(actor.done for actor in actors):
                break
        assert ready, f"nobody can go on\n{course.story()}"
        chosen = schedule[turn] % len(ready) if turn < len(schedule) else 0
        course.choices.append((chosen, len(ready)))
        _move(ready[chosen], turn, waits)
        for other in actors:
            # What found the lock taken can do nothing before it is free.
            other.blocked = other.blocked and any(one.inside for one in actors if one is not other)
            if other.waiting:
                _settle(other, turn, waits)
        turn += 1


def _move(actor: Actor, turn: int, waits: Callable[[Actor], bool]) -> None:
    actor.began = turn if actor.began is None else actor.began
    actor.give_turn()
    _settle(actor, turn, waits)


def _settle(actor: Actor, turn: int, waits: Callable[[Actor], bool]) -> None:
    """Until the actor has stopped, has ended, or is seen to wait for a lock of another."""
    for _ in range(round(LONGEST / MOMENT)):
        if actor.stopped(MOMENT):
            actor.waiting = False
            if actor.done:
                actor.ended = turn
            return
        if waits(actor):
            actor.waiting = True
            return
    raise AssertionError(f"{actor.name} neither stops nor waits for a lock")


def _nobody_waits(actor: Actor) -> bool:
    return False


def next_schedule(choices: Sequence[tuple[int, int]]) -> list[int] | None:
    """The schedule after this one, depth first; None after the last."""
    for turn in range(len(choices) - 1, -1, -1):
        chosen, among = choices[turn]
        if chosen + 1 < among:
            return [choice for choice, _ in choices[:turn]] + [chosen + 1]
    return None
