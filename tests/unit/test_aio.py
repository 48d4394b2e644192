"""The asyncio façade: the same calls, awaited; a claim is never left to nobody."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

from jobqueue import AsyncQueue, InvalidArgument, Job, LeaseLost, Queue, Status, WrongUse

NOT_OFFERED = {"open", "completing", "dequeue", "dequeue_many", "exchange", "due_in_us", "wakeup", "new_wait"}


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


def waiting() -> int:
    return sum(thread.name == "jobqueue wait" for thread in threading.enumerate())


def test_a_wait_that_is_given_up_keeps_nothing_from_ending(queue: Queue) -> None:
    id = queue.enqueue("a")

    async def given_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(AsyncQueue(queue).wait(id), 0.05)

    asyncio.run(given_up())
    for thread in threading.enumerate():
        if thread.name == "jobqueue wait":
            thread.join(10)
    assert waiting() == 0


def test_many_waits_leave_the_other_calls_their_threads(queue: Queue) -> None:
    async def busy() -> list[Status]:
        facade = AsyncQueue(queue)
        ids = await facade.enqueue_many([{"type": "a"}] * 40)
        waits = [asyncio.ensure_future(facade.wait(id)) for id in ids]
        for _ in ids:
            job = await asyncio.wait_for(facade.dequeue("a"), 10)
            assert job is not None
            await facade.complete(job)
        return [view.status for view in await asyncio.wait_for(asyncio.gather(*waits), 10) if view]

    assert asyncio.run(busy()) == [Status.COMPLETED] * 40


def test_an_awaited_wait_raises_what_wait_raises(queue: Queue) -> None:
    async def wait(id: str, timeout: float | None = None) -> None:
        await AsyncQueue(queue).wait(id, timeout)

    with pytest.raises(TimeoutError, match="still pending"):
        asyncio.run(wait(queue.enqueue("a"), 0))
    with pytest.raises(InvalidArgument):
        asyncio.run(wait("17"))
    queue.close()
    with pytest.raises(WrongUse, match="closed"):
        asyncio.run(wait("00000000-0000-7000-8000-000000000000"))
