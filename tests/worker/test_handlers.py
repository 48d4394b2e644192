"""Handlers: which function handles which type, and what its end means (spec W-4)."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

from jobqueue import InvalidArgument
from jobqueue.events import End
from jobqueue.handlers import (
    FRAMES,
    Handlers,
    Retry,
    Snooze,
    as_handlers,
    attempt,
    failure_text,
    is_coroutine_function,
)
from jobqueue.types import Complete, Fail, Job, JsonText, Release
from jobqueue.values import ERROR_LIMIT
from tests.worker import jobs


def job(payload: str = "null") -> Job:
    return Job(b"a", 1, "w", "x", 0, 1, 3, 0, 0, 0, 0, 0, None, None, None, payload)


def nothing(job: Job) -> None:
    return None


def test_a_registered_function_stays_directly_callable() -> None:
    handlers = Handlers()

    @handlers.register("double", "twice")
    def double(job: Job) -> int:
        result: int = job.payload * 2
        return result

    assert double(job("21")) == 42
    assert handlers.types == ("double", "twice")
    assert handlers.handler("twice") is double


def test_one_function_handles_every_type_or_those_that_are_named() -> None:
    assert as_handlers(nothing).types is None
    assert as_handlers(nothing).handler("whatever") is nothing
    assert Handlers(nothing, types=("a", "b")).types == ("a", "b")
    assert as_handlers(nothing).narrowed(("a",)) == ("a",)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Handlers().types,
        lambda: Handlers().register(),
        lambda: Handlers().register("")(nothing),
        lambda: Handlers().register("a\0b")(nothing),
        lambda: Handlers().register("a")(None),  # type: ignore[type-var]
        lambda: Handlers().register("a")(Job),  # type: ignore[type-var]  # A class is not a handler.
        lambda: Handlers(types=("a",)),
        lambda: Handlers(nothing, types=()),
        lambda: Handlers(nothing, types="send_email"),
        lambda: Handlers(nothing, types=("a",)).narrowed(("a", "b")),
        lambda: Handlers(nothing, types=("a",)).register("a")(nothing),
        lambda: Handlers(nothing, types=("a",)).handler("b"),
    ],
)
def test_sets_of_handlers_that_make_no_sense_are_refused(build: Any) -> None:
    with pytest.raises(InvalidArgument):
        build()


def test_a_type_twice_in_one_registration_is_one_type_and_a_refused_one_registers_nothing() -> None:
    handlers = Handlers()
    handlers.register("a", "a")(nothing)
    with pytest.raises(InvalidArgument):
        handlers.register("b", "a")(nothing)
    assert handlers.types == ("a",)


def test_handlers_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(jobs.handlers)).types == jobs.handlers.types


@pytest.mark.parametrize("arguments", [(-1,), (float("nan"),), ("soon",), (None,), (True,)])
def test_a_delay_that_makes_no_sense_is_refused(arguments: tuple[Any]) -> None:
    for kind in (Retry, Snooze):
        with pytest.raises(InvalidArgument):
            kind(*arguments)


def test_coroutine_functions_are_recognised_in_all_their_forms() -> None:
    class Caller:
        async def __call__(self, job: Job) -> None:
            return None

    assert is_coroutine_function(jobs.raising_later)
    assert is_coroutine_function(functools.partial(jobs.raising_later))
    assert is_coroutine_function(Caller())
    assert not is_coroutine_function(nothing)


def test_w4_each_way_to_end_is_its_settlement() -> None:
    one = job('["retry", 5]')
    assert attempt(nothing, one) == Complete(one)
    assert attempt(lambda job: {"a": [1, 0.5]}, one) == Complete(one, JsonText('{"a":[1,0.5]}'))
    assert attempt(jobs.asking, one) == Fail(one, "retry asked for", delay_us=5_000_000)
    one = job('["snooze", 0]')
    assert attempt(jobs.asking, one) == Release(one, begun=True, delay_us=0)
    one = job('["discard", "no such user"]')
    assert attempt(jobs.asking, one) == Fail(one, "no such user", for_good=True)


@pytest.mark.parametrize("kind", ["set", "bytes", "nan", "object"])
def test_w4_a_result_that_cannot_be_stored_ends_the_job_for_good(kind: str) -> None:
    settlement = attempt(jobs.odd_result, job(f'"{kind}"'))
    assert isinstance(settlement, Fail)
    assert settlement.for_good
    assert settlement.error.startswith("completed, but its result cannot be stored: result is")


def test_w4_a_result_that_raises_while_it_is_read_ends_the_job_for_good() -> None:
    class Trap(dict[str, int]):
        def items(self) -> Any:
            raise OSError("changed meanwhile")

    settlement = attempt(lambda job: Trap(a=1), job())
    assert isinstance(settlement, Fail)
    assert settlement.for_good


def test_w4_a_payload_that_is_not_json_fails_the_attempt() -> None:
    settlement = attempt(jobs.echo, job("{"))
    assert isinstance(settlement, Fail)
    assert settlement.error.startswith("JSONDecodeError")


def test_w4_a_job_that_was_completed_inside_is_not_settled_by_what_follows() -> None:
    def settled(job: Job) -> None:
        job.settled = True

    def then_raising(job: Job) -> None:
        job.settled = True
        raise ValueError

    assert attempt(settled, job()) is End.SETTLED
    assert attempt(then_raising, job()) is End.SETTLED


@pytest.mark.parametrize("name", jobs.RAISED)
def test_recording_a_failure_cannot_fail(name: str) -> None:
    settlement = attempt(jobs.raising, job(f'"{name}"'))
    assert isinstance(settlement, Fail)
    error = settlement.error
    assert error.startswith(type(jobs.RAISED[name]).__name__)
    assert len(error) <= ERROR_LIMIT
    assert "in raising" in error  # The last calls are named even behind a long message.
    error.encode()
    assert "\0" not in error


def test_an_error_names_the_last_calls_only() -> None:
    def down(depth: int) -> None:
        if depth == 0:
            raise ValueError("deep")
        down(depth - 1)

    try:
        down(50)
    except ValueError as error:
        text = failure_text(error)
    assert text.startswith("ValueError: deep\n")
    assert len(text.splitlines()) == 1 + FRAMES
