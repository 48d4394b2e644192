"""After a fork, a child leaves its parent's SQLite connections alone: closing them would drop the parent's locks."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import Protocol


class HasConnections(Protocol):
    def connections(self) -> Iterable[object]:
        """The connections that belong to the process that opened them."""


_open: weakref.WeakSet[HasConnections] = weakref.WeakSet()


def abandon_in_children(database: HasConnections) -> None:
    """Never close the connections of ``database`` in a forked child, not even when the child exits."""
    _open.add(database)


def _abandon() -> None:
    for database in list(_open):
        for connection in database.connections():
            # One reference more than anyone will ever drop: the child never finalizes, so never closes, the connection.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
