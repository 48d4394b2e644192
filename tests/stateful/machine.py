"""One machine over every operation: the real queue takes each step, the model judges its answer, the table is compared.

Several workers keep every claim that they were ever given, so most of what they say is stale. Instants are drawn
independently of each other (a job may be scheduled before it was made, a clock steps back), because what is always
equal in tests is what gets mixed up unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import jobqueue
from model import EMPTY, Claim, Rules, State, between, check, step
from model import calls as m
from tests.bridge import Bridge, text_of
from tests.clock import ManualClock
from tests.tables import Table, effects

RULES = Rules(base=3, cap=9, jitter=Fraction(1))
BACKOFF = jobqueue.Backoff(base_us=3, cap_us=9, jitter=1)
START = 1_000_000

few = st.integers(0, 6)
durations = st.integers(1, 6)
maybe_few = st.none() | few
instants = st.integers(-9, 12).map(lambda offset: START + offset)
types = st.sampled_from("stu")
workers = st.sampled_from("uvw")
keys = st.sampled_from([None, None, "k", "l"])
json_values: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, -1.5, "", "ü", [1, [None]], {"a": {"b": "c"}}])
results = json_values.map(lambda value: None if value is None else text_of(value))
errors = st.sampled_from(["", "e", "a\0b", "x" * 10_001])
statuses = st.sampled_from(["pending", "running", "completed", "failed", "dead"])


def jobs() -> st.SearchStrategy[m.New]:
    """A job; its schedule is an instant, a delay, or nothing."""
    when: st.SearchStrategy[dict[str, int]] = st.one_of(
        st.just({}), instants.map(lambda at: {"scheduled_at": at}), few.map(lambda delay: {"delay": delay})
    )
    return st.builds(
        lambda schedule, **given: m.New(**given, **schedule),
        when, type=types, payload=json_values.map(text_of), priority=st.integers(-1, 1), max_attempts=st.integers(1, 3),
        timeout=st.none() | durations, unique_key=keys,
    )  # fmt: skip


class QueueMachine(RuleBasedStateMachine):
    """Steps of one queue on one backend."""

    def __init__(
        self, open_queue: Callable[[ManualClock], jobqueue.Queue], table: Table, caller: Callable[[], Any]
    ) -> None:
        super().__init__()
        self.open_queue, self.table, self.caller = open_queue, table, caller
        self.clock = ManualClock()
        self.bridge = Bridge(open_queue(self.clock), table, self.clock, remember=True)
        self.now = START
        self.state: State = EMPTY
        self.claims: list[Claim] = []
        self.ids: list[str] = ["00000000-0000-7000-8000-000000000000"]
        self.looks: list[m.Look] = []

    @initialize()
    def empty(self) -> None:
        self.table.rewrite(self.table.read(), [])

    def take(self, call: m.Call) -> object:
        """One step: the call, its judgement, and what the workers remember of it."""
        result = self.bridge.do(self.state, call, self.now)
        self.judge(call, result)
        return result

    def judge(self, call: m.Call, result: object) -> None:
        after = step(self.state, call, result, self.now, RULES)
        assert isinstance(after, State), f"{after}\n{call} at {self.now} replied {result}"
        assert between(self.state, after) == []
        self.state = after
        if isinstance(result, tuple) and isinstance(call, m.Enqueue):
            self.ids += [one.id for one in result]
        claimed = result.claimed if isinstance(result, m.Exchanged) else result
        if isinstance(claimed, tuple) and isinstance(call, m.Dequeue | m.Exchange):
            self.claims += [job.claim for job in claimed]

    def teardown(self) -> None:
        self.bridge.queue.close()

    # What may be asked

    def a_claim(self, data: st.DataObject) -> Claim:
        """One of those that were given, oftenest the latest; now and then under another worker's name."""
        claim = data.draw(st.sampled_from([*self.claims[-6:], *self.claims[-1:] * 5]), label="claim")
        return data.draw(st.sampled_from([claim] * 7 + [Claim(claim.id, claim.fence, "x")]), label="worker")

    def a_settlement(self, data: st.DataObject) -> m.Settlement:
        return data.draw(self.settlement_of(self.a_claim(data)), label="settlement")

    def settlement_of(self, claim: Claim) -> st.SearchStrategy[m.Settlement]:
        held = st.just(claim)
        return st.one_of(
            st.builds(m.Complete, held, results),
            st.builds(m.Fail, held, errors, maybe_few, st.booleans()),
            st.builds(m.Release, held, st.booleans(), maybe_few),
        )

    def an_id(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.ids[-8:]), label="id")

    def some_jobs(self, data: st.DataObject) -> m.Where:
        """By ids, or by a filter; not both."""
        if data.draw(st.booleans()):
            return m.Where(ids=frozenset(data.draw(st.lists(st.sampled_from(self.ids), max_size=4))))
        status = data.draw(st.none() | statuses)
        wanted = None if status is None else frozenset({status})
        return m.Where(None, wanted, data.draw(st.none() | types), data.draw(keys))

    # Rules

    @rule(by=st.integers(-4, 9))
    def time_passes_or_is_set_back(self, by: int) -> None:
        self.now += by

    @rule(new=jobs(), keep=st.booleans())
    def enqueue(self, new: m.New, keep: bool) -> None:
        self.take(m.Enqueue((new,), keep))

    @rule(new=st.lists(jobs(), max_size=4), keep=st.booleans())
    def enqueue_many(self, new: list[m.New], keep: bool) -> None:
        self.take(m.Enqueue(tuple(new), keep))

    @rule(worker=workers, lease=durations, wanted=st.none() | st.frozensets(types, min_size=1), n=st.integers(1, 3))
    def dequeue(self, worker: str, lease: int, wanted: frozenset[str] | None, n: int) -> None:
        self.take(m.Dequeue(worker, lease, wanted, n))

    @rule(data=st.data(), new=st.lists(jobs(), max_size=3), worker=workers, n=st.integers(1, 3), takes=few)
    def some_work(self, data: st.DataObject, new: list[m.New], worker: str, n: int, takes: int) -> None:
        """What a queue is for: jobs come, are claimed, and most are settled by their holders."""
        for one in new:
            self.take(m.Enqueue((one,), keep=True))
        self.now += data.draw(few)
        claimed = self.take(m.Dequeue(worker, 4, None, n))
        self.now += takes
        for claim in self.claims[len(self.claims) - len(claimed) :] if isinstance(claimed, tuple) else ():
            if data.draw(st.integers(0, 2)):
                self.take(data.draw(self.settlement_of(claim)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        self.take(self.a_settlement(data))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), lease=durations)
    def extend(self, data: st.DataObject, lease: int) -> None:
        self.take(m.Extend(self.a_claim(data), lease))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), n=few)
    def settle_many(self, data: st.DataObject, n: int) -> None:
        self.take(m.Many(tuple(self.a_settlement(data) for _ in range(n))))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), n=few, lease=durations)
    def extend_many(self, data: st.DataObject, n: int, lease: int) -> None:
        self.take(m.Many(tuple(m.Extend(self.a_claim(data), lease) for _ in range(n))))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), n=few, worker=workers, lease=durations, size=st.integers(1, 3))
    def exchange(self, data: st.DataObject, n: int, worker: str, lease: int, size: int) -> None:
        settlements = tuple(self.a_settlement(data) for _ in range(n))
        wanted = data.draw(st.none() | st.frozensets(types))
        self.take(m.Exchange(settlements, m.Dequeue(worker, lease, wanted, size)))

    @rule()
    def look(self) -> None:
        seen = self.take(m.Expired())
        assert isinstance(seen, frozenset)
        self.looks += sorted(seen, key=lambda look: look.id)

    @precondition(lambda self: self.looks)
    @rule(data=st.data())
    def sweep_what_was_looked_at(self, data: st.DataObject) -> None:
        looked = {look.id: look for look in data.draw(st.lists(st.sampled_from(self.looks[-6:])))}
        self.take(m.Sweep(frozenset(looked.values())))

    @rule()
    def sweep_at_once(self) -> None:
        self.take(m.Sweep())

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.take(m.Cancel(self.an_id(data)))

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        self.take(m.Requeue(self.an_id(data)))

    @rule(data=st.data(), form=st.sampled_from([m.CancelWhere, m.RequeueWhere]))
    def in_bulk(self, data: st.DataObject, form: type[m.CancelWhere | m.RequeueWhere]) -> None:
        self.take(form(self.some_jobs(data)))

    @rule(retention=few, which=st.sampled_from([("completed",), ("dead",), ("completed", "dead"), ("failed",)]))
    def cleanup(self, retention: int, which: tuple[str, ...]) -> None:
        self.take(m.Cleanup(retention, frozenset(which)))

    @rule(data=st.data(), limit=st.integers(1, 4))
    def read(self, data: st.DataObject, limit: int) -> None:
        self.take(m.Get(self.an_id(data)))
        where = self.some_jobs(data)
        self.take(m.List(m.Where(None, where.statuses, where.type, where.unique_key), limit))

    # Transactions and crashes

    @rule(data=st.data(), commits=st.booleans())
    def in_the_callers_transaction(self, data: st.DataObject, commits: bool) -> None:
        """What happens in the caller's transaction happens when, and only if, it commits."""
        connection = self.caller()
        given = [self.joinable(data) for _ in range(data.draw(st.integers(1, 3)))]
        replies = [(call, self.bridge.ask(self.state, call, self.now, connection)) for call in given]
        if commits:
            connection.commit()
            self.bridge.rows = self.table.read()
            for call, reply in replies:
                self.judge(call, self.bridge.observed(call, reply))
        else:
            connection.rollback()
        connection.close()

    def joinable(self, data: st.DataObject) -> m.Call:
        """A call that can join; a failure gives its delay, for a later call may change what the table tells."""
        calls: list[Callable[[], m.Call]] = [
            lambda: m.Enqueue((data.draw(jobs()),), data.draw(st.booleans())),
            lambda: m.Enqueue(tuple(data.draw(st.lists(jobs(), min_size=2, max_size=3)))),
            lambda: m.Cancel(self.an_id(data)),
            lambda: m.Requeue(self.an_id(data)),
        ]
        if self.claims:
            calls += [
                lambda: m.Complete(self.a_claim(data), "[1]"),
                lambda: m.Fail(self.a_claim(data), "e", data.draw(few)),
                lambda: m.Release(self.a_claim(data), data.draw(st.booleans())),
                lambda: m.Extend(self.a_claim(data), data.draw(durations)),
            ]
        return data.draw(st.sampled_from(calls))()

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), breaks=st.booleans())
    def completing(self, data: st.DataObject, breaks: bool) -> None:
        """The caller's write and the completion: both, or neither."""
        claim, before = self.a_claim(data), effects(self.caller)
        call, result = m.Complete(claim, "[1]"), m.Settled("completed")
        self.clock.set(self.now)
        self.bridge.before = {job.id: job for job in self.state.jobs}
        try:
            with self.bridge.queue.completing(self.bridge.job(claim), [1]) as connection:
                connection.execute("insert into effects values (1)")
                if breaks:
                    raise _Broken
        except _Broken:
            assert effects(self.caller) == before
        except jobqueue.LeaseLost:
            assert effects(self.caller) == before
            self.judge(call, m.LeaseLost())
        else:
            assert effects(self.caller) == before + 1
            self.judge(call, result)
        self.bridge.rows = self.table.read()

    @rule(data=st.data())
    def crash_and_open_again(self, data: st.DataObject) -> None:
        """A process dies in the middle of a transaction, another one opens the queue. Claims of both still count."""
        connection = self.caller()
        self.bridge.ask(self.state, self.joinable(data), self.now, connection)
        connection.close()
        self.bridge.queue.close()
        self.bridge.queue = self.open_queue(self.clock)
        self.bridge.rows = self.table.read()

    @invariant()
    def the_table_is_the_models_state(self) -> None:
        after = step(self.state, m.Table(), self.table.read(), self.now)
        assert isinstance(after, State), str(after)
        assert check(self.state) == []
        self.judge(m.Counts(), self.bridge.ask(self.state, m.Counts(), self.now))


class _Broken(Exception):
    """The caller's block raised."""
