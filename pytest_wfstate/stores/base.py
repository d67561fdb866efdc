"""What every store of this package has in common, whatever its contract and backend."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_BLOCKING: dict[Any, Callable[..., Any]] = {}
"""Maps each async method made by `threaded` to the blocking method it wraps."""


class Store:
    """A handle on stored state: a sync and async context manager whose `close()` may be called at any time."""

    def close(self) -> None:
        """Release what this handle holds. What it stored stays. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def threaded(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn a blocking method into an async one that works in a thread.

    Nothing is bound to an event loop, so a store may be used from one loop after another.
    """

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(functools.partial(method, *args, **kwargs))

    _BLOCKING[call] = method
    return call


def blocking(method: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the blocking form of a bound method made by `threaded`, to call without a thread; None for any other."""
    function = _BLOCKING.get(getattr(method, "__func__", None))
    return function and functools.partial(function, getattr(method, "__self__", None))


async def in_thread(call: Callable[[], T]) -> T:
    """Run `call` in a thread of the running event loop: asyncio's, or else trio's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return await trio.to_thread.run_sync(call)
    return await asyncio.to_thread(call)
