"""What is wrong, and the part of a job's history that shows it, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stress.explode import OPEN, PHANTOM
from stress.history import FOREVER
from stress.moves import Op

MOST_LINES = 24


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: which clause, about what, and a readable excerpt."""

    verdict: str
    clause: str
    job: str
    message: str
    excerpt: tuple[str, ...] = ()

    def as_object(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        head = f"{self.clause}: {self.message}" + (f" (job {self.job})" if self.job else "")
        return "\n".join([head, *(f"    {line}" for line in self.excerpt)])


def excerpt(ops: Iterable[Op], marked: Sequence[Op] = ()) -> tuple[str, ...]:
    """The history in order of invocation, times in milliseconds since its beginning; '>>' marks what is refused."""
    ordered = sorted(ops, key=lambda op: op.inv)
    if not ordered:
        return ()
    start = ordered[0].inv
    keep = _nearest(ordered, marked)
    return tuple(("" if op not in marked else ">> ") + told(op, start) for op in keep)


def _nearest(ordered: list[Op], marked: Sequence[Op]) -> list[Op]:
    """Of a long history the lines about what is refused, for they are what one has to read."""
    if len(ordered) <= MOST_LINES:
        return ordered
    last = max((index for index, op in enumerate(ordered) if op in marked), default=len(ordered) - 1)
    return ordered[max(0, last + 4 - MOST_LINES) : last + 4]


def told(op: Op, start: int) -> str:
    end = "(no answer)" if op.certain == OPEN or op.ret >= FOREVER else f"{(op.ret - start) / 1000:.3f}"
    if op.certain == PHANTOM:
        end = f"{end} (perhaps a second time: the connection was lost)"
    return f"{(op.inv - start) / 1000:.3f} – {end} ms  {op.client}: {said(op)}"


def said(op: Op) -> str:
    """The call and its answer."""
    answer = "" if op.reply is None else f" → {op.reply}"
    match op.kind:
        case "enqueue":
            payload, type, priority, _, delay, most, _, key = op.args[1]
            options = f"priority {priority}, max_attempts {most}" + (f", key {key}" if key else "")
            return f"enqueue {type} {payload!r}, {options}" + (f", delay {delay} µs" if delay else "") + answer
        case "claim":
            _, fence, worker, _, _, attempts, most, _, due, _, started, lease, *_ = op.reply
            return (f"dequeue → fence {fence}, attempt {attempts} of {most}, due {due}, started {started}, "
                    f"lease until {lease}, worker {worker}")  # fmt: skip
        case "settle":
            names = {"c": "complete", "f": "fail", "l": "release"}
            kind, _, fence, worker, *rest = op.args
            lost = " → LeaseLost" if op.reply is None and op.required else answer
            return f"{names[kind]} fence {fence} of {worker} {rest}{lost}"
        case "extend":
            return f"extend fence {op.args[1]}" + (" → LeaseLost" if op.reply is None and op.required else answer)
        case "look":
            return f"look → fence {op.args[0]} expired at {op.args[1]}"
        case "sweep":
            swept = " → not swept" if op.reply is None and op.required else answer
            return f"sweep fence {op.args[0]} expired at {op.args[1]}{swept} (its now is in {op.low}…{op.high})"
        case "begin":
            return f"the handler of fence {op.args} begins"
        case "row":
            return f"get{' → none' if op.reply is None else _row(op.reply)}"
        case "lost claim":
            return "a dequeue whose answer nobody got"
        case _:
            return f"{op.kind}{answer}"


def _row(job: Any) -> str:
    return (f" → {job.status}, attempts {job.attempts}, due {job.scheduled_at}, completed {job.completed_at}, "
            f"worker {job.worker}, error {job.error!r}, result {job.result}")  # fmt: skip
