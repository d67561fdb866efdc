"""Adapters that give a sync store async methods, and an async store blocking ones."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pytest_wfstate.errors import LoopDeadlock
from pytest_wfstate.stores.base import Store, blocking
from pytest_wfstate.stores.threads import WaitingThreads

__all__ = ["as_async", "as_sync"]

T = TypeVar("T")


def as_sync(store: Any) -> Any:
    """Return `store` with blocking methods: each async one runs on an event loop that this process keeps in a thread.

    That works inside a running event loop too, and in a forked child, which gets a loop of its own. Methods of this
    package's stores that are blocking underneath are called directly, without loop or thread.

    Raises:
        LoopDeadlock: when called, if the caller itself runs on that loop, as an async store does that wraps another.
    """
    return _SyncAdapter(store)


def as_async(store: Any) -> Any:
    """Return `store` with async methods: each blocking one runs in a thread of the store's own."""
    return _AsyncAdapter(store)


class _Adapter:
    """A store whose methods are wrapped on access."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look these up, even before there is a store
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(self._store, name)
        return self._wrap(value) if callable(value) else value

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_').removesuffix('Adapter').lower()} {self._store!r}"

    def _wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _adapt(self, result: Any) -> Any:
        """Wrap another handle (`store.handle()`) the same way, and return anything else as it is."""
        return type(self)(result) if isinstance(result, Store) else result


class _SyncAdapter(_Adapter):
    def _wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        direct = blocking(method) or method

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = direct(*args, **kwargs)
            return self._adapt(_loop().run(result) if inspect.isawaitable(result) else result)

        return call

    def __enter__(self) -> _SyncAdapter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _AsyncAdapter(_Adapter):
    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._threads = WaitingThreads()

    def _wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            if inspect.iscoroutinefunction(method):
                return self._adapt(await method(*args, **kwargs))
            result = await self._threads.run(functools.partial(method, *args, **kwargs))
            return self._adapt(await result if inspect.isawaitable(result) else result)

        return call

    async def __aenter__(self) -> _AsyncAdapter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Loop:
    """An event loop in a thread that lasts as long as the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wfstate-as-sync", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[T]) -> T:
        if threading.current_thread() is self._thread:
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise LoopDeadlock(
                "a store wrapped by as_sync was called from the event loop that as_sync runs on, which would deadlock. "
                "Await the async store there, without as_sync."
            )
        return asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop).result()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


@functools.cache
def _loop_of(pid: int) -> _Loop:  # noqa: ARG001 - it is the key
    return _Loop()


_making = threading.RLock()  # one thread makes the loop; also held across a fork


def _loop() -> _Loop:
    """Return this process's loop. A forked child inherits the loop but not the thread that runs it, so it makes one."""
    with _making:
        return _loop_of(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release)
