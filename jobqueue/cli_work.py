"""The command ``work``: finds the handlers that MODULE:HANDLERS names and runs a worker for them."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from jobqueue.cli_show import plain
from jobqueue.handlers import Handlers, load
from jobqueue.queue import Queue
from jobqueue.worker import Worker


class _Plain(logging.Formatter):
    """What an exception or a name says must not steer the terminal that shows it."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(plain(line) for line in super().format(record).split("\n"))


def work(queue: Queue, handlers: Handlers, *, drain: bool, verbose: bool, **options: Any) -> None:
    """Run a worker until it is stopped, or drained."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(_Plain("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, handlers=[output])
    Worker(queue, handlers, **options).run(drain=drain)


def load_here(target: str) -> Handlers:
    """The handlers that ``target`` names. Modules in the current directory are found, as with ``python -m``."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return load(target)
