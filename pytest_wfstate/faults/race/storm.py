"""Storms: workers that are real processes, all at once, one of which is killed now and then and started again.

What a worker does is given as orders, one after the other. It says when it begins one and when it is done, through a
pipe and at once, so that all it had said is known when it dies.
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
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.real_clock import now

__tracebackhide__ = True

Program = Callable[[], AbstractContextManager[Callable[[Any], Any]]]
"""What a worker does with its life: entered when that begins, it gives what does an order and tells what came of it."""

NAP = "nap"
"""The order to do nothing until others have done something; it is not the last one."""
_NAP_LENGTH = 20  # orders of others
_BETWEEN_DEATHS = (15, 60)  # orders of all
_AT_ONCE = 5  # orders of one worker, before others are heard
_BLINK = 0.002  # seconds at most from what a worker said last to its death


class WorkerLost(Exception):
    """A worker does not come back, or cannot go on. The text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class TimedCall:
    """An order that was begun: by whom, in which of its lives, from when to when, and what came of it."""

    worker: int
    life: int
    order: Any
    begin: float
    end: float
    """When it was done, or its worker had died."""
    outcome: Any = None
    died: bool = False


class Storm:
    """Some workers, each in a process, or all in threads of this one, where nobody can be killed."""

    def __init__(
        self, program: Program, workers: int, chance: random.Random, *, deaths: bool, threads: bool, timeout: float
    ) -> None:
        self._chance = chance
        self._deaths = deaths
        self._timeout = timeout
        self._workers = [StormWorker(number, program, in_thread=threads) for number in range(workers)]
        self._next_death = chance.randint(*_BETWEEN_DEATHS)
        self._deeds: list[TimedCall] = []
        self._disturbed = 0
        self.killed = 0

    def round(
        self,
        orders: Sequence[Sequence[Any]],
        first: Sequence[Any] = (),
        disturb: Callable[[], None] | None = None,
    ) -> list[TimedCall]:
        """Have each worker do its orders, and give all that was done. A new life begins with the orders in `first`.

        `disturb` is called once: every other time in the midst of it, and else near its end, when hardly anybody
        comes after who could cover up what was lost.

        Raises:
            Broken: a worker did not come back.
        """
        self._deeds = []
        moment = self._moment(sum(order != NAP for some in orders for order in some)) if disturb else 0
        for worker, some in zip(self._workers, orders, strict=True):
            worker.tell(some)
        while any(worker.left for worker in self._workers):
            for worker in self._who_said_something():
                deeds = worker.listen()
                self._deeds += deeds
                self._next_death -= len(deeds)
                if self._deaths and worker.left and self._next_death <= 0:
                    self._kill(worker, first)
            if disturb and len(self._deeds) >= moment:
                disturb()
                disturb = None
            self._wake()
        return self._deeds

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
            worker.pipe.close()

    def _moment(self, orders: int) -> int:
        """Choose after how many orders all are disturbed."""
        self._disturbed += 1
        first = orders - orders // 10 if self._disturbed % 2 else 0
        return self._chance.randrange(first, max(orders, first + 1))

    def _who_said_something(self) -> list[StormWorker]:
        busy = {worker.pipe: worker for worker in self._workers if worker.left}
        ready = connection.wait(list(busy), self._timeout)
        if not ready:
            at = "; ".join(f"worker {worker.number + 1} in {worker.left[0]}" for worker in busy.values())
            raise WorkerLost(f"nobody came back in {self._timeout:g} s: {at}")
        return [worker for pipe, worker in busy.items() if pipe in ready]

    def _kill(self, worker: StormWorker, first: Sequence[Any]) -> None:
        self._next_death = self._chance.randint(*_BETWEEN_DEATHS)
        self.killed += 1
        time.sleep(self._chance.random() * _BLINK)
        self._deeds += worker.die(first)

    def _wake(self) -> None:
        """Wake up who slept while others did enough; all, if nobody else is left to do anything."""
        asleep = [worker for worker in self._workers if worker.is_asleep]
        all_wait = all(worker.is_asleep for worker in self._workers if worker.left)
        for worker in asleep:
            if worker.slept_since is None:
                worker.slept_since = len(self._deeds)
            if all_wait or len(self._deeds) - worker.slept_since >= _NAP_LENGTH:
                worker.wake()


