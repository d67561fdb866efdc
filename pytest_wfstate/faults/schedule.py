"""Schedules: every way in which a few processes can take turns at their file operations, within a bound.

The clients are processes that were forked once and run again and again, one at a time. Each waits before every file
operation below home until it is told to go on. A schedule is who goes on, each time; it is preemptive where a client
is stopped that could have gone on, and only that is bounded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import multiprocessing.connection as connection
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.faults._fork_pickle import dumps, loads
from pytest_wfstate.faults._turns import Touch, Turns, learn
from pytest_wfstate.faults.disk import Content, Home
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.steps import call

__tracebackhide__ = True

Choices = tuple[int, ...]
"""Which client goes on, turn by turn."""


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """A turn that was taken: by whom, and what was done, or tried in vain."""

    client: int
    touch: Touch
    blocked: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A client that raised: the error, or what can be said of it, and its traceback."""

    error: Any
    trace: str


@dataclasses.dataclass(slots=True)
class Run:
    """One schedule, as it went."""

    turns: list[Turn] = dataclasses.field(default_factory=list)
    choices: list[int] = dataclasses.field(default_factory=list)
    enabled: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    """Who could have gone on, at each turn."""
    results: dict[int, Any] = dataclasses.field(default_factory=dict)
    """What each client gave, or a `Failed`."""
    stuck: str = ""
    """Why it did not come to its end, if it did not."""
    unseen: list[str] = dataclasses.field(default_factory=list)


class Stuck(Exception):
    """A schedule cannot go on. The text says why."""


class Worker:
    """A client's process, seen from the test."""

    def __init__(self, number: int, client: Callable[..., Any], home: Path) -> None:
        self.number = number
        self._pipe, theirs = connection.Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
            self.pid = os.fork()
        if self.pid == 0:
            self._pipe.close()
            _Client(theirs, client, home).serve()
        theirs.close()

    def started(self) -> None:
        """Wait until it can begin."""
        self._pipe.recv_bytes()

    def tell(self) -> None:
        """Let it begin, or go on."""
        self._pipe.send_bytes(b"go")

    def hear(self, until: float) -> tuple[str, Any, Touch | None, list[str]]:
        """Hear what it says next.

        Raises:
            Stuck: it said nothing in time, or is gone.
        """
        try:
            if not self._pipe.poll(max(0.0, until - now())):
                raise Stuck(f"client {self.number + 1} did not come to its next file operation, or to its end, in time")
            kind, value, made, unseen = loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise Stuck(f"the process of client {self.number + 1} has ended") from None
        return kind, value, made, unseen

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class _Client:
    """A client's process, from the inside."""

    def __init__(self, pipe: connection.Connection, client: Callable[..., Any], home: Path) -> None:
        self._pipe = pipe
        self._client = client
        self._home = home
        self._turns = Turns(str(home), self._ask, self._blocked)

    def serve(self) -> None:
        """Run the client as often as it is asked to. It does not return."""
        try:
            self._turns.install()
            self._pipe.send_bytes(b"ready")
            while True:
                self._wait()
                self._say(*self._run())
        finally:
            os._exit(0)

    def _run(self) -> tuple[str, Any]:
        self._turns.is_on, self._turns.made = True, None
        try:
            return "gave", call(self._client, self._home)
        except BaseException as error:
            return "raised", Failed(error, traceback.format_exc())
        finally:
            self._turns.is_on = False

    def _say(self, kind: str, value: Any) -> None:
        made, unseen = self._turns.made, self._turns.unseen
        try:
            said = dumps((kind, value, made, unseen))
        except Exception as error:
            text = f"what the client {kind} cannot be sent to another process: {error}"
            said = dumps(("raised", Failed(RuntimeError(text), ""), made, unseen))
        self._pipe.send_bytes(said)

    def _ask(self, touch: Touch) -> None:
        self._say("op", touch)
        self._wait()

    def _blocked(self) -> None:
        self._say("blocked", None)
        self._wait()

    def _wait(self) -> None:
        try:
            self._pipe.recv_bytes()
        except EOFError:
            os._exit(0)


