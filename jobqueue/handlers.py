"""Which function handles which type, and what its end means for the job (spec W-4)."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from jobqueue import forks, values
from jobqueue.errors import InvalidArgument, JobQueueError
from jobqueue.events import End
from jobqueue.types import Complete, Fail, Job, JsonText, Release, Settlement
from jobqueue.values import Duration

Handler = Callable[[Job], Any]
F = TypeVar("F", bound=Handler)
FRAMES = 4  # How many of the innermost calls an error text names.


class Retry(JobQueueError):
    """Raised by a handler: this attempt failed; if any remain, the next is after ``delay`` instead of the backoff."""

    def __init__(self, delay: Duration, reason: object = "retry asked for") -> None:
        super().__init__(values.error_text(reason))
        self.delay_us = values.duration(delay, "delay", zero=True)


class Snooze(JobQueueError):
    """Raised by a handler: not now; again after ``delay``, and this attempt does not count (T-6)."""

    def __init__(self, delay: Duration) -> None:
        super().__init__("snoozed")
        self.delay_us = values.duration(delay, "delay", zero=True)


class Discard(JobQueueError):
    """Raised by a handler: give the job up for good, whatever attempts remain; it is dead with ``reason``."""

    def __init__(self, reason: object) -> None:
        super().__init__(values.error_text(reason))


class Handlers:
    """The handlers of a worker: one for each type, or one function for all (or some) of them."""

    def __init__(self, dispatch: Handler | None = None, types: Iterable[str] | None = None) -> None:
        """``dispatch`` handles every job, or those of ``types``; without it, ``register`` fills an empty set."""
        self._by_type: dict[str, Handler] = {}
        self._for_any: Handler | None = None
        if dispatch is None and types is not None:
            raise InvalidArgument("types narrow a dispatching function; give that function as well")
        if dispatch is not None and types is None:
            self._for_any = _checked(dispatch)
        elif dispatch is not None and types is not None:
            self.register(*_several(types))(dispatch)

    def register(self, *types: str) -> Callable[[F], F]:
        """A decorator: the function handles jobs of these types. It stays directly callable."""
        wanted = _several(types)

        def add(function: F) -> F:
            handler = _checked(function)
            for type in wanted:
                if type in self._by_type:
                    raise InvalidArgument(f"type {type!r} has a handler already")
            self._by_type.update(dict.fromkeys(wanted, handler))
            return function

        return add

    @property
    def types(self) -> tuple[str, ...] | None:
        """The types that have a handler; None means every type. Refused while there is none."""
        if self._for_any is not None:
            return None
        if not self._by_type:
            raise InvalidArgument("there are no handlers: register at least one")
        return tuple(self._by_type)

    def handler(self, type: str) -> Handler:
        """The function that handles ``type``."""
        found = self._by_type.get(type, self._for_any)
        if found is None:
            raise InvalidArgument(f"type {type!r} has no handler")
        return found

    @property
    def has_coroutines(self) -> bool:
        """Whether any handler is a coroutine function."""
        functions = self._by_type.values() if self._for_any is None else (self._for_any,)
        return any(is_coroutine_function(function) for function in functions)

    def narrowed(self, types: Iterable[str] | None) -> tuple[str, ...] | None:
        """``types``, each of which must have a handler; None gives all that there are."""
        if types is None:
            return self.types
        wanted = _several(types)
        for type in wanted:
            self.handler(type)
        return wanted


def _several(types: Iterable[str]) -> tuple[str, ...]:
    if isinstance(types, str):
        raise InvalidArgument(f"types are given as several texts, like ({types!r},)")
    wanted = values.types(types)
    if not wanted:
        raise InvalidArgument("name at least one type")
    return wanted


def _checked(function: F) -> F:
    if not callable(function) or isinstance(function, type):
        raise InvalidArgument(f"a handler is a function that takes the job, not {function!r}")
    return function


def as_handlers(given: Handlers | Handler) -> Handlers:
    """A worker's argument: a set of handlers, or one function for every type."""
    return given if isinstance(given, Handlers) else Handlers(given)


