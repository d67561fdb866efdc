"""Tasks: async clients on one event loop, which take turns where they await something, and nowhere else.

So is an async store used by most. What it does between two awaits nobody can interrupt; but what it has looked at
before an await may be otherwise after it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate.faults.race.schedule import (
    PROGRESS,
    Access,
    ClientFailed,
    ClientProgress,
    ScheduleRun,
    Stuck,
    Turn,
)
from pytest_wfstate.faults.race.stepping import UnderTest
from pytest_wfstate.faults.race.thread_scheduler import MEMORY, Abandoned, abandon, place
from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.source import SourceLine

__tracebackhide__ = True

_MOST = 10_000  # turns of one client in one schedule
_NAPS = 3  # times that a client wakes up before somebody else has done something
_HANDED_ON = "work that is handed to another thread"
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
        self._is_rehearsed = False
        self.shared: Any = None
        """What the clients of the last schedule shared."""

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:  # noqa: ARG002 - it has them always
        """Follow `choices`, and then let whoever runs run on as long as possible.

        Raises:
            BaseException: whatever `setup` raised.
        """
        if not self._is_rehearsed:
            self._is_rehearsed = True
            rehearsal = self._follow(())  # what is imported, compiled or cached only once is so now
            if rehearsal.stuck and not choices:
                return rehearsal
        return self._follow(choices)

    def close(self) -> None:
        """Do nothing: each schedule has ended its clients."""

    def _follow(self, choices: Choices) -> ScheduleRun:
        steered = ScheduledLoop(len(self._clients), choices, self._under_test)
        failed: list[BaseException] = []
        # In a thread of its own: an event loop may run in this one, and a client that hangs hangs there.
        thread = threading.Thread(target=self._race, args=(steered, failed), name="wfstate-tasks", daemon=True)
        thread.start()
        seen = 0
        while thread.is_alive():
            thread.join(self._timeout)
            if thread.is_alive() and seen == len(steered.run.turns):
                steered.hangs(thread.ident or 0)
                break
            seen = len(steered.run.turns)
        if failed:
            raise failed[0]
        return steered.run

    def _race(self, steered: ScheduledLoop, failed: list[BaseException]) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: steered) as runner:
                runner.run(self._all(steered))
        except BaseException as error:
            if not steered.run.stuck:  # else it is how its tasks were ended
                failed.append(error)

    async def _all(self, steered: ScheduledLoop) -> None:
        self.shared = await _given(self._setup())
        self._under_test.include(self.shared)
        tasks = [self._task(steered, number) for number in range(len(self._clients))]
        try:
            await asyncio.wait(tasks)
        finally:
            steered.is_over = True
            for task in tasks:
                task.cancel()

    def _task(self, steered: ScheduledLoop, number: int) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(PROGRESS.set, steered.progress[number])
        return steered.create_task(self._client(steered, number), context=context)  # type: ignore[no-any-return]

    async def _client(self, steered: ScheduledLoop, number: int) -> None:
        try:
            result = await _given(self._clients[number](self.shared))
        except Abandoned:
            raise
        except BaseException as error:
            result = ClientFailed(error, traceback.format_exc())
        steered.finish(number, result)


class ScheduledLoop(_EventLoop):  # type: ignore[misc]  # it has more members than are documented
    """An event loop that runs a step of a client's task only when it is that client's turn, and whose time never waits.

    Whose a step is tells the context that it runs in, so the tasks that a client makes are that client too. Whatever
    is of no client, such as the store's own tasks, goes on at once.
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
        self._steps: list[deque[asyncio.Handle]] = [deque() for _ in range(clients)]
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._woken: int | None = None
        self._naps: dict[int, int] = {}
        self._now = 0.0
        self._threads = set(threading.enumerate())

    def time(self) -> float:
        """Give the time, which goes by only when it must."""
        return self._now

    def finish(self, client: int, result: Any) -> None:
        """Say that a client has come to its end."""
        if not self.is_over:
            self._left.discard(client)
            self.run.results[client] = result

    def hangs(self, thread: int) -> None:
        """Say that the client that goes on does not come back."""
        client = self.run.choices[-1] if self.run.choices else 0
        line = self._line_of(sys._current_frames().get(thread))
        where = f", and is at {place(line)}: {line.text}" if line else ""
        why = f"client {client + 1} did not come to its next await, or to its end, in time{where}"
        self.run.stuck = self.run.stuck or why
        self.is_over = True
        abandon(thread)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # noqa: ARG002
        """Have the work of another thread done in a turn of its own, as a whole."""
        future = self.create_future()
        handle = asyncio.Handle(self._work, (future, func, args), self, contextvars.copy_context())
        client = self._client_of(handle)
        (self._ready if client is None else self._steps[client]).append(handle)
        return future

    def _work(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
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
            self._steps[client].append(self._ready.pop())
        return handle

    def _client_of(self, handle: Any) -> int | None:
        """Tell whose a step is."""
        progress = None if self.is_over else handle._context.get(PROGRESS)
        return next((number for number, one in enumerate(self.progress) if one is progress), None)

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            try:
                self._choose()
            except Stuck as stuck:
                self.run.stuck = str(stuck)
                self._let_go()
        super()._run_once()

    def _pass_time(self) -> bool:
        """Let time go by until something happens, if anything will."""
        if self._scheduled:
            self._now = max(self._now, min(timer._when for timer in self._scheduled))
        return bool(self._scheduled)

    def _choose(self) -> None:
        """Make the step ready that is next, or let time go by."""
        for steps in self._steps:
            while steps and steps[0].cancelled():
                steps.popleft()
        if self._woken is not None:
            woken, self._woken = self._woken, None
            if self._steps[woken]:
                self._ready.append(self._steps[woken].popleft())
                return
        able = self._able()
        if able:
            self._go(able)
        elif self._pass_time() or self.is_over:
            return
        elif len(self._selector.get_map()) > 1:  # one is the loop's own
            self._cannot_see(_SOCKET)
        else:
            if set(threading.enumerate()) - self._threads - {threading.current_thread()}:
                self._cannot_see(_HANDED_ON)
            raise Stuck(self._deadlock())

    def _able(self) -> tuple[int, ...]:
        sleeping = self._sleeping().keys() & self._left
        able = {client for client in self._left if self._steps[client] or client in sleeping}
        # Who sleeps again and again waits for what somebody else is to do.
        return tuple(sorted(able - {client for client in sleeping if self._naps.get(client, 0) >= _NAPS} or able))

    def _sleeping(self) -> dict[int, float]:
        """Tell who sleeps, and until when."""
        sleeping: dict[int, float] = {}
        for timer in self._scheduled:
            client = self._client_of(timer)
            if client is not None and timer._callback is _WAKES_SLEEPER and not timer.cancelled():
                sleeping[client] = min(timer._when, sleeping.get(client, timer._when))
        return sleeping

    def _go(self, able: tuple[int, ...]) -> None:
        run, turn = self.run, len(self.run.choices)
        going_on = run.choices[-1] if turn else 0
        client = self._choices[turn] if turn < len(self._choices) else going_on
        if client not in able:
            run.diverged |= turn < len(self._choices)
            client = able[0]
        if self.progress[client].taken >= _MOST:
            raise Stuck(f"client {client + 1} took {_MOST:,} turns and did not come to its end")
        if self._steps[client]:
            handle: Any = self._steps[client].popleft()
            self._ready.append(handle)
            kind = "thread" if handle._callback == self._work else "await" if self.progress[client].taken else "start"
        else:
            self._woken, self._now, kind = client, max(self._now, self._sleeping()[client]), "sleep"
        self._naps = {client: self._naps.get(client, 0) + (kind == "sleep")}
        self.progress[client].taken += 1
        line = self._line(client)
        run.turns.append(Turn(client, Access(kind, place(line), line, writes=MEMORY)))
        run.choices.append(client)
        run.enabled.append(able)

    def _let_go(self) -> None:
        """Let all go on at once, to be ended."""
        self.is_over = True
        for steps in self._steps:
            self._ready.extend(steps)
            steps.clear()
        for task in asyncio.all_tasks(self):
            task.cancel()

    def _cannot_see(self, what: str) -> None:
        if what not in self.run.unseen:
            self.run.unseen.append(what)

    def _deadlock(self) -> str:
        if not self._tasks:
            return "setup does not come to its end: it waits for what nobody does"
        each = "; ".join(
            f"client {client + 1} waits at {place(line)}: {line.text}" if line else f"client {client + 1} waits"
            for client in sorted(self._left)
            for line in [self._line(client)]
        )
        return f"a deadlock: {each}"

    def _line(self, client: int) -> SourceLine | None:
        """Give the line at which a client goes on: the innermost of its task, in the code under test."""
        coroutine: Any = self._tasks[client].get_coro()
        found = None
        while inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
            frame = coroutine.cr_frame
            if self._is_under_test(frame.f_code.co_filename):
                found = SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            coroutine = coroutine.cr_await
        return found

    def _line_of(self, frame: Any) -> SourceLine | None:
        while frame is not None and not self._is_under_test(frame.f_code.co_filename):
            frame = frame.f_back
        return SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else None


async def _given(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result
