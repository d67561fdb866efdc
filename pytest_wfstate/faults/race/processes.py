"""Clients: processes that were forked once, and run again and again, one at a time.

Each stops before a file operation below home when its allowance is used up, and waits to be told how far to go on.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connection
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.drive import call
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.race.file_turns import MadeAccess, Turns, find_calls
from pytest_wfstate.faults.race.schedule import (
    DEATH,
    Access,
    ClientFailed,
    Killed,
    ScheduleRun,
    Stuck,
    Turn,
)
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.record.rebind import References
from pytest_wfstate.faults.replay_id import Choices, death_of

__tracebackhide__ = True

_MOST = 10_000  # turns of one client in one schedule
_WAKES = 100  # times that a client may wake up in vain, with nobody else left to wait for


class Said(NamedTuple):
    """What a client says when it stops."""

    why: str
    gave: Any
    made: list[MadeAccess]
    """What it has done since it stopped before."""
    acked: list[Any]
    unseen: list[str]


class ClientProcesses:
    """Clients in processes of their own, and their home."""

    shared: Any = None

    def __init__(
        self, home: Home, clients: Sequence[Callable[..., Any]], timeout: float = 30, *, mortal: bool = False
    ) -> None:
        self._home = home
        self._start: tuple[Content, dict[str, str]] = (home.content(), home.links())
        self._clients = clients
        self._timeout = timeout
        self._mortal = mortal
        self._workers: dict[int, ClientProcess] = {}

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:
        """Follow `choices`, and then let whoever runs run on as long as possible."""
        self._home.build(*self._start)
        self._hire()
        run = ScheduleRun()
        try:
            _Course(self._workers, choices, run, self._timeout, lines=lines, mortal=self._mortal).follow()
        except Stuck as stuck:
            run.stuck = str(stuck)
            self.close()  # nobody knows where its clients are
        return run

    def close(self) -> None:
        """End all clients."""
        while self._workers:
            self._workers.popitem()[1].close()

    def _hire(self) -> None:
        """Fork those that are not there: at first all, later whoever was killed."""
        for number, worker in list(self._workers.items()):
            if worker.is_dead:
                del self._workers[number]
        missing = [number for number in range(len(self._clients)) if number not in self._workers]
        if not missing:
            return
        references = find_calls()
        for number in missing:
            self._workers[number] = ClientProcess(number, self._clients[number], self._home.path, references)
        for number in missing:
            self._workers[number].started()


class _Course:
    """One schedule, as it is followed."""

    def __init__(
        self,
        workers: dict[int, ClientProcess],
        choices: Choices,
        run: ScheduleRun,
        timeout: float,
        *,
        lines: bool,
        mortal: bool,
    ) -> None:
        self._workers = workers
        self._choices = choices
        self._run = run
        self._timeout = timeout
        self._lines = lines
        self._mortal = mortal
        self._begun: set[int] = set()
        self._left = set(workers)
        self._blocked: dict[int, Access] = {}
        self._asleep: set[int] = set()
        self._woken = 0

    def follow(self) -> None:
        """Go on until all clients have come to their ends.

        Raises:
            Stuck: that cannot be.
        """
        while self._left:
            enabled = self._enabled()
            wanted, allowance = self._next()
            if wanted < 0 and death_of(wanted) in self._left:
                self._kill(death_of(wanted), enabled)
            elif wanted in enabled:
                self._go(wanted, allowance, enabled)
            else:
                self._run.diverged |= len(self._run.choices) < len(self._choices)
                self._go(enabled[0], _MOST, enabled)

    def _next(self) -> tuple[int, int]:
        """Give whose turn it is, and for how many turns."""
        turn = len(self._run.choices)
        if turn >= len(self._choices):
            return (self._run.choices[-1] if turn else 0), _MOST
        wanted, same = self._choices[turn], turn
        while same < len(self._choices) and self._choices[same] == wanted:
            same += 1
        return wanted, same - turn

    def _enabled(self) -> tuple[int, ...]:
        able = self._left - self._blocked.keys()
        if not able and self._asleep and self._woken < _WAKES:
            self._woken += 1
            able = set(self._asleep)  # time goes by
        if not able:
            raise Stuck(_deadlock(self._blocked))
        return tuple(sorted(able))

    def _go(self, client: int, allowance: int, enabled: tuple[int, ...]) -> None:
        said = self._workers[client].go(allowance, now() + self._timeout, lines=self._lines)
        self._run.acked[client] = said.acked
        for made in said.made or [MadeAccess(Access("end", ""), acked=len(said.acked))]:
            self._took(Turn(client, *made), client, enabled)
            if not made.in_vain:
                self._blocked.clear()  # whatever it did may have freed a lock
                self._asleep.clear()
                enabled = tuple(sorted(self._left))
        if said.why in ("blocked", "asleep"):
            self._blocked[client] = said.made[-1].access
            self._asleep |= {client} if said.why == "asleep" else set()
        elif said.why == "end":
            self._left.discard(client)
            self._run.results[client] = said.gave
            self._run.unseen += said.unseen
        elif len(said.made) >= _MOST:
            raise Stuck(f"client {client + 1} made {_MOST:,} file operations and did not come to its end")
        self._woken = self._woken if said.why == "asleep" else 0

    def _kill(self, victim: int, enabled: tuple[int, ...]) -> None:
        self._took(Turn(victim, DEATH), death_of(victim), enabled)
        self._workers[victim].close()
        self._left.discard(victim)
        self._run.results[victim] = Killed()
        self._blocked.clear()
        self._asleep.clear()

    def _took(self, turn: Turn, choice: int, enabled: tuple[int, ...]) -> None:
        if self._mortal:
            self._run.mortal.append(self._candidates(turn, enabled))
        self._run.turns.append(turn)
        self._run.choices.append(choice)
        self._run.enabled.append(enabled)
        self._begun.add(turn.client)

    def _candidates(self, turn: Turn, enabled: tuple[int, ...]) -> tuple[int, ...]:
        """Tell who could die before a turn, so that it matters: who has just changed or acknowledged something.

        All else comes to a death before or after, as it frees locks, and nothing more; unless somebody has looked at a
        lock without waiting for it. One client of all may die.
        """
        run = self._run
        if not run.choices or any(choice < 0 for choice in run.choices):
            return ()
        if any(one.access.kind == "try lock" for one in run.turns):
            return tuple(sorted(self._begun & self._left))
        last = run.choices[-1]
        acked = turn.acked if turn.client == last else len(run.acked[last])
        has_changed = any(kind != "lock" for kind, _, _ in run.turns[-1].access.writes) or acked > run.turns[-1].acked
        return (last,) if last in enabled and has_changed else ()


class ClientProcess:
    """A client's process, seen from the test."""

    def __init__(self, number: int, client: Callable[..., Any], home: Path, references: References) -> None:
        self._number = number
        self.is_dead = False
        self._pipe, theirs = connection.Pipe()
        self.pid = fork()
        if self.pid == 0:
            self._pipe.close()
            _ClientLoop(theirs, client, home).serve(references)
        theirs.close()

    def started(self) -> None:
        """Wait until it can begin."""
        self._pipe.recv_bytes()

    def go(self, allowance: int, until: float, *, lines: bool) -> Said:
        """Let it begin, or go on, for so many turns, and hear what it says then.

        Raises:
            Stuck: it said nothing in time, or is gone.
        """
        try:
            self._pipe.send_bytes(b"%d %d" % (allowance, lines))
            if not self._pipe.poll(max(0.0, until - now())):
                raise Stuck(
                    f"client {self._number + 1} did not come to its next file operation, or to its end, in time"
                )
            said = Said(*loads(self._pipe.recv_bytes()))
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise Stuck(f"the process of client {self._number + 1} has ended") from None
        return said

    def close(self) -> None:
        """End it, by SIGKILL."""
        if self.is_dead:
            return
        self.is_dead = True
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class _ClientLoop:
    """A client's process, from the inside."""

    def __init__(self, pipe: connection.Connection, client: Callable[..., Any], home: Path) -> None:
        self._pipe = pipe
        self._client = client
        self._home = home
        self._turns = Turns(str(home), self._stop)

    def serve(self, references: References) -> None:
        """Run the client as often as it is asked to. It does not return."""
        try:
            self._turns.install(references)
            self._pipe.send_bytes(b"ready")
            while True:
                self._wait()
                self._say("end", self._run())
        finally:
            os._exit(0)

    def _run(self) -> Any:
        self._turns.begin()
        try:
            return call(self._client, self._home)
        except BaseException as error:
            return ClientFailed(error, traceback.format_exc())
        finally:
            self._turns.is_on = False

    def _say(self, why: str, gave: Any) -> None:
        made, acked, unseen = self._turns.take_made(), self._turns.progress.acked, self._turns.unseen
        try:
            said = dumps((why, gave, made, acked, unseen))
        except Exception as error:
            text = f"what a client gives or acknowledges cannot be sent to another process: {error}"
            said = dumps((why, ClientFailed(RuntimeError(text), ""), made, [], unseen))
        self._pipe.send_bytes(said)

    def _stop(self, why: str) -> None:
        self._say(why, None)
        self._wait()

    def _wait(self) -> None:
        try:
            told = self._pipe.recv_bytes()
        except EOFError:
            os._exit(0)
        allowance, lines = map(int, told.split())
        self._turns.allowance, self._turns.lines = allowance, bool(lines)


def _deadlock(blocked: dict[int, Access]) -> str:
    if any(access.kind == "sleep" for access in blocked.values()):
        each = "; ".join(f"client {client + 1} waits in {access}" for client, access in sorted(blocked.items()))
        return f"nobody goes on: {each}, again and again"
    each = "; ".join(f"client {client + 1} waits for the {access}" for client, access in sorted(blocked.items()))
    return f"a deadlock: {each}"