def load(target: str) -> Handlers:
    """The Handlers, or the one function for every type, that 'module:name' names."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise InvalidArgument(f"{target!r}: write MODULE:HANDLERS, like app:handlers")
    if "/" in module or module.endswith(".py") or module.startswith("."):
        named = module.removesuffix(".py").lstrip("./").replace("/", ".")
        raise InvalidArgument(f"{target!r} names a file; name the module, as import does: {named}:{name}")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # Whatever the user's module raises; the line is what helps to mend it.
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if where.filename.startswith("<frozen") else f" ({where.filename}, line {where.lineno})"
        raise InvalidArgument(f"cannot import {module}: {type(error).__name__}: {error}{place}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{module} has no {name}")
        found = getattr(found, part)
    return as_handlers(found)


def is_coroutine_function(function: Handler) -> bool:
    """Whether calling ``function`` gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )


def attempt(function: Handler, job: Job) -> Settlement | End:
    """Run a plain handler to its end, whatever end that is; what the job's settlement then is. Raises nothing.

    A process that the handler has forked may come back here, too: it ends, for there is one outcome (W-5).
    """
    generation = forks.generation
    try:
        result = function(job)
    except BaseException as error:
        if forks.generation != generation:
            forks.end_copy(error)
        return raised(job, error)
    if forks.generation != generation:
        forks.end_copy(None)
    if result is None and not job.settled:
        return Complete(job)
    return returned(job, result)


async def attempt_coroutine(function: Callable[[Job], Coroutine[Any, Any, Any]], job: Job) -> Settlement | End:
    """Run a coroutine handler to its end, as ``attempt`` does for a plain one."""
    try:
        result = await function(job)
    except BaseException as error:  # Also GeneratorExit and CancelledError that the handler raised by itself.
        return raised(job, error)
    return returned(job, result)


def returned(job: Job, result: object) -> Settlement | End:
    """W-4: a handler that returned. The result is encoded here, beside the handler, not under the database's lock."""
    if job.settled:
        return End.SETTLED
    if result is None:
        return Complete(job)
    try:
        return Complete(job, JsonText(values.json_text(result, "result")))
    except BaseException as error:  # Finished work is not run again, not even if its result raises when read (spec §8).
        return Fail(job, f"completed, but its result cannot be stored: {_message(error)}", for_good=True)


def raised(job: Job, error: BaseException) -> Settlement | End:
    """W-4: a handler that raised. Only text is kept of what it raised, so that its frames and their data are freed."""
    if job.settled:
        return End.SETTLED
    try:
        return _asked_for(job, error)
    except BaseException:  # A subclass of the handler's own, which is not what its base is.
        return Fail(job, failure_text(error))


def _asked_for(job: Job, error: BaseException) -> Settlement:
    if isinstance(error, (Retry, Snooze)):
        delay_us = values.whole(error.delay_us, "delay", 0, values.MAX_DURATION)
        if isinstance(error, Snooze):
            return Release(job, delay_us=delay_us)
        return Fail(job, values.error_text(str(error)), delay_us=delay_us)
    if isinstance(error, Discard):
        return Fail(job, values.error_text(str(error)), for_good=True)
    return Fail(job, failure_text(error))


def failure_text(error: BaseException) -> str:
    """A short account of an exception: its type, its message, and the last calls. Never raises."""
    try:
        name = type(error).__name__
        return values.error_text(f"{name}: {_message(error)}{_calls(error)}")
    except BaseException:
        return "an exception that cannot be shown"


def _message(error: BaseException) -> str:
    """The text of an exception, cut; an exception may be unprintable, or as long as its data."""
    try:
        return values.error_text(str(error)[: values.ERROR_LIMIT // 2])
    except BaseException as second:
        return f"(its text cannot be shown: {type(second).__name__})"


def _calls(error: BaseException) -> str:
    frames: deque[str] = deque(maxlen=FRAMES)
    trace = error.__traceback__
    if trace is not None and trace.tb_next is not None:
        trace = trace.tb_next  # The first call is this file's own.
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"\n  in {code.co_qualname}, {code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    return "".join(frames)
