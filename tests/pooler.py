"""A real pgbouncer in transaction mode before the tests' server: two server connections for any number of clients.

Only where JOBQUEUE_TEST_PGBOUNCER names the program; `.ci/postgres` does. Tests marked ``direct`` are not for it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from stress.servers import GUARDIAN, UNPRIVILEGED

# Each database has its own pool, and each test its own database: this pgbouncer passes no search_path on.
CONFIGURATION = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
unix_socket_dir = {directory}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 1000
log_connections = 0
log_disconnections = 0
"""


@contextmanager
def pooled(program: str, server: str) -> Iterator[Callable[[str], str]]:
    """pgbouncer before ``server``, as the URL of each database by its name."""
    directory = Path(tempfile.mkdtemp(prefix="jq-pooler-"))
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    try:
        if user is not None:
            os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
        given = conninfo_to_dict(server)
        configuration = directory / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(host=given["host"], port=given.get("port") or 5432, directory=directory)
        )
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", GUARDIAN, "sh", program, str(configuration)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, user=user, cwd="/",
            )  # fmt: skip
        try:
            _until_it_answers(process, directory)
            yield lambda database: f"postgresql://postgres@/{database}?host={directory}&port=6432"
        finally:
            process.communicate(b"TERM\n")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _until_it_answers(process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@/postgres?host={directory}&port=6432").close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"pgbouncer did not start:\n{(directory / 'log').read_text()}") from None
            time.sleep(0.02)
        else:
            return
