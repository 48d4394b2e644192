"""The same calls for asyncio: each runs in a thread, so that the event loop never waits for the database.

A call whose task is cancelled is still carried out by its thread. A claim that nobody is left to receive is given back.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from jobqueue.errors import LeaseLost
from jobqueue.queue import Queue
from jobqueue.types import Job, JobView
from jobqueue.values import Duration

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(call, *args, **kwargs)

    run.__name__, run.__doc__ = call.__name__, call.__doc__
    return run


class AsyncQueue:
    """``Queue`` with awaitable methods; see there for what each does.

    ``transaction=`` and ``completing`` are not offered: a database connection belongs to the thread that uses it.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.enqueue = _in_thread(queue.enqueue)
        self.enqueue_many = _in_thread(queue.enqueue_many)
        self.complete = _in_thread(queue.complete)
        self.fail = _in_thread(queue.fail)
        self.release = _in_thread(queue.release)
        self.extend = _in_thread(queue.extend)
        self.complete_many = _in_thread(queue.complete_many)
        self.fail_many = _in_thread(queue.fail_many)
        self.release_many = _in_thread(queue.release_many)
        self.settle_many = _in_thread(queue.settle_many)
        self.extend_many = _in_thread(queue.extend_many)
        self.expired = _in_thread(queue.expired)
        self.sweep = _in_thread(queue.sweep)
        self.cancel = _in_thread(queue.cancel)
        self.requeue = _in_thread(queue.requeue)
        self.cancel_many = _in_thread(queue.cancel_many)
        self.requeue_many = _in_thread(queue.requeue_many)
        self.cleanup = _in_thread(queue.cleanup)
        self.counts = _in_thread(queue.counts)
        self.get = _in_thread(queue.get)
        self.list = _in_thread(queue.list)
        self.audit = _in_thread(queue.audit)
        self.close = _in_thread(queue.close)

    @classmethod
    async def open(cls, url: str | os.PathLike[str], **options: Any) -> AsyncQueue:
        """``Queue.open``, awaited."""
        return cls(await asyncio.to_thread(Queue.open, url, **options))

    async def dequeue(self, *types: str, **options: Any) -> Job | None:
        """``Queue.dequeue``. If the task is cancelled meanwhile, the claim is released: it has certainly not begun."""
        jobs = await self.dequeue_many(1, *types, **options)
        return jobs[0] if jobs else None

    async def dequeue_many(self, n: int, *types: str, **options: Any) -> list[Job]:
        """``Queue.dequeue_many``, with the same care for a task that is cancelled."""
        claiming = asyncio.ensure_future(asyncio.to_thread(self.queue.dequeue_many, n, *types, **options))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            for job in await claiming:
                await self._give_back(job)
            raise

    async def wait(self, id: str, timeout: Duration | None = None) -> JobView | None:
        wait, loop = self.queue.new_wait(id, timeout), asyncio.get_running_loop()
        ended: asyncio.Future[JobView | None] = loop.create_future()

        def serve() -> None:
            try:
                tell = partial(ended.set_result, wait.result())
            except BaseException as error:
                tell = partial(ended.set_exception, error)
            with suppress(RuntimeError):  # The loop has ended: nobody waits.
                loop.call_soon_threadsafe(lambda: ended.done() or tell())

        # A thread of its own: those that all calls share are few, and waits are long.
        threading.Thread(target=serve, name="jobqueue wait", daemon=True).start()
        try:
            return await ended
        except asyncio.CancelledError:
            wait.give_up()
            raise

    wait.__doc__ = Queue.wait.__doc__

    async def _give_back(self, job: Job) -> None:
        with suppress(LeaseLost):  # Swept or cancelled in this moment: then it is not ours to give back.
            await asyncio.to_thread(self.queue.release, job, begun=False)

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
