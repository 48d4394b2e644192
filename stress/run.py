"""One run: from an empty database to the last look at the table. What it leaves behind is judged elsewhere.

The run's own events (who was started, killed, paused, and when a process was seen to be gone) are in `events.jsonl`, in
the same monotonic time as the clients' calls: an open call can have happened until its process was gone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import Array, c_int64
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any

from jobqueue import Status
from stress.history import mono
from stress.nemesis import Nemesis
from stress.options import Options
from stress.places import QUEUE, Place
from stress.roles import COUNTERS, Seat, live

Say = Callable[[str, "Crew"], None]


@dataclass(slots=True)
class Actor:
    """A seat and who sits in it now."""

    seat: Seat
    counters: Array[c_int64]
    process: ForkServerProcess | None = None
    life: int = -1
    stopped: bool = False
    done: bool = False

    @property
    def client(self) -> str:
        return f"{self.seat.role}{self.seat.number}.{self.life}"

    @property
    def pid(self) -> int | None:
        alive = self.process is not None and self.process.is_alive()
        return self.process.pid if alive and self.process is not None else None


@dataclass(slots=True)
class Crew:
    """Every actor of a run, and the file of events."""

    options: Options
    place: Place
    directory: Path
    actors: list[Actor] = field(default_factory=list)
    events: list[list[Any]] = field(default_factory=list)
    ended: bool = False

    def event(self, kind: str, *rest: Any) -> None:
        self.events.append([mono(), kind, *rest])

    def hire(self) -> None:
        options = self.options
        seats = {"producer": options.producers, "worker": options.workers, "bare": options.bare}
        for role, number in {**seats, "sweeper": 1, "canceller": 1, "cleaner": 1}.items():
            for index in range(number):
                seat = Seat(role=role, number=index, url=self.place.url, name=QUEUE,
                            histories=self.directory / "histories", options=options)  # fmt: skip
                self.actors.append(Actor(seat, RawArray(c_int64, COUNTERS)))

    def start(self, actor: Actor) -> None:
        actor.life += 1
        context = multiprocessing.get_context("forkserver")
        actor.process = context.Process(target=live, args=(actor.seat, actor.life, actor.counters), daemon=True)
        actor.process.start()
        self.event("start", actor.client, actor.process.pid)

    def tend(self) -> None:
        """See who is gone, and start again who was killed or broke."""
        for actor in self.actors:
            process = actor.process
            if process is None or process.is_alive():
                continue
            self.event("gone", actor.client, process.exitcode)
            actor.process, actor.stopped = None, False
            finished = actor.seat.role == "producer" and process.exitcode == 0
            actor.done = actor.done or finished or self.ended
            if not actor.done:
                self.start(actor)

    def signal(self, actor: Actor, number: signal.Signals) -> bool:
        pid = actor.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def pids(self) -> list[int]:
        return [pid for actor in self.actors if (pid := actor.pid) is not None]

    def total(self, counter: int) -> int:
        return sum(int(actor.counters[counter]) for actor in self.actors)


@contextmanager
def crew(options: Options, place: Place, directory: Path) -> Iterator[Crew]:
    """The processes of a run; none is left when the block ends."""
    (directory / "histories").mkdir(parents=True, exist_ok=True)
    preload = ["__main__", "stress.roles", "stress.holder", "psycopg"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(preload)
    found = Crew(options, place, directory)
    found.hire()
    try:
        yield found
    finally:
        for actor in found.actors:
            found.signal(actor, signal.SIGKILL)
        for actor in found.actors:
            if actor.process is not None:
                actor.process.join(10)


def run(options: Options, place: Place, directory: Path, say: Say) -> Crew:
    """Run to the end of the plan, or until Ctrl-C; then let the processes end, and look at the table."""
    with crew(options, place, directory) as found:
        nemesis = Nemesis(found)
        try:
            for actor in found.actors:
                found.start(actor)
            _play(found, nemesis, say)
        except KeyboardInterrupt:
            say("interrupted: what happened so far is judged", found)
            found.event("interrupted")
        nemesis.rest()
        _end(found, say)
        _look(place, directory)
    found.event("end")
    with (directory / "events.jsonl").open("w") as file:
        file.writelines(json.dumps(event) + "\n" for event in sorted(found.events, key=lambda event: int(event[0])))
    return found


def _play(crew: Crew, nemesis: Nemesis, say: Say) -> None:
    started = time.monotonic()
    while True:
        at = time.monotonic() - started
        producers = [actor for actor in crew.actors if actor.seat.role == "producer"]
        if at >= crew.options.seconds or all(actor.done for actor in producers):
            return
        crew.tend()
        nemesis.strike(at)
        say("running", crew)
        time.sleep(0.02)


def _end(crew: Crew, say: Say) -> None:
    """No more faults and no more jobs. When nothing waits any longer, or it takes too long, everyone is told to end."""
    _stop(crew, {"producer", "canceller", "bare"}, say)
    deadline = time.monotonic() + crew.options.drain + (600 if crew.options.long else 0)
    with crew.place.queue() as queue:
        while time.monotonic() < deadline:
            counts = queue.counts()
            if not counts[Status.PENDING] + counts[Status.RUNNING] + counts[Status.FAILED]:
                break
            crew.tend()
            say("draining", crew)
            time.sleep(0.05)
    crew.ended = True
    _stop(crew, {"worker", "sweeper", "cleaner"}, say)


def _stop(crew: Crew, roles: set[str], say: Say) -> None:
    chosen = [actor for actor in crew.actors if actor.seat.role in roles]
    deadline = time.monotonic() + 15
    for actor in chosen:
        actor.done = True
        crew.signal(actor, signal.SIGTERM)
    while any(actor.pid for actor in chosen):
        crew.tend()
        say("ending", crew)
        if time.monotonic() > deadline:
            for actor in chosen:
                crew.event("overdue", actor.client)
                crew.signal(actor, signal.SIGKILL)
        time.sleep(0.02)
    crew.tend()


def _look(place: Place, directory: Path) -> None:
    """The table as `list` shows it, when nobody writes any more."""
    from stress.lastlook import write

    with place.queue() as queue:
        write(queue, directory / "table.jsonl")
