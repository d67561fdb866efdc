"""Tasks: async clients on one event loop, which can be preempted where they await something, and nowhere else.

This is how an async store is mostly used. Nothing interrupts what it does between two awaits; but what it has read
before an await may have changed after it.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import inspect
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.race.blocking import BlockingPatches
from pytest_wfstate.faults.race.clocks import VirtualClock
from pytest_wfstate.faults.race.schedule import (
    MAX_STEPS,
    MAX_WAKEUPS,
    OTHER_THREAD,
    PROGRESS,
    SLEEP,
    Access,
    ClientFailed,
    ClientProgress,
    ScheduleRun,
    ScheduleStep,
    Stuck,
    livelock,
)
from pytest_wfstate.faults.race.stop_points import UnderTest
from pytest_wfstate.faults.race.thread_scheduler import MEMORY, Abandoned, abandon, current, innermost_line, place
from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.source_lines import SourceLine

__tracebackhide__ = True

_MAX_NAPS = 3  # sleeps of a client in a row, before another that can run is preferred
_SOCKET = "a socket"
_WAKES_SLEEPER = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]
_EventLoop: Any = asyncio.SelectorEventLoop


class Tasks:
    """Clients as tasks of one event loop, and what they share: `setup()` makes it on that loop, for every schedule."""

    def __init__(self, setup: Callable[[], Any], clients: Sequence[Callable[[Any], Any]], timeout: float = 30) -> None:
        self._setup = setup
        self._clients = clients
        self._timeout = timeout
        self._under_test = UnderTest()
        self._blocking = BlockingPatches()
        self._is_rehearsed = False
        self.shared: Any = None
        """What the clients of the last schedule shared."""

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:  # noqa: ARG002 - it has them always
        """Follow `choices`, then run on without preemption.

        Raises:
            BaseException: whatever `setup` raised.
        """
        self._blocking.replace()
        if not self._is_rehearsed:
            self._is_rehearsed = True
            rehearsal = self._follow(())  # does what happens only once: imports, compilation, caches
            if rehearsal.stuck and not choices:
                return rehearsal
        return self._follow(choices)

    def close(self) -> None:
        """Put back everything that was replaced. Each schedule has ended its clients."""
        self._blocking.restore()

    def _follow(self, choices: Choices) -> ScheduleRun:
        loop = ScheduledLoop(len(self._clients), choices, self._under_test)
        errors: list[BaseException] = []
        # In its own thread: an event loop may run in this one, and a client may hang.
        thread = threading.Thread(target=self._run_loop, args=(loop, errors), name="wfstate-tasks", daemon=True)
        thread.start()
        patience = Patience(self._timeout)
        thread.join(patience.interval)
        while thread.is_alive():
            if patience.is_over(len(loop.run.steps)):
                loop.report_hang(thread.ident or 0)
                break
            thread.join(patience.interval)
        if errors:
            raise errors[0]
        return loop.run

    def _run_loop(self, loop: ScheduledLoop, errors: list[BaseException]) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._run_clients(loop))
        except BaseException as error:
            if not loop.run.stuck:  # else this is how its tasks were cancelled
                errors.append(error)

    async def _run_clients(self, loop: ScheduledLoop) -> None:
        self.shared = await _resolved(self._setup())
        self._under_test.include(self.shared)
        loop.clock.reset()
        current.tasks_clock = loop.clock
        tasks = [self._task(loop, number) for number in range(len(self._clients))]
        try:
            await asyncio.wait(tasks)
        finally:
            loop.is_over = True
            for task in tasks:
                task.cancel()

    def _task(self, loop: ScheduledLoop, number: int) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(PROGRESS.set, loop.progress[number])
        return loop.create_task(self._client(loop, number), context=context)  # type: ignore[no-any-return]

    async def _client(self, loop: ScheduledLoop, number: int) -> None:
        try:
            result = await _resolved(self._clients[number](self.shared))
        except Abandoned:
            raise
        except BaseException as error:
            result = ClientFailed(error)
        loop.finish(number, result)


class ScheduledLoop(_EventLoop):  # type: ignore[misc]  # it has more members than are documented
    """An event loop that runs a client's task only when the schedule says so, and whose time never waits.

    A callback belongs to the client in whose context it runs, so the tasks that a client makes are part of it. What
    belongs to no client, such as the store's own tasks, runs at once.
    """

    def __init__(self, clients: int, choices: Choices, is_under_test: Callable[[str], bool]) -> None:
        super().__init__()
        self.run = ScheduleRun()
        self.is_over = False
        self.progress = [ClientProgress() for _ in range(clients)]
        self.run.acked = {number: progress.acked for number, progress in enumerate(self.progress)}
        self._choices = choices
        self._is_under_test = is_under_test
        self._left = set(range(clients))
        self._pending: list[deque[asyncio.Handle]] = [deque() for _ in range(clients)]
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._awake: int | None = None
        self._naps: dict[int, int] = {}
        """How often the last client slept since another made a step."""
        self._all_naps: collections.Counter[int] = collections.Counter()
        self._slept: set[int] = set()
        """The clients that have gone to sleep since their last step."""
        self._wakeups = 0
        """How many steps in a row only ended a sleep."""
        self.clock = VirtualClock()
        self._threads = set(threading.enumerate())

    def time(self) -> float:
        """Return the loop's time, which advances only when it must."""
        self.clock.pass_look()
        return self.clock.seconds

    def finish(self, client: int, result: Any) -> None:
        """Record the result of a client that has finished."""
        if not self.is_over:
            self._left.discard(client)
            self._slept.discard(client)
            self.run.results[client] = result

    def report_hang(self, thread: int) -> None:
        """End a schedule whose running client does not return to the loop."""
        client = self.run.choices[-1] if self.run.choices else 0
        line = innermost_line(sys._current_frames().get(thread), self._is_under_test)
        where = f". It is at {place(line)}: {line.text}" if line else ""
        why = f"client {client + 1} neither reached an await nor finished in time{where}"
        self.run.stuck = self.run.stuck or why
        self.is_over = True
        abandon(thread)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        """Set a timer, and note who goes to sleep."""
        timer: asyncio.TimerHandle = super().call_at(when, callback, *args, context=context)
        client = self._client_of(timer)
        if client is not None and callback is _WAKES_SLEEPER:
            self._slept.add(client)
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # noqa: ARG002
        """Run the work of another thread as one step."""
        future = self.create_future()
        handle = asyncio.Handle(self._run_work, (future, func, args), self, contextvars.copy_context())
        client = self._client_of(handle)
        (self._ready if client is None else self._pending[client]).append(handle)
        return future

    def _run_work(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        asyncio._set_running_loop(None)  # as in another thread
        try:
            result, error = func(*args), None
        except (SystemExit, KeyboardInterrupt, Abandoned):
            raise
        except BaseException as raised:
            result, error = None, raised
        finally:
            asyncio._set_running_loop(self)
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)
        client = self._client_of(handle)
        task = getattr(callback, "__self__", None)
        if client is not None and isinstance(task, asyncio.Task):
            self._tasks[client] = task
            self._pending[client].append(self._ready.pop())
        return handle

    def _client_of(self, handle: Any) -> int | None:
        """Return the client that a callback belongs to."""
        progress = None if self.is_over else handle._context.get(PROGRESS)
        return next((number for number, candidate in enumerate(self.progress) if candidate is progress), None)

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            try:
                self._make_ready()
            except Stuck as stuck:
                self.run.stuck = str(stuck)
                self._cancel_all()
        super()._run_once()

    def _skip_time(self) -> bool:
        """Advance the time to the next timer; return whether there is one."""
        moments = [timer._when for timer in self._scheduled if timer._when < math.inf]
        if moments:
            self._pass_until(min(moments))
        return bool(moments)

    def _pass_until(self, moment: float, naps: int = 0) -> None:
        self.clock.sleep(max(0.0, moment - self.clock.seconds), naps)

    def _make_ready(self) -> None:
        """Make the next step ready, or advance the time."""
        for handles in self._pending:
            while handles and handles[0].cancelled():
                handles.popleft()
        if self._awake is not None:
            awake, self._awake = self._awake, None
            if self._pending[awake]:
                self._ready.append(self._pending[awake].popleft())
                return
        runnable = self._runnable()
        if runnable:
            self._step(runnable)
        elif self._skip_time() or self.is_over:
            return
        elif len(self._selector.get_map()) > 1:  # one is the loop's own
            self._note_unseen(_SOCKET)
        else:
            if set(threading.enumerate()) - self._threads - {threading.current_thread()}:
                self._note_unseen(OTHER_THREAD)
            raise Stuck(self._describe_deadlock())

    def _runnable(self) -> tuple[int, ...]:
        sleeping = self._sleeping().keys() & self._left
        runnable = {client for client in self._left if self._pending[client] or client in sleeping}
        # A client that sleeps again and again waits for another.
        retrying = {client for client in sleeping if self._naps.get(client, 0) >= _MAX_NAPS}
        return tuple(sorted(runnable - retrying or runnable))

    def _sleeping(self) -> dict[int, float]:
        """Return the clients that sleep, and until when."""
        sleeping: dict[int, float] = {}
        for timer in self._scheduled:
            client = self._client_of(timer)
            is_sleep = timer._callback is _WAKES_SLEEPER and timer._when < math.inf and not timer.cancelled()
            if client is not None and is_sleep:
                sleeping[client] = min(timer._when, sleeping.get(client, timer._when))
        return sleeping

    def _step(self, runnable: tuple[int, ...]) -> None:
        run, position = self.run, len(self.run.choices)
        last = run.choices[-1] if position else 0
        client = self._choices[position] if position < len(self._choices) else last
        if client not in runnable:
            run.diverged |= position < len(self._choices)
            client = runnable[0]
        if self.progress[client].steps >= MAX_STEPS:
            raise Stuck(f"client {client + 1} made {MAX_STEPS:,} steps without finishing")
        if self._wakeups >= MAX_WAKEUPS:
            raise Stuck(livelock({client: Access(SLEEP, place(self._line(client))) for client in self._slept}))
        if self._pending[client]:
            handle: Any = self._pending[client].popleft()
            self._ready.append(handle)
            resumed = "await" if self.progress[client].steps else "start"
            kind = "thread" if handle._callback == self._run_work else resumed
        else:
            self._all_naps[client] += 1
            self._awake, kind = client, SLEEP
            self._pass_until(self._sleeping()[client], self._all_naps[client])
        self._wakeups = self._wakeups + 1 if client in self._slept else 0
        self._slept.discard(client)
        self._naps = {client: self._naps.get(client, 0) + (kind == SLEEP)}
        self.progress[client].steps += 1
        line = self._line(client)
        run.steps.append(ScheduleStep(client, Access(kind, place(line), line, writes=MEMORY)))
        run.choices.append(client)
        run.enabled.append(runnable)

    def _cancel_all(self) -> None:
        """Cancel all tasks, and let them run to their end."""
        self.is_over = True
        for handles in self._pending:
            self._ready.extend(handles)
            handles.clear()
        for task in asyncio.all_tasks(self):
            task.cancel()

    def _note_unseen(self, what: str) -> None:
        if what not in self.run.unseen:
            self.run.unseen.append(what)

    def _describe_deadlock(self) -> str:
        if not self._tasks:
            return "setup does not finish: it waits for something that never happens"
        each = "; ".join(
            f"client {client + 1} waits at {place(line)}: {line.text}" if line else f"client {client + 1} waits"
            for client in sorted(self._left)
            for line in [self._line(client)]
        )
        return f"deadlock: {each}"

    def _line(self, client: int) -> SourceLine | None:
        """Return the line at which a client resumes: the innermost of its task, in the code under test."""
        coroutine: Any = self._tasks[client].get_coro()
        line = None
        while inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
            frame = coroutine.cr_frame
            if self._is_under_test(frame.f_code.co_filename):
                line = SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            coroutine = coroutine.cr_await
        return line


async def _resolved(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result
