"""Cancellation: awaits something, and cancels it at the n-th moment at which that can be done.

A loop over the moments, until a run completes without being cancelled, visits every await of a call or a workload,
those of the coroutines and tasks that it starts as well. Nothing depends on how fast a thread is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Awaitable, Callable, Container, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.report_text import short
from pytest_wfstate.faults.source_lines import SourceLine, line_of, line_of_coroutine

__tracebackhide__ = True

T = TypeVar("T")

_TURNS = 50
"""How often the event loop turns before what is held goes on: the cancelled call, or a later one, may wait for it."""
_SECONDS = 0.1
"""The same for a call for which a thread works, or a server."""


class Cancellation:
    """Cancels what is awaited with `call` at its `nth` moment, counted from 1 over all such calls; never if it is 0.

    There is a moment before the first step; for each await one as it begins, and one when what is waited for is done,
    but has not been seen; and one for each job of a pool of threads, which then runs on. What goes on in a thread or a
    task is held until something waits for it, be it the cancelled call itself: whoever does not wait for it would not
    have waited for something slow either.

    Use it as a context manager, in the thread of the event loop. `lasting` names coroutines that go on in the
    background after a call that is not cancelled; nobody waits for those.
    """

    def __init__(self, nth: int = 0, lasting: Container[str] = ()) -> None:
        self.moments = 0
        """How many moments there have been."""
        self.struck = ""
        """When the call was cancelled, in words; "" if it was not."""
        self._nth = nth
        self._lasting = lasting
        self._loop: asyncio.AbstractEventLoop | None = None
        self._factory: Any = None
        """How the loop makes tasks by itself."""
        self._root: asyncio.Task[Any] | None = None
        self._watched: dict[asyncio.Task[Any], _Watched] = {}
        self._jobs: list[tuple[Future[Any], threading.Event]] = []
        """Jobs of pools of threads, each with what is set when it may begin."""
        self._is_starting = False
        self._holding = False
        self._held: list[asyncio.Future[None]] = []
        """Each is done when a task may go on."""
        self._thread = threading.get_ident()
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> Cancellation:
        for owner, name, patch in (
            (ThreadPoolExecutor, "submit", self._submit),
            (threading.Condition, "wait", self._before_waiting),
            (threading.Thread, "join", self._before_waiting),
            (threading.Thread, "start", self._start),
        ):
            self._patches.enter_context(_patched(owner, name, patch))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        self.release()
        if self._root is not None and not self._root.done():  # it took too long, and may ignore being cancelled
            with contextlib.suppress(RuntimeError):
                self._watched[self._root].close()
        if self._loop is not None:
            self._loop.set_task_factory(self._factory)

    async def call(self, awaitable: Awaitable[T]) -> T:
        """Await something, and cancel it if its moment comes. An error that it raises is raised, CancelledError too.

        Once the moment was, it only awaits: what comes later may have to wait for what was cancelled.
        """
        if self.struck:
            return await self.after(awaitable)
        self._root, self._loop = None, asyncio.get_running_loop()
        self._factory = self._loop.get_task_factory()
        self._loop.set_task_factory(self._new_task)
        try:
            task: asyncio.Task[T] = self._loop.create_task(_coroutine(awaitable))
            self._root = task
            if self._is_moment("before its first step"):
                self._cancel()
            await asyncio.wait([task])
        finally:
            self._loop.set_task_factory(self._factory)
        return task.result()

    def stop(self) -> None:
        """Cancel nothing any more."""
        self._nth = 0

    async def after(self, awaitable: Awaitable[T]) -> T:
        """Await something that comes after the call, and may have to wait for what that has left behind."""
        task = asyncio.ensure_future(awaitable)
        self._turn(task)
        await asyncio.wait([task])
        return task.result()

    @property
    def left(self) -> set[str]:
        """The names of the coroutines that are still running, though the call has ended, and of the jobs."""
        jobs = {"a thread"} if any(not job.done() for job, _ in self._jobs) else set()
        return {task.get_coro().__qualname__ for task in self._tasks_left()} | jobs  # type: ignore[union-attr]

    async def settle(self) -> None:
        """Wait until all has ended that the call has left behind."""
        self.release()
        while left := [*self._tasks_left(), *(asyncio.wrap_future(job) for job, _ in self._jobs if not job.done())]:
            await asyncio.wait(left)
        for task in self._watched:
            if task.done() and not task.cancelled():
                task.exception()  # whoever wants to know it has asked; asyncio would log that nobody did

    def release(self) -> None:
        """Let all go on that is held."""
        self._holding = False
        for _, gate in self._jobs:
            gate.set()
        while self._held:
            held = self._held.pop()
            if not held.done():
                held.set_result(None)

    def _tasks_left(self) -> list[asyncio.Task[Any]]:
        return [
            task for task, watched in self._watched.items() if not task.done() and watched.name not in self._lasting
        ]

    def _turn(self, task: asyncio.Future[Any], turns: int = _TURNS, patience: Patience | None = None) -> None:
        """Release what is held, unless a task ends without that within some turns of the event loop.

        While a thread works for it, or a server may, turns say nothing. Then it has a little time of its own instead.
        """
        if task.done() or not self._holding:
            return
        loop = asyncio.get_running_loop()
        if not turns or (patience is not None and patience.is_over()):
            self.release()
        elif self._is_busy(loop):
            patience = patience or Patience(_SECONDS)
            loop.call_later(patience.interval, self._turn, task, turns, patience)
        else:
            loop.call_soon(self._turn, task, turns - 1)

    def _is_busy(self, loop: asyncio.AbstractEventLoop) -> bool:
        selector = getattr(loop, "_selector", None)
        has_connections = selector is not None and len(selector.get_map()) > 1  # the first is the loop's own
        return has_connections or any(not job.done() and gate.is_set() for job, gate in self._jobs)

    def _is_moment(self, kind: str, where: Callable[[], SourceLine | None] = lambda: None) -> bool:
        """Whether this is the moment to cancel the call."""
        self.moments += 1
        if self.struck or self.moments != self._nth:
            return False
        line = where()
        self._holding = True
        self.struck = f"{kind}{f' ({short(line)})' if line else ''}"
        return True

    def _cancel(self) -> None:
        """Cancel the call. It may wait for what is held."""
        if self._root is not None:
            self._root.cancel()
            asyncio.get_running_loop().call_soon(self._turn, self._root)

    def _new_task(self, loop: Any, coroutine: Any, **more: Any) -> Any:
        """Make a task. One that is a part of the call, or of a task that is, is watched."""
        is_part = self._root is None or asyncio.current_task(loop) in self._watched
        made = _Watched(coroutine, self) if is_part else coroutine
        factory = self._factory
        task = factory(loop, made, **more) if factory else asyncio.Task(made, loop=loop, **more)
        if isinstance(made, _Watched):
            self._watched[task] = made
        return task

    def hold(self, watched: _Watched) -> Any:
        """Return what a task has to wait for before it goes on, if it has to: the call itself has not."""
        if not self._holding or watched.name in self._lasting:
            return None
        if self._root is None or watched is self._watched.get(self._root):
            return None
        held = asyncio.get_running_loop().create_future()
        held._asyncio_future_blocking = True  # as `await` does
        self._held.append(held)
        return held

    def suspended(self, watched: _Watched, waits_for: Any) -> None:
        """A task of the call begins to wait."""

        def where() -> SourceLine | None:
            return line_of_coroutine(watched.coroutine)

        def done(_: Any) -> None:
            if self._is_moment("when what it waited for was done", where):
                self._cancel()

        if self._is_moment("as it began to wait", where):
            self._cancel()
        elif asyncio.isfuture(waits_for):
            waits_for.add_done_callback(done)  # before the task adds its own, which takes up the result

    def _submit(self, submit: Callable[..., Any], pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Submit a job; it begins when the task that does so waits for it, which is the moment to cancel it first."""
        if threading.get_ident() != self._thread or (loop := _running_loop()) is None:
            return self._start(submit, pool, function, *args, **kwargs)
        result: Future[Any] = Future()
        gate = threading.Event()

        def job() -> None:
            gate.wait()
            if result.running() or result.set_running_or_notify_cancel():
                try:
                    value = function(*args, **kwargs)
                except BaseException as error:
                    result.set_exception(error)
                else:
                    result.set_result(value)

        submitted = self._start(submit, pool, job)
        submitted.add_done_callback(lambda ended: result.cancel() if ended.cancelled() else None)
        self._jobs.append((result, gate))
        where = functools.partial(line_of, sys._getframe(1))
        if asyncio.current_task() in self._watched and self._is_moment("while a thread worked for it", where):
            result.set_running_or_notify_cancel()
            self._cancel()
        else:
            loop.call_soon(gate.set)
        return result

    def _before_waiting(self, wait: Callable[..., Any], waiter: Any, *args: Any, **kwargs: Any) -> Any:
        """Release what is held before the thread of the event loop waits for it."""
        if threading.get_ident() == self._thread and not self._is_starting:
            self.release()
        return wait(waiter, *args, **kwargs)

    def _start(self, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a thread, or a job in one, which waits only for that."""
        if threading.get_ident() != self._thread:
            return start(*args, **kwargs)
        before, self._is_starting = self._is_starting, True
        try:
            return start(*args, **kwargs)
        finally:
            self._is_starting = before


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine of a task that is watched."""

    def __init__(self, coroutine: Any, cancellation: Cancellation) -> None:
        self.coroutine = coroutine
        self.name = self.__qualname__ = getattr(coroutine, "__qualname__", type(coroutine).__qualname__)
        self._cancellation = cancellation

    def send(self, value: Any) -> Any:
        held = self._cancellation.hold(self)
        return self._seen(self.coroutine.send(value)) if held is None else held

    def throw(self, *error: Any) -> Any:
        return self._seen(self.coroutine.throw(*error))

    def close(self) -> None:
        self.coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        result: Generator[Any, Any, Any] = self.coroutine.__await__()
        return result

    def _seen(self, waits_for: Any) -> Any:
        self._cancellation.suspended(self, waits_for)
        return waits_for


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _coroutine(awaitable: Awaitable[Any]) -> Any:
    return awaitable if asyncio.iscoroutine(awaitable) else _awaited(awaitable)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@contextlib.contextmanager
def _patched(owner: Any, name: str, patch: Callable[..., Any]) -> Iterator[None]:
    """Have a method call `patch` instead, with the real method as the first argument."""
    real = vars(owner)[name]

    def call(*args: Any, **kwargs: Any) -> Any:
        return patch(real, *args, **kwargs)

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, real)
