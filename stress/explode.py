"""The clients' files, cut into one history per job: a million jobs are judged without ever being in memory together.

Each call is taken apart into what it says about each job. The parts go to bucket files by the job's id; a bucket is
then small enough to be sorted and judged. What is about no single job goes to `Shared`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from stress.history import FOREVER, Call, Note, header, read
from stress.measure import Measures

# A part of a call, about one job: [id, kind, client, inv, ret, low, high, args, reply, certain].
Part = list[Any]
OPEN, ANSWERED, PHANTOM = 0, 1, 2


@dataclass(slots=True)
class Shared:
    """What is known of the run as a whole."""

    enqueues: dict[str, list[Any]] = field(default_factory=dict)  # Open ones, by the payload's tag.
    attempted: int = 0  # Jobs whose enqueue was acknowledged.
    dequeues: list[list[Any]] = field(default_factory=list)  # Calls that may have claimed jobs and told nobody.
    cleanups: list[list[Any]] = field(default_factory=list)
    quits: dict[str, int] = field(default_factory=dict)  # Workers that ended in good order, and when.
    broke: list[tuple[str, str]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  # Jobs that a kill or a pause met in somebody's hands.
    begun: set[tuple[str, int]] = field(default_factory=set)  # Claims that began, where max_attempts is 1.
    calls: int = 0
    open_calls: int = 0
    measures: Measures = field(default_factory=Measures)

    def add(self, other: Shared) -> None:
        self.enqueues |= other.enqueues
        self.attempted += other.attempted
        self.dequeues += other.dequeues
        self.cleanups += other.cleanups
        self.quits |= other.quits
        self.broke += other.broke
        self.touched |= other.touched
        self.begun |= other.begun
        self.calls += other.calls
        self.open_calls += other.open_calls
        self.measures.add(other.measures)


@dataclass(frozen=True, slots=True)
class Disturbed:
    """When sessions were lost (PostgreSQL): a call that overlaps such a time may have happened twice, told once."""

    times: tuple[tuple[int, int], ...] = ()

    def touches(self, call: Call) -> bool:
        return any(call.inv <= end and call.ret >= start for start, end in self.times)


@dataclass(slots=True)
class Hands:
    """What a client holds, and which of it a strike met."""

    strikes: list[tuple[int, int]]
    held: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # Claim: since when, max_attempts.

    def claimed(self, claim: list[Any], at: int) -> None:
        self.held[claim[0], claim[1]] = (at, claim[6])

    def met(self, id: str, fence: int, until: int) -> bool:
        """The claim is given up: whether a strike came while it was held."""
        since, _ = self.held.pop((id, fence), (until, 0))
        return any(start <= until and end >= since for start, end in self.strikes)


class Exploder:
    """Takes one process's file apart. `strikes` are the kills and pauses that met it, by start and end."""

    def __init__(
        self, path: Path, died: int, strikes: list[tuple[int, int]], out: Path, buckets: int, disturbed: Disturbed
    ) -> None:
        self._path, self._died, self._out, self._buckets, self._disturbed = path, died, out, buckets, disturbed
        self._hands = Hands(strikes)
        self.shared = Shared()

    def run(self) -> Shared:
        worker = header(self._path).get("role") == "worker"
        with ExitStack() as stack:
            name = os.getpid()  # A file for each process of the pool, not for each history: these can be many.
            files: list[TextIO] = [stack.enter_context((self._out / f"{index}.{name}").open("a", encoding="utf-8"))
                                   for index in range(self._buckets)]  # fmt: skip
            order = stack.enter_context((self._out / f"order.{name}").open("a", encoding="utf-8"))
            for found in read(self._path, self._died):
                if isinstance(found, Note):
                    self._note(found, files, worker)
                else:
                    self._call(found, files, order)
        self.shared.touched |= {id for id, fence in list(self._hands.held) if self._hands.met(id, fence, self._died)}
        return self.shared

    def _put(self, files: list[TextIO], part: Part) -> None:
        files[int(part[0][-4:], 16) % self._buckets].write(json.dumps(part, ensure_ascii=False) + "\n")

    def _note(self, note: Note, files: list[TextIO], worker: bool) -> None:
        match note.kind:
            case "b":
                id, fence = note.rest
                if self._hands.held.get((id, fence), (0, 0))[1] == 1:
                    self.shared.begun.add((id, fence))
                self._put(files, [id, "begin", note.client, note.at, note.at, 0, 0, fence, None, ANSWERED])
            case "q" if worker:
                self.shared.quits[note.client] = note.at
            case "e":
                self.shared.broke.append((note.client, note.rest[0]))

    def _call(self, call: Call, files: list[TextIO], order: TextIO) -> None:
        shared = self.shared
        shared.calls += 1
        shared.open_calls += call.open
        if not call.open:
            shared.measures.call(call)
        lossy = call.open or self._disturbed.touches(call)
        for part in self._parts(call):
            self._put(files, part)
            if lossy and not call.open and part[1] in ("cancel", "requeue", "sweep", "extend"):
                self._put(files, [*part[:4], part[4], part[5], part[6], part[7], None, PHANTOM])
        if call.kind == "exchange":
            self._hold(call)
        if call.kind == "exchange" and call.args[3]:
            self._dequeue(call, order, lossy)
        elif call.kind not in ("look",):
            order.write(json.dumps(["lock", call.inv, _end(call)]) + "\n")
        if call.kind == "cleanup":
            shared.cleanups.append([call.inv, call.ret, call.low, call.high, *call.args, call.reply])

    def _hold(self, call: Call) -> None:
        for settlement in call.args[4]:
            if self._hands.met(settlement[1], settlement[2], call.ret) or call.open:
                self.shared.touched.add(settlement[1])
        for claim in [] if call.open else call.reply[1]:
            self._hands.claimed(claim, call.inv)

    def _dequeue(self, call: Call, order: TextIO, lossy: bool) -> None:
        worker, lease, types, n, _ = call.args
        if lossy:
            self.shared.dequeues.append([call.client, call.inv, call.ret, call.low, worker, lease, types])
        if call.open:
            order.write(json.dumps(["lock", call.inv, _end(call)]) + "\n")
            return
        claims = call.reply[1]
        last = [claims[-1][4], claims[-1][8], claims[-1][7]] if claims else None
        now = claims[0][10] if claims else call.low
        order.write(json.dumps(["claim", call.inv, call.ret, now, types, n, len(claims), last, call.client]) + "\n")

    def _parts(self, call: Call) -> Iterator[Part]:
        end = [call.client, call.inv, call.ret, call.low, call.high]
        certain = OPEN if call.open else ANSWERED
        match call.kind:
            case "enqueue":
                yield from self._enqueued(call, end)
            case "exchange":
                yield from _exchanged(call, end, certain)
            case "extend":
                lease, holders = call.args
                replies = [None] * len(holders) if call.open else call.reply
                for holder, reply in zip(holders, replies, strict=True):
                    yield [holder[0], "extend", *end, [*holder, lease], reply, certain]
            case "look" if not call.open:
                for id, fence, lease in call.reply:
                    yield [id, "look", *end, [fence, lease], None, certain]
            case "sweep":
                swept = {} if call.open else dict(call.reply)
                for id, fence, lease in call.args:
                    yield [id, "sweep", *end, [fence, lease], swept.get(id), certain]
            case "cancel" | "requeue":
                yield [call.args[0], call.kind, *end, None, call.reply, certain]

    def _enqueued(self, call: Call, end: list[Any]) -> Iterator[Part]:
        keep, specs = call.args
        if call.open:
            for spec in specs:
                self.shared.enqueues[spec[0]] = ["?", "enqueue", *end, [keep, spec], None, OPEN]
        elif call.reply[0] == "dup":
            # About no job of its own: it goes to those who hold the key (check.py reads this bucket by key).
            yield ["key:0000", "enqueue", *end, [keep, specs[0]], call.reply, ANSWERED]
        else:
            self.shared.attempted += len(specs)
            for spec, id in zip(specs, call.reply[1], strict=True):
                yield [id, "enqueue", *end, [keep, spec], id, ANSWERED]


def _exchanged(call: Call, end: list[Any], certain: int) -> Iterator[Part]:
    _, lease, types, _, settlements = call.args
    replies = [None] * len(settlements) if call.open else call.reply[0]
    for settlement, reply in zip(settlements, replies, strict=True):
        yield [settlement[1], "settle", *end, settlement, reply, certain]
    if not call.open:
        for claim in call.reply[1]:
            yield [claim[0], "claim", *end, [lease, types], claim, certain]


def _end(call: Call) -> int:
    """Until when its locks may last: a server may take a moment to see that a client is gone."""
    return min(call.ret + (1_000_000 if call.open else 0), FOREVER)
