"""The command ``work``: finds the handlers that MODULE:HANDLERS names and runs a worker for them."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from typing import Any

from jobqueue.errors import InvalidArgument
from jobqueue.handlers import Handlers, as_handlers
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


def load(target: str) -> Handlers:
    """The Handlers, or the one function for every type, that ``module:name`` names.

    Modules in the current directory are found, as with ``python -m``.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise InvalidArgument(f"{target!r}: write MODULE:HANDLERS, like app:handlers")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if where.filename.startswith("<frozen") else f" ({where.filename}, line {where.lineno})"
        raise InvalidArgument(f"cannot import {module_name}: {type(error).__name__}: {error}{place}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{module_name} has no {name}")
        found = getattr(found, part)
    return as_handlers(found)
