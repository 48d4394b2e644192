"""What a forked process must not take over from its parent: SQLite connections, signal handlers, and the worker itself.

Closing its parent's connections would drop the parent's locks; a copy of a worker would go on with its parent's jobs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn, Protocol


class HasConnections(Protocol):
    def connections(self) -> Iterable[object]:
        """The connections that belong to the process that opened them."""


generation = 0  # One more in every process that was forked from this one.
_open: weakref.WeakSet[HasConnections] = weakref.WeakSet()
_kept = threading.local()
_served: dict[int, Any] = {}  # The signals that are served for a worker, and what served them before.


def abandon_in_children(database: HasConnections) -> None:
    """Never close the connections of ``database`` in a forked child, not even when the child exits."""
    _open.add(database)


def serve_signals(names: Iterable[str], serve: Callable[..., object]) -> None:
    """Call ``serve`` at these signals, in this process: what it forks serves them as before."""
    for name in names:
        if hasattr(signal, name):
            number = getattr(signal, name)
            _served[number] = signal.signal(number, serve)


def return_signals() -> None:
    """Serve the signals as before."""
    while _served:
        number, before = _served.popitem()
        signal.signal(number, signal.SIG_DFL if before is None else before)


def end_copy(error: BaseException | None) -> NoReturn:
    """End a process that a handler has forked and that came back from the handler, as a program would end there."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _forking() -> None:
    """Keep served signals back meanwhile: in the child one might still come to what serves them in the parent."""
    _kept.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _served)


def _forked_here() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _kept.mask)


def _forked_there() -> None:
    global generation
    generation += 1
    for database in list(_open):
        for connection in database.connections():
            # One reference more than anyone will ever drop: the child never finalizes, so never closes, the connection.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    return_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, _kept.mask)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking, after_in_parent=_forked_here, after_in_child=_forked_there)
