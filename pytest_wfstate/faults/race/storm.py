"""Storms: workers that are real processes, all running at once, some of which are killed and restarted.

A worker is given calls to make. It reports when it begins one and when it is done, unbuffered through a pipe, so that
everything it reported is known when it dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing.connection as connection
import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.report_text import error_lines

__tracebackhide__ = True

Program = Callable[[], AbstractContextManager[Callable[[Any], Any]]]
"""What a worker runs: a context that yields the function which makes a call and returns its outcome."""

PAUSE = "pause"
"""Assigned in place of a call: wait until other workers have made some. It is never the last."""
_PAUSE_LENGTH = 20  # calls of other workers
_BETWEEN_DEATHS = (15, 60)  # calls of all workers
_AT_ONCE = 5  # calls of one worker, before others are looked at
_KILL_DELAY = 0.002  # seconds at most from a worker's last report to its death


class WorkerLost(Exception):
    """A worker does not answer, or cannot continue. The text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class TimedCall:
    """A call that a worker began: in which of its processes, from when to when, and its outcome."""

    worker: int
    restarts: int
    """How often the worker had been restarted before."""
    call: Any
    begin: float
    end: float
    """When it returned, or its worker had died."""
    outcome: Any = None
    died: bool = False


class Storm:
    """Several workers, each in its own process, or all in threads of this one, which cannot be killed."""

    def __init__(
        self, program: Program, workers: int, chance: random.Random, *, deaths: bool, threads: bool, timeout: float
    ) -> None:
        self._chance = chance
        self._deaths = deaths
        self._timeout = timeout
        self._workers = [StormWorker(number, program, in_thread=threads) for number in range(workers)]
        self._next_death = chance.randint(*_BETWEEN_DEATHS)
        self._timed_calls: list[TimedCall] = []
        self._disturbed = 0
        self.killed = 0

    def round(
        self,
        calls: Sequence[Sequence[Any]],
        first: Sequence[Any] = (),
        disturb: Callable[[], None] | None = None,
    ) -> list[TimedCall]:
        """Have each worker make its calls, and return all that were begun.

        A restarted worker makes the calls in `first` before those it has left. `disturb` is called once: every other
        time at random, and else near the end, when few calls follow that could hide what was lost.

        Raises:
            WorkerLost: a worker does not answer, or cannot continue.
        """
        self._timed_calls = []
        moment = self._moment(sum(call != PAUSE for own in calls for call in own)) if disturb else 0
        for worker, own in zip(self._workers, calls, strict=True):
            worker.assign(own)
        while any(worker.left for worker in self._workers):
            for worker in self._ready_workers():
                timed_calls = worker.collect()
                self._timed_calls += timed_calls
                self._next_death -= len(timed_calls)
                if self._deaths and worker.left and self._next_death <= 0:
                    self._kill(worker, first)
            if disturb and len(self._timed_calls) >= moment:
                disturb()
                disturb = None
            self._resume_paused()
        return self._timed_calls

    @property
    def restarts(self) -> list[int]:
        """How often each worker has been restarted."""
        return [worker.restarts for worker in self._workers]

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
            worker.pipe.close()

    def _moment(self, calls: int) -> int:
        """Choose after how many calls to disturb the workers."""
        self._disturbed += 1
        first = calls - calls // 10 if self._disturbed % 2 else 0
        return self._chance.randrange(first, max(calls, first + 1))

    def _ready_workers(self) -> list[StormWorker]:
        busy = {worker.pipe: worker for worker in self._workers if worker.left}
        patience = Patience(self._timeout, *(worker.pid for worker in busy.values()))
        while not (ready := connection.wait(list(busy), patience.interval)):
            if not patience.is_over():
                continue
            pending = "; ".join(f"worker {worker.number + 1} in {worker.left[0]}" for worker in busy.values())
            raise WorkerLost(f"no worker answered in {self._timeout:g} s: {pending}")
        return [worker for pipe, worker in busy.items() if pipe in ready]

    def _kill(self, worker: StormWorker, first: Sequence[Any]) -> None:
        self._next_death = self._chance.randint(*_BETWEEN_DEATHS)
        self.killed += 1
        time.sleep(self._chance.random() * _KILL_DELAY)
        self._timed_calls += worker.kill_and_restart(first)

    def _resume_paused(self) -> None:
        """Resume the workers that paused while others made enough calls; all, if no other has calls left."""
        paused = [worker for worker in self._workers if worker.is_paused]
        all_paused = all(worker.is_paused for worker in self._workers if worker.left)
        for worker in paused:
            if worker.paused_since is None:
                worker.paused_since = len(self._timed_calls)
            if all_paused or len(self._timed_calls) - worker.paused_since >= _PAUSE_LENGTH:
                worker.resume()


