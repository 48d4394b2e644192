"""What section 8 refuses is refused at the call, by every form of it, and nothing is stored or settled."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from jobqueue import DuplicateKey
from model import Claim, Job, State, refused
from model import calls as m
from model.refusals import LONGEST
from tests.bridge import Bridge
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.exhaustive.scopes import A
from tests.tables import caller_of, table_of

RUNNING = Job(
    seq=1, id=A, type="t", payload="null", status="running", priority=0, attempts=1, max_attempts=2, fence=1,
    scheduled_at=0, created_at=0, started_at=0, worker="u", lease_expires_at=9,
)  # fmt: skip
HELD = Claim(A, 1, "u")
NEW, ASKED = m.New(payload="null"), m.Dequeue("u", 1)
BAD_NEW = [
    replace(NEW, **bad)
    for bad in (
        {"scheduled_at": 1, "delay": 1}, {"delay": -1}, {"delay": LONGEST + 1}, {"timeout": 0},
        {"timeout": LONGEST + 1}, {"type": ""}, {"type": "x" * 201}, {"type": "a\0"}, {"type": "\ud800"},
        {"unique_key": ""},
        {"unique_key": "x" * 501}, {"unique_key": "a\0"}, {"priority": -(2**15) - 1}, {"priority": 2**15},
        {"priority": True}, {"max_attempts": 0}, {"max_attempts": 2**31}, {"max_attempts": True},
    )
]  # fmt: skip
BAD_ASKED = [replace(ASKED, lease=0), replace(ASKED, lease=LONGEST + 1)]
BAD_SETTLEMENTS: list[m.Settlement] = [
    *(m.Fail(HELD, "e", delay) for delay in (-1, LONGEST + 1)),
    *(m.Release(HELD, delay=delay) for delay in (-1, LONGEST + 1)),
]
CALLS: list[m.Call] = [
    *(m.Enqueue((new,)) for new in BAD_NEW),
    *(m.Enqueue((NEW, new)) for new in BAD_NEW),
    *BAD_ASKED,
    *BAD_SETTLEMENTS,
    *(m.Many((m.Complete(HELD), bad)) for bad in BAD_SETTLEMENTS),
    *(m.Exchange((bad,), ASKED) for bad in BAD_SETTLEMENTS),
    *(m.Exchange((m.Complete(HELD),), bad) for bad in BAD_ASKED),
    m.Exchange((m.Complete(HELD),), replace(ASKED, types=frozenset())),
    *(m.Extend(HELD, lease) for lease in (0, LONGEST + 1)),
    *(m.Many((m.Extend(HELD, lease),)) for lease in (0, LONGEST + 1)),
    m.Cleanup(-1),
    *(m.Cleanup(0, frozenset({status, "dead"})) for status in ("pending", "running", "failed")),
]


def test_every_call_beyond_the_bounds_is_refused_and_changes_nothing(
    backend: str, url: str, open_queue: OpenQueue
) -> None:
    clock = ManualClock()
    queue = open_queue(clock=clock)
    state = State((RUNNING,))
    accepted = []
    with closing(table_of(backend, url)) as table:
        bridge = Bridge(queue, table, clock, remember=False)
        for call in CALLS:
            assert refused(call), call
            table.rewrite(table.read(), state.jobs)
            if bridge.do(state, call, 5) != m.Refused() or bridge.rows != frozenset(state.jobs):
                accepted.append(call)
    assert accepted == []


def test_g18_a_refused_call_leaves_nothing_in_the_callers_transaction(
    backend: str, url: str, open_queue: OpenQueue
) -> None:
    queue = open_queue()
    with closing(caller_of(backend, url)()) as connection:
        kept = queue.enqueue("t", unique_key="k", transaction=connection)
        with pytest.raises(DuplicateKey):
            queue.enqueue_many([{"type": "t"}, {"type": "t", "unique_key": "k"}], transaction=connection)
        connection.commit()
    assert [view.id for view in queue.list()] == [kept]


@pytest.mark.parametrize("many", [False, True])
def test_a_bound_itself_is_accepted(many: bool, backend: str, url: str, open_queue: OpenQueue) -> None:
    clock = ManualClock()
    bounds = [
        {"delay": 0}, {"delay": LONGEST}, {"timeout": 1}, {"timeout": LONGEST}, {"type": "x" * 200},
        {"scheduled_at": 0}, {"unique_key": "x" * 500}, {"priority": -(2**15)}, {"priority": 2**15 - 1},
        {"max_attempts": 2**31 - 1},
    ]  # fmt: skip
    new = [replace(NEW, **bound) for bound in bounds]  # type: ignore[arg-type]
    with closing(table_of(backend, url)) as table:
        bridge = Bridge(open_queue(clock=clock), table, clock, remember=False)
        for call in [m.Enqueue(tuple(new))] if many else [m.Enqueue((one,)) for one in new]:
            assert isinstance(bridge.do(State(), call, 5), tuple), call
    assert len(bridge.rows) == len(bounds)
