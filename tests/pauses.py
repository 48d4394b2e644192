"""A process is stopped in the middle of its work, but not of a write: holding SQLite's lock it would stop everyone."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

from jobqueue import DatabaseUnavailable, Queue

TRIES = 50


def pause(process: subprocess.Popen[Any], probe: Queue) -> None:
    """SIGSTOP ``process`` while it holds no write lock; ``probe`` is a handle with a short busy timeout."""
    for _ in range(TRIES):
        process.send_signal(signal.SIGSTOP)
        if _can_write(probe):
            return
        process.send_signal(signal.SIGCONT)
        assert any(_can_write(probe) for _ in range(TRIES)), "the write lock was not given back"
    raise AssertionError("the process held the write lock at every stop")


def _can_write(probe: Queue) -> bool:
    try:
        probe.expired()  # A look needs the write lock.
    except DatabaseUnavailable:
        return False
    return True
