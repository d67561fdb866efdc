"""Changes of names, bytes and sizes that are not durable yet: a crash may keep or lose them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from pytest_wfstate.faults.trace.ops import PAGE, SECTOR, Node

Entry = tuple[Node, str]
UnitLoss = tuple[int, int]
"""How many of the last pieces of a unit are lost, and what a torn write leaves of the first of those: so many bytes of
its beginning or, if negative, of its end."""


@dataclasses.dataclass(frozen=True, slots=True)
class NameChange:
    """A change of names that is kept or lost as a whole. A change of size in the journal is one of no names."""

    index: int
    folder: Node  # whose fsync makes it durable
    removed: tuple[Entry, ...] = ()
    added: tuple[tuple[Entry, Node], ...] = ()
    second_half: bool = False  # of a move between folders: the old name is removed only if the new one was added
    replaces: bool = False  # a rename over another file

    def touched(self) -> list[Entry]:
        """Return the names that it changes."""
        return [*self.removed, *(entry for entry, _ in self.added)]

    def apply(self, entries: dict[Entry, Node]) -> None:
        """Make the change."""
        for entry in self.removed:
            entries.pop(entry, None)
        entries.update(self.added)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Bytes that were put into a file: by a write, or the zeros behind a cut in the middle of a page."""

    index: int  # of the op in the trace
    start: int
    data: bytes
    zeroes: bool = False

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.start + len(self.data)

    def units(self, size: int) -> range:
        """Return the units of a size in which it lies."""
        return units_of(self.start, self.end, size)

    def clipped(self, start: int, end: int) -> Change:
        """Return what of it lies between two offsets."""
        if start <= self.start and self.end <= end:
            return self
        first = min(max(start, self.start), self.end)
        last = max(min(end, self.end), first)
        return Change(self.index, first, self.data[first - self.start : last - self.start], self.zeroes)


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """A change of a file's size."""

    index: int
    size: int
    before: int
    page: int | None = None
    """The page whose part of a write grew the file. None: a truncate or an allocation set the size."""

    @property
    def is_cut(self) -> bool:
        """Whether what lay past the new size is gone."""
        return self.size < self.before


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """The part of a change that lies in one unit."""

    change: int  # its number in the log
    tears: tuple[int, ...]
    """The offsets at which tearing it makes a difference."""


@dataclasses.dataclass(frozen=True, slots=True)
class KeptJournal:
    """What is kept of names and sizes, as far as it matters for the content of one file."""

    lost_from: float = math.inf
    """The first item of the trace that is lost."""
    flushed: int = -1
    """The last rename that flushed what was dirty."""


@dataclasses.dataclass(frozen=True, slots=True)
class Flush:
    """What a rename over another file flushed, on ext4."""

    index: int  # of the rename in the trace
    units: frozenset[int]
    end: int
    """The offset after the last byte: the size that is needed to read it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Floor:
    """What is surely kept: the first changes of size, and the first pieces of units."""

    sizes: int
    pieces: dict[int, int]


def tears_of(piece: Change, replaced: bytes | None) -> Iterator[int]:
    """Yield the ends of sectors at which tearing a piece makes a difference, given the bytes that it replaced.

    A device promises that a sector is written whole, and no order between those of one page: a tear keeps the beginning
    or the end. SQLite, too, expects both ("Atomic Commit In SQLite", 2.0).
    """
    ends = [*range((piece.start // SECTOR + 1) * SECTOR, piece.end, SECTOR), piece.end]
    starts = [piece.start, *ends[:-1]]
    differing = [
        end
        for start, end in zip(starts, ends, strict=True)
        if replaced is None
        or replaced[start - piece.start : end - piece.start] != piece.data[start - piece.start : end - piece.start]
    ]
    yield from differing[:-1]


def page_end(offset: int) -> int:
    """Return where the page ends that holds the byte before an offset."""
    return -(-offset // PAGE) * PAGE


def units_of(start: int, end: int, size: int) -> range:
    """Return the units of a size in which a range lies."""
    return range(start // size, -(-end // size))
