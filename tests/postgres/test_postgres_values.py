"""What is stored reads back equal, as on SQLite; what cannot be stored is refused first (B43, B45, B76, B115)."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobqueue import InvalidArgument, JobView, Status
from jobqueue.postgres_errors import mapped
from jobqueue.types import Release
from tests.postgres.conftest import OpenPostgres, OpenSession

NESTED: Any = 1
for _ in range(200):
    NESTED = [NESTED]
VALUES = [
    *(-0.0, 0.1, 1e-320, 1.7976931348623157e308, 2**70, -(2**70), "", "'\";--%s%(x)s{queue}", "\U0001f600\u2028"),
    *(NESTED, {"": None, "a b": [True, False]}, {"z": 1, "a": 2}, "x" * 1_000_000),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_b115_payload_and_result_read_back_equal(open_postgres: OpenPostgres, value: Any) -> None:
    queue = open_postgres()
    id = queue.enqueue("t", value)
    job = queue.dequeue()
    assert job is not None
    queue.complete(job, value)
    view = queue.get(id)
    assert view is not None
    for found in (job.payload, view.payload, view.result):
        assert found == value
        assert not isinstance(value, float) or math.copysign(1, found) == math.copysign(1, value)
        assert not isinstance(value, dict) or list(found) == list(value)


ODD = {
    "datestyle": "SQL,DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
}


@pytest.mark.direct
def test_b115_values_are_the_same_in_sessions_that_write_them_otherwise(
    open_postgres: OpenPostgres, postgres_url: str
) -> None:
    """A role's or a database's defaults: what goes as text, first or last in a transaction, must not depend on them."""
    settings = "".join(f"-c{name}%3D{value}%20" for name, value in ODD.items())
    queue = open_postgres(url=postgres_url.replace("options=", f"options={settings}"))
    moment = datetime(2001, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
    values: list[Any] = ["a\\b'c\\\\", "\\'; --", 0.1, {"x": "\n"}]
    for value in values:
        text = str(value)
        id = queue.enqueue(text, value, scheduled_at=moment, timeout=1.5, unique_key=text)
        job = queue.dequeue(text, lease=timedelta(days=400, microseconds=7))
        assert job is not None
        assert (job.id, job.type, job.payload, job.scheduled_at) == (id, text, value, moment)
        assert job.lease_expires_at - job.started_at == timedelta(days=400, microseconds=7)
        assert queue.extend(job) == job.lease_expires_at
        done = queue.exchange([Release(job, delay_us=1)], 1, (text,))
        again = done.jobs[0] if done.jobs else queue.dequeue(text)
        assert again is not None
        queue.fail(again, text, delay=0)
        last = queue.dequeue(text, lease=0.000_001)
        assert last is not None
        [expired] = queue.expired()
        assert (expired.id, expired.lease_expires_at_us) == (id, last.lease_expires_at_us)
        assert [swept.id for swept in queue.sweep([expired])] == [id]
        assert queue.cancel(id)
        assert queue.requeue(id)
        view = queue.get(id)
        assert view is not None
        assert (view.payload, view.error, view.unique_key) == (value, "cancelled", text)
        assert queue.cancel(id)


@pytest.mark.parametrize("value", ["x\0y", {"k\0": 1}, "\ud800", math.nan, math.inf, {1: 2}, b"b", 1j])
def test_b43_b45_what_cannot_be_stored_is_refused_and_finished_work_is_kept(
    open_postgres: OpenPostgres, value: Any
) -> None:
    queue = open_postgres()
    with pytest.raises(InvalidArgument):
        queue.enqueue("t", value)
    assert queue.list() == []
    queue.enqueue("t")
    job = queue.dequeue()
    assert job is not None
    with pytest.raises(InvalidArgument):
        queue.complete(job, value)
    assert queue.counts()[Status.DEAD] == 1


@pytest.mark.parametrize("text", ["a\0b", "\udcff", "'; drop table jobs; --", "%s %(now)s", "x" * 50_000])
def test_b44_b45_any_error_text_is_recorded(open_postgres: OpenPostgres, text: str) -> None:
    queue = open_postgres()
    id = queue.enqueue("t", max_attempts=1)
    job = queue.dequeue()
    assert job is not None
    queue.fail(job, ValueError(text))
    view = queue.get(id)
    assert view is not None
    assert view.error is not None
    assert view.error[:5] == text[:5].replace("\0", "\ufffd").replace("\udcff", "\ufffd")


def test_longest_type_key_and_worker_of_the_widest_characters_fit_the_indexes(open_postgres: OpenPostgres) -> None:
    queue = open_postgres()
    queue.enqueue("\U0001f600" * 200, unique_key="\U0001f511" * 500)
    job = queue.dequeue(worker="\U0001f477" * 200)
    assert job is not None
    queue.complete(job)


def test_b76_a_document_that_is_not_what_it_was_is_shown_and_does_not_stop_the_queue(
    open_postgres: OpenPostgres, session: OpenSession
) -> None:
    """The json column refuses text that is not JSON, so a row changed by hand is JSON still."""
    queue, connection = open_postgres(), session(autocommit=True)
    queue.enqueue("t", {"a": 1})
    connection.execute("update jobs set payload = '[]'")
    job = queue.dequeue()
    assert job is not None
    assert job.payload == []


def test_an_error_of_the_driver_does_not_quote_the_row(open_postgres: OpenPostgres, session: OpenSession) -> None:
    open_postgres()
    row = "gen_random_uuid(), 't', 'lost', 0, 0, 1, 0, now(), now(), '\"secret\"'"
    columns = "id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, payload"
    with pytest.raises(psycopg.errors.CheckViolation, match="secret") as raised:
        session().execute(sql.SQL(f"insert into jobs ({columns}) values ({row})"))
    assert "secret" not in str(mapped(raised.value, "here"))


def test_a_batch_stores_every_kind_of_value_as_single_calls_do(open_postgres: OpenPostgres) -> None:
    queue = open_postgres()
    kinds: list[dict[str, Any]] = [
        {"type": 'a "quoted" \\ {type}, NULL', "payload": {"text": '\\" {} NULL ü 🙂\n'}, "unique_key": "NULL"},
        {"type": "due", "scheduled_at": datetime(2999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "timeout": 0.000001},
        {"type": "late", "delay": timedelta(days=3650), "priority": -32768, "timeout": timedelta(days=3650)},
        {"type": "soon", "delay": 0.000001, "priority": 32767, "max_attempts": 2**31 - 1},
    ]
    many = [queue.get(id) for id in queue.enqueue_many(kinds)]
    queue.cancel_many()
    single = [queue.get(queue.enqueue(**kind)) for kind in kinds]

    def told(view: JobView | None) -> dict[str, Any]:
        assert view is not None
        fields = {**asdict(view), "waits": view.scheduled_at - view.created_at if view.type != "due" else None}
        return {
            name: value for name, value in fields.items() if name not in ("id", "seq", "created_at", "scheduled_at")
        }

    assert [told(view) for view in many] == [told(view) for view in single]
    assert [view.scheduled_at for view in many if view and view.type == "due"] == [kinds[1]["scheduled_at"]]
