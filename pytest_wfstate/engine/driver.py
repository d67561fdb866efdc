"""The driver: makes calls on a sync or async store, each with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, NoReturn

import pytest

from pytest_wfstate.contracts.base import Call, Operation
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.engine.alarm import Alarm, TimeIsUp
from pytest_wfstate.engine.reading import Reading
from pytest_wfstate.errors import AdapterError, CannotCompare, StoreTimeout, blamed
from pytest_wfstate.faults.cancel import Cancellation
from pytest_wfstate.oracle.history import Outcome, Refused, Returned
from pytest_wfstate.oracle.model import REFUSALS, refused
from pytest_wfstate.oracle.render import call_in_words, short
from pytest_wfstate.oracle.values import plain

__tracebackhide__ = True

NOT_OFFERED = "not offered"
"""How the reason begins for skipping a clause that needs a method the store lacks."""
NOT_SUPPORTED = "not supported"
"""How the reason begins for skipping a clause that needs what the store does not do by design."""
_TIMEOUT_AFTER_HANG = 2.0
"""Seconds for a call once the store hung in the same test: shrinking makes the same call many times."""


class Driver:
    """Makes the calls of one test: sync or async, each with a time limit, with records in the store's own type."""

    def __init__(
        self,
        timeout: float = 30,
        encode: Callable[[Any], Any] = lambda record: record,
        decode: Callable[[Any], Any] = lambda value: value,
        normalise: Callable[[Any], Any] = lambda record: record,
        operations: Iterable[Operation] = (),
        refusals: tuple[type[Exception], ...] = (),
        *,
        keeps_tuples: bool = False,
        by_async_names: bool = False,
    ) -> None:
        self._alarm = Alarm(timeout)
        self._encode = encode
        self._decode = decode
        self.normalise = normalise
        self._operations = {operation.name: operation for operation in operations}
        self._refusals = refusals
        self._keeps_tuples = keeps_tuples
        self._by_async_names = by_async_names
        self._offered: dict[Any, str | None] = {}
        self._runners: dict[tuple[int, int], asyncio.Runner] = {}
        self.refusal: BaseException | None = None
        """The error with which the store last refused a call."""
        self._cancellation: Cancellation | None = None

    def call(self, store: Any, call: Call) -> Any:
        """Make a call and return its result, records decoded; None if the contract says nothing of it.

        Skips the test if the store does not offer the method, or not with these arguments.
        """
        self._need(store, call)
        name, operation = self._method(store, call.name), self._operations.get(call.name)
        args, named = call.split()
        method = functools.partial(getattr(store, name), *map(self._encoded, args), **named)
        function = functools.partial(self._cancellable, method)
        convert = functools.partial(_converted, operation) if operation and operation.result else None
        try:
            result = self.run(functools.partial(_made, function, convert), name)
        except NotImplementedError:
            reason = f"{type(store).__name__}.{name} raises NotImplementedError"
            if call.name in self._required():
                pytest.skip(f"{NOT_SUPPORTED}: {reason}")
            self._not_offered(reason, call)
        return None if operation and operation.returns_nothing else self._decoded(result)

    def begin_to_read(self, store: Any, call: Call) -> Reading | None:
        """Make a call, and return its iterator; None if it returns no iterator."""
        self._need(store, call)
        name, (args, named) = self._method(store, call.name), call.split()
        result = self.run(lambda: getattr(store, name)(*map(self._encoded, args), **named), name)
        return Reading(result, self.run, name) if isinstance(result, Iterator | AsyncIterator) else None

    def outcome(self, store: Any, call: Call) -> Outcome:
        """Make a call and return its outcome. An error that is not a refusal is raised."""
        operation = self._operations.get(call.name)
        may_raise = operation.may_raise if operation else ()
        refusals: tuple[type[Exception], ...] = (*may_raise, *self._refusals, *REFUSALS)
        try:
            result = self.call(store, call)
        except (AdapterError, CannotCompare, StoreTimeout):
            raise  # whatever it is a subclass of, the store did not raise it
        except refusals as error:
            self.refusal = error
            is_declared = isinstance(error, self._refusals) and not isinstance(error, may_raise)
            return Refused(type(error), declared=True) if is_declared else refused(error, may_raise)
        try:
            return Returned(plain(result, self.normalise, keeps_tuples=self._keeps_tuples))
        except CannotCompare as error:
            text = f"{call_in_words(call)} returned what cannot be compared: {error} Or convert it in decode()."
            raise CannotCompare(text) from error.__cause__

    def has(self, store: Any, name: str) -> bool:
        """Whether a store has a method of the contract."""
        return hasattr(store, self._method(store, name))

    def has_other_names(self, store: Any) -> bool:
        """Whether a store has methods by their async names alone, or by their others alone, and those are not meant."""
        twins = [operation for operation in self._operations.values() if operation.async_name]
        by_name = any(hasattr(store, operation.name) for operation in twins)
        by_async_name = any(hasattr(store, operation.async_name) for operation in twins)
        return by_name != by_async_name and by_name == self._by_async_names

    def _method(self, store: Any, name: str) -> str:
        """Return which of the two names of a method to call: the other one, if the store has no such method."""
        operation = self._operations.get(name)
        if operation is None or not operation.async_name:
            return name
        names = (operation.async_name, name) if self._by_async_names else (name, operation.async_name)
        return next((each for each in names if hasattr(store, each)), name)

    def run(self, function: Callable[[], Any], name: str) -> Any:
        """Call a function, and await its result if need be, within the time limit.

        Raises:
            StoreTimeout: it did not return in time.
        """
        try:
            with self._alarm:
                result = function()
                if not inspect.isawaitable(result):
                    return result
                # Not Runner.run: it sets a signal handler each time, for which Python formats the whole result.
                awaits = self._cancellation.after if self._cancellation else _awaited
                return self._runner().get_loop().run_until_complete(awaits(result))
        except TimeIsUp as error:
            waited, self._alarm.seconds = self._alarm.seconds, min(self._alarm.seconds, _TIMEOUT_AFTER_HANG)
            raise StoreTimeout(
                f"{name} did not return within {waited:g} s. It may be waiting for a lock that is never released. "
                "If the store is only slow, raise the limit with --wfstate-timeout=SECONDS."
            ).with_traceback(error.place()) from None

    @contextlib.contextmanager
    def cancelling(self, cancellation: Cancellation) -> Iterator[None]:
        """Have async calls made through a cancellation."""
        with cancellation:
            self._cancellation = cancellation
            try:
                yield
            finally:
                self._cancellation = None

    def close(self) -> None:
        """Close the event loops of this process, and remove the alarm."""
        self._alarm.close()
        for (pid, _), runner in self._runners.items():
            if pid == os.getpid():
                runner.close()

    def _cancellable(self, function: Callable[[], Any]) -> Any:
        """Call a function. What it returns is awaited through the cancellation, if there is one."""
        result = function()
        return self._cancellation.call(result) if self._cancellation and inspect.isawaitable(result) else result

    def _runner(self) -> asyncio.Runner:
        """Return this thread's runner: neither another thread nor a forked child can use it."""
        return self._runners.setdefault((os.getpid(), threading.get_ident()), asyncio.Runner())

    def _encoded(self, value: Any) -> Any:
        return _adapted("encode() of the suite", self._encode, value) if isinstance(value, Record) else value

    def _decoded(self, value: Any) -> Any:
        if type(value) in (list, tuple):  # a named tuple is a record
            return type(value)(map(self._decoded, value))
        if value is None or isinstance(value, (str, int)):
            return value
        return _adapted("decode() of the suite", self._decode, value)

    def _need(self, store: Any, call: Call) -> None:
        key = (type(store), call.name, len(call.args), call.keywords)
        if key not in self._offered:
            self._offered[key] = _why_not_offered(store, call, self._method(store, call.name))
        reason = self._offered[key]
        if reason:
            self._not_offered(reason, call)

    def _not_offered(self, reason: str, call: Call) -> NoReturn:
        required = self._required()
        if call.name in required:
            text = (
                f"{reason}. Every store must offer {' and '.join(required)}. "
                "If yours names them differently, have open() return a wrapper with these names."
            )
            raise blamed(pytest.fail.Exception(text, pytrace=False), reason)
        pytest.skip(f"{NOT_OFFERED}: {reason}")

    def _required(self) -> list[str]:
        return [operation.name for operation in self._operations.values() if operation.required]


