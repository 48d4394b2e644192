"""A worker over many jobs: memory, file descriptors and threads must not grow."""

from __future__ import annotations

from jobqueue import Worker
from stress.bench import report
from stress.bench.ground import payloads
from stress.bench.measure import Summary
from stress.bench.ours import handlers, resources
from stress.bench.workloads import Bench, Ground


def memory_over(bench: Bench, ground: Ground) -> list[report.Row]:
    """Pass jobs through one worker process in portions; what it holds after the first and after the last of them."""
    portion, items = bench.scale.bulk, payloads(bench.scale.bulk)
    rows: list[report.Row] = []
    with ground() as url:
        ours = bench.ours(url)
        try:
            for number in range(1, 11):
                ours.enqueue_many(items, 1000)
                Worker(ours.queue, handlers).run(drain=True)
                if number in (2, 10):
                    held = resources()
                    text = ", ".join(f"{name} {value:,}" for name, value in held.items())
                    rows.append(
                        report.row("memory", f"after {number * portion:,} jobs", text, Summary(0.0, None, None), [])
                    )
        finally:
            ours.close()
    return rows