class StormWorker:
    """A worker, seen from the test."""

    def __init__(self, number: int, program: Program, *, in_thread: bool) -> None:
        self.number = number
        self.life = 0
        self.left: deque[Any] = deque()
        """Orders that are not done."""
        self.is_asleep = False
        self.slept_since: int | None = None
        self._begun: float | None = None
        self._program = program
        self._in_thread = in_thread
        self._pid = 0
        self._is_dead = False
        self._start()

    def tell(self, orders: Sequence[Any]) -> None:
        """Give it orders."""
        self.left.extend(orders)
        self._send(list(orders))

    def wake(self) -> None:
        """Let it go on."""
        self.is_asleep, self.slept_since = False, None
        self._send("wake")

    def listen(self) -> list[TimedCall]:
        """Hear what it has said, and give the orders that it has done.

        Raises:
            Broken: it cannot go on.
        """
        deeds: list[TimedCall] = []
        try:
            while self.pipe.poll() and (len(deeds) < _AT_ONCE or self._is_dead):
                deeds += self._heard(*loads(self.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):
            if not self._is_dead:
                raise WorkerLost(f"the process of worker {self.number + 1} has ended in {self.left[0]}") from None
        return deeds

    def _heard(self, what: str, at: float, value: Any) -> list[TimedCall]:
        if what == "broken":
            raise WorkerLost(f"worker {self.number + 1} cannot go on:\n{value}")
        if what == "done":
            return [self._deed(at, value)]
        if what == "begin":
            self._begun = at
        else:
            self.left.popleft()
            self.is_asleep = True
        return []

    def die(self, first: Sequence[Any]) -> list[TimedCall]:
        """Kill it, and let a new life begin; give what it had done, and the order in the middle of which it died."""
        self.end()
        deeds = self.listen()
        self.pipe.close()
        if self._begun is not None:
            deeds.append(self._deed(now(), died=True))
        left = [order for order in self.left if order != NAP]
        self.left.clear()
        self.is_asleep, self.slept_since, self.life = False, None, self.life + 1
        self._start()
        self.tell([*first, *left])
        return deeds

    def end(self) -> None:
        """End it. A thread is asked to."""
        if self._in_thread:
            self._send(None)
            self._thread.join(1.0)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._is_dead = True

    def _deed(self, end: float, outcome: Any = None, *, died: bool = False) -> TimedCall:
        begin, self._begun = self._begun or end, None
        order = self.left.popleft()
        return TimedCall(self.number, self.life, order, begin, end, outcome, died)

    def _start(self) -> None:
        self._is_dead = False
        self.pipe, theirs = connection.Pipe()
        if self._in_thread:
            self._thread = threading.Thread(target=_StormProcess(theirs, self._program).live, daemon=True)
            self._thread.start()
            return
        self._pid = fork()
        if self._pid == 0:
            try:
                self.pipe.close()
                _StormProcess(theirs, self._program).live()
            finally:
                os._exit(0)
        theirs.close()

    def _send(self, value: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has died: that is seen when it is heard
            self.pipe.send_bytes(dumps(value))


class _StormProcess:
    """A worker from the inside."""

    def __init__(self, pipe: connection.Connection, program: Program) -> None:
        self._pipe = pipe
        self._program = program

    def live(self) -> None:
        """Do what it is told until it is told nothing."""
        try:
            with self._program() as do:
                while (orders := loads(self._pipe.recv_bytes())) is not None:
                    for order in orders:
                        self._follow(order, do)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the test has ended
        except WorkerLost as broken:
            self._say("broken", str(broken))
        except BaseException:
            self._say("broken", traceback.format_exc())

    def _follow(self, order: Any, do: Callable[[Any], Any]) -> None:
        if order == NAP:
            self._say("nap")
            self._pipe.recv_bytes()
            return
        self._say("begin")
        self._say("done", do(order))

    def _say(self, what: str, value: Any = None) -> None:
        self._pipe.send_bytes(dumps((what, now(), value)))
