"""K11, values: what cannot be stored is refused at the call, the same on both backends; what a handler left behind is
recorded whatever it is; a document that was spoilt ends its own job and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from jobqueue import Complete, Fail, InvalidArgument, Lost, Queue, Release, Status, values
from jobqueue.values import ERROR_LIMIT
from tests.clock import ManualClock
from tests.conftest import OpenQueue
from tests.faults import actors
from tests.faults.conftest import Hire
from tests.faults.scene import change, claim, row, until

UNSTORABLE: dict[str, tuple[Any, str]] = {
    "nan": ({"a": [1, float("nan")]}, r"\['a'\]\[1\]"),
    "infinity": (float("inf"), "inf"),
    "a key that is a number": ({1: 2}, "key"),
    "a key with NUL": ({"k\0": 1}, "NUL"),
    "a set": ([{1}], r"\[0\]"),
    "bytes": ({"a": {"b": b"x"}}, r"\['a'\]\['b'\]"),
    "a date": (date(2030, 1, 1), "date"),
    "a datetime": ([datetime(2030, 1, 1, tzinfo=UTC)], "datetime"),
    "a decimal": (Decimal("1.5"), "Decimal"),
    "a UUID": (UUID(int=1), "UUID"),
    "a tuple": ((1, 2), "tuple"),
    "a NUL": ("x\0y", "NUL"),
    "a surrogate": ({"a": "\ud800"}, "surrogate"),
    "a surrogate in a key": ({"\udcff": 1}, "surrogate"),
    "more digits than Python prints": (10**5000, "JSON"),
    "an object": (object(), "object"),
}

STORABLE: list[Any] = [
    2**70, -0.0, 10**400, 1e308, 5e-324, "\U0001f600 é \u2028", "x" * 1_000_000, json.loads("[" * 200 + "]" * 200),
    {"": {}, "a b": [None, True, False, [], ""]}, "\x01\x1f\x7f", "\ufffe\uffff", 0.1 + 0.2, [[]], {"b": 1, "a": 2},
]  # fmt: skip


@pytest.mark.parametrize("what", UNSTORABLE)
def test_b43_finished_work_whose_result_cannot_be_stored_is_not_run_again(
    queue: Queue, clock: ManualClock, what: str
) -> None:
    result, named = UNSTORABLE[what]
    id = queue.enqueue("t")
    with pytest.raises(InvalidArgument, match=named):
        queue.complete(claim(queue), result)
    view = row(queue, id)
    assert (view.status, view.result, view.completed_at is not None) == (Status.DEAD, None, True)
    assert (view.error or "").startswith("completed, but its result cannot be stored: result")
    clock.advance(3600)
    assert queue.dequeue() is None


@pytest.mark.parametrize("what", ["nan", "bytes", "a NUL"])
def test_b43_the_other_ways_to_complete_answer_the_same(queue: Queue, what: str) -> None:
    result, named = UNSTORABLE[what]
    ids = queue.enqueue_many([{"type": "t"} for _ in range(4)])
    one, two, three, _ = queue.dequeue_many(4)
    with pytest.raises(InvalidArgument, match=named), queue.completing(three, result):
        raise AssertionError("refused before anything is written")
    assert row(queue, three.id).status is Status.RUNNING
    replies = queue.complete_many([(one, result), (two, "good"), (one, "again")])
    assert [getattr(reply, "status", None) for reply in replies] == [Status.DEAD, Status.COMPLETED, None]
    assert queue.settle_many([Complete(three, result)])[0] != Lost()
    assert [row(queue, id).status for id in ids] == [Status.DEAD, Status.COMPLETED, Status.DEAD, Status.RUNNING]


@pytest.mark.parametrize("what", UNSTORABLE)
def test_b45_b115_u1_a_payload_that_cannot_be_stored_is_refused_with_its_path(queue: Queue, what: str) -> None:
    payload, named = UNSTORABLE[what]
    with pytest.raises(InvalidArgument, match=f"payload.*{named}|{named}.*payload"):
        queue.enqueue("t", payload)
    with pytest.raises(InvalidArgument):
        queue.enqueue_many([{"type": "t"}, {"type": "t", "payload": payload}])
    assert sum(queue.counts().values()) == 0


@pytest.mark.parametrize("index", range(len(STORABLE)))
def test_b115_any_other_payload_and_result_reads_back_equal(queue: Queue, index: int) -> None:
    value = STORABLE[index]
    id = queue.enqueue("t", value)
    job = claim(queue)
    queue.complete(job, job.payload)
    view = row(queue, id)
    for read in (job.payload, view.payload, view.result):
        assert read == value
        assert str(read)[:100] == str(value)[:100] if not isinstance(value, int) else type(read) is int
    assert repr(row(queue, queue.enqueue("t", -0.0)).payload) == "-0.0"


ERRORS = {
    "NUL": ("a\0b", "a\ufffdb"),
    "a surrogate": ("\udcff\ud800", "\ufffd\ufffd"),
    "16 million characters": ("x" * 16_000_000, "x" * ERROR_LIMIT),
    "wide characters": ("\U0001f600" * 20_000, "\U0001f600" * ERROR_LIMIT),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("what", ERRORS)
def test_b44_b45_u1_recording_a_failure_cannot_fail(queue: Queue, clock: ManualClock, what: str) -> None:
    """In every way to say it: alone, for many, for good, in a settlement that the caller made."""
    text, stored = ERRORS[what]
    ids = queue.enqueue_many([{"type": "t"} for _ in range(5)])
    jobs = queue.dequeue_many(5)
    queue.fail(jobs[0], text)
    queue.fail(jobs[1], ValueError(text))
    queue.fail_many([(jobs[2], text)])
    queue.settle_many([Fail(jobs[3], text)])
    queue.exchange([Fail(jobs[4], text, for_good=True)], 0, None)
    assert [row(queue, id).error for id in ids] == [stored] * 5
    assert [row(queue, id).attempts for id in ids] == [1] * 5
    assert queue.counts()[Status.RUNNING] == 0


@pytest.mark.parametrize("delay_us", [-1, -(10**12), 10**18, 2**70, 1.5, float("nan"), "1", True])
def test_b78_a_settlement_made_by_hand_with_an_absurd_delay_is_refused(queue: Queue, delay_us: Any) -> None:
    queue.enqueue_many([{"type": "t"}, {"type": "t"}])
    one, two = queue.dequeue_many(2)
    for settlement in (Fail(two, "e", delay_us=delay_us), Release(two, delay_us=delay_us)):
        with pytest.raises(InvalidArgument, match="delay"):
            queue.settle_many([Complete(one), settlement])
    assert queue.counts()[Status.RUNNING] == 2


@pytest.mark.parametrize("text", ["type", "key", "worker"])
@pytest.mark.parametrize("value", ["\ud800", "a\0b", "", "x" * 501])
def test_u1_names_with_what_cannot_be_stored_are_refused(queue: Queue, text: str, value: str) -> None:
    calls: dict[str, list[Callable[[], object]]] = {
        "type": [lambda: queue.enqueue(value), lambda: queue.dequeue(value), lambda: queue.list(type=value)],
        "key": [lambda: queue.enqueue("t", unique_key=value), lambda: queue.list(unique_key=value)],
        "worker": [lambda: queue.dequeue(worker=value)],
    }
    for call in calls[text]:
        with pytest.raises(InvalidArgument):
            call()
    assert sum(queue.counts().values()) == 0


SPOILT = {
    "not JSON": "'{bad'",
    "empty": "''",
    "a list instead of an object": "'[]'",
    "not UTF-8": "cast(x'fffe' as text)",
    "not UTF-8 in a string": "cast(x'22ff22' as text)",
    "a blob": "x'80'",
    "nested without end": f"'{'[' * 100_000}'",
    "a number of too many digits": f"'{'9' * 5000}'",
    "long": "'\"' || replace(hex(zeroblob(SIZE)), '00', 'xx') || '\"'",
}


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_b76_a_spoilt_payload_ends_its_own_job_and_the_next_are_served(
    tmp_path: Path, hire: Hire, full: bool, mode: Any
) -> None:
    """By hand, past SQLite's lack of a JSON type; in every mode, for only text crosses to a handler's process."""
    path = str(tmp_path / "queue.db")
    with Queue.open(path, backoff=actors.AT_ONCE) as queue:
        spoilt = {what: queue.enqueue(what, {}, max_attempts=2, priority=1) for what in SPOILT}
        for what, value in SPOILT.items():
            text = value.replace("SIZE", "15000000" if full else "100000")
            change("sqlite", path, f"update jobs set payload = {text} where type = '{what}'")
        good = queue.enqueue_many([{"type": "good", "payload": {}} for _ in range(10)])
        worker = hire(queue, actors.HANDLERS, mode=mode)
        until(lambda: queue.counts()[Status.DEAD] == len(SPOILT))
        until(lambda: all(row(queue, id).result == "done" for id in good))
        worker.stop()
        views = {what: row(queue, id) for what, id in spoilt.items()}
        assert {what: view.attempts for what, view in views.items()} == dict.fromkeys(SPOILT, 2)
        assert "JSONDecodeError" in (views["not JSON"].error or "")
        assert len(queue.list(limit=100, payloads=True)) == len(SPOILT) + 10
        assert {"§8: payload is not JSON"} == {what for _, what in queue.audit()}


def test_b76_postgresql_refuses_to_spoil_a_payload(postgres_url: str) -> None:
    with Queue.open(postgres_url) as queue:
        id = queue.enqueue("t", {})
        for value in ("'{bad'", "''", f"'{'[' * 100_000}'"):
            with pytest.raises(psycopg.Error):
                change("postgres", postgres_url, f"update jobs set payload = {value}")
        change("postgres", postgres_url, "update jobs set payload = '[]'")
        assert row(queue, id).payload == []


def test_b76_a_spoilt_result_is_shown_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "queue.db")
    with Queue.open(path) as queue:
        ids = queue.enqueue_many([{"type": str(number)} for number in range(3)])
        for job in queue.dequeue_many(3):
            queue.complete(job, [])
        for number, value in enumerate(("'{bad'", "cast(x'22ff22' as text)", f"'{'[' * 100_000}'")):
            change("sqlite", path, f"update jobs set result = {value} where type = '{number}'")
        assert [str(row(queue, id).result)[:4] for id in ids] == ["{bad", '"\ufffd"', "[[[["]
        assert len(queue.list(payloads=True)) == 3


def test_b43_a_value_larger_than_a_database_holds_is_refused_before_it_is_sent(
    open_live: OpenQueue, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the limit is: a worker must not fall over such a result, for then the next would, and the next."""
    queue = open_live()
    monkeypatch.setattr(values, "JSON_LIMIT", 100)
    with pytest.raises(InvalidArgument, match=r"payload.*100"):
        queue.enqueue("t", "x" * 99)
    id = queue.enqueue("t", "x" * 98)
    queue.complete(claim(queue), "y" * 98)
    assert row(queue, id).result == "y" * 98
    ids = [queue.enqueue("t"), queue.enqueue("t")]
    hire(queue, lambda job: "y" * 99)
    until(lambda: all(row(queue, id).status is Status.DEAD for id in ids))
    assert "100" in (row(queue, ids[0]).error or "")
