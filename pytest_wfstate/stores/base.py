"""What every store of this package is, whatever it keeps and wherever it keeps it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_BLOCKING: dict[Any, Callable[..., Any]] = {}
"""What each method that `threaded` has made does in its thread."""


class Store:
    """A handle on stored state: a context manager of both colours, whose `close()` may be called at any time."""

    def close(self) -> None:
        """Let go of what this handle holds. What it stored stays. Closing again is no error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def threaded(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a blocking method an async one that does its work in a thread.

    Nothing is bound to the event loop, so a store may be used from one loop after another.
    """

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(functools.partial(method, *args, **kwargs))

    _BLOCKING[call] = method
    return call


def blocking(method: Callable[..., Any]) -> Callable[..., Any] | None:
    """Give what a bound method that `threaded` has made would do in a thread, to be done in the caller's; or None."""
    made = _BLOCKING.get(getattr(method, "__func__", None))
    return made and functools.partial(made, getattr(method, "__self__", None))


async def in_thread(call: Callable[[], T]) -> T:
    """Run `call` in a thread of whatever event loop runs this: asyncio's, or else trio's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return await trio.to_thread.run_sync(call)
    return await asyncio.to_thread(call)
