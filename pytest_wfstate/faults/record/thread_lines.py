"""Threads: work keeps the line of the user's code that submitted it, and must not outlive the recording.

An op in a pool's thread has no line of the user's on its stack. So while a recorder is active, work that is handed to
another thread takes the submitting line along: a job of a pool, a new thread, and what is put into a queue. Each job
and each new thread is also a strand of the run, which may have to wait for its turn. All threads are followed from the
call of `_thread` that starts them, so it does not matter what a subclass of `Thread` overrides.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import functools
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import thread as pools
from typing import TYPE_CHECKING, Any

from pytest_wfstate.faults.record.active import active, stand_in
from pytest_wfstate.faults.record.blocked import all_threads, has_ended
from pytest_wfstate.faults.record.task_starts import StartedTasks
from pytest_wfstate.faults.source_lines import SourceLine, causing_line, job, origin
from pytest_wfstate.faults.trace.strands import Strand, Strands, works_for_caller

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

_real_submit = ThreadPoolExecutor.submit
_real_start = threading.Thread.start
_real_starts = {  # the last one since Python 3.13
    name: getattr(_thread, name)
    for name in ("start_new_thread", "start_new", "start_joinable_thread")
    if hasattr(_thread, name)
}
_allocate_lock = threading.Lock
_real_threadsafe = asyncio.run_coroutine_threadsafe
_real_sleep = time.sleep
_real_put, _real_get = queue.Queue.put, queue.Queue.get
_RealSimpleQueue = queue.SimpleQueue

_IDLING = ("asyncio.", "trio.", "anyio.")
"""Libraries whose own threads may stay: they wait for more work or for a child, as a pool's do."""
_HAS_RUN = object()


class Work:
    """The work that the code under test has handed to other threads."""

    def __init__(self, strands: Strands) -> None:
        self.strands = strands
        self.tasks = StartedTasks()
        self._before = set(threading.enumerate())
        self._natives_before = all_threads()
        self._without_class: set[int] = set()
        """The native ids of threads of the run that no `Thread` object started."""
        self._futures: set[Future[Any]] = set()
        self._running: set[object] = set()
        self._put: dict[tuple[int, int], list[tuple[Any, Any, SourceLine | None]]] = {}
        """What is in queues: the ids of queue and item, and for each time that it was put there both and the line."""

    def submitted(self, future: Future[Any], strand: Strand) -> None:
        """Track a pool's work until it is done."""
        self.strands.jobs[future] = strand
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def carried(self, call: Callable[..., Any], line: SourceLine | None, strand: Strand) -> Callable[..., Any]:
        """Wrap `call` so that it is a strand and knows the line that submitted it, in whatever thread it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            thread = self.strands.enter(strand)
            try:
                with self._working_for(line):
                    self.strands.pause()
                    return call(*args, **kwargs)
            finally:
                self.strands.leave(thread)

        functools.update_wrapper(run, call)
        return run

    def carried_without_class(self, call: Callable[..., Any], line: SourceLine | None) -> Callable[..., Any]:
        """Wrap `call`, which a thread is to make that no `Thread` object stands for."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._without_class.add(threading.get_native_id())
            with self._working_for(line):
                self.strands.pause()
                return call(*args, **kwargs)

        return run

    @contextlib.contextmanager
    def _working_for(self, line: SourceLine | None) -> Iterator[None]:
        """Make the calling thread work for a line in a block, which is to end before the recording does."""
        running, before = object(), job.line
        self._running.add(running)
        job.line = line
        try:
            yield
        finally:
            job.line = before
            self._running.discard(running)

    def was_put(self, holder: Any, item: Any) -> None:
        """Take note of the line that puts an item into a queue. The item stays as it is: others may look at it."""
        entries = self._put.setdefault((id(holder), id(item)), [])
        entries.append((holder, item, causing_line()))

    def was_got(self, holder: Any, item: Any) -> None:
        """Make the calling thread work for the line that put an item into a queue."""
        entries = self._put.get((id(holder), id(item)))
        if not entries:
            return
        _, _, line = entries.pop(0)
        if not entries:
            del self._put[id(holder), id(item)]
        if self.strands.current() is not self.strands.main:  # which works for itself
            job.line = line

    def unfinished(self) -> Iterator[str]:
        """Yield a reason for each thread or piece of work that is still running."""
        if self._running or any(not future.done() for future in list(self._futures)):
            yield "Work that was handed to a thread is not finished: what it writes from now on cannot be seen."
        for thread in threading.enumerate():
            if thread not in self._before and self._is_alive(thread) and not _idles(thread):
                yield f"The thread {thread.name!r} is still running: what it writes from now on cannot be seen."

    def _is_alive(self, thread: threading.Thread) -> bool:
        """Whether a thread of the run is alive. A dummy, which stands for one without an object, always says so."""
        native = thread.native_id
        if not isinstance(thread, threading._DummyThread) or native is None:
            return thread.is_alive()
        return not (native in self._natives_before or native in self._without_class or has_ended(native))


