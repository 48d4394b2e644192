"""Strikes as the plan says: kills, pauses, stops, locks, full disks, lost connections, restarts.

What takes a while (a lock, a pause, a full disk) happens in a thread of its own, so that kills go on meanwhile. Each
strike leaves an event when it begins and one when it is over.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from stress.plan import Strike, strikes

if TYPE_CHECKING:
    from stress.run import Actor, Crew

# Whom each strike may meet. A producer or an operator is killed less often than those who hold claims.
TARGETS = {
    "kill": ("worker", "worker", "worker", "bare", "bare", "producer", "sweeper", "canceller", "cleaner"),
    "pause": ("worker", "worker", "bare", "sweeper"),
    "stop": ("worker",),
}


class Nemesis:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._plan = strikes(crew.options)
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self.done: Counter[str] = Counter()

    def strike(self, at: float) -> None:
        """Do everything that is due `at` seconds after the start."""
        while self._plan and self._plan[0].at <= at:
            strike = self._plan.pop(0)
            if strike.kind in TARGETS:
                self._at_a_process(strike)
            else:
                self._at_the_place(strike)

    def rest(self) -> None:
        """End whatever lasts, and wake whoever was stopped."""
        self._plan.clear()
        self._over.set()
        for thread in self._threads:
            thread.join()
        for actor in self._crew.actors:
            if actor.stopped:
                self._crew.signal(actor, signal.SIGCONT)

    def _at_a_process(self, strike: Strike) -> None:
        roles = TARGETS[strike.kind]
        actors = [actor for role in roles for actor in self._crew.actors if actor.seat.role == role and actor.pid]
        actors = [actor for actor in actors if not actor.stopped]
        if not actors:
            return
        actor = actors[int(strike.pick * len(actors))]
        match strike.kind:
            case "kill":
                self._did(strike.kind, actor.client, self._crew.signal(actor, signal.SIGKILL))
            case "stop":
                self._did(strike.kind, actor.client, self._crew.signal(actor, signal.SIGTERM))
            case _:
                self._start(lambda: self._pause(actor, strike.length))

    def _did(self, kind: str, who: str, happened: bool) -> None:
        if happened:
            self.done[kind] += 1
            self._crew.event(kind, who)

    def _pause(self, actor: Actor, seconds: float) -> None:
        client = actor.client
        actor.stopped = self._crew.signal(actor, signal.SIGSTOP)
        if actor.stopped:
            self._did("pause", client, True)
            self._over.wait(seconds)
            self._crew.signal(actor, signal.SIGCONT)
            actor.stopped = False
            self._crew.event("resume", client)

    def _at_the_place(self, strike: Strike) -> None:
        place, crew = self._crew.place, self._crew
        deeds: dict[str, Callable[[], None]] = {
            "lock": lambda: place.lock(strike.length),
            "disk": lambda: place.fill_disk(strike.length, crew.pids()),
            "terminate": lambda: place.terminate(strike.pick),
            "restart": lambda: place.restart(strike.pick, strike.length),
        }
        if strike.kind == "disk" and place.disk.startswith("not done"):
            return
        self._start(lambda: self._disturb(strike.kind, deeds[strike.kind]))

    def _disturb(self, kind: str, deed: Callable[[], None]) -> None:
        self.done[kind] += 1
        self._crew.event(kind, "begin")
        try:
            deed()
        except Exception as error:  # The server may be away just now, for that was another strike.
            self._crew.event("missed", kind, str(error)[:200])
        time.sleep(0.02)
        self._crew.event(f"{kind} over")

    def _start(self, deed: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=deed, daemon=True)
        self._threads.append(thread)
        thread.start()
