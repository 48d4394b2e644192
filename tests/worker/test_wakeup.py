"""Sleeps that end when the database changes (spec W-9)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobqueue import Queue
from jobqueue.alarms import Alarm, Bell, Timer
from jobqueue.clock import SystemClock
from jobqueue.protocols import Wakeup
from jobqueue.wakeup import InotifyWakeup, MemoryWakeup, PollingWakeup, wakeup_for

CLOCK = SystemClock()
LONG = 20.0


def inotify(path: str) -> Wakeup:
    return InotifyWakeup(path)


def polling(path: str) -> Wakeup:
    return PollingWakeup(path, CLOCK)


def memory(path: str) -> Wakeup:
    return MemoryWakeup()


KINDS = {"inotify": inotify, "polling": polling, "memory": memory}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def own(kind: str, tmp_path: Path) -> Iterator[Queue]:
    with Queue.open(":memory:" if kind == "memory" else str(tmp_path / "queue.db")) as queue:
        yield queue


@pytest.fixture
def wakeup(kind: str, own: Queue, tmp_path: Path) -> Iterator[Wakeup]:
    made = KINDS[kind](str(tmp_path / "queue.db"))
    yield made
    made.close()


def seconds(sleep: Callable[[], object]) -> float:
    start = CLOCK.monotonic()
    sleep()
    return CLOCK.monotonic() - start


def test_w9_a_change_after_the_baseline_ends_the_sleep(own: Queue, wakeup: Wakeup) -> None:
    for _ in range(3):
        wakeup.arm()
        own.enqueue("x")
        assert seconds(lambda: wakeup.wait(LONG)) < LONG / 2


def test_w9_a_change_during_the_sleep_ends_it(own: Queue, wakeup: Wakeup) -> None:
    wakeup.arm()
    other = threading.Timer(0.05, lambda: own.enqueue("x"))
    other.start()
    assert wakeup.wait(LONG)
    other.join()


def test_w9_nothing_ends_the_sleep_at_its_time(wakeup: Wakeup) -> None:
    wakeup.arm()
    assert not wakeup.wait(0.02)


def test_wake_ends_the_next_sleep_and_only_that(wakeup: Wakeup) -> None:
    wakeup.arm()
    wakeup.wake()
    wakeup.arm()  # The baseline is about the database; who was woken is still woken.
    assert wakeup.wait(LONG)
    assert not wakeup.wait(0.01)


def test_a_watch_that_was_closed_may_be_woken(tmp_path: Path) -> None:
    with Queue.open(str(tmp_path / "queue.db")):
        watch = InotifyWakeup(str(tmp_path / "queue.db"))
        watch.close()
        watch.wake()


def test_without_a_log_to_watch_the_sleep_is_short(tmp_path: Path) -> None:
    watch = InotifyWakeup(str(tmp_path / "queue.db"))
    watch.arm()
    assert seconds(lambda: watch.wait(LONG)) < LONG / 2
    watch.close()


def test_the_best_watch_that_the_system_has_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str) -> InotifyWakeup:
        raise OSError(24, "Too many open files")

    path = str(tmp_path / "queue.db")
    with Queue.open(path):
        assert isinstance(wakeup_for(None, CLOCK), MemoryWakeup)
        monkeypatch.setattr("jobqueue.wakeup.InotifyWakeup", full)
        watch = wakeup_for(path, CLOCK)
        assert isinstance(watch, PollingWakeup)
        watch.close()


def test_an_alarm_that_rang_before_the_sleep_counts_once() -> None:
    alarm = Alarm(CLOCK)
    alarm.ring()
    alarm.ring()
    assert alarm.sleep(CLOCK.monotonic() + LONG)
    assert not alarm.rung()
    assert not alarm.sleep(CLOCK.monotonic() + 0.01)


def test_a_timer_ends_at_the_earliest_announced_instant() -> None:
    timer, now = Timer(CLOCK), CLOCK.monotonic()
    timer.announce(now + 0.02)
    timer.announce(now + 0.03)
    assert seconds(lambda: timer.sleep(now + LONG)) < LONG / 2
    threading.Timer(0.02, lambda: timer.announce(CLOCK.monotonic() + 0.01)).start()
    assert seconds(lambda: timer.sleep(CLOCK.monotonic() + LONG)) < LONG / 2


def test_a_bell_tells_a_ring_from_a_change(own: Queue, wakeup: Wakeup) -> None:
    bell = Bell(wakeup, CLOCK)
    bell.arm()
    threading.Timer(0.02, bell.ring).start()
    assert bell.sleep(CLOCK.monotonic() + LONG, listen=True) is False
    own.enqueue("x")
    assert bell.sleep(CLOCK.monotonic() + LONG, listen=True) is True
    assert bell.sleep(CLOCK.monotonic() + 0.01, listen=False) is False
