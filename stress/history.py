"""The clients' files: one line before each call, one after it, so that a kill leaves an open call.

A file belongs to one process. Each line is a JSON array and is handed to the system by one write: a SIGKILL loses
nothing that was written. Times: a monotonic clock in microseconds (the same for every process of a machine), which
orders calls; and the client's own clock, which bounds the now of a call that tells no other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

FOREVER = 2**62
"""The end of a call that got no answer, and of a process that was not seen to end."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def mono() -> int:
    return time.monotonic_ns() // 1000


class History:
    """Writes one process's file."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = Lock()
        self._number = 0
        self._write(["h", header])

    def _write(self, line: list[Any]) -> None:
        data = (_encode(line) + "\n").encode()
        if os.write(self._file, data) != len(data):
            os._exit(74)  # A torn line must be the last one: this process ends here, as if it were killed.

    def invoked(self, kind: str, wall: int, args: Any) -> int:
        with self._lock:
            self._number += 1
            number = self._number
            self._write(["i", number, mono(), wall, kind, args])
        return number

    def answered(self, number: int, wall: int, nows: tuple[int, int] | None, reply: Any) -> None:
        at = mono()
        with self._lock:
            self._write(["r", number, at, wall, nows, reply])

    def refused(self, number: int, wall: int, effect: str, text: str) -> None:
        """An error: `effect` is 'none' where the call certainly changed nothing, else 'unknown'."""
        at = mono()
        with self._lock:
            self._write(["x", number, at, wall, effect, text])

    def begun(self, id: str, fence: int) -> None:
        """A note, not a call: the handler of this claim may have done something from now on."""
        with self._lock:
            self._write(["b", mono(), id, fence])

    def note(self, kind: str, *rest: Any) -> None:
        with self._lock:
            self._write([kind, mono(), *rest])


@dataclass(slots=True)
class Call:
    """One call as its client saw it. `ret` is FOREVER and `reply` None while it is open."""

    client: str
    kind: str
    args: Any
    inv: int
    low: int
    ret: int = FOREVER
    high: int = FOREVER
    exact: tuple[int, int] | None = None
    reply: Any = None
    open: bool = True


@dataclass(slots=True)
class Note:
    """What a process wrote down beside its calls: 'b' a handler begins, 'q' it ended in good order, 'e' it broke."""

    kind: str
    client: str
    at: int
    rest: list[Any]


def lines(path: Path) -> Iterator[Any]:
    """Every whole line of a file of JSON; a torn last one is as if it had not been written."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def header(path: Path) -> dict[str, Any]:
    first = next(lines(path), None)
    found: dict[str, Any] = {} if first is None else first[1]
    return found


def read(path: Path, died: int = FOREVER) -> Iterator[Call | Note]:
    """The calls of one process, each when it is known how it ended, then those that are open.

    An open call can have happened until `died`: when its process was gone, or what it had sent was done.
    """
    calls: dict[int, Call] = {}
    client, jump = path.stem, 0
    for line in lines(path):
        match line:
            case ["h", dict(head)]:
                jump = head.get("jump", 0)
            case ["i", number, at, wall, kind, args]:
                calls[number] = Call(client, kind, args, at, wall)
            case ["r", number, at, wall, nows, reply]:
                yield _answered(calls.pop(number), at, wall, nows, reply)
            case ["x", number, at, wall, effect, _]:
                call = calls.pop(number)
                if effect == "unknown":
                    yield _open(call, at, jump)
            case [kind, at, *rest]:
                yield Note(kind, client, at, rest)
    for call in calls.values():
        yield _open(call, died, jump)


def _answered(call: Call, at: int, wall: int, nows: list[int] | None, reply: Any) -> Call:
    call.ret, call.high, call.reply, call.open = at, wall, reply, False
    if nows is not None:
        call.exact = (nows[0], nows[1])
        call.low, call.high = nows[0], nows[1]
    return call


def _open(call: Call, until: int, jump: int) -> Call:
    """Its now is not known, only that it was not before the call, by a clock that may have jumped meanwhile."""
    call.ret, call.low, call.high = until, call.low - jump, FOREVER
    return call
