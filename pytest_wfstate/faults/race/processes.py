"""Clients in processes that are forked once and run again and again, one at a time.

Each stops before a file operation below home when its allowance is used up, and waits for a new one.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import dataclasses
import multiprocessing.connection as connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.race.file_locks import free_locks
from pytest_wfstate.faults.race.file_stand_ins import are_found, find_calls, install
from pytest_wfstate.faults.race.file_steps import AttemptedAccess, FileSteps
from pytest_wfstate.faults.race.lookup import Place
from pytest_wfstate.faults.race.schedule import (
    DEATH,
    HANGS,
    LOCK_STEPS,
    MAX_REAL_STALL,
    MAX_STALL,
    MAX_STEPS,
    MAX_WAKEUPS,
    SLEEP,
    Access,
    ClientFailed,
    Killed,
    ScheduleRun,
    ScheduleStep,
    Stuck,
)
from pytest_wfstate.faults.race.semaphores import watch_semaphores
from pytest_wfstate.faults.race.waits import install_waits, reset_clock
from pytest_wfstate.faults.record.rebind import FoundReferences, References
from pytest_wfstate.faults.replay_id import Choices, death_of
from pytest_wfstate.faults.report_text import short
from pytest_wfstate.faults.source_lines import line_of
from pytest_wfstate.faults.sync_async import call

__tracebackhide__ = True


_MAX_NAPS = 2  # sleeps of a client without a change meanwhile, after which it waits for one
_MAX_POLLS = 6  # the same, if others have only taken and freed locks meanwhile


class StopMessage(NamedTuple):
    """What a client sends when it stops."""

    reason: str
    """`end`, or why it does not continue: `op`, `blocked`, `asleep` or `hangs`."""
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
        self._start = home.surroundings.image()
        self._clients = clients
        self._timeout = timeout
        self._killable = killable
        self._processes: dict[int, ClientProcess] = {}
        self._references = References([], [], [])
        self._known = FoundReferences()

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:
        """Follow `choices`, then run on without preemption.

        With `lines`, the processes are new: what clients kept in memory from earlier schedules is not reported as what
        this one led to.
        """
        if lines:
            self.close()
        self._home.surroundings.build(*self._start)
        self._start_missing()
        run = ScheduleRun()
        try:
            _ProcessSchedule(
                self._processes, choices, run, self._timeout, lines=lines, killable=self._killable
            ).follow()
        except Stuck as stuck:
            run.stuck = str(stuck)
            self.close()  # where its clients are is unknown
        run.unseen += self._references.unseen
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
        # Clients begin with the memory that they had at first; what checks have made since is none of theirs.
        if not self._references.pairs or not are_found():
            self._references = find_calls(self._known)
        for number in missing:
            self._processes[number] = ClientProcess(number, self._clients[number], self._home, self._references)
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
        self._has_killed = False
        self._left = set(processes)
        self._blocked: dict[int, Access] = {}
        self._asleep: set[int] = set()
        self._naps: collections.Counter[int] = collections.Counter()
        """How often each client slept since anything last changed."""
        self._polls: collections.Counter[int] = collections.Counter()
        """How often each client slept since anything last changed, or another client used a lock."""
        self._is_nap = False
        """Whether the last client has fallen asleep, and may wake up while the others are stalled."""
        self._stalled_since: int | None = None
        """The step at which the last client woke up while the others were stalled, if they still are."""
        self._alone = 0
        """How often the last client slept since another one made a step."""
        self._waited = 0.0
        """For how many seconds it really waited since then."""

    def follow(self) -> None:
        """Run until all clients have finished.

        Raises:
            Stuck: they cannot.
        """
        while self._left:
            enabled = self._runnable()
            wanted, allowance = self._next(enabled)
            if wanted < 0 and death_of(wanted) in self._left:
                self._kill(death_of(wanted), enabled)
            elif wanted in enabled:
                self._go(wanted, allowance, enabled)
            else:
                self._run.diverged |= len(self._run.choices) < len(self._choices)
                self._go(enabled[0], MAX_STEPS, enabled)

    def _next(self, enabled: tuple[int, ...]) -> tuple[int, int]:
        """Return the next client, and for how many steps it runs."""
        position = len(self._run.choices)
        if position >= len(self._choices):
            last = self._last() if position else 0
            if self._stalled_since is not None:  # the others continue before it has made too many steps
                return last, max(1, MAX_STEPS // 2 - self._made[last])
            return next(client for client in enabled if client != last) if self._is_nap else last, MAX_STEPS
        wanted, same = self._choices[position], position
        while same < len(self._choices) and self._choices[same] == wanted:
            same += 1
        return wanted, same - position

    def _runnable(self) -> tuple[int, ...]:
        waiting_for_locks = self._blocked.keys() - self._asleep
        if all(client in waiting_for_locks or self._naps[client] >= MAX_WAKEUPS for client in self._left):
            raise Stuck(_describe_stuck(self._left, self._blocked, waiting_for_locks))
        last = self._last()
        enabled = self._awake(last if last not in self._blocked else -1)
        sleeps = last in self._asleep and last not in enabled
        self._is_nap = sleeps and self._may_outlast(last)
        if sleeps and not self._is_nap and self._stalled_since is not None:
            self._run.endless[last] = self._stalled_since
        return tuple(sorted((*enabled, last))) if self._is_nap else enabled

    def _may_outlast(self, client: int) -> bool:
        """Whether the others can be stalled for one more sleep of the last client."""
        return self._alone < MAX_STALL and self._waited < MAX_REAL_STALL and self._made[client] < MAX_STEPS // 2

    def _last(self) -> int:
        return self._run.choices[-1] if self._run.choices else -1

    def _awake(self, running: int) -> tuple[int, ...]:
        """Return the clients that can run. One that polls again and again waits until something changes.

        Otherwise there would be no end of schedules in which clients poll, and all that differs is how often.
        """
        awake = self._left - self._blocked.keys() or self._asleep  # if all sleep, their sleeps end
        fresh = [client for client in awake if client == running or self._may_poll(client)]
        return tuple(sorted(fresh or [min(awake, key=lambda client: (self._naps[client], client))]))

    def _may_poll(self, client: int) -> bool:
        return self._polls[client] < _MAX_NAPS and self._naps[client] < _MAX_POLLS

    def _go(self, client: int, allowance: int, enabled: tuple[int, ...]) -> None:
        outlasts = client == self._last() and (self._is_nap or self._stalled_since is not None)
        need_not_ask = outlasts or self._left == {client}
        wakeups = MAX_STALL - 1 - self._alone % MAX_STALL if need_not_ask else 0
        others = [process.pid for number, process in self._processes.items() if number != client]
        message = self._processes[client].go(allowance, wakeups, others, self._timeout, lines=self._lines)
        self._run.acked[client] = message.acked
        self._run.unseen += (what for what in message.unseen if what not in self._run.unseen)
        attempts = message.attempts or [AttemptedAccess(Access("end", ""), acked=len(message.acked))]
        for number, attempt in enumerate(attempts):
            self._record(ScheduleStep(client, *attempt), client, self._runnable() if number else enabled)
            self._follow_up(client, attempt)
        if message.reason == HANGS:
            raise Stuck(_describe_hang(client, message.attempts[-1].access))
        if message.reason == "end":
            self._leave(client)
            self._run.results[client] = message.result
        if client in self._left and self._made[client] >= MAX_STEPS:
            raise Stuck(f"client {client + 1} made {MAX_STEPS:,} file operations without finishing")

    def _follow_up(self, client: int, attempt: AttemptedAccess) -> None:
        """Note who can run after an operation."""
        access = attempt.access
        if attempt.blocked:
            self._blocked[client] = access
            if access.kind == SLEEP:
                self._asleep.add(client)
                self._alone += 1
                self._waited += access.seconds
                self._naps[client] += self._stalled_since is None
                self._polls[client] += 1
            return
        self._blocked.clear()  # it may have freed a lock
        self._asleep.clear()
        if access.is_change and not access.error:
            self._naps.clear()
            self._polls.clear()
        elif access.kind in LOCK_STEPS and not access.error:
            self._polls = collections.Counter({client: self._polls[client]})

    def _kill(self, victim: int, enabled: tuple[int, ...]) -> None:
        self._record(ScheduleStep(victim, DEATH), death_of(victim), enabled)
        self._has_killed = True
        self._processes[victim].close()
        self._leave(victim)
        self._run.results[victim] = Killed()
        self._blocked.clear()
        self._asleep.clear()

    def _leave(self, client: int) -> None:
        self._left.discard(client)
        self._naps.clear()  # it holds no lock any more
        self._polls.clear()

    def _record(self, step: ScheduleStep, choice: int, enabled: tuple[int, ...]) -> None:
        if choice != self._last():
            self._alone, self._waited, self._stalled_since = 0, 0.0, None
        elif self._is_nap:
            step = dataclasses.replace(step, outlasts=True)
            if self._stalled_since is None:
                self._stalled_since = len(self._run.choices)
        if self._is_nap:
            self._run.naps.add(len(self._run.choices))
            self._is_nap = False
        if self._killable:
            self._run.killable.append(self._candidates(step, enabled))
        self._run.steps.append(step)
        self._run.choices.append(choice)
        self._run.enabled.append(enabled)
        self._made[step.client] += 1

    def _candidates(self, step: ScheduleStep, enabled: tuple[int, ...]) -> tuple[int, ...]:
        """Return the clients whose death before a step matters. Only one client dies.

        The last client, if it just changed or acknowledged something. That includes one that meant to, and found
        nothing to change: the others may have to recover what it holds. Any other client, if the last one just saw that
        a lock is held. Every other death is equivalent to an earlier or later one, since all it does is free locks.
        """
        run = self._run
        if not run.choices or self._has_killed:
            return ()
        last = run.choices[-1]
        acked = step.acked if step.client == last else len(run.acked[last])
        has_changed = run.steps[-1].access.may_change or acked > run.steps[-1].acked
        victims = {last} if last in enabled and has_changed else set()
        if run.saw_lock(-1):
            victims |= self._made.keys() & self._left - {last}
        return tuple(sorted(victims))


class ClientProcess:
    """A client's process, as the test sees it."""

    def __init__(self, number: int, client: Callable[..., Any], home: Home, references: References) -> None:
        self._number = number
        self.is_dead = False
        self._pipe, theirs = connection.Pipe()
        self._watch, theirs_to_watch = connection.Pipe()
        self.pid = fork()
        if self.pid == 0:
            self._pipe.close()
            self._watch.close()
            _ClientLoop(theirs, theirs_to_watch, client, home).serve(references)
        theirs.close()
        theirs_to_watch.close()

    def wait_until_ready(self) -> None:
        """Wait until it is ready."""
        self._pipe.recv_bytes()

    def go(self, allowance: int, wakeups: int, others: Sequence[int], timeout: float, *, lines: bool) -> StopMessage:
        """Let it make `allowance` steps and wake up that often; return what it sends then, or where it hangs.

        `others` are the processes of the other clients.

        Raises:
            Stuck: its process is gone.
        """
        try:
            self._pipe.send_bytes(b" ".join(b"%d" % number for number in (allowance, wakeups, lines, *others)))
            return StopMessage(*loads(self._answer(timeout)))
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise Stuck(f"the process of client {self._number + 1} exited") from None

    def _answer(self, timeout: float) -> bytes:
        """Receive what it sends; or, if it neither makes a step nor finishes in time, where it hangs."""
        patience = Patience(timeout, self.pid)
        while not self._pipe.poll(patience.interval):
            if patience.is_over():
                return self._where_it_hangs(timeout)
        return self._pipe.recv_bytes()

    def _where_it_hangs(self, timeout: float) -> bytes:
        self._watch.send_bytes(b"where")
        if not self._watch.poll(timeout):  # it does not let any thread run
            return dumps((HANGS, None, [AttemptedAccess(Access(HANGS, ""))], [], []))
        answer = self._watch.recv_bytes()
        return self._pipe.recv_bytes() if self._pipe.poll(0) else answer

    def close(self) -> None:
        """Kill it."""
        if self.is_dead:
            return
        self.is_dead = True
        self._pipe.close()
        self._watch.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class _ClientLoop:
    """A client's process, from inside."""

    def __init__(
        self, pipe: connection.Connection, watch: connection.Connection, client: Callable[..., Any], home: Home
    ) -> None:
        self._pipe = pipe
        self._watch = watch
        self._client = client
        self._home = home.path
        self._place = Place.of(home)
        self._steps = FileSteps(self._place, self._stop)
        self._thread = threading.get_ident()

    def serve(self, references: References) -> None:
        """Run the client as often as the test asks, then exit."""
        try:
            _thread.start_new_thread(self._watch_thread, ())
            install_waits(self._steps)
            watch_semaphores(self._steps)
            install(self._steps, references, self._place)
            self._pipe.send_bytes(b"ready")
            while True:
                self._wait()
                self._send("end", self._run())
        finally:
            os._exit(0)

    def _watch_thread(self) -> None:
        """Report where the client is, if it hangs."""
        with contextlib.suppress(EOFError):
            while self._watch.recv_bytes():
                line = line_of(sys._current_frames().get(self._thread))
                attempts = self._steps.attempts_until(line)
                self._watch.send_bytes(dumps((HANGS, None, attempts, [], self._steps.unseen)))

    def _run(self) -> Any:
        reset_clock()
        self._steps.begin()
        try:
            return call(self._client, self._home)
        except BaseException as error:
            return ClientFailed(error)
        finally:
            self._steps.finish(free_locks)

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
        self._steps.allowance, self._steps.wakeups, lines, *others = map(int, allowed.split())
        self._steps.lines = bool(lines)
        self._steps.others = frozenset(others)


def _describe_stuck(left: set[int], blocked: dict[int, Access], waiting_for_locks: set[int]) -> str:
    waits = [
        f"client {client + 1} waits for the {blocked[client]}"
        if client in waiting_for_locks
        else f"client {client + 1} keeps retrying (sleep)"
        for client in sorted(left)
    ]
    return f"{'deadlock' if left == waiting_for_locks else 'livelock'}: {'; '.join(waits)}"


def _describe_hang(client: int, access: Access) -> str:
    where = f" at {short(access.line)}: {access.line.text}" if access.line else ""
    return f"client {client + 1} hangs{where}"
