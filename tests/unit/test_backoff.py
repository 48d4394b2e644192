"""The backoff law (spec §7, G-11): never decreasing, capped, never early, never overflowing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import InvalidArgument
from jobqueue.backoff import SECOND, Backoff

backoffs = st.builds(
    Backoff,
    base_us=st.integers(1, 10**12),
    cap_us=st.integers(1, 10**14),
    jitter=st.floats(0, 1, allow_nan=False),
)


@given(backoffs, st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_g11_the_delay_is_never_shorter_than_plain_and_never_beyond_jitter(
    backoff: Backoff, attempts: int, draw: float
) -> None:
    plain = backoff.plain(attempts)
    assert plain <= backoff.delay(attempts, draw) <= plain + backoff.jitter * plain


@given(backoffs, st.integers(1, 2000))
def test_g11_plain_never_decreases_and_never_exceeds_the_cap(backoff: Backoff, attempts: int) -> None:
    assert 0 < backoff.plain(attempts) <= backoff.plain(attempts + 1) <= backoff.cap_us


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (10, 2560), (11, 3600), (64, 3600), (10**6, 3600)]
)
def test_g11_the_defaults(attempts: int, seconds: int) -> None:
    assert Backoff().plain(attempts) == seconds * SECOND


@pytest.mark.parametrize("attempts", [0, 1, 30, 62, 63, 64, 1024, 2000, 10**6])
def test_g11_no_number_of_attempts_overflows(attempts: int) -> None:
    huge = Backoff(base_us=10**12, cap_us=3650 * 86_400 * SECOND)
    assert 0 < huge.delay(attempts, 0.999) <= huge.cap_us * 1.1


def test_g11_a_crowd_that_fails_together_spreads_over_the_jitter() -> None:
    delays = [Backoff().delay(1, draw / 1000) for draw in range(1000)]
    assert min(delays) == 5 * SECOND
    assert max(delays) - min(delays) > 0.099 * 5 * SECOND


def test_s8_a_backoff_is_given_in_seconds_and_checked() -> None:
    assert Backoff.of(base=0.5, cap=60, jitter=0) == Backoff(base_us=500_000, cap_us=60_000_000, jitter=0)
    assert Backoff.of() == Backoff()
    assert Backoff.of(base=0).plain(7) == 0  # Retry at once.
    assert Backoff.of(timedelta(minutes=1)).base_us == 60 * SECOND
    wrong: tuple[dict[str, Any], ...] = ({"base": "x"}, {"cap": float("nan")}, {"base": None})
    for bad in (
        *wrong,
        {"base": -1},
        {"cap": -1},
        {"cap": 1e12},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
    ):
        with pytest.raises(InvalidArgument):
            Backoff.of(**bad)
