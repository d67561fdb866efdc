"""Schedules: the order in which a few clients run, step by step.

A step is one operation of a client: a file operation of a process, or a line, opcode or await in memory. A schedule
names the client that makes each step. A preemption is a switch away from a client that could have continued.
"""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.source_lines import SourceLine

Key = tuple[str, int, str]
"""An inode, an entry of a folder, the listing of a folder, a lock, or anything else that two clients may share.

An operation on the names in a folder writes its listing, which stands for its mtime too.
"""

COMMUTING = {"listing", "space"}
"""Kinds of keys that two operations write in either order alike: new names in a folder, space that is used."""

LOCK_STEPS = {"lock", "try lock", "unlock", "close"}
"""Kinds of operations that take or free a lock. Other descriptors are closed without a step."""

LOCK_TESTS = {"try lock", "test lock"}
"""Kinds of operations that see whether a lock is free, without waiting for it."""

MAX_STEPS = 10_000  # of one client in one schedule
MAX_WAKEUPS = 1_000  # in a row that achieve nothing, before clients that only wait count as a livelock
MAX_STALL = 128  # sleeps of a client for which the others are stalled, before it counts as one that waits forever
MAX_REAL_STALL = 1.0  # seconds that such a client may really wait for something outside its process
SLEEP = "sleep"
"""The kind of a step of a client that lets time pass."""
HANGS = "hangs"
"""The kind of the last step of a client that waits for something that never happens, or does not return."""
OTHER_THREAD = "work handed to another thread"


class Access(NamedTuple):
    """An operation: what it is, and what it reads and writes. Processes send many of them to each other."""

    kind: str
    path: str
    """Relative to home."""
    line: SourceLine | None = None
    reads: frozenset[Key] = frozenset()
    writes: frozenset[Key] = frozenset()
    held: frozenset[tuple[int, bool]] = frozenset()
    """Locks that exclude others from a file, which the client holds right before it: its number, if it is exclusive."""
    holds_lock: bool = False
    """Whether the client holds any lock right before it."""
    names: tuple[tuple[int, str], ...] = ()
    """The inodes it passes, and the path of each, relative to home."""
    may_change: bool = False
    """Whether it is made to change something, even if there was nothing to change."""
    is_change: bool = False
    """Whether it changes what another client can see, if it succeeds."""
    error: str = ""
    """How it failed, if it did."""
    seconds: float = 0.0
    """How long it really took, if it waited for something outside its process in vain."""

    def __str__(self) -> str:
        return f"{self.kind} {self.path}".strip()


DEATH = Access("killed", "")
"""The last step of a client that is killed."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduleStep:
    """A step that a client made."""

    client: int
    access: Access
    blocked: bool = False
    """Whether it was only attempted, because it has to wait."""
    acked: int = 0
    """How many values the client had acknowledged before it."""
    outlasts: bool = False
    """Whether the client woke up although another one could have run, which is stalled meanwhile."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientFailed:
    """The result of a client that raised."""

    error: BaseException


@dataclasses.dataclass(frozen=True, slots=True)
class Killed:
    """The result of a client that was killed."""


@dataclasses.dataclass(slots=True)
class ScheduleRun:
    """One schedule, as it ran."""

    steps: list[ScheduleStep] = dataclasses.field(default_factory=list)
    choices: list[int] = dataclasses.field(default_factory=list)
    enabled: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    """At each step, the clients that could have made it."""
    naps: set[int] = dataclasses.field(default_factory=set)
    """The steps before which a client fell asleep that may wake up while the others are stalled.

    To run another client instead is not a preemption."""
    endless: dict[int, int] = dataclasses.field(default_factory=dict)
    """For each client that was still asleep when its others had been stalled for `MAX_STALL` of its sleeps, the step
    at which it first woke up."""
    killable: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    """At each step, the clients worth killing instead; empty if none may be killed."""
    results: dict[int, Any] = dataclasses.field(default_factory=dict)
    """What each client returned, or a `ClientFailed` or `Killed`."""
    acked: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    """What each client had acknowledged."""
    stuck: str = ""
    """Why it did not finish, if it did not."""
    diverged: bool = False
    """Whether the clients behaved differently than before, so that the schedule could not be followed."""
    unseen: list[str] = dataclasses.field(default_factory=list)
    """What clients used that the scheduler cannot interleave."""

    def used_lock(self, position: int) -> bool:
        """Whether a step may have taken or freed a lock."""
        return self.steps[position].access.kind in LOCK_STEPS

    def saw_lock(self, position: int) -> bool:
        """Whether a step may have seen that another client holds a lock, without waiting for it."""
        access = self.steps[position].access
        return access.kind in LOCK_TESTS and (access.kind == "test lock" or bool(access.error))