class Clients:
    """The clients and their home: runs one schedule after the other, each from the same start."""

    def __init__(self, home: Home, clients: Sequence[Callable[..., Any]], timeout: float) -> None:
        self._home = home
        self._start: tuple[Content, dict[str, str]] = (home.content(), home.links())
        self._clients = clients
        self._timeout = timeout
        self._workers: list[Worker] = []

    def run(self, choices: Choices) -> Run:
        """Follow `choices`, and then let whoever runs run on as long as possible."""
        self._home.build(*self._start)
        run = Run()
        try:
            self._follow(run, choices)
        except Stuck as stuck:
            run.stuck = str(stuck)
            self.close()  # nobody knows where its clients are
        return run

    def close(self) -> None:
        """End all clients."""
        while self._workers:
            self._workers.pop().close()

    def _follow(self, run: Run, choices: Choices) -> None:
        if not self._workers:
            learn()
            self._workers = [Worker(at, client, self._home.path) for at, client in enumerate(self._clients)]
            for worker in self._workers:
                worker.started()
        waiting: dict[int, Touch] = {}
        blocked: set[int] = set()
        for worker in self._workers:
            self._advance(run, worker, waiting, blocked)
        last = -1
        while waiting:
            enabled = tuple(sorted(set(waiting) - blocked))
            if not enabled:
                raise Stuck(_deadlock(waiting))
            turn = len(run.choices)
            wanted = choices[turn] if turn < len(choices) else last
            chosen = wanted if wanted in enabled else enabled[0]
            run.choices.append(chosen)
            run.enabled.append(enabled)
            touch = waiting.pop(chosen)
            tried = self._advance(run, self._workers[chosen], waiting, blocked)
            run.turns.append(Turn(chosen, tried or touch, chosen in blocked))
            if chosen in blocked:
                waiting[chosen] = touch
            else:
                blocked.clear()  # whatever it did may have freed a lock
            last = chosen

    def _advance(self, run: Run, worker: Worker, waiting: dict[int, Touch], blocked: set[int]) -> Touch | None:
        """Let a client go on until its next operation, or its end; give the operation that it has made."""
        worker.tell()
        kind, value, made, unseen = worker.hear(now() + self._timeout)
        if kind == "op":
            waiting[worker.number] = value
        elif kind == "blocked":
            blocked.add(worker.number)
        else:
            run.results[worker.number] = value
            run.unseen += unseen
        return made


def _deadlock(waiting: dict[int, Touch]) -> str:
    each = "; ".join(f"client {client + 1} waits for the {touch}" for client, touch in sorted(waiting.items()))
    return f"a deadlock: {each}"


@dataclasses.dataclass(slots=True)
class Search:
    """All schedules within a bound, the fewest preemptions first."""

    clients: Clients
    preemptions: int
    prune: bool = True
    runs: int = 0
    pruned: int = 0

    def __iter__(self) -> Iterator[Run]:
        order = itertools.count()
        waiting: list[tuple[int, int, Choices]] = [(0, next(order), ())]
        seen: dict[tuple[Any, int], int] = {}
        while waiting:
            used, _, choices = heapq.heappop(waiting)
            run = self.clients.run(choices)
            self.runs += 1
            yield run
            for cost, branch in self._branches(run, len(choices), used, seen):
                heapq.heappush(waiting, (cost, next(order), branch))

    def _branches(
        self, run: Run, begin: int, used: int, seen: dict[tuple[Any, int], int]
    ) -> Iterator[tuple[int, Choices]]:
        """Give the schedules that leave this one at some turn after its beginning was chosen."""
        traces = canonical(run.turns)
        for turn, (chosen, enabled) in enumerate(zip(run.choices, run.enabled, strict=True)):
            last = run.choices[turn - 1] if turn else -1
            for client in enabled:
                cost = used + (last in enabled and client != last)
                key = (traces[turn], client)
                known = self.prune and seen.get(key, cost + 1) <= cost
                if turn < begin or cost > self.preemptions or (known and client != chosen):
                    self.pruned += bool(turn >= begin and cost <= self.preemptions and known)
                    continue
                seen[key] = min(cost, seen.get(key, cost))
                if client != chosen:
                    yield cost, (*run.choices[:turn], client)


def canonical(turns: Sequence[Turn]) -> list[Any]:
    """Give, for each turn, a word for all that was done before: the same for orders that come to the same.

    It is the normal form of Foata: a turn stands one level above the last one that it does not commute with.
    """
    levels: list[int] = []
    counts: dict[int, int] = {}
    events: list[tuple[int, int, int]] = []
    words: list[Any] = [()]
    for at, turn in enumerate(turns):
        level = 0
        for before in range(at):
            other = turns[before]
            if other.client == turn.client or not turn.touch.commutes_with(other.touch):
                level = max(level, levels[before] + 1)
        levels.append(level)
        counts[turn.client] = counts.get(turn.client, 0) + 1
        events.append((level, turn.client, counts[turn.client]))
        words.append(tuple(sorted(events)))
    return words
