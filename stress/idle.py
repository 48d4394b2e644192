"""How soon an idle worker starts a job that another process enqueues, and what it costs while idle (issue W7).

    python -m stress.idle [--url URL] [--jobs 200] [--idle SECONDS] [--synchronous full|normal]

Prints the time from an acknowledged enqueue to the first statement of its handler (p50, p99, worst), and the share of a
core that the idle worker uses.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from jobqueue import Job, Queue
from jobqueue.worker import Worker
from stress.bench.measure import Sample, summary

PAUSE = (0.05, 0.25)  # Seconds between two jobs: the worker is idle again before each.


def work(url: str, synchronous: Any) -> None:
    """In the worker's process: tell when each handler starts, and how much CPU time has gone so far."""

    def handler(job: Job) -> None:
        sys.stdout.write(f"{time.time_ns()} {time.process_time()}\n")
        sys.stdout.flush()

    with Queue.open(url, synchronous=synchronous) as queue:
        Worker(queue, handler).run()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="the database (default: an SQLite file of its own)")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(options.url, options.synchronous)
        return
    with tempfile.TemporaryDirectory() as directory:
        show(options.url or str(Path(directory) / "idle.db"), options)


def measured(url: str, synchronous: Any, jobs: int, idle: float) -> tuple[Sample, float]:
    """How long it took from enqueue to start, and the share of a core that the idle worker uses."""
    command = [sys.executable, "-m", "stress.idle", "--worker", "--url", url, "--synchronous", synchronous]
    with Queue.open(url, synchronous=synchronous) as queue:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            one(queue, process)  # The worker is up, and has done all that it does once.
            return latencies(queue, process, jobs), idle_share(queue, process, idle)
        finally:
            process.terminate()
            process.wait()


def show(url: str, options: argparse.Namespace) -> None:
    sample, share = measured(url, options.synchronous, options.jobs, options.idle)
    found = summary([sample])
    assert found.p50_us is not None
    assert found.p99_us is not None
    shown = "postgresql" if "://" in url else f"sqlite, synchronous={options.synchronous}"
    print(f"enqueue -> start in another process ({shown}, {sample.operations} jobs):")
    worst = max(sample.latencies) * 1000
    print(f"  p50 {found.p50_us / 1000:.2f} ms   p99 {found.p99_us / 1000:.2f} ms   worst {worst:.2f} ms")
    print(f"idle for {options.idle:g} s: {100 * share:.3f} % of a core")


def one(queue: Queue, process: subprocess.Popen[str]) -> tuple[float, float]:
    """Enqueue a job: (seconds until its handler started, CPU seconds that the worker has used)."""
    queue.enqueue("idle")
    acknowledged = time.time_ns()
    assert process.stdout is not None
    started, cpu = process.stdout.readline().split()
    return (int(started) - acknowledged) / 1e9, float(cpu)


def latencies(queue: Queue, process: subprocess.Popen[str], jobs: int) -> Sample:
    random, delays = Random(0), []
    for _ in range(jobs):
        time.sleep(random.uniform(*PAUSE))
        delays.append(one(queue, process)[0])
    return Sample(jobs, sum(delays), delays)


def idle_share(queue: Queue, process: subprocess.Popen[str], seconds: float) -> float:
    _, before = one(queue, process)
    time.sleep(seconds)
    _, after = one(queue, process)
    return (after - before) / seconds


if __name__ == "__main__":
    main()
