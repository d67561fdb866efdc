"""Schedules: how a few clients take turns.

A client takes a turn at each of its operations: a file operation of a process, or a line or opcode of a thread. A
schedule is who goes on, each time; it is preemptive where a client is stopped that could have gone on.
"""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.source import SourceLine

Key = tuple[str, int, str]
"""An inode, an entry of a folder, the listing of a folder, a lock, or whatever else two clients may share."""


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """An operation: what it is, and what it looks at and changes."""

    kind: str
    path: str
    """Relative to home."""
    line: SourceLine | None = None
    reads: frozenset[Key] = frozenset()
    writes: frozenset[Key] = frozenset()
    held: frozenset[tuple[int, bool]] = frozenset()
    """Locks that the client holds right before it, by number, and whether it holds them alone."""
    places: tuple[str, ...] = ()
    """The paths that it is about, relative to home."""
    error: str = ""
    """How it failed, if it did."""

    def commutes_with(self, other: Access) -> bool:
        """Tell whether the two come to the same in either order."""
        clash = (self.writes & other.reads) | (self.reads & other.writes)
        # Two new names in a folder do not matter to each other, only to who lists it.
        return not clash and all(key[0] == "listing" for key in self.writes & other.writes)

    def __str__(self) -> str:
        return f"{self.kind} {self.path}".strip()


DEATH = Access("killed", "")
"""What a client does last that dies."""


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """A turn that was taken: by whom, and what was done, or tried in vain."""

    client: int
    access: Access
    blocked: bool = False
    acked: int = 0
    """How much the client had acknowledged before it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientFailed:
    """A client that raised: the error, or what can be said of it, and its traceback."""

    error: Any
    trace: str


@dataclasses.dataclass(frozen=True, slots=True)
class Killed:
    """A client that was killed, and gave nothing."""


@dataclasses.dataclass(slots=True)
class ScheduleRun:
    """One schedule, as it went."""

    turns: list[Turn] = dataclasses.field(default_factory=list)
    choices: list[int] = dataclasses.field(default_factory=list)
    enabled: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    """Who could have gone on, at each turn."""
    mortal: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    """Who could have died instead, at each turn, if anybody may."""
    results: dict[int, Any] = dataclasses.field(default_factory=dict)
    """What each client gave, or that it is `ClientFailed` or `Killed`."""
    acked: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    """What each client had acknowledged."""
    stuck: str = ""
    """Why it did not come to its end, if it did not."""
    diverged: bool = False
    """Whether the clients did not do what they did before, so that the schedule could not be followed."""
    unseen: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class ClientProgress:
    """How far a client has come."""

    taken: int = 0
    """How many turns it has taken."""
    acked: list[Any] = dataclasses.field(default_factory=list)
    """What it has acknowledged."""


PROGRESS: contextvars.ContextVar[ClientProgress | None] = contextvars.ContextVar("wfstate_progress", default=None)
"""The progress of the client that runs, if one does."""


def turns_taken() -> int:
    """Tell how many turns the client that runs has taken: so it can tell which were those of a call."""
    progress = PROGRESS.get()
    return progress.taken if progress else 0


class Stuck(Exception):
    """A schedule cannot go on. The text says why."""


class Clients(Protocol):
    """Runs one schedule after the other, each from the same start."""

    shared: Any
    """What the clients of the last schedule shared, if that was in memory."""

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:
        """Follow `choices`, and then let whoever runs run on as long as possible; `lines` are those of the user's."""

    def close(self) -> None:
        """End all clients."""


class TraceKeys:
    """Words for what was done so far, the same for orders that come to the same.

    A word is the normal form of Foata, in which a turn stands one level above the last one that it does not commute
    with: for each client its levels, as the number of a node in a tree of them all, since there are many words and
    most begin alike.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}

    def of(self, turns: Sequence[Turn], begin: int = 0) -> Iterator[Any]:
        """Give, for each turn from one on, a word for all that was done before."""
        nodes: dict[int, int] = {}
        levels: dict[int, int] = {}
        read: dict[Key, int] = {}
        written: dict[Key, int] = {}
        top = floor = 0
        for at, turn in enumerate(turns):
            if at >= begin:
                yield tuple(sorted(nodes.items()))
            if turn.blocked:
                continue  # nothing was done
            access, client = turn.access, turn.client
            level = max(floor, levels.get(client, -1) + 1)
            for key in access.reads:
                level = max(level, written.get(key, 0))
            for key in access.writes:
                level = max(level, read.get(key, 0), 0 if key[0] == "listing" else written.get(key, 0))
            if access is DEATH:
                level = floor = top  # it frees locks, so all comes before it or after it
            levels[client] = level
            nodes[client] = self._nodes.setdefault((nodes.get(client, 0), level), len(self._nodes) + 1)
            top = max(top, level + 1)
            for key in access.reads:
                read[key] = max(read.get(key, 0), level + 1)
            for key in access.writes:
                written[key] = max(written.get(key, 0), level + 1)


def preemptions(run: ScheduleRun) -> int:
    """Count the turns at which a client was stopped that could have gone on."""
    return sum(
        before in enabled and after >= 0 and after != before
        for before, after, enabled in zip(run.choices, run.choices[1:], run.enabled[1:], strict=False)
    )
