"""What can be said of a job's history at a glance, by clause: readable findings before any search.

Each rule holds for every linearizable history, so none can be wrong where the search is right; but a finding by name
says more than 'there is no order'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from model import Rules
from stress.findings import Finding, excerpt
from stress.moves import Facts, Op


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rules need to know of the run."""

    rules: Rules
    heartbeat: int
    quits: frozenset[str]


Rule = Callable[[Facts, list[Op], Setting], Iterator[tuple[str, str, list[Op]]]]


def at_a_glance(facts: Facts, ops: list[Op], setting: Setting) -> list[Finding]:
    return [
        Finding("a", clause, facts.id, message, excerpt(ops, marked))
        for rule in RULES
        for clause, message, marked in rule(facts, ops, setting)
    ]


def one_holder(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    for fence, claims in facts.claims.items():
        if len(claims) > 1:
            yield "G-2", f"fence {fence} was given to {len(claims)} holders", claims


def bounded(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    for claim in _claims(facts):
        _, fence, _, _, _, attempts, most, *_ = claim.reply
        if not 1 <= attempts <= min(most, fence):
            yield "G-6", f"attempt {attempts} of {most}, with fence {fence}", [claim]


def counted(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    """G-5: from one claim to the next attempts grow by one, unless a release or a requeue came between."""
    given = any(op.kind == "requeue" and op.reply is not False for op in ops)
    given = given or any(op.kind == "settle" and op.args[0] == "l" for op in ops)
    if given:
        return
    for before, after in _successive(facts):
        if after.reply[5] != before.reply[5] + 1:
            yield "G-5", f"attempt {before.reply[5]} was followed by attempt {after.reply[5]}", [before, after]


def not_early(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    for claim in _claims(facts):
        due, started = claim.reply[8], claim.reply[10]
        if started < due:
            yield "G-10", f"claimed {due - started} µs before it was due", [claim]
        if not claim.low <= started <= claim.high:
            yield "T-2", f"started_at {started} is not the now of its dequeue ({claim.low}…{claim.high})", [claim]


def backed_off(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    """G-11, where the next claim shows when the retry was due and no requeue or release can have come between."""
    for failure, attempts, at, delay in backoffs(facts, ops):
        plain = setting.rules.plain(attempts) if delay is None else delay
        most = plain + (int(setting.rules.jitter * plain) if delay is None else 0)
        if not failure.low + plain <= at <= failure.high + most:
            shown = f"{at - failure.high}…{at - failure.low} µs, not in {plain}…{most}"
            yield "G-11" if delay is None else "T-4", f"the retry after attempt {attempts} waits {shown}", [failure]


def backoffs(facts: Facts, ops: list[Op]) -> Iterator[tuple[Op, int, int, int | None]]:
    """Each failure that led straight to the next claim: the failure, its attempt, the retry's time, a given delay."""
    failures = {_fence(op): op for op in ops if op.required and op.reply == "failed"}
    for before, after in _successive(facts):
        failure = failures.get(before.reply[1])
        if failure is not None and after.reply[5] == before.reply[5] + 1:
            delay = failure.args[5] if failure.kind == "settle" else None
            yield failure, before.reply[5], after.reply[8], delay


def begun_once(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    """G-20: of a job with max_attempts 1, no two claims are begun unless a requeue can have come between."""
    first = facts.first
    if first is None or first[6] != 1:
        return
    begun = {op.args: op for op in ops if op.kind == "begin"}
    requeues = [op for op in ops if op.kind == "requeue" and op.reply is not False]
    fences = sorted(fence for fence in begun if fence in facts.claims)
    for earlier, later in pairwise(fences):
        since, until = facts.claims[earlier][0].inv, facts.claims[later][0].ret
        if not any(op.ret >= since and op.inv <= until for op in requeues):
            yield "G-20", f"begun with fence {earlier} and with {later}", [begun[earlier], begun[later]]


def two_looks(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    """W-3: who sweeps has seen the same fence and lease in two looks, more than a heartbeat apart."""
    for sweep in ops:
        if sweep.kind != "sweep":
            continue
        looks = [op for op in ops if op.kind == "look" and op.client == sweep.client
                 and list(op.args) == list(sweep.args) and op.ret <= sweep.inv]  # fmt: skip
        apart = max((op.ret for op in looks), default=0) - min((op.inv for op in looks), default=0)
        if len(looks) < 2 or apart <= setting.heartbeat:
            yield "W-3", f"swept after {len(looks)} look(s), {apart} µs apart", [sweep, *looks]


def own_outcome(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    """W-5: handlers return the fence they were given; a claim is completed with the outcome of its own handler."""
    for op in ops:
        if op.kind == "settle" and op.args[0] == "c" and op.args[4] not in (None, str(op.args[2])):
            yield "W-5", f"fence {op.args[2]} was completed with the outcome of fence {op.args[4]}", [op]


def none_left(facts: Facts, ops: list[Op], setting: Setting) -> Iterator[tuple[str, str, list[Op]]]:
    """W-7: a worker that ended in good order has settled every claim that it was given, or was told of its loss."""
    for claim in _claims(facts):
        if claim.client in setting.quits:
            own = [op for op in ops if op.client == claim.client and op.kind in ("settle", "extend")]
            if not any(_fence(op) == claim.reply[1] and (op.kind == "settle" or op.reply is None) for op in own):
                yield "W-7", f"{claim.client} ended in good order and left fence {claim.reply[1]}", [claim]


def _claims(facts: Facts) -> list[Op]:
    return [op for fence in sorted(facts.claims) for op in facts.claims[fence]]


def _successive(facts: Facts) -> Iterator[tuple[Op, Op]]:
    """Claims whose fences follow each other."""
    for fence, claims in facts.claims.items():
        if fence + 1 in facts.claims:
            yield claims[0], facts.claims[fence + 1][0]


def _fence(op: Op) -> int | None:
    """The fence that a holder's operation or a sweep is about."""
    by_kind: Mapping[str, int] = {"settle": 2, "extend": 1, "sweep": 0}
    index = by_kind.get(op.kind)
    return None if index is None else int(op.args[index])


RULES: tuple[Rule, ...] = (
    one_holder, bounded, counted, not_early, backed_off, begun_once, two_looks, own_outcome, none_left,
)  # fmt: skip
