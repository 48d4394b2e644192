"""The plan of a run: what the jobs are, and when the nemesis strikes. A pure function of the seed.

What then happens is not: processes race. But the same jobs are enqueued, they behave alike, and the same strikes are
tried at the same times against the same seats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from stress.options import Options

# What a handler does with its job. The rest of the jobs end well at once.
SLOW, SNOOZE, DISCARD, RETRY = 0.03, 0.02, 0.01, 0.02


@dataclass(frozen=True, slots=True)
class Strike:
    """One deed of the nemesis: `at` seconds after the start; `pick` in [0, 1) chooses whom it meets."""

    at: float
    kind: str
    pick: float
    length: float = 0.0


def block(options: Options, producer: int, number: int) -> list[dict[str, Any]]:
    """The jobs of a producer's block, as arguments of enqueue. The payload says who it is and what its handler does."""
    random = Random(f"{options.seed}/{producer}/{number}")
    return [_job(options, random, f"{producer}:{number}:{index}") for index in range(options.batch)]


def _job(options: Options, random: Random, tag: str) -> dict[str, Any]:
    job: dict[str, Any] = {
        "type": f"type{random.randrange(options.types)}",
        "payload": f"{tag} {_deed(options, random)}",
        "priority": random.randrange(options.priorities),
        "max_attempts": random.choice(options.max_attempts),
    }
    chance = random.random()
    if chance < options.unique:
        # Few keys at a time, so that they collide; new ones after a while, so that their histories stay short.
        job["unique_key"] = f"key-{tag.split(':')[1]}-{random.randrange(4)}"
    elif chance < options.unique + 0.1:
        job["delay"] = round(random.uniform(0.05, 1.0), 3)
    if " hang " in job["payload"]:
        job["timeout"] = round(options.lease * 0.4, 3)
    return job


def _deed(options: Options, random: Random) -> str:
    """Deed and milliseconds."""
    chance = random.random()
    parts = {"slow": SLOW, "hang": options.hanging, "snooze": SNOOZE, "discard": DISCARD, "retry": RETRY}
    for name, part in parts.items():
        part = part / 20 if options.long else part
        if chance < part:
            return f"{name} {int(random.uniform(0.2, 1.6) * options.lease * 1000)}"
        chance -= part
    if chance < options.poison:
        return "poison 0"
    return f"ok {0 if options.long else int(random.expovariate(1 / 5))}"


def fails(options: Options, tag: str, fence: int) -> bool:
    """Whether this attempt of an otherwise good job fails."""
    return Random(f"{options.seed}/{tag}/{fence}").random() < options.failures


def strikes(options: Options) -> list[Strike]:
    """Every deed of the nemesis, in order of time."""
    random = Random(f"{options.seed}/nemesis")
    end = options.seconds if options.jobs is None else 3600.0
    lease = options.lease
    found = [
        *_every(random, "kill", options.kill_every, end, 0, 0),
        *_every(random, "pause", options.pause_every, end, 1.1 * lease, 2.5 * lease),
        *_every(random, "stop", options.stop_every, end, 0, 0),
        *_every(random, "lock", options.lock_every, end, 1.2 * lease, 2.0 * lease),
    ]
    if options.on_postgres:
        found += _every(random, "terminate", 3.0, end, 0, 0)
        found += [] if options.url else _every(random, "restart", 25.0, end, 0.1, 1.0)
    else:
        found += _every(random, "disk", 20.0, end, 1.0, 2.5)
    chosen = [strike for strike in found if options.strikes is None or strike.kind in options.strikes]
    return sorted(chosen, key=lambda strike: strike.at)


def _every(random: Random, kind: str, apart: float, end: float, shortest: float, longest: float) -> Iterator[Strike]:
    at = random.uniform(0.3, 1.0) * apart
    while apart and at < end - 0.5:
        yield Strike(round(at, 3), kind, random.random(), round(random.uniform(shortest, longest), 3))
        at += random.uniform(0.6, 1.4) * apart
