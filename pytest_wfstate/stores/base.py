"""What every store of this package has in common, whatever its contract and backend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pytest_wfstate.stores.threads import WaitingThreads

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Store")

_BLOCKING: dict[Any, Callable[..., Any]] = {}
"""Maps each async method made by `threaded` to the blocking method it wraps."""


class Store:
    """A handle on stored state: a sync and async context manager whose `close()` may be called at any time."""

    _threads: WaitingThreads
    """The threads in which its async methods do their work."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make a store that has its threads, whether or not a subclass calls our `__init__`."""
        store = super().__new__(cls)
        store._threads = WaitingThreads()
        return store

    def close(self) -> None:
        """Release what this handle holds. What it stored stays. Closing twice does nothing."""
        self._threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def threaded(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Turn a blocking method of a store into an async one that works in a thread of the store.

    Nothing is bound to an event loop, so a store may be used from one loop after another.
    """

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(functools.partial(method, self, *args, **kwargs))

    _BLOCKING[call] = method
    return call


def blocking(method: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the blocking form of a bound method made by `threaded`, to call without a thread; None for any other."""
    function = _BLOCKING.get(getattr(method, "__func__", None))
    return function and functools.partial(function, getattr(method, "__self__", None))