def _idles(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", _HAS_RUN)  # `Thread.run` deletes it at its end
    if target in (pools._worker, _HAS_RUN) or works_for_caller(thread):
        return True
    home = getattr(target, "__module__", None) or ""
    return f"{home}.".startswith(_IDLING) or f"{type(thread).__module__}.".startswith(_IDLING)


def _submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    recorder = active.recorder
    if recorder is None:
        return _real_submit(self, fn, *args, **kwargs)
    strand = recorder.log.strands.new()
    future = _real_submit(self, recorder.work.carried(fn, causing_line(), strand), *args, **kwargs)
    recorder.work.submitted(future, strand)
    recorder.log.strands.pause()
    return future


def _start(self: threading.Thread) -> None:
    recorder = active.recorder
    if recorder is None or works_for_caller(self):
        return _real_start(self)
    strands = recorder.log.strands
    with strands.starting():
        _real_start(self)
    strands.pause()
    return None


def _start_new(name: str, recorder: Recorder, call: Callable[..., Any], /, *args: Any, **kw: Any) -> Any:
    """Start a thread that is a strand from its first line, and return when it is."""
    thread, line, strands = getattr(call, "__self__", None), causing_line(), recorder.log.strands
    if not isinstance(thread, threading.Thread):
        strand, carried = strands.new(), recorder.work.carried_without_class(call, line)
    elif works_for_caller(thread):
        return _real_starts[name](call, *args, **kw)
    else:
        strand, carried = Strand(is_worker=True) if _idles(thread) else strands.new(), call
    has_entered = _allocate_lock()
    has_entered.acquire()

    def enter(*args: Any, **kwargs: Any) -> Any:
        before = strands.enter(strand)
        has_entered.release()
        try:
            with _pausing_before_run(thread, strands, line):
                return carried(*args, **kwargs)
        finally:
            strands.leave(before)

    with strands.starting():
        started = _real_starts[name](enter, *args, **kw)
        has_entered.acquire()
    if carried is not call:
        strands.pause()
    return started


@contextlib.contextmanager
def _pausing_before_run(thread: Any, strands: Strands, line: SourceLine | None) -> Iterator[None]:
    """Let other strands go first in a block, when the `run` of a thread is called: by then, `start` can return.

    If its class looks `run` up in another way, or never does, there is no pause.
    """
    origin.set(line)
    if not isinstance(thread, threading.Thread):
        yield
        return
    own = {name: value for name, value in vars(thread).items() if name == "run"}  # one that hides that of the class

    def restore() -> None:
        vars(thread).pop("run", None)
        vars(thread).update(own)

    def run() -> None:
        restore()
        origin.set(line)  # again: some releases of Python call `run` in a context of its own
        strands.pause()
        thread.run()

    vars(thread)["run"] = run  # not by assignment, which a class can forbid
    try:
        yield
    finally:
        if vars(thread).get("run") is run:
            restore()


async def _run_in_thread(recorder: Recorder, real: Any, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    strand = recorder.log.strands.new()
    return await real(recorder.work.carried(call, causing_line(), strand), *args, **kwargs)


def _sleep(recorder: Recorder, seconds: float, /) -> None:
    turns = recorder.turns
    if turns is None:
        _real_sleep(seconds)
    else:
        turns.sleep(_real_sleep, seconds, seconds)


def _put(self: queue.Queue[Any], item: Any, block: bool = True, timeout: float | None = None) -> None:
    if active.recorder is not None:
        active.recorder.work.was_put(self, item)
    _real_put(self, item, block, timeout)


def _get(self: queue.Queue[Any], block: bool = True, timeout: float | None = None) -> Any:
    item = _real_get(self, block, timeout)
    if active.recorder is not None:
        active.recorder.work.was_got(self, item)
    return item


class CarryingQueue(_RealSimpleQueue[Any]):
    """A `SimpleQueue` whose items take the line along that put them there."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an item, and its line."""
        if active.recorder is not None:
            active.recorder.work.was_put(self, item)
        super().put(item, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Get an item, and work for its line."""
        recorder = active.recorder
        if recorder is None:
            return super().get(block, timeout)
        if recorder.turns is None or timeout is None or not block:
            item = super().get(block, timeout)
        else:
            item = recorder.turns.timed_wait(super().get, timeout, block, timeout)
        recorder.work.was_got(self, item)
        return item

    def put_nowait(self, item: Any) -> None:
        """Put an item, and its line."""
        self.put(item)

    def get_nowait(self) -> Any:
        """Get an item, and work for its line."""
        return self.get(block=False)


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
    yield from _PAIRS
    for library in ("trio", "anyio"):
        module = sys.modules.get(f"{library}.to_thread")
        if module is not None:
            yield module.run_sync, _stand_in_for(module.run_sync)


_PAIRS = [  # made once: the search for holders of a real call knows the containers of this package
    (_real_threadsafe, stand_in(_real_threadsafe, _threadsafe)),
    (_real_sleep, stand_in(_real_sleep, _sleep)),
    (_RealSimpleQueue, CarryingQueue),
    *((real, stand_in(real, functools.partial(_start_new, name))) for name, real in _real_starts.items()),
]


def follow_threads() -> None:
    """Make threads and pools take lines along."""
    ThreadPoolExecutor.submit = _submit  # type: ignore[method-assign,assignment]
    threading.Thread.start = _start  # type: ignore[method-assign]
    queue.Queue.put, queue.Queue.get = _put, _get  # type: ignore[method-assign]


def leave_threads() -> None:
    """Restore what `follow_threads` replaced."""
    ThreadPoolExecutor.submit = _real_submit  # type: ignore[method-assign]
    threading.Thread.start = _real_start  # type: ignore[method-assign]
    queue.Queue.put, queue.Queue.get = _real_put, _real_get  # type: ignore[method-assign]
