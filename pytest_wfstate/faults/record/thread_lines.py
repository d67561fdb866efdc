"""Threads: work keeps the line of the user's code that submitted it, and must not outlive the recording.

An op in a pool's thread has no line of the user's on its stack. So while a recorder is active, work that is handed to
another thread takes the submitting line along.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import thread as pools
from typing import TYPE_CHECKING, Any

from pytest_wfstate.faults.record.active import active, stand_in
from pytest_wfstate.faults.source_lines import SourceLine, causing_line, job, origin

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

_real_submit = ThreadPoolExecutor.submit
_real_start = threading.Thread.start
_real_threadsafe = asyncio.run_coroutine_threadsafe

_IDLING = ("asyncio.", "trio.", "anyio.")
"""Libraries whose own threads may stay: they wait for more work or for a child, as a pool's do."""


class Work:
    """The work that the code under test has handed to other threads."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._futures: set[Future[Any]] = set()
        self._running: set[object] = set()

    def submitted(self, future: Future[Any]) -> None:
        """Track a pool's work until it is done."""
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def carried(self, call: Callable[..., Any], line: SourceLine | None) -> Callable[..., Any]:
        """Wrap `call` so that it knows the line that submitted it, in whatever thread it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            running, before = object(), job.line
            self._running.add(running)
            job.line = line
            try:
                return call(*args, **kwargs)
            finally:
                job.line = before
                self._running.discard(running)

        functools.update_wrapper(run, call)
        return run

    def unfinished(self) -> Iterator[str]:
        """Yield a reason for each thread or piece of work that is still running."""
        if self._running or any(not future.done() for future in list(self._futures)):
            yield "Work that was handed to a thread is not finished: what it writes from now on cannot be seen."
        for thread in threading.enumerate():
            if thread not in self._before and thread.is_alive() and not _idles(thread):
                yield f"The thread {thread.name!r} is still running: what it writes from now on cannot be seen."


def _idles(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    if target is pools._worker or thread.name == "wfstate-as-sync":
        return True
    home = getattr(target, "__module__", None) or ""
    return f"{home}.".startswith(_IDLING) or f"{type(thread).__module__}.".startswith(_IDLING)


def _submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    recorder = active.recorder
    if recorder is None:
        return _real_submit(self, fn, *args, **kwargs)
    future = _real_submit(self, recorder.work.carried(fn, causing_line()), *args, **kwargs)
    recorder.work.submitted(future)
    return future


def _start(self: threading.Thread) -> None:
    recorder = active.recorder
    if recorder is None or "run" in vars(self):
        return _real_start(self)
    run, line = self.run, causing_line()

    def carried() -> None:
        del self.run
        origin.set(line)
        run()

    self.run = carried  # type: ignore[method-assign]
    try:
        return _real_start(self)
    except BaseException:
        del self.run
        raise


async def _run_in_thread(recorder: Recorder, real: Any, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return await real(recorder.work.carried(call, causing_line()), *args, **kwargs)


def _threadsafe(_recorder: Recorder, coro: Any, loop: Any) -> Any:
    line = causing_line()

    async def carried() -> Any:
        origin.set(line)
        return await coro

    return _real_threadsafe(carried(), loop)


@functools.cache
def _stand_in_for(real: Any) -> Any:
    return stand_in(real, lambda recorder, *args, **kwargs: _run_in_thread(recorder, real, *args, **kwargs))


def pairs() -> Iterator[tuple[Any, Any]]:
    """Yield the functions that hand work to threads, each with its stand-in."""
    yield _real_threadsafe, _threadsafe_stand_in
    for library in ("trio", "anyio"):
        module = sys.modules.get(f"{library}.to_thread")
        if module is not None:
            yield module.run_sync, _stand_in_for(module.run_sync)


_threadsafe_stand_in = stand_in(_real_threadsafe, _threadsafe)


def follow_threads() -> None:
    """Make threads and pools take lines along."""
    ThreadPoolExecutor.submit = _submit  # type: ignore[method-assign,assignment]
    threading.Thread.start = _start  # type: ignore[method-assign]


def leave_threads() -> None:
    """Restore what `follow_threads` replaced."""
    ThreadPoolExecutor.submit = _real_submit  # type: ignore[method-assign]
    threading.Thread.start = _real_start  # type: ignore[method-assign]
