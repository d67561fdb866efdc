"""Worlds over a pipe: they live in the process of the test, and a forked child calls them there."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import multiprocessing.connection as connection
import threading
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any, NoReturn

from pytest_wfstate.faults.forking import dumps, loads
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.world.world import Worlds

Message = tuple[str, Any]
TIMEOUT: Message = ("timeout", None)

_ITSELF = "the world itself"  # sent instead of a copy of the world
_ITERATORS = ("__iter__", "__reversed__")


class WorldServer:
    """The end of the pipe in the process that has the worlds."""

    def __init__(self, pipe: connection.Connection, worlds: Worlds) -> None:
        self._pipe = pipe
        self._worlds = worlds

    def receive(self, deadline: float) -> Message | None:
        """Answer the requests of the child until it sends another message, and return that; None if the child died."""
        while self._pipe.poll(max(0.0, deadline - now())):
            try:
                kind, value = loads(self._pipe.recv_bytes())
            except (EOFError, ConnectionResetError):
                return None
            if kind not in ("look", "effect"):
                return kind, value
            with contextlib.suppress(BrokenPipeError):
                self._pipe.send_bytes(self._answer(self._look if kind == "look" else self._do, value))
        return TIMEOUT

    def _look(self, world: int, name: str, args: tuple[Any, ...] | None) -> tuple[Any, bool]:
        value = self._worlds.look(world, name, args)
        return list(value) if name in _ITERATORS else value, False

    def _do(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        result = self._worlds.do(world, name, args, kwargs)
        is_async = inspect.isawaitable(result)
        result = asyncio.run(_wait(result)) if is_async else result
        if isinstance(result, KeysView | ValuesView | ItemsView):  # views of a dict, which stays here
            result = list(result)
        return _ITSELF if result is self._worlds.target(world) else result, is_async

    def _answer(self, work: Callable[..., tuple[Any, bool]], args: tuple[Any, ...]) -> bytes:
        try:
            value, is_async = work(*args)
            return dumps(("returned", value, is_async, self._worlds.portable(args[0])))
        except Exception as error:
            return _dumped(error, self._worlds.portable(args[0]))


class WorldClient:
    """The other end, in the child."""

    def __init__(self, pipe: connection.Connection, worlds: Worlds) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._worlds = worlds

    def call(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Request an effect."""
        result = self._request("effect", (world, name, args, kwargs))
        return self._worlds.target(world) if result == _ITSELF else result

    def look(self, world: int, name: str, args: tuple[Any, ...] | None) -> Any:
        """Request an attribute or, with `args`, the result of a special method."""
        value = self._request("look", (world, name, args))
        return iter(value) if name in _ITERATORS else value

    def send(self, kind: str, value: Any) -> None:
        """Send a message that needs no answer."""
        with self._lock:
            self._pipe.send_bytes(dumps((kind, value)))

    def _request(self, kind: str, value: Any) -> Any:
        with self._lock:
            self._pipe.send_bytes(dumps((kind, value)))
            outcome, result, more, state = loads(self._pipe.recv_bytes())
            self._worlds.follow(value[0], state)
        if outcome == "raised":
            _raise(result, *more)
        return _awaitable(result) if more else result


def _dumped(error: Exception, state: bytes | None) -> bytes:
    """Pickle an exception by its parts: many cannot be rebuilt from their arguments."""
    try:
        return dumps(("raised", type(error), (error.args, vars(error)), state))
    except Exception:
        return dumps(("raised", RuntimeError, ((f"{type(error).__name__}: {error}",), {}), state))


def _raise(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> NoReturn:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    raise error


async def _wait(result: Any) -> Any:
    return await result


async def _awaitable(result: Any) -> Any:
    return result
