"""Our side of each workload: the public API, and for draining the real Worker."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any, Literal

from jobqueue import Handlers, Job, Queue, Worker
from stress.bench.measure import Sample, each, timed

Synchronous = Literal["full", "normal"]
handlers = Handlers()
handled = 0


@handlers.register("job")
def read_payload(job: Job) -> None:
    """The handler of every workload reads what it was given, and does nothing with it."""
    global handled
    handled += len(job.payload) > 0


class Ours:
    """One queue, measured."""

    def __init__(self, url: str, synchronous: Synchronous) -> None:
        self.url, self.synchronous = url, synchronous
        self.queue = Queue.open(url, synchronous=synchronous)

    def close(self) -> None:
        self.queue.close()

    def enqueue(self, payloads: list[Any]) -> Sample:
        enqueue = self.queue.enqueue
        return each(len(payloads), lambda number: enqueue("job", payloads[number]))

    def enqueue_many(self, payloads: list[Any], batch: int) -> Sample:
        def all_of_them() -> None:
            for start in range(0, len(payloads), batch):
                self.queue.enqueue_many({"type": "job", "payload": item} for item in payloads[start : start + batch])

        return timed(len(payloads), all_of_them)

    def drain_calls(self, operations: int) -> Sample:
        """dequeue and complete, call by call."""
        queue = self.queue

        def one(_: int) -> None:
            job = queue.dequeue("job")
            assert job is not None, "a workload is as large as its queue"
            read_payload(job)
            queue.complete(job)

        return each(operations, one)

    def drain_worker(self, operations: int, batch: int) -> Sample:
        """The real Worker with one handler at a time and at most ``batch`` claims in line."""
        worker = Worker(self.queue, handlers, batch=batch)
        return timed(operations, lambda: worker.run(drain=True))


def drain_in_processes(url: str, synchronous: Synchronous, processes: int, batch: int) -> tuple[float, list[int]]:
    """Drain with several worker processes: seconds from the common start to the last end, and each one's share."""
    spawn = multiprocessing.get_context("spawn")
    start, shares = spawn.Event(), spawn.SimpleQueue()
    ready = [spawn.Event() for _ in range(processes)]
    workers = [
        spawn.Process(target=_drain, args=(url, synchronous, batch, ready[number], start, shares))
        for number in range(processes)
    ]
    for process in workers:
        process.start()
    for event in ready:
        event.wait()
    before = time.perf_counter()
    start.set()
    counts = [shares.get() for _ in workers]
    seconds = time.perf_counter() - before
    for process in workers:
        process.join()
    return seconds, counts


def _drain(url: str, synchronous: Synchronous, batch: int, ready: Any, start: Any, shares: Any) -> None:
    with Queue.open(url, synchronous=synchronous) as queue:
        worker = Worker(queue, handlers, batch=batch)
        ready.set()
        start.wait()
        worker.run(drain=True)
        shares.put(handled)


def resources() -> dict[str, int]:
    """What this process holds: resident memory in KiB, file descriptors, threads (Linux)."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status if ":" in line)
    return {
        "rss_kib": int(fields["VmRSS"].split()[0]),
        "file_descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(fields["Threads"]),
    }
