"""Where a run's queue lives, and what the nemesis can do to that place: locks, full disks, lost connections."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from jobqueue import Queue
from stress import triggers
from stress.options import Options

QUEUE = "jobs"
DISK = 192  # Megabytes of the small disk that is made full.
LIMIT = 8 * 1024 * 1024  # Bytes of the largest file, where no small disk can be mounted.

LogRow = tuple[Any, ...]


class Place(ABC):
    """A database with an empty queue in it, and a log of what happens to the queue's rows."""

    url: str
    disk = "not done"

    @abstractmethod
    def log(self) -> Iterator[LogRow]:
        """The rows of the log, job by job (by id), in order: id as text, then triggers.COLUMNS."""

    @abstractmethod
    def lock(self, seconds: float) -> None:
        """Hold a lock that keeps everyone from writing."""

    def fill_disk(self, seconds: float, pids: Iterable[int]) -> None:
        """Have no room for a while."""
        raise NotImplementedError

    def terminate(self, pick: float) -> None:
        """End somebody's session."""
        raise NotImplementedError

    def restart(self, pick: float, seconds: float) -> None:
        """Stop the server, sometimes as a crash, and start it again after `seconds`."""
        raise NotImplementedError

    def queue(self) -> Queue:
        return Queue.open(self.url, name=QUEUE)


class SqlitePlace(Place):
    def __init__(self, directory: Path, disk: str) -> None:
        self.path = directory / "queue.db"
        self.url = str(self.path)
        self.disk = disk
        self.queue().close()
        with self._connected() as connection:
            connection.executescript(triggers.SQLITE.format(queue=QUEUE))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()

    def log(self) -> Iterator[LogRow]:
        with self._connected() as connection:
            yield from connection.execute(f"select lower(hex(id)), {triggers.COLUMNS} from {QUEUE}_log order by id, n")

    def lock(self, seconds: float) -> None:
        with self._connected() as connection:
            connection.execute("begin immediate")
            time.sleep(seconds)
            connection.rollback()

    def fill_disk(self, seconds: float, pids: Iterable[int]) -> None:
        if self.disk.startswith("a tmpfs"):
            self._fill(self.path.with_name("filler"), seconds)
        else:
            self._limit(list(pids), seconds)

    def _fill(self, filler: Path, seconds: float) -> None:
        try:
            with filler.open("wb") as file, suppress(OSError):
                while True:
                    file.write(b"\0" * 65536)
                    file.flush()
            time.sleep(seconds)
        finally:
            filler.unlink(missing_ok=True)

    def _limit(self, pids: list[int], seconds: float) -> None:
        """No file may grow beyond a size that the database has reached, or soon will have."""
        for limit in (LIMIT, resource.RLIM_INFINITY):
            for pid in pids:
                with suppress(OSError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            time.sleep(seconds if limit == LIMIT else 0)


@contextmanager
def small_disk(directory: Path) -> Iterator[str]:
    """A small file system at `directory`, if one can be mounted; what the run does for a full disk."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", str(directory)]
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    mounted = mounted and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        if mounted:
            yield f"a tmpfs of {DISK} MB, filled up"
        elif hasattr(resource, "prlimit"):
            yield "a limit on the size of files (RLIMIT_FSIZE): no file system could be mounted"
        else:
            yield "not done: neither a mount nor RLIMIT_FSIZE of another process is possible here"
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], capture_output=True, check=False)


@contextmanager
def place(options: Options, directory: Path) -> Iterator[Place]:
    """The database that the options ask for."""
    with ExitStack() as stack:
        if options.on_postgres:
            from stress.postgres_place import postgres_place

            yield stack.enter_context(postgres_place(options.url, QUEUE))
        elif options.long:  # A million jobs and their log have no room on a small disk.
            yield SqlitePlace(directory, "not done in a run of many jobs")
        else:
            disk = directory / "disk"
            yield SqlitePlace(disk, stack.enter_context(small_disk(disk)))
