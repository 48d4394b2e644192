"""What may be stored (spec §8): every bad value is refused with its path, every good one reads back equal."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import InvalidArgument, values

storable_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
storable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text,
    lambda inner: st.lists(inner) | st.dictionaries(storable_text, inner),
    max_leaves=20,
)


class Level(IntEnum):
    LOW = 1


@given(storable)
def test_s8_what_is_storable_reads_back_equal(value: object) -> None:
    assert json.loads(values.json_text(value, "payload")) == value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "payload is nan"),
        ({"a": [1, float("inf")]}, "payload['a'][1] is inf"),
        ({"a": "x\0y"}, "payload['a'] contains a NUL"),
        ({"a": "\ud800"}, "payload['a'] contains a NUL or a lone surrogate"),
        ({"k\0": 1}, "payload['k\\x00'] is a key"),
        ({1: 2}, "payload[1] is a key of type int"),
        ({"a": {2: 3}}, "payload['a'][2] is a key of type int"),
        ([b"x"], "payload[0] is a bytes"),
        ([(1, 2)], "payload[0] is a tuple"),
        ([{1}], "payload[0] is a set"),
        ({"d": date(2025, 1, 1)}, "payload['d'] is a date"),
        ({"d": datetime(2025, 1, 1, tzinfo=UTC)}, "payload['d'] is a datetime"),
        ([Decimal("1.5")], "payload[0] is a Decimal"),
        ([uuid4()], "payload[0] is a UUID"),
        (object(), "payload is a object"),
        pytest.param(10**5000, "payload cannot be stored as JSON", id="too-many-digits"),
    ],
)
def test_s8_what_cannot_be_stored_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        values.json_text(value, "payload")
    assert path in str(refused.value)


def test_s8_deep_nesting_is_stored_or_refused_never_a_crash() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    assert json.loads(values.json_text(deep, "payload")) == deep
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        values.json_text(deep, "payload")


def test_s8_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidArgument, match="contains itself"):
        values.json_text(loop, "payload")


def test_s8_numbers_keep_their_exact_value() -> None:
    for number in (2**70, -(2**63), -0.0, 1e308, 5e-324, 0.1, Level.LOW, 10**400):
        text = values.json_text([number], "payload")
        assert repr(json.loads(text)[0]) == repr(number + 0 if isinstance(number, int) else number)


@pytest.mark.parametrize("name", ["jobs", "a", "_q", "select", "order", "q_1", "x" * 40])
def test_s8_good_queue_names(name: str) -> None:
    assert values.queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1q",
        "Jobs",
        "my-queue",
        "a.b",
        'x"; drop table y; --',
        "x" * 41,
        "q\0",
        "ü",
        "😀",
        "q\n",
        "sqlite_x",
        "jobqueue_x",
        7,
        None,
    ],
)
def test_s8_any_other_queue_name_is_one_clear_error(name: object) -> None:
    with pytest.raises(InvalidArgument, match="queue name"):
        values.queue_name(name)


@pytest.mark.parametrize(
    "value", [-1, -(10**12), float("nan"), float("inf"), 10**18, timedelta.max, "3", None, True, timedelta(-1)]
)
def test_s8_a_bad_delay_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument):
        values.duration(value, "delay", zero=True)


@pytest.mark.parametrize(
    ("value", "micros"), [(0, 0), (0.2, 200_000), (1e-6, 1), (timedelta(days=3650), 3650 * 86_400_000_000)]
)
def test_s8_durations_are_microseconds(value: float | timedelta, micros: int) -> None:
    assert values.duration(value, "delay", zero=True) == micros


def test_s8_zero_is_not_more_than_zero() -> None:
    with pytest.raises(InvalidArgument, match="more than 0"):
        values.duration(0, "lease")


@given(st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.timezones() | st.just(UTC)))
def test_s7_an_instant_is_exact_and_reads_back_as_the_same_instant(instant: datetime) -> None:
    if instant.astimezone(UTC) < values.EPOCH:
        return
    assert values.moment(values.instant(instant, "scheduled_at")) == instant.astimezone(UTC)


def test_s8_a_naive_datetime_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidArgument, match="no time zone"):
        values.instant(datetime(2025, 1, 1), "scheduled_at")


@pytest.mark.parametrize(
    "value",
    [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime(3000, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        date(2025, 1, 1),
        1_750_000_000,
    ],
)
def test_s8_an_instant_out_of_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument):
        values.instant(value, "scheduled_at")


@pytest.mark.parametrize("value", [0, -1, True, "3", 2**63, 1.0, None])
def test_s8_max_attempts_is_a_whole_number_from_1(value: object) -> None:
    with pytest.raises(InvalidArgument):
        values.whole(value, "max_attempts", 1, values.MAX_INT32)


@given(st.uuids())
def test_s2_ids_go_both_ways(id: UUID) -> None:
    assert values.id_text(id.bytes) == str(id)
    assert values.id_bytes(str(id)) == id.bytes == values.id_raw(str(id))


@pytest.mark.parametrize("value", ["", "x", 7, None, "0" * 31, b"0" * 16])
def test_s8_what_is_not_an_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="not a job id"):
        values.id_bytes(value)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("a\0b", "a\ufffdb"),
        ("\udcff", "\ufffd"),
        (ValueError("boom"), "boom"),
        (Unprintable(), "Unprintable (its text cannot be shown: RuntimeError)"),
        pytest.param("x" * 50_000_000, "x" * 10_000, id="50 MB"),
        ("", ""),
    ],
)
def test_s8_recording_a_failure_cannot_fail(error: object, text: str) -> None:
    assert values.error_text(error) == text


def test_s8_a_message_about_an_unprintable_value_can_be_made() -> None:
    with pytest.raises(InvalidArgument, match="a Unprintable"):
        values.text(Unprintable(), "type", 10)
