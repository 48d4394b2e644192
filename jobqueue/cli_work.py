"""The command ``work``: finds the handlers that MODULE:HANDLERS names and runs a worker for them."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from jobqueue.handlers import Handlers, load
from jobqueue.queue import Queue
from jobqueue.worker import Worker


def work(queue: Queue, handlers: Handlers, *, drain: bool, verbose: bool, **options: Any) -> None:
    """Run a worker until it is stopped, or drained."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    Worker(queue, handlers, **options).run(drain=drain)


def load_here(target: str) -> Handlers:
    """The handlers that ``target`` names. Modules in the current directory are found, as with ``python -m``."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return load(target)
