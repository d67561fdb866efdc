"""Clients in processes that are forked once and run again and again, one at a time.

Each stops before a file operation below home when its allowance is used up, and waits for a new one.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing.connection as connection
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.race.file_stand_ins import find_calls, install
from pytest_wfstate.faults.race.file_steps import AttemptedAccess, FileSteps
from pytest_wfstate.faults.race.schedule import (
    DEATH,
    MAX_STEPS,
    MAX_WAKEUPS,
    Access,
    ClientFailed,
    Killed,
    ScheduleRun,
    ScheduleStep,
    Stuck,
    livelock,
)
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.record.rebind import References
from pytest_wfstate.faults.replay_id import Choices, death_of
from pytest_wfstate.faults.sync_async import call

__tracebackhide__ = True


class StopMessage(NamedTuple):
    """What a client sends when it stops."""

    reason: str
    """`end`, or why it cannot continue: `op`, `blocked` or `asleep`."""
    result: Any
    attempts: list[AttemptedAccess]
    """The operations made since it last stopped."""
    acked: list[Any]
    unseen: list[str]


class ClientProcesses:
    """Clients in their own processes, and their home."""

    shared: Any = None

    def __init__(
        self, home: Home, clients: Sequence[Callable[..., Any]], timeout: float = 30, *, killable: bool = False
    ) -> None:
        self._home = home
        self._start: tuple[Content, dict[str, str]] = (home.content(), home.links())
        self._clients = clients
        self._timeout = timeout
        self._killable = killable
        self._processes: dict[int, ClientProcess] = {}

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:
        """Follow `choices`, then run on without preemption."""
        self._home.build(*self._start)
        self._start_missing()
        run = ScheduleRun()
        try:
            _ProcessSchedule(
                self._processes, choices, run, self._timeout, lines=lines, killable=self._killable
            ).follow()
        except Stuck as stuck:
            run.stuck = str(stuck)
            self.close()  # where its clients are is unknown
        return run

    def close(self) -> None:
        """End all clients."""
        while self._processes:
            self._processes.popitem()[1].close()

    def _start_missing(self) -> None:
        """Fork the clients that are missing: all at first, later those that were killed."""
        for number, process in list(self._processes.items()):
            if process.is_dead:
                del self._processes[number]
        missing = [number for number in range(len(self._clients)) if number not in self._processes]
        if not missing:
            return
        references = find_calls()
        for number in missing:
            self._processes[number] = ClientProcess(number, self._clients[number], self._home.path, references)
        for number in missing:
            self._processes[number].wait_until_ready()


class _ProcessSchedule:
    """Runs client processes as one schedule says."""

    def __init__(
        self,
        processes: dict[int, ClientProcess],
        choices: Choices,
        run: ScheduleRun,
        timeout: float,
        *,
        lines: bool,
        killable: bool,
    ) -> None:
        self._processes = processes
        self._choices = choices
        self._run = run
        self._timeout = timeout
        self._lines = lines
        self._killable = killable
        self._made: collections.Counter[int] = collections.Counter()
        self._left = set(processes)
        self._blocked: dict[int, Access] = {}
        self._asleep: set[int] = set()
        self._wakeups = 0

    def follow(self) -> None:
        """Run until all clients have finished.

        Raises:
            Stuck: they cannot.
        """
        while self._left:
            enabled = self._runnable()
            wanted, allowance = self._next()
            if wanted < 0 and death_of(wanted) in self._left:
                self._kill(death_of(wanted), enabled)
            elif wanted in enabled:
                self._go(wanted, allowance, enabled)
            else:
                self._run.diverged |= len(self._run.choices) < len(self._choices)
                self._go(enabled[0], MAX_STEPS, enabled)

    def _next(self) -> tuple[int, int]:
        """Return the next client, and for how many steps it runs."""
        position = len(self._run.choices)
        if position >= len(self._choices):
            return (self._run.choices[-1] if position else 0), MAX_STEPS
        wanted, same = self._choices[position], position
        while same < len(self._choices) and self._choices[same] == wanted:
            same += 1
        return wanted, same - position

    def _runnable(self) -> tuple[int, ...]:
        runnable = self._left - self._blocked.keys()
        if not runnable and self._asleep and self._wakeups < MAX_WAKEUPS:
            self._wakeups += 1
            runnable = set(self._asleep)  # their sleeps end
        if not runnable:
            raise Stuck(_describe_stuck(self._blocked))
        return tuple(sorted(runnable))

    def _go(self, client: int, allowance: int, enabled: tuple[int, ...]) -> None:
        message = self._processes[client].go(allowance, now() + self._timeout, lines=self._lines)
        self._run.acked[client] = message.acked
        for attempt in message.attempts or [AttemptedAccess(Access("end", ""), acked=len(message.acked))]:
            self._record(ScheduleStep(client, *attempt), client, enabled)
            if not attempt.blocked:
                self._blocked.clear()  # it may have freed a lock
                self._asleep.clear()
                enabled = tuple(sorted(self._left))
        if message.reason in ("blocked", "asleep"):
            self._blocked[client] = message.attempts[-1].access
            self._asleep |= {client} if message.reason == "asleep" else set()
        elif message.reason == "end":
            self._left.discard(client)
            self._run.results[client] = message.result
            self._run.unseen += message.unseen
        if client in self._left and self._made[client] >= MAX_STEPS:
            raise Stuck(f"client {client + 1} made {MAX_STEPS:,} file operations without finishing")
        self._wakeups = self._wakeups if message.reason == "asleep" else 0

    def _kill(self, victim: int, enabled: tuple[int, ...]) -> None:
        self._record(ScheduleStep(victim, DEATH), death_of(victim), enabled)
        self._processes[victim].close()
        self._left.discard(victim)
        self._run.results[victim] = Killed()
        self._blocked.clear()
        self._asleep.clear()

    def _record(self, step: ScheduleStep, choice: int, enabled: tuple[int, ...]) -> None:
        if self._killable:
            self._run.killable.append(self._candidates(step, enabled))
        self._run.steps.append(step)
        self._run.choices.append(choice)
        self._run.enabled.append(enabled)
        self._made[step.client] += 1

    def _candidates(self, step: ScheduleStep, enabled: tuple[int, ...]) -> tuple[int, ...]:
        """Return the clients whose death before a step matters: those that just changed or acknowledged something.

        Any other death is equivalent to an earlier or later one, since it only frees locks; unless a client has tried
        a lock without waiting for it. Only one client dies.
        """
        run = self._run
        if not run.choices or any(choice < 0 for choice in run.choices):
            return ()
        if any(earlier.access.kind == "try lock" for earlier in run.steps):
            return tuple(sorted(self._made.keys() & self._left))
        last = run.choices[-1]
        acked = step.acked if step.client == last else len(run.acked[last])
        has_changed = any(kind != "lock" for kind, _, _ in run.steps[-1].access.writes) or acked > run.steps[-1].acked
        return (last,) if last in enabled and has_changed else ()


class ClientProcess:
    """A client's process, as the test sees it."""

    def __init__(self, number: int, client: Callable[..., Any], home: Path, references: References) -> None:
        self._number = number
        self.is_dead = False
        self._pipe, theirs = connection.Pipe()
        self.pid = fork()
        if self.pid == 0:
            self._pipe.close()
            _ClientLoop(theirs, client, home).serve(references)
        theirs.close()

    def wait_until_ready(self) -> None:
        """Wait until it is ready."""
        self._pipe.recv_bytes()

    def go(self, allowance: int, until: float, *, lines: bool) -> StopMessage:
        """Let it make `allowance` steps, and return what it sends then.

        Raises:
            Stuck: it did not answer in time, or its process is gone.
        """
        try:
            self._pipe.send_bytes(b"%d %d" % (allowance, lines))
            if not self._pipe.poll(max(0.0, until - now())):
                raise Stuck(f"client {self._number + 1} neither made a file operation nor finished in time")
            message = StopMessage(*loads(self._pipe.recv_bytes()))
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise Stuck(f"the process of client {self._number + 1} exited") from None
        return message

    def close(self) -> None:
        """Kill it."""
        if self.is_dead:
            return
        self.is_dead = True
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class _ClientLoop:
    """A client's process, from inside."""

    def __init__(self, pipe: connection.Connection, client: Callable[..., Any], home: Path) -> None:
        self._pipe = pipe
        self._client = client
        self._home = home
        self._steps = FileSteps(str(home), self._stop)

    def serve(self, references: References) -> None:
        """Run the client as often as the test asks, then exit."""
        try:
            install(self._steps, references)
            self._pipe.send_bytes(b"ready")
            while True:
                self._wait()
                self._send("end", self._run())
        finally:
            os._exit(0)

    def _run(self) -> Any:
        self._steps.begin()
        try:
            return call(self._client, self._home)
        except BaseException as error:
            return ClientFailed(error)
        finally:
            self._steps.is_on = False

    def _send(self, reason: str, result: Any) -> None:
        attempts, acked, unseen = self._steps.take_attempts(), self._steps.progress.acked, self._steps.unseen
        try:
            message = dumps((reason, result, attempts, acked, unseen))
        except Exception as error:
            text = f"what a client returns or acknowledges must be picklable: {error}"
            message = dumps((reason, ClientFailed(RuntimeError(text)), attempts, [], unseen))
        self._pipe.send_bytes(message)

    def _stop(self, reason: str) -> None:
        self._send(reason, None)
        self._wait()

    def _wait(self) -> None:
        try:
            allowed = self._pipe.recv_bytes()
        except EOFError:
            os._exit(0)
        allowance, lines = map(int, allowed.split())
        self._steps.allowance, self._steps.lines = allowance, bool(lines)


def _describe_stuck(blocked: dict[int, Access]) -> str:
    if any(access.kind == "sleep" for access in blocked.values()):
        return livelock(blocked)
    waits = (f"client {client + 1} waits for the {access}" for client, access in sorted(blocked.items()))
    return f"deadlock: {'; '.join(waits)}"
