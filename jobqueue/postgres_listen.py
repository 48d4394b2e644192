"""A sleep that ends when a job becomes claimable on PostgreSQL (spec W-9): LISTEN, on a connection that is supervised.

A notification that is missed only costs time: whoever sleeps here also polls at its own ceiling. Nothing else depends
on the listening connection, which may be down, silently dead, or on a pooler that drops what it should pass on.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import closing

import psycopg

from jobqueue.postgres_pool import Address

FIRST_WAIT, LONGEST_WAIT = 0.1, 15.0  # Seconds before a lost connection is opened again.
PARTING = 2.0  # Seconds that close waits for the thread, which may be in the middle of connecting.
log = logging.getLogger("jobqueue")


class Listener:
    """One thread with one connection that listens to one channel, and is opened again for as long as it takes."""

    def __init__(self, address: Address, channel: str, draw: Callable[[], float]) -> None:
        self._address = address
        self._listen = f'listen "{channel}"'
        self._draw = draw
        self.changed = threading.Condition()  # Notified when ``count`` grows.
        self.count = 0  # How many times there was reason to poll.
        self._bell, self._ring = socket.socketpair()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jobqueue {self._listen}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stopping.set()
        self._ring.close()  # Which makes the bell readable.
        self._thread.join(PARTING)

    def _run(self) -> None:
        with self._bell:
            wait, quiet = FIRST_WAIT, False
            while not self._stopping.is_set():
                heard = self._heard(quiet)
                wait, quiet = (FIRST_WAIT if heard else min(wait * 2, LONGEST_WAIT)), not heard
                self._stopping.wait(wait * (0.5 + self._draw()))

    def _heard(self, quiet: bool) -> bool:
        """Connect and listen until that ends; whether it had begun. ``quiet``: the failure before this was logged."""
        heard = False
        try:
            with closing(self._address.connect()) as connection:
                connection.execute(self._listen)
                heard = True
                self._tell()  # What was sent while nobody listened is caught up with by one poll.
                self._pass_on(connection)
        except psycopg.Error as error:
            if heard or not quiet:
                log.warning("%s: the listening connection is down; polling goes on: %s", self._address, error)
        except Exception:
            log.exception("%s: the listening connection failed; polling goes on", self._address)
        return heard

    def _pass_on(self, connection: psycopg.Connection[object]) -> None:
        with selectors.DefaultSelector() as sources:
            sources.register(self._bell, selectors.EVENT_READ)
            sources.register(connection.fileno(), selectors.EVENT_READ)
            while not self._stopping.is_set():
                sources.select()
                if not self._stopping.is_set() and list(connection.notifies(timeout=0)):
                    self._tell()

    def _tell(self) -> None:
        with self.changed:
            self.count += 1
            self.changed.notify_all()


class NotifyWakeup:
    """One sleeper (protocols.Wakeup). Without a listener only ``wake`` ends its sleep early."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._changed = threading.Condition() if listener is None else listener.changed
        self._baseline = 0
        self._woken = False

    def _count(self) -> int:
        return 0 if self._listener is None else self._listener.count

    def arm(self) -> None:
        self._baseline = self._count()

    def wait(self, seconds: float) -> bool:
        with self._changed:
            ended = self._changed.wait_for(lambda: self._woken or self._count() != self._baseline, max(0.0, seconds))
            self._woken = False
        return ended

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing to release: the listener is the database's."""