@dataclasses.dataclass(slots=True)
class ClientProgress:
    """How far a client has got."""

    steps: int = 0
    acked: list[Any] = dataclasses.field(default_factory=list)


PROGRESS: contextvars.ContextVar[ClientProgress | None] = contextvars.ContextVar("wfstate_progress", default=None)
"""The progress of the running client, if this is one."""


def steps_taken() -> int:
    """Return how many steps the running client has made, so that it can tell which belong to a call."""
    progress = PROGRESS.get()
    return progress.steps if progress else 0


class Stuck(Exception):
    """A schedule cannot continue. The text says why."""


def livelock(waiting: Mapping[int, Access]) -> str:
    """Describe clients that wait again and again, none of which gets any further."""
    return "livelock: " + "; ".join(
        f"client {n + 1} keeps retrying ({access})" for n, access in sorted(waiting.items())
    )


class Clients(Protocol):
    """Runs one schedule after another, each from the same start."""

    shared: Any
    """What the clients of the last schedule shared in memory, if anything."""

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:
        """Follow `choices`, then run on without preemption; with `lines`, record the user's line of each step."""

    def close(self) -> None:
        """End all clients."""


def trace_keys(steps: Sequence[ScheduleStep], begin: int = 0) -> Iterator[int]:
    """Yield, for each step from `begin` on, a key for all steps before it, the same for equivalent orders."""
    for hashes in client_keys(steps, begin):
        yield hash(tuple(sorted(hashes.items())))


def client_keys(steps: Sequence[ScheduleStep], begin: int = 0) -> Iterator[Mapping[int, int]]:
    """Yield, for each step from `begin` on, a key for what each client did before it and what it may have seen.

    A key is the hash of Foata's normal form: each step is one level above the last one that it does not commute with.
    """
    hashes: dict[int, int] = {}
    levels: dict[int, int] = {}
    read: dict[Key, int] = {}
    written: dict[Key, int] = {}
    top = floor = 0
    for position, step in enumerate(steps):
        if position >= begin:
            yield hashes
        if step.blocked:
            continue  # it had no effect
        access, client = step.access, step.client
        level = max(floor, levels.get(client, -1) + 1)
        for key in access.reads:
            level = max(level, written.get(key, 0))
        for key in access.writes:
            level = max(level, read.get(key, 0), 0 if key[0] in COMMUTING else written.get(key, 0))
        dies = access is DEATH
        if dies:
            level = floor = top  # it frees locks, so it commutes with nothing
        levels[client] = level
        hashes[client] = hash((hashes.get(client, 0), level, dies))
        top = max(top, level + 1)
        for key in access.reads:
            read[key] = max(read.get(key, 0), level + 1)
        for key in access.writes:
            written[key] = max(written.get(key, 0), level + 1)


def preemptions(run: ScheduleRun) -> int:
    """Count the switches away from a client that could have continued."""
    steps = zip(run.choices, run.choices[1:], run.enabled[1:], strict=False)
    return sum(
        before in enabled and after >= 0 and after != before and position not in run.naps
        for position, (before, after, enabled) in enumerate(steps, 1)
    )
