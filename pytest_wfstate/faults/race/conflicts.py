"""Switches that can matter: those before an operation that another client may run into meanwhile.

A client that is stopped before an operation which nothing that others do until it goes on has to do with may as well
make it first: that comes to the same. Nor can others run into what it does under a lock that they would need, too. What
they do is known from the schedules that were run so far, so a switch that does not matter yet may matter later on.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator

from pytest_wfstate.faults.race.schedule import Access, Key, ScheduleRun, Turn

Name = tuple[str, str]
"""What stands for a key in every run: files have new inodes in each."""

_UNMAKING = {"unlink", "remove", "rename", "replace", "rmdir"}
_FREEING = {"unlock", "close"}


@dataclasses.dataclass(frozen=True, slots=True)
class Footprint:
    """What an operation of a client looks at and changes, by name, and the locks under which it does."""

    client: int
    kind: str
    places: tuple[str, ...]
    reads: frozenset[Name]
    writes: frozenset[Name]
    held: frozenset[tuple[str, bool]]

    def clashes_with(self, other: Footprint) -> bool:
        """Tell whether it matters to this one, while it has to wait, that the other is made first."""
        if (self.writes & other.reads) | (self.reads & other.writes):
            return True
        # Two new names in a folder do not matter to each other, only to who lists it; nor does it matter when a lock is
        # freed to who waits for it.
        harmless = {"listing", "lock"} if self.kind in _FREEING and other.kind == "lock" else {"listing"}
        return any(kind not in harmless for kind, _ in self.writes & other.writes)

    def excludes(self, other: Footprint, unmade: frozenset[str]) -> bool:
        """Tell whether the other cannot be made while this one waits, for the locks that its client holds.

        A lock on a file whose name is given to another one excludes nobody.
        """
        return any(
            name == theirs and (alone or theirs_alone) and not _is_unmade(name, unmade)
            for name, alone in self.held
            for theirs, theirs_alone in other.held
        )


class Footprints:
    """All footprints that were seen, and what follows of them."""

    def __init__(self) -> None:
        self._known: dict[int, set[Footprint]] = {}
        self._unmade: frozenset[str] = frozenset()
        self._sees_deaths = False
        self._met: dict[Footprint, bool] = {}

    def add(self, run: ScheduleRun) -> list[Footprint]:
        """Learn what clients have done; give the footprint of each turn."""
        found = list(_footprints(run.turns))
        new = {one for one in found if one not in self._known.get(one.client, ())}
        for one in new:
            self._known.setdefault(one.client, set()).add(one)
            self._unmade |= set(one.places) if one.kind in _UNMAKING else set()
            # Who tries a lock without waiting for it sees a lock that a death frees, so it is not the same when one
            # dies later on.
            self._sees_deaths |= bool(run.mortal) and one.kind == "try lock"
        if new:
            self._met = {one: True for one, met in self._met.items() if met}
        return found

    def may_conflict(self, footprint: Footprint) -> bool:
        """Tell whether another client can run into an operation before it is made."""
        if footprint not in self._met:
            self._met[footprint] = self._is_met(footprint)
        return self._met[footprint]

    def _is_met(self, footprint: Footprint) -> bool:
        return self._sees_deaths or any(
            footprint.clashes_with(other) and not footprint.excludes(other, self._unmade)
            for client, others in self._known.items()
            if client != footprint.client
            for other in others
        )


def _footprints(turns: Iterable[Turn]) -> Iterator[Footprint]:
    names: dict[int, set[str]] = {}
    for turn in turns:
        access = turn.access
        for kind, number, _ in access.reads | access.writes:
            if kind in ("inode", "lock"):
                names.setdefault(number, set()).update(access.places)
        reads = {name for key in access.reads for name in _read(key, access, names)}
        writes = {name for key in access.writes for name in _written(key, access, names)}
        yield Footprint(
            turn.client, access.kind, access.places, frozenset(reads), frozenset(writes), _held(access, names)
        )


def _read(key: Key, access: Access, names: dict[int, set[str]]) -> Iterator[Name]:
    if key[0] == "entry":
        for place in access.places:
            yield from (("entry", above) for above in (place, *_above(place)))
    elif key[0] == "listing":
        yield from (("listing", place) for place in access.places)
    else:
        yield from _numbered(key, names)


def _written(key: Key, access: Access, names: dict[int, set[str]]) -> Iterator[Name]:
    if key[0] == "entry":
        yield from (("entry", place) for place in access.places)
    elif key[0] == "listing":
        yield from (("listing", os.path.dirname(place) or ".") for place in access.places)
    else:
        yield from _numbered(key, names)


def _numbered(key: Key, names: dict[int, set[str]]) -> Iterator[Name]:
    kind, number, text = key
    yield from ((kind, name) for name in names.get(number) or {f"{number} {text}"})


def _held(access: Access, names: dict[int, set[str]]) -> frozenset[tuple[str, bool]]:
    """Give the locks that are known by one name alone."""
    known = ((sorted(names.get(number) or {f"{number}"}), alone) for number, alone in access.held)
    return frozenset((of_one[0], alone) for of_one, alone in known if len(of_one) == 1)


def _above(place: str) -> Iterator[str]:
    while place := os.path.dirname(place):
        yield place


def _is_unmade(name: str, unmade: frozenset[str]) -> bool:
    return not unmade.isdisjoint((name, *_above(name)))