def _made(function: Callable[[], Any], convert: Callable[[Any], Any] | None) -> Any:
    """Make a call, read what it returns to the end if that is an iterator, and convert it."""
    value = _listed(function())
    if not _is_async(value) and convert:
        value, convert = _listed(convert(value)), None
    return _finished(value, convert) if _is_async(value) else value


async def _finished(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    """Do the same with what is async."""
    value = await _read(value)
    return await _read(convert(value)) if convert else value


async def _read(value: Any) -> Any:
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncIterator):
        return [item async for item in value]
    return _listed(value)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def _is_async(value: Any) -> bool:
    return isinstance(value, AsyncIterator) or inspect.isawaitable(value)


def _converted(operation: Operation, value: Any) -> Any:
    """Convert what a store returned, as the operation says.

    Raises:
        AdapterError: that raises an error. It is not the store's.
    """
    assert operation.result is not None
    converted = _adapted(f"result= of {operation.name}", operation.result, value)
    return _awaited_conversion(operation, converted, value) if _is_async(converted) else converted


async def _awaited_conversion(operation: Operation, converted: Any, value: Any) -> Any:
    try:
        return await _read(converted)
    except Exception as error:
        raise _adapter_error(f"result= of {operation.name}", value, error) from error


def _why_not_offered(store: Any, call: Call, name: str) -> str | None:
    kind = type(store).__name__
    method = getattr(store, name, None)
    if method is None:
        return f"{kind} has no method {name}"
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of a method in C, say: then the call itself shows
        return None
    args, named = call.split()
    if _binds(signature.bind, *args, **named):
        return None
    if named and _binds(signature.bind_partial, *args):
        return f"{kind}.{name} has no argument {', '.join(named)}"
    return f"{kind}.{name}{signature} cannot be called as {call_in_words(dataclasses.replace(call, name=name))}"


def _binds(bind: Callable[..., Any], *args: Any, **named: Any) -> bool:
    try:
        bind(*args, **named)
    except TypeError:
        return False
    return True


def _adapted(what: str, adapt: Callable[[Any], Any], value: Any) -> Any:
    try:
        return adapt(value)
    except Exception as error:
        raise _adapter_error(what, value, error) from error


def _adapter_error(what: str, value: Any, error: Exception) -> AdapterError:
    return AdapterError(
        f"{what} raises {type(error).__name__}: {error}. It was called with {short(repr(value))}. "
        "Fix it first: until it works, the suite learns nothing about the store."
    )


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result
