"""What requeue and cancel share: ids or a filter, a question before many are changed, and the answer job by job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypedDict

import typer

from jobqueue import arguments
from jobqueue.cli_show import answer, complain
from jobqueue.errors import DuplicateKey, InvalidArgument
from jobqueue.queue import Queue
from jobqueue.transitions import Event, sources
from jobqueue.types import JobView
from jobqueue.values import id_bytes

COUNT_PAGE = 10_000


class Which(TypedDict):
    """A filter, as the queue's bulk operations take it."""

    status: str | None
    type: str | None
    unique_key: str | None


def by_ids(ids: list[str] | None, which: Which, all_matching: bool) -> bool:
    """Whether the command names ids; refused where it names both, or nothing."""
    filtered = any(value is not None for value in which.values())
    if ids and (filtered or all_matching):
        raise InvalidArgument("give ids, or --all-matching with --status, --type or --key; not both")
    if not ids and not all_matching:
        raise InvalidArgument("add --all-matching to mean every such job" if filtered else "give ids or --all-matching")
    for id in ids or []:
        id_bytes(id)  # All of them are checked before the first is changed.
    return bool(ids)


def one_by_one(queue: Queue, ids: list[str], change: Callable[[str], bool]) -> tuple[int, dict[str, str]]:
    """Change each; how many were, and why the others were not."""
    count, refused = 0, {}
    for id in dict.fromkeys(ids):
        try:
            if change(id):
                count += 1
                continue
            view = queue.get(id)
            refused[id] = "there is no such job" if view is None else f"it is {view.status}"
        except DuplicateKey as taken:
            refused[id] = str(taken)
    return count, refused


def confirm(queue: Queue, verb: str, event: Event, which: Which, yes: bool) -> None:
    """Ask before every job of a filter is changed; refuse a status that the operation cannot leave."""
    allowed = sources(event)
    wanted = which["status"]
    if wanted is not None and arguments.status(wanted) not in allowed:
        raise InvalidArgument(f"{verb} is for jobs that are {' or '.join(sorted(allowed))}, not {wanted}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidArgument(f"{verb} with --all-matching asks first; add --yes where nobody can answer")
    number = sum(1 for view in _matching(queue, which) if view.status in allowed)
    if not typer.confirm(f"{verb} {number} jobs?", err=True):
        raise typer.Abort


def _matching(queue: Queue, which: Which) -> Iterator[JobView]:
    after: JobView | None = None
    while page := queue.list(**which, after=after, limit=COUNT_PAGE):
        yield from page
        after = page[-1]


def report(verb: str, count: int, refused: dict[str, str], as_json: bool) -> int:
    answer({"count": count, "refused": refused}, as_json, f"{verb}: {count}")
    for id, reason in refused.items():
        complain(f"not {verb}: {id}: {reason}")
    return 1 if refused else 0
