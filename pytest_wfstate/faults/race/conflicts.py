"""Conflicts: the switches that can matter, those before an operation that conflicts with one of another client.

Preempting a client before an operation that commutes with everything others do meanwhile is equivalent to letting it
make that operation first. Nor can others interfere with what it does under a lock that they need as well. What they do
is known from the schedules run so far, so a switch that does not matter yet may matter later.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator

from pytest_wfstate.faults.race.schedule import COMMUTING, LOCK_TESTS, Access, Key, ScheduleRun, ScheduleStep

Name = tuple[str, str]
"""A key that is the same in every run: inode numbers are not."""

_REMOVING = {"unlink", "remove", "rename", "replace", "rmdir"}
_FREEING = {"unlock", "close"}


@dataclasses.dataclass(frozen=True, slots=True)
class Footprint:
    """What an operation that a client is about to make reads and writes, by name, and the locks it holds meanwhile."""

    client: int
    kind: str
    reads: frozenset[Name]
    writes: frozenset[Name]
    held: frozenset[tuple[str, bool]]
    holds_lock: bool
    """Whether it holds any lock, such as one on a part of a file."""
    may_die: bool = False
    """Whether its death instead of the operation is worth trying."""

    def conflicts_with(self, other: Footprint) -> bool:
        """Whether it makes a difference to this operation, which is about to be made, that the other comes first."""
        if (self.writes & other.reads) | (self.reads & other.writes):
            return True
        # Two new names in a folder matter only to a listing of it; and when a lock is freed does not matter to a
        # client that waits for it.
        harmless = COMMUTING | {"lock"} if self.kind in _FREEING and other.kind == "lock" else COMMUTING
        return any(kind not in harmless for kind, _ in self.writes & other.writes)

    def excludes(self, other: Footprint, removed: frozenset[str]) -> bool:
        """Whether the locks that this client holds keep the other operation from being made meanwhile.

        A lock on a file excludes nothing if its name may be given to another file.
        """
        return any(
            name == other_name and (exclusive or other_exclusive) and not _is_removed(name, removed)
            for name, exclusive in self.held
            for other_name, other_exclusive in other.held
        )


class Footprints:
    """All footprints seen so far."""

    def __init__(self) -> None:
        self._known: dict[int, set[Footprint]] = {}
        self._removed: frozenset[str] = frozenset()
        self._tests_locks = False
        self._conflicting: dict[Footprint, bool] = {}

    def add(self, run: ScheduleRun) -> list[Footprint]:
        """Learn what the clients of a run did; return the footprint of each step."""
        footprints = list(_footprints(run.steps))
        new = {footprint for footprint in footprints if footprint not in self._known.get(footprint.client, ())}
        for footprint in new:
            self._known.setdefault(footprint.client, set()).add(footprint)
            if footprint.kind in _REMOVING:
                self._removed |= {name for kind, name in footprint.writes if kind == "entry"}
            self._tests_locks |= footprint.kind in LOCK_TESTS
        if new:
            self._conflicting = {footprint: True for footprint, conflicts in self._conflicting.items() if conflicts}
        return footprints

    def may_conflict(self, footprint: Footprint) -> bool:
        """Whether another client can do something before an operation that makes a difference to it."""
        if footprint not in self._conflicting:
            # Whoever tries a lock without waiting sees whether its holder has died already.
            is_seen = self._tests_locks and footprint.holds_lock and footprint.may_die
            self._conflicting[footprint] = is_seen or any(
                footprint.conflicts_with(other) and not footprint.excludes(other, self._removed)
                for client, others in self._known.items()
                if client != footprint.client
                for other in others
            )
        return self._conflicting[footprint]


def _footprints(steps: Iterable[ScheduleStep]) -> Iterator[Footprint]:
    names: dict[int, set[str]] = {}
    for step in steps:
        access = step.access
        for inode, name in access.names:
            names.setdefault(inode, set()).add(name)
        reads = frozenset(name for key in access.reads for name in _names(key, names))
        writes = frozenset(name for key in access.writes for name in _names(key, names))
        yield Footprint(step.client, access.kind, reads, writes, _held(access, names), access.holds_lock)


def _names(key: Key, names: dict[int, set[str]]) -> Iterator[Name]:
    kind, number, text = key
    for name in names.get(number) or {f"{number}"}:
        yield kind, name if not text else text if name == "." else f"{name}/{text}"


def _held(access: Access, names: dict[int, set[str]]) -> frozenset[tuple[str, bool]]:
    """Return the locks that have only one name."""
    by_names = ((sorted(names.get(number) or {f"{number}"}), exclusive) for number, exclusive in access.held)
    return frozenset((lock_names[0], exclusive) for lock_names, exclusive in by_names if len(lock_names) == 1)


def _above(place: str) -> Iterator[str]:
    while place := os.path.dirname(place):
        yield place


def _is_removed(name: str, removed: frozenset[str]) -> bool:
    return not removed.isdisjoint((name, *_above(name)))