class StormWorker:
    """A worker, as the test sees it."""

    def __init__(self, number: int, program: Program, *, in_thread: bool) -> None:
        self.number = number
        self.restarts = 0
        self.left: deque[Any] = deque()
        """Calls that have not returned."""
        self.is_paused = False
        self.paused_since: int | None = None
        self._begun: float | None = None
        self._program = program
        self._in_thread = in_thread
        self.pid = os.getpid()
        self._is_dead = False
        self._start()

    def assign(self, calls: Sequence[Any]) -> None:
        """Assign it calls to make."""
        self.left.extend(calls)
        self._send(list(calls))

    def resume(self) -> None:
        """End its pause."""
        self.is_paused, self.paused_since = False, None
        self._send("resume")

    def collect(self) -> list[TimedCall]:
        """Read its reports, and return the calls that have returned.

        Raises:
            WorkerLost: it cannot continue.
        """
        timed_calls: list[TimedCall] = []
        try:
            while self.pipe.poll() and (len(timed_calls) < _AT_ONCE or self._is_dead):
                timed_calls += self._received(*loads(self.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):
            if not self._is_dead:
                raise WorkerLost(f"the process of worker {self.number + 1} exited during {self.left[0]}") from None
        return timed_calls

    def _received(self, event: str, when: float, value: Any) -> list[TimedCall]:
        if event == "lost":
            raise WorkerLost(f"worker {self.number + 1} cannot continue:\n{value}")
        if event == "done":
            return [self._end_call(when, value)]
        if event == "begin":
            self._begun = when
        else:
            self.left.popleft()
            self.is_paused = True
        return []

    def kill_and_restart(self, first: Sequence[Any]) -> list[TimedCall]:
        """Kill and restart it; return the calls that had returned, and the one it died in."""
        self.end()
        timed_calls = self.collect()
        self.pipe.close()
        if self._begun is not None:
            timed_calls.append(self._end_call(now(), died=True))
        left = [call for call in self.left if call != PAUSE]
        self.left.clear()
        self.is_paused, self.paused_since, self.restarts = False, None, self.restarts + 1
        self._start()
        self.assign([*first, *left])
        return timed_calls

    def end(self) -> None:
        """Kill its process. A thread is asked to end."""
        if self._in_thread:
            self._send(None)
            self._thread.join(1.0)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._is_dead = True

    def _end_call(self, end: float, outcome: Any = None, *, died: bool = False) -> TimedCall:
        begin, self._begun = self._begun or end, None
        call = self.left.popleft()
        return TimedCall(self.number, self.restarts, call, begin, end, outcome, died)

    def _start(self) -> None:
        self._is_dead = False
        self.pipe, theirs = connection.Pipe()
        if self._in_thread:
            self._thread = threading.Thread(target=_StormProcess(theirs, self._program).serve, daemon=True)
            self._thread.start()
            return
        self.pid = fork()
        if self.pid == 0:
            try:
                self.pipe.close()
                _StormProcess(theirs, self._program).serve()
            finally:
                os._exit(0)
        theirs.close()

    def _send(self, value: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has died, which `collect` notices
            self.pipe.send_bytes(dumps(value))


class _StormProcess:
    """A worker, from inside."""

    def __init__(self, pipe: connection.Connection, program: Program) -> None:
        self._pipe = pipe
        self._program = program

    def serve(self) -> None:
        """Make the calls that it is given, until it is asked to end."""
        try:
            with self._program() as do:
                while (calls := loads(self._pipe.recv_bytes())) is not None:
                    for call in calls:
                        self._make_call(call, do)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the test has ended
        except WorkerLost as lost:
            self._report("lost", str(lost))
        except BaseException as error:
            self._report("lost", "\n".join(error_lines(error)))

    def _make_call(self, call: Any, do: Callable[[Any], Any]) -> None:
        if call == PAUSE:
            self._report("pause")
            self._pipe.recv_bytes()
            return
        self._report("begin")
        self._report("done", do(call))

    def _report(self, event: str, value: Any = None) -> None:
        self._pipe.send_bytes(dumps((event, now(), value)))
