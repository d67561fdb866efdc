"""The threads in which the async methods of a store wait: for a lock, a disk or a server.

Every store has its own. In asyncio's default pool, which has five threads on a single core, calls that wait for one
locked folder would keep unrelated work waiting, such as looking up a host name.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

MOST_THREADS = 64  # they wait more than they work, and are started as needed


class WaitingThreads:
    """A pool of threads for one store, in whatever process and event loop it is used."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        self._limiter: Any = None

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread, and wait for it in the running event loop: asyncio's, or else trio's.

        If the caller is cancelled, the call ends first, since a thread cannot be stopped: nothing happens later.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return await self._run_in_trio(call)
        in_context = functools.partial(contextvars.copy_context().run, call)
        return await _settled(loop.run_in_executor(self._started(), in_context))

    def close(self) -> None:
        """Let the threads end when their work is done. Another call starts new ones."""
        self._pool = None  # not `shutdown`, which a call that is just being submitted would run into

    def __reduce__(self) -> tuple[type[WaitingThreads], tuple[()]]:
        return WaitingThreads, ()  # a copy of a store has threads of its own

    def _started(self) -> ThreadPoolExecutor:
        pool = self._pool
        if pool is None or self._pid != os.getpid():  # a forked child has the pool without its threads
            pool = self._pool = ThreadPoolExecutor(MOST_THREADS, "wfstate")
            self._pid = os.getpid()
        return pool

    async def _run_in_trio(self, call: Callable[[], T]) -> T:
        import trio

        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(MOST_THREADS)
        return await trio.to_thread.run_sync(call, limiter=self._limiter)


async def _settled(job: asyncio.Future[T]) -> T:
    """Wait for a job to end, however often the one that waits is cancelled, and return its result."""
    cancelled: asyncio.CancelledError | None = None
    while not job.done():
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return job.result()
    if not job.cancelled():
        job.exception()  # nobody asks for it any more; asyncio would log that it was never retrieved
    try:
        raise cancelled
    finally:
        del cancelled  # its traceback has this frame
