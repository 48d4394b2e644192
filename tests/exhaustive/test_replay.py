"""Every edge of the model's graph, and every operation that a state does not allow, on the real database.

The state is put into the table by rewriting rows, the call goes through the public API, and then the reply is judged
by the model and the whole table compared, every column of it. How many edges were replayed is printed at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace as with_

import pytest

from jobqueue import Backoff
from model import State, step
from model.calls import Table as ReadTable
from tests.bridge import Bridge
from tests.clock import ManualClock
from tests.conftest import BACKENDS, OpenQueue
from tests.exhaustive.scopes import SCOPES, Move, Scope, explore, plain
from tests.plugin import EDGES
from tests.tables import Table, table_of


class Ids(ManualClock):
    """A clock from whose entropy the next job ids follow: those that the call names, in order."""

    def __init__(self) -> None:
        super().__init__(now_us=0)
        self._next: list[str] = []

    def plan(self, move: Move) -> None:
        self._next = [new.id for new in getattr(move[0], "jobs", ()) if new.id]

    def entropy(self, size: int) -> bytes:
        return bytes.fromhex(self._next.pop(0).replace("-", ""))[6:][:size] if self._next else super().entropy(size)


class Replay:
    """One table and what it holds, so that only what a call changed needs to be put back."""

    def __init__(self, scope: Scope, table: Table, bridge: Bridge, clock: Ids) -> None:
        self.scope, self.table, self.bridge, self.clock = scope, table, bridge, clock
        self.edges = 0

    def put(self, state: State) -> None:
        there, wanted = self.bridge.rows, frozenset(state.jobs)
        if there != wanted:
            self.table.rewrite(there - wanted, wanted - there)
            self.bridge.rows = wanted

    def edge(self, state: State, move: Move, legal: dict[object, State]) -> None:
        """One call in one state: its reply is an edge of the graph, judged in full, and the table is what follows."""
        call, now = move
        self.put(state)
        self.clock.plan(move)
        result = self.bridge.do(state, call, now)
        judged = step(state, call, result, now, self.scope.rules)
        assert isinstance(judged, State), f"{judged}\n{self._story(state, move, result)}"
        assert plain(result) in legal, f"not an edge of the graph\n{self._story(state, move, result)}"
        compared = step(judged, ReadTable(), self.bridge.rows, now)
        assert isinstance(compared, State), f"{compared}\n{self._story(state, move, result)}"
        after = legal[plain(result)]
        assert unnumbered(judged) == unnumbered(after), f"{after} is the graph's\n{self._story(state, move, result)}"
        self.edges += 1

    def _story(self, state: State, move: Move, result: object) -> str:
        rows = "\n  ".join(map(str, state.jobs)) or "empty"
        after = "\n  ".join(map(str, sorted(self.bridge.rows, key=lambda job: job.seq))) or "empty"
        return f"before:\n  {rows}\n{move[0]}\nat {move[1]} replied {result}\nthe table is then:\n  {after}"


def unnumbered(state: State) -> State:
    """The state with each seq replaced by its rank: a database may leave numbers out."""
    return with_(state, jobs=tuple(with_(job, seq=rank) for rank, job in enumerate(state.jobs)))


def replayed(scope: Scope, backend: str, url: str, open_queue: OpenQueue) -> int:
    """Replay a whole scope; the number of edges."""
    clock = Ids()
    backoff = Backoff(base_us=scope.base, cap_us=scope.cap, jitter=0)
    queue = open_queue(clock=clock, backoff=backoff, synchronous="normal")
    # The next seq must exceed those of the states that are put into the table.
    queue.enqueue_many([{"type": "t"}] * 10)
    with closing(table_of(backend, url)) as table:
        table.rewrite(table.read(), [])
        replay = Replay(scope, table, Bridge(queue, table, clock, remember=False), clock)
        for state, moves in explore(scope).edges.items():
            for move, legal in moves.items():
                replay.edge(state, move, legal)
    return replay.edges


CASES = [
    pytest.param(backend, scope, id=f"{backend}-{scope.name.replace(',', '').replace(' ', '-')}")
    for backend in BACKENDS
    for scope in SCOPES
    if scope.small or backend == "sqlite"
]


@pytest.mark.parametrize(("backend", "scope"), CASES, indirect=["backend"])
def test_every_edge_and_every_refusal_is_what_the_model_says(
    scope: Scope, backend: str, url: str, open_queue: OpenQueue, record_property: Callable[[str, object], None]
) -> None:
    record_property(f"{EDGES}{backend}", replayed(scope, backend, url, open_queue))
