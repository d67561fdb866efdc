"""The driver: makes calls on a store of either colour, with a limit to its patience."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.engine.alarm import Alarm, TimeIsUp
from pytest_wfstate.engine.render import call_in_words, short
from pytest_wfstate.errors import AdapterError, StoreTimeout
from pytest_wfstate.oracle.history import Outcome, Returned
from pytest_wfstate.oracle.model import REFUSALS, plain, refused

__tracebackhide__ = True

NOT_OFFERED = "not offered"
"""How the reason begins why a clause is skipped."""
_LESS_PATIENCE = 2.0
"""Seconds for a call of a store that hung before in the same test: what finds the smallest case tries it many times."""


class Driver:
    """Makes the calls of one test: sync or async, each with its time limit, records in the store's own type."""

    def __init__(
        self,
        timeout: float = 30,
        encode: Callable[[Any], Any] = lambda record: record,
        decode: Callable[[Any], Any] = lambda value: value,
        normalise: Callable[[Any], Any] = lambda record: record,
        required: Iterable[str] = (),
    ) -> None:
        self._alarm = Alarm(timeout)
        self._encode = encode
        self._decode = decode
        self.normalise = normalise
        self._required = tuple(required)
        self._offered: dict[Any, str | None] = {}
        self._runners: dict[tuple[int, int], asyncio.Runner] = {}
        self.refusal: BaseException | None = None
        """What the store said when it refused a call last."""

    def call(self, store: Any, call: Call) -> Any:
        """Make a call and give its result, records decoded.

        Skips the test if the store does not offer the method, or not with these arguments.
        """
        self._need(store, call)
        args, named = call.split()
        function = functools.partial(getattr(store, call.name), *map(self._encoded, args), **named)
        try:
            result = self.run(function, call.name)
        except NotImplementedError:
            self._not_offered(f"{type(store).__name__}.{call.name} raises NotImplementedError", call)
        return self._decoded(result)

    def outcome(self, store: Any, call: Call) -> Outcome:
        """Make a call, and tell what came of it. Errors that are no refusal are raised."""
        try:
            result = self.call(store, call)
        except REFUSALS as error:
            self.refusal = error
            return refused(error)
        return Returned(plain(result, self.normalise))

    def run(self, function: Callable[[], Any], name: str) -> Any:
        """Call a function, and await what it gives, but not for ever.

        Raises:
            StoreTimeout: it did not come back in time.
        """
        try:
            with self._alarm:
                result = function()
                if not inspect.isawaitable(result):
                    return result
                # Not Runner.run: it sets a signal handler each time, which has the whole result shown to nobody.
                return self._runner().get_loop().run_until_complete(_awaited(result))
        except TimeIsUp as error:
            waited, self._alarm.seconds = self._alarm.seconds, min(self._alarm.seconds, _LESS_PATIENCE)
            raise StoreTimeout(
                f"{name} did not come back in {waited:g} s. It may wait for a lock that is never freed. "
                "If the store is only slow, give --wfstate-timeout=SECONDS."
            ).with_traceback(error.__traceback__) from None

    def close(self) -> None:
        """Close the event loops of this process, and let go of the alarm."""
        self._alarm.close()
        for (pid, _), runner in self._runners.items():
            if pid == os.getpid():
                runner.close()

    def _runner(self) -> asyncio.Runner:
        """Give this thread's runner: neither another thread nor a forked child can use it."""
        return self._runners.setdefault((os.getpid(), threading.get_ident()), asyncio.Runner())

    def _encoded(self, value: Any) -> Any:
        return _adapted("encode", self._encode, value) if isinstance(value, Record) else value

    def _decoded(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._decoded(one) for one in value]
        return value if value is None or isinstance(value, (str, int)) else _adapted("decode", self._decode, value)

    def _need(self, store: Any, call: Call) -> None:
        key = (type(store), call.name, len(call.args), call.keywords)
        if key not in self._offered:
            self._offered[key] = _why_not_offered(store, call)
        reason = self._offered[key]
        if reason:
            self._not_offered(reason, call)

    def _not_offered(self, reason: str, call: Call) -> NoReturn:
        if call.name in self._required:
            pytest.fail(
                f"{reason}. A store is at least asked for {' and '.join(self._required)}. "
                "If yours has other names for them, have open() return a wrapper that has these.",
                pytrace=False,
            )
        pytest.skip(f"{NOT_OFFERED}: {reason}")


def _why_not_offered(store: Any, call: Call) -> str | None:
    name = type(store).__name__
    method = getattr(store, call.name, None)
    if method is None:
        return f"{name} has no method {call.name}"
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of a method in C, say: then the call tells
        return None
    args, named = call.split()
    try:
        signature.bind(*args)
    except TypeError:
        return f"{name}.{call.name}{signature} takes other arguments than {call_in_words(call)}"
    try:
        signature.bind(*args, **named)
    except TypeError:
        return f"{name}.{call.name} takes no argument {', '.join(named)}"
    return None


def _adapted(name: str, adapt: Callable[[Any], Any], value: Any) -> Any:
    try:
        return adapt(value)
    except Exception as error:
        raise AdapterError(
            f"{name}() of the suite raises {type(error).__name__}: {error}. It was given {short(repr(value))}. "
            "Mend it: as long as it fails, nothing is known of the store."
        ) from error


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result
