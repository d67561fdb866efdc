"""The driver: makes calls on a sync or async store, each with a time limit."""

from __future__ import annotations

import asyncio
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
from pytest_wfstate.errors import AdapterError, CannotCompare, StoreTimeout, blamed
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
    ) -> None:
        self._alarm = Alarm(timeout)
        self._encode = encode
        self._decode = decode
        self.normalise = normalise
        self._operations = {operation.name: operation for operation in operations}
        self._refusals = refusals
        self._offered: dict[Any, str | None] = {}
        self._runners: dict[tuple[int, int], asyncio.Runner] = {}
        self.refusal: BaseException | None = None
        """The error with which the store last refused a call."""

    def call(self, store: Any, call: Call) -> Any:
        """Make a call and return its result, records decoded; None if the contract says nothing of it.

        Skips the test if the store does not offer the method, or not with these arguments.
        """
        self._need(store, call)
        args, named = call.split()
        function = functools.partial(getattr(store, call.name), *map(self._encoded, args), **named)
        try:
            result = self.run(functools.partial(_made, function), call.name)
        except NotImplementedError:
            reason = f"{type(store).__name__}.{call.name} raises NotImplementedError"
            if call.name in self._required():
                pytest.skip(f"{NOT_SUPPORTED}: {reason}")
            self._not_offered(reason, call)
        operation = self._operations.get(call.name)
        return None if operation and operation.returns_nothing else self._decoded(result)

    def outcome(self, store: Any, call: Call) -> Outcome:
        """Make a call and return its outcome. An error that is not a refusal is raised."""
        try:
            result = self.call(store, call)
        except self._refusals as error:
            self.refusal = error
            return Refused(type(error), declared=True)
        except REFUSALS as error:
            self.refusal = error
            return refused(error)
        try:
            return Returned(plain(result, self.normalise))
        except CannotCompare as error:
            text = f"{call_in_words(call)} returned what cannot be compared: {error} Or convert it in decode()."
            raise CannotCompare(text) from error.__cause__

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
                return self._runner().get_loop().run_until_complete(_awaited(result))
        except TimeIsUp as error:
            waited, self._alarm.seconds = self._alarm.seconds, min(self._alarm.seconds, _TIMEOUT_AFTER_HANG)
            raise StoreTimeout(
                f"{name} did not return within {waited:g} s. It may be waiting for a lock that is never released. "
                "If the store is only slow, raise the limit with --wfstate-timeout=SECONDS."
            ).with_traceback(error.place()) from None

    def close(self) -> None:
        """Close the event loops of this process, and remove the alarm."""
        self._alarm.close()
        for (pid, _), runner in self._runners.items():
            if pid == os.getpid():
                runner.close()

    def _runner(self) -> asyncio.Runner:
        """Return this thread's runner: neither another thread nor a forked child can use it."""
        return self._runners.setdefault((os.getpid(), threading.get_ident()), asyncio.Runner())

    def _encoded(self, value: Any) -> Any:
        return _adapted("encode", self._encode, value) if isinstance(value, Record) else value

    def _decoded(self, value: Any) -> Any:
        if type(value) in (list, tuple):  # a named tuple is a record
            return [self._decoded(item) for item in value]
        return value if value is None or isinstance(value, (str, int)) else _adapted("decode", self._decode, value)

    def _need(self, store: Any, call: Call) -> None:
        key = (type(store), call.name, len(call.args), call.keywords)
        if key not in self._offered:
            self._offered[key] = _why_not_offered(store, call)
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


def _made(function: Callable[[], Any]) -> Any:
    """Make a call, and read what it returns to the end if that is an iterator."""
    result = function()
    if isinstance(result, Iterator):
        return list(result)
    return _read(result) if isinstance(result, AsyncIterator) or inspect.isawaitable(result) else result


async def _read(result: Any) -> Any:
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, AsyncIterator):
        return [item async for item in result]
    return list(result) if isinstance(result, Iterator) else result


def _why_not_offered(store: Any, call: Call) -> str | None:
    name = type(store).__name__
    method = getattr(store, call.name, None)
    if method is None:
        return f"{name} has no method {call.name}"
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of a method in C, say: then the call itself shows
        return None
    args, named = call.split()
    if _binds(signature.bind, *args, **named):
        return None
    if named and _binds(signature.bind_partial, *args):
        return f"{name}.{call.name} has no argument {', '.join(named)}"
    return f"{name}.{call.name}{signature} cannot be called as {call_in_words(call)}"


def _binds(bind: Callable[..., Any], *args: Any, **named: Any) -> bool:
    try:
        bind(*args, **named)
    except TypeError:
        return False
    return True


def _adapted(name: str, adapt: Callable[[Any], Any], value: Any) -> Any:
    try:
        return adapt(value)
    except Exception as error:
        raise AdapterError(
            f"{name}() of the suite raises {type(error).__name__}: {error}. It was called with {short(repr(value))}. "
            "Fix it first: until it works, the suite learns nothing about the store."
        ) from error


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result
