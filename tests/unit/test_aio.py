"""The asyncio façade: the same calls, awaited; a claim is never left to nobody."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

from jobqueue import AsyncQueue, Job, LeaseLost, Queue, Status

NOT_OFFERED = {"open", "completing", "dequeue", "dequeue_many", "exchange", "due_in_us", "wakeup"}


def test_every_call_of_the_queue_is_offered_under_its_name(queue: Queue) -> None:
    public = {name for name, _ in inspect.getmembers(Queue, inspect.isfunction) if not name.startswith("_")}
    facade = AsyncQueue(queue)
    for name in public - NOT_OFFERED:
        assert inspect.iscoroutinefunction(getattr(facade, name)), name
        assert getattr(facade, name).__doc__ == getattr(queue, name).__doc__


def test_a_job_lives_through_awaited_calls(queue: Queue) -> None:
    async def life() -> None:
        facade = AsyncQueue(queue)
        id = await facade.enqueue("a", {"n": 1})
        job = await facade.dequeue("a")
        assert job is not None
        await facade.complete(job, 2)
        view = await facade.wait(id)
        assert view is not None
        assert (view.status, view.result) == (Status.COMPLETED, 2)
        with pytest.raises(LeaseLost):
            await facade.extend(job)
        assert await facade.dequeue_many(3) == []

    asyncio.run(life())


def test_w7_a_claim_whose_task_was_cancelled_is_given_back(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    id = queue.enqueue("a", max_attempts=1)
    claimed, go_on = threading.Event(), threading.Event()
    dequeue_many = queue.dequeue_many

    def slow(n: int, *types: str) -> list[Job]:
        jobs = dequeue_many(n, *types)
        claimed.set()
        go_on.wait(10)
        return jobs

    monkeypatch.setattr(queue, "dequeue_many", slow)

    async def cancelled() -> None:
        task = asyncio.ensure_future(AsyncQueue(queue).dequeue("a"))
        await asyncio.to_thread(claimed.wait, 10)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    view = queue.get(id)
    assert view is not None
    assert (view.status, view.attempts) == (Status.PENDING, 0)
