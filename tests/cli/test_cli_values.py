"""Text from the command line: what is understood, what is refused, and what is never shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import InvalidArgument
from jobqueue.cli_show import plain
from jobqueue.cli_values import duration, instant, json_value, without_password


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90", timedelta(seconds=90)),
        ("90s", timedelta(seconds=90)),
        ("0", timedelta()),
        ("1.5h", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("2w1d", timedelta(days=15)),
        ("250ms", timedelta(milliseconds=250)),
        ("1m1ms", timedelta(minutes=1, milliseconds=1)),
    ],
)
def test_a_duration_is_a_number_with_a_unit_or_several(text: str, meant: timedelta) -> None:
    assert duration(text, "--delay") == meant


@pytest.mark.parametrize("read", [duration, instant, json_value])
@given(text=st.text(max_size=20))
def test_any_text_is_understood_or_refused(read: Callable[[str, str], object], text: str) -> None:
    with suppress(InvalidArgument):
        read(text, "--option")


@pytest.mark.parametrize(
    "text", ["", " ", "h", "1 h", "1y", "-1s", "+1s", "1e3", "inf", "nan", "١s", "9" * 13, "1.52.5", "1h30"]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--delay"):
        duration(text, "--delay")


def test_an_instant_needs_its_offset() -> None:
    assert instant("2030-01-31T03:00+01:00", "--at") == datetime(2030, 1, 31, 2, tzinfo=UTC)
    assert instant("2030-01-31T03:00Z", "--at") == datetime(2030, 1, 31, 3, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match="time zone"):
        instant("2030-01-31T03:00", "--at")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ana:pw@host/app", "postgresql://ana:***@host/app"),
        ("postgres://ana:p:w@/x@host:5432/app?a=b", "postgres://ana:***@host:5432/app?a=b"),
        ("postgresql://:pw@host/app", "postgresql://:***@host/app"),
        ("postgresql://host/app?user=ana&password=pw&a=b", "postgresql://host/app?user=ana&password=***&a=b"),
        ("postgresql://host/app?sslpassword=pw", "postgresql://host/app?sslpassword=***"),
        ("postgresql://ana@host/app", "postgresql://ana@host/app"),
        ("postgresql://ana@host:5432/app", "postgresql://ana@host:5432/app"),
        ("C:/data:old@home/app.db", "C:/data:old@home/app.db"),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@given(st.text())
def test_text_from_the_database_cannot_command_a_terminal(text: str) -> None:
    assert plain(text).isprintable()
