"""What several connections do at once is what they could have done one after the other (linearizability).

For each pair or triple of operations every interleaving of their statements is tried; beyond that Hypothesis chooses
the state, the operations and the interleaving, and shrinks. The replies must be legal in some order that puts an
operation before another where it had ended before the other began, and the table must be what that order leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import permutations

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jobqueue
from model import Claim, Job, Rules, State, step
from model import calls as m
from tests.bridge import Bridge
from tests.clock import ManualClock
from tests.concurrency.schedule import Actor, Course, Stops, next_schedule, run
from tests.plugin import INTERLEAVINGS
from tests.tables import Table, table_of

NOW = 100
A, B = "00000000-0000-7000-8000-00000000000a", "00000000-0000-7000-8000-00000000000b"
BACKOFF = jobqueue.Backoff(base_us=5, cap_us=9, jitter=0)
PENDING = Job(
    seq=1, id=A, type="s", payload="null", status="pending", priority=0, attempts=0, max_attempts=2, fence=0,
    scheduled_at=10, created_at=10,
)  # fmt: skip
RUNNING = replace(
    PENDING, status="running", attempts=1, fence=1, started_at=20, worker="u", lease_expires_at=50, unique_key="k"
)
FAILED = replace(
    RUNNING, status="failed", error="e", scheduled_at=30, worker=None, lease_expires_at=None, unique_key=None
)
DEAD = replace(FAILED, status="dead", completed_at=30, scheduled_at=10, unique_key="k")
HOLDER = Claim(A, 1, "u")
LOOK = m.Sweep(frozenset({m.Look(A, 1, 50)}))
DEQUEUE = m.Dequeue("v", 10)
OF_TYPE = m.Dequeue("v", 10, frozenset({PENDING.type}))
NEW = m.Enqueue((m.New(type="t", payload="null", unique_key="k"),))


# Of two operations, and of three on SQLite, all interleavings are fewer.
MOST = 500


def other(job: Job) -> Job:
    """The same as a second job, of another type. Only the dead may want the key that the first one has."""
    key = job.unique_key if job.status == "dead" else None
    return replace(job, id=B, seq=2, type="t", unique_key=key)


CASES: dict[str, tuple[tuple[Job, ...], tuple[m.Call, ...]]] = {
    "sweep, complete": ((RUNNING,), (LOOK, m.Complete(HOLDER, "1"))),
    "sweep, extend": ((RUNNING,), (LOOK, m.Extend(HOLDER, 10))),
    "operator's sweep, extend": ((RUNNING,), (m.Sweep(), m.Extend(HOLDER, 10))),
    "sweep, sweep": ((RUNNING, other(RUNNING)), (m.Sweep(), LOOK)),
    "fail, cancel": ((RUNNING,), (m.Fail(HOLDER, "x"), m.Cancel(A))),
    "cleanup, requeue": ((DEAD,), (m.Cleanup(10, frozenset({"dead"})), m.Requeue(A))),
    "two dequeues": ((PENDING, other(FAILED)), (DEQUEUE, m.Dequeue("w", 10))),
    "dequeue of both, cancel": ((PENDING, other(FAILED)), (m.Dequeue("w", 10, n=2), m.Cancel(B))),
    "dequeue, dequeue of another type": ((PENDING, other(PENDING)), (DEQUEUE, m.Dequeue("w", 10, frozenset("t")))),
    "exchange, cancel": ((RUNNING, other(PENDING)), (m.Exchange((m.Fail(HOLDER, "x", 0),), OF_TYPE), m.Cancel(A))),
    "exchange, dequeue": ((RUNNING, other(PENDING)), (m.Exchange((m.Release(HOLDER),), DEQUEUE), m.Dequeue("w", 9))),
    "two enqueues of one key": ((), (NEW, NEW)),
    "two enqueues, one keeps": ((), (NEW, replace(NEW, keep=True))),
    "enqueue of a key, requeue": ((DEAD,), (NEW, m.Requeue(A))),
    "enqueue of a key, its holder completes": ((RUNNING,), (NEW, m.Complete(HOLDER))),
    "two requeues of one key": ((DEAD, other(DEAD)), (m.Requeue(A), m.Requeue(B))),
    "all or nothing, enqueue": ((), (m.Enqueue((m.New(payload="null"), *NEW.jobs)), NEW)),
    "settlements of both, sweep": (
        (RUNNING, other(RUNNING)),
        (m.Many((m.Complete(HOLDER), m.Complete(Claim(B, 1, "u")))), m.Sweep()),
    ),
    "requeue, dequeue": ((FAILED,), (m.Requeue(A), DEQUEUE)),
    "look, extend": ((RUNNING, other(RUNNING)), (m.Expired(), m.Extend(HOLDER, 90))),
    "get, settlements of both": ((RUNNING,), (m.Get(A), m.Many((m.Fail(HOLDER, "x"), m.Complete(HOLDER))))),
    "counts, exchange": ((RUNNING, other(PENDING)), (m.Counts(), m.Exchange((m.Complete(HOLDER),), OF_TYPE))),
    "sweep, cancel, complete": ((RUNNING,), (LOOK, m.Cancel(A), m.Complete(HOLDER))),
    "release, dequeue, extend": ((RUNNING,), (m.Release(HOLDER), DEQUEUE, m.Extend(HOLDER, 9))),
}


@dataclass(slots=True)
class Stage:
    """Three handles on one database, each with connections of its own."""

    backend: str
    bridges: list[Bridge]
    stops: list[Stops]
    table: Table
    waits: Callable[[Actor], bool]

    def play(self, state: State, calls: Sequence[m.Call], schedule: Sequence[int]) -> Course:
        """One interleaving; asserts that it is linearizable."""
        self.table.rewrite(self.table.read(), state.jobs)
        actors = []
        for index, call in enumerate(calls):
            asked = self.bridges[index]
            actors.append(Actor(f"{index}: {call}", partial(asked.ask, state, call, NOW)))
            self.stops[index].actor = actors[-1]
        course = run(actors, schedule, self.waits)
        for actor in actors:
            if actor.error is not None:
                raise AssertionError(f"{actor.name} raised\n{course.story()}") from actor.error
        rows = self.table.read()
        found = list(self.orders(state, calls, course))
        shown = "\n".join(map(str, rows))
        assert found, f"no order of these replies is legal:\n{course.story()}\nthe table:\n{shown}"
        assert unnumbered(rows) in [unnumbered(end.jobs) for end in found], (
            f"no order leaves this table:\n{course.story()}\nthe table:\n{shown}"
        )
        return course

    def orders(self, state: State, calls: Sequence[m.Call], course: Course) -> Iterator[State]:
        """The states that the legal orders of the replies leave."""
        # A dequeue on PostgreSQL passes over what another transaction has locked (section 6).
        unseen = None if self.backend == "postgres" else frozenset[str]()
        rules = Rules(base=5, cap=9, jitter=Fraction(0), unseen=unseen)
        for order in permutations(range(len(calls))):
            if any(_before(course.actors[late], course.actors[early]) for early, late in _pairs(order)):
                continue
            after: object = state
            for index in order:
                if isinstance(after, State):
                    after = step(after, calls[index], course.actors[index].reply, NOW, rules)
            if isinstance(after, State):
                yield after


def _before(one: Actor, another: Actor) -> bool:
    assert one.ended is not None
    assert another.began is not None
    return one.ended < another.began


def _pairs(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((order[i], order[j]) for i in range(len(order)) for j in range(i + 1, len(order)))


def unnumbered(jobs: frozenset[Job] | tuple[Job, ...]) -> list[Job]:
    """By seq, each seq replaced by its rank: a database may leave numbers out."""
    return [replace(job, seq=rank) for rank, job in enumerate(sorted(jobs, key=lambda job: job.seq))]


@contextmanager
def staged(backend: str, url: str) -> Iterator[Stage]:
    with ExitStack() as stack:
        bridges, stops = [], []
        table: Table | None = None
        for number in range(3):
            clock = ManualClock()
            # On SQLite a transaction that finds the lock taken gives up at once: the schedule says when it tries again.
            options = {"busy_timeout": 0} if backend == "sqlite" else {}
            name = url if backend == "sqlite" else f"{url}&application_name={number}"
            opened = stack.enter_context(jobqueue.Queue.open(name, clock=clock, **options))  # type: ignore[arg-type]
            table = table or stack.enter_context(closing(table_of(backend, url)))
            stops.append(Stops(opened.database))
            queue = jobqueue.Queue(stops[-1], clock=clock, backoff=BACKOFF)
            bridges.append(Bridge(queue, table, clock, remember=False))
        assert table is not None
        bridges[0].queue.enqueue_many([{"type": "t"}] * 3)  # The next seq is beyond those of the states put there.
        waits = stack.enter_context(observer(backend, url))
        yield Stage(backend, bridges, stops, table, waits)


@contextmanager
def observer(backend: str, url: str) -> Iterator[Callable[[Actor], bool]]:
    """Tells whether an actor waits for a lock in the server. On SQLite nobody does."""
    if backend == "sqlite":
        yield lambda actor: False
        return
    with psycopg.connect(url, autocommit=True) as connection:
        query = "select 1 from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
        yield lambda actor: connection.execute(query, [actor.name.partition(":")[0]]).fetchone() is not None


@pytest.mark.parametrize("name", CASES)
def test_every_interleaving_is_linearizable(
    name: str, backend: str, url: str, record_property: Callable[[str, object], None]
) -> None:
    jobs, calls = CASES[name]
    played = 0
    with staged(backend, url) as stage:
        schedule: list[int] | None = []
        while schedule is not None and played < MOST:
            course = stage.play(State(jobs), calls, schedule)
            schedule = next_schedule(course.choices)
            played += 1
    record_property(f"{INTERLEAVINGS}{backend}", played)


any_call = st.sampled_from(sorted({call for _, calls in CASES.values() for call in calls}, key=str))
any_state = st.sampled_from(
    [
        (PENDING, other(RUNNING)), (RUNNING, other(PENDING)), (RUNNING, other(DEAD)), (DEAD, other(RUNNING)),
        (FAILED, other(PENDING)), (DEAD, other(DEAD)), (RUNNING, other(RUNNING)), (RUNNING,),
    ]
)  # fmt: skip


def test_any_interleaving_of_any_three_operations_is_linearizable(backend: str, url: str) -> None:
    with staged(backend, url) as stage:

        @settings(max_examples=settings().max_examples // (1 if backend == "sqlite" else 2))
        @given(any_state, st.lists(any_call, min_size=2, max_size=3), st.lists(st.integers(0, 2), max_size=20))
        def play(jobs: tuple[Job, ...], calls: list[m.Call], schedule: list[int]) -> None:
            stage.play(State(jobs), calls, schedule)

        play()
