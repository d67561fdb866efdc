"""What is not durable yet: the parts of files and names that a crash may keep or lose.

A file is made of pages, which reach the disk independently, and of a size. A folder is made of changes of names.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence

from pytest_wfstate.faults.trace.ops import PAGE, SECTOR, Node, Write, overwrite, resize

Entry = tuple[Node, str]
PageLoss = tuple[int, int]
"""How many of the last pieces of a page are lost, and how many bytes a torn write leaves of the first of those."""


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """The part of a write that lies in one page."""

    index: int  # of the write in the trace
    offset: int  # in the file
    data: bytes

    def tears(self) -> list[int]:
        """Return the numbers of bytes that a torn write can leave of it, longest first."""
        first = (self.offset // SECTOR + 1) * SECTOR
        return [end - self.offset for end in range(first, self.offset + len(self.data), SECTOR)][::-1]


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """A change of a file's size: by a truncate, an allocation, or the part of a write that lies in one page."""

    index: int
    size: int
    before: int
    truncates: bool = False  # what lay past the size is gone


@dataclasses.dataclass(frozen=True, slots=True)
class NameChange:
    """A change of names that is kept or lost as a whole."""

    index: int
    folder: Node  # whose fsync makes it durable
    removed: tuple[Entry, ...]
    added: tuple[tuple[Entry, Node], ...]
    second_half: bool = False  # of a move between folders: the old name is removed only if the new one was added

    def touched(self) -> list[Entry]:
        """Return the names that it changes."""
        return [*self.removed, *(entry for entry, _ in self.added)]

    def apply(self, entries: dict[Entry, Node]) -> None:
        """Make the change."""
        for entry in self.removed:
            entries.pop(entry, None)
        entries.update(self.added)


@dataclasses.dataclass(slots=True)
class UnsyncedFile:
    """One file at a crash point: what is on the disk, and what may reach it."""

    base: bytes = b""
    pieces: dict[int, list[Piece]] = dataclasses.field(default_factory=dict)  # by page
    sizes: list[Resize] = dataclasses.field(default_factory=list)
    size: int = 0
    # Pages written since a failed fsync: all others count as clean. None: no fsync has failed.
    redirtied: set[int] | None = None
    resized: bool = False
    version: int = 0
    """Counts the changes: what is derived from the file is cached until the next."""

    def copy(self) -> UnsyncedFile:
        """Return an independent copy."""
        pieces = {page: list(pieces) for page, pieces in self.pieces.items()}
        redirtied = None if self.redirtied is None else set(self.redirtied)
        return UnsyncedFile(self.base, pieces, list(self.sizes), self.size, redirtied, self.resized, self.version)

    def write(self, index: int, op: Write) -> None:
        """Apply a write, in memory only."""
        self.version += 1
        start = op.offset
        while start < op.end:
            page = start // PAGE
            end = min(op.end, (page + 1) * PAGE)
            self.pieces.setdefault(page, []).append(Piece(index, start, op.data[start - op.offset : end - op.offset]))
            if self.redirtied is not None:
                self.redirtied.add(page)
            if end > self.size:
                self.resize(Resize(index, end, self.size))
            start = end

    def resize(self, change: Resize) -> None:
        """Apply a change of size, in memory only."""
        self.version += 1
        self.sizes.append(change)
        self.size = change.size
        self.resized = True

    def fsync(self) -> None:
        """Flush what the kernel knows to be dirty."""
        self.version += 1
        if self.redirtied is None:
            self.base, self.pieces, self.sizes = self.content(), {}, []
            return
        # The kernel writes only the pages dirtied since the failure.
        sizes = list(self.sizes) if self.resized else []
        pieces = {page: self.pieces.pop(page) for page in self.redirtied if page in self.pieces}
        kept = UnsyncedFile(self.base, pieces, sizes)
        self.base = kept.content()
        if self.resized:
            self.sizes = []
        self.redirtied, self.resized = (set(), False) if self.pieces or self.sizes else (None, False)

    def fail(self) -> None:
        """Apply an fsync that failed: what was dirty counts as clean, and is not on the disk."""
        self.redirtied, self.resized = set(), False

    def content(self, sizes_lost: int = 0, pages: Mapping[int, PageLoss] | None = None) -> bytes:
        """Return the content after the last `sizes_lost` changes of size, and the losses of `pages`, are lost."""
        pages = pages or {}
        sizes = self.sizes[: len(self.sizes) - sizes_lost]
        changes: list[Piece | Resize] = [size for size in sizes if size.truncates]
        for page, pieces in self.pieces.items():
            changes += left_of(pieces, pages.get(page, (0, 0)))
        data = bytearray(self.base)
        for change in sorted(changes, key=operator.attrgetter("index")):
            if isinstance(change, Piece):
                if change.offset > len(data):
                    data.extend(bytes(change.offset - len(data)))
                data[change.offset : change.offset + len(change.data)] = change.data
            else:
                del data[change.size :]
        return resize(bytes(data), self.size_without(sizes_lost))

    def size_without(self, sizes_lost: int) -> int:
        """Return the size of the file after the last `sizes_lost` changes of size are lost."""
        kept = len(self.sizes) - sizes_lost
        return self.sizes[kept - 1].size if kept else len(self.base)

    def only_grows(self, page: int) -> bool:
        """Whether every piece of a page was appended to the file, so that the page has no older content."""
        if any(size.truncates for size in self.sizes):
            return False  # if the truncate is lost, what it cut off is back
        before = {size.index: size.before for size in self.sizes if (size.size - 1) // PAGE == page}
        return all(piece.offset >= before.get(piece.index, math.inf) for piece in self.pieces[page])

    def losses(self, page: int) -> tuple[list[PageLoss], int]:
        """Return the distinct losses of a page, nothing first, and how many there are with equivalent ones."""
        pieces = self.pieces[page]
        possible = [(0, 0)]
        for count, piece in enumerate(reversed(pieces), 1):
            possible += [(count, torn) for torn in piece.tears()]
            possible.append((count, 0))
        if any(size.truncates for size in self.sizes):
            return possible, len(possible)  # what a page holds depends on the size too
        distinct: dict[bytes, PageLoss] = {}
        start = page * PAGE
        for loss in possible:
            alone = UnsyncedFile(self.base[start : start + PAGE])
            kept = left_of(pieces, loss)
            alone.pieces = {0: [Piece(piece.index, piece.offset - start, piece.data) for piece in kept]}
            alone.sizes = [Resize(0, PAGE, 0)]
            distinct.setdefault(alone.content(), loss)
        return list(distinct.values()), len(possible)


def left_of(pieces: Sequence[Piece], loss: PageLoss) -> list[Piece]:
    """Return what a loss leaves of a page's pieces."""
    count, torn = loss
    kept = list(pieces[: len(pieces) - count])
    if torn:
        piece = pieces[len(kept)]
        kept.append(Piece(piece.index, piece.offset, piece.data[:torn]))
    return kept


def at_least(pieces: Sequence[Piece], flushed: int, loss: PageLoss) -> PageLoss:
    """Return the loss without the pieces that a rename at `flushed` made durable."""
    most = sum(piece.index > flushed for piece in pieces)
    return (most, 0) if loss[0] > most else loss


def without_data(file: UnsyncedFile, pages: Mapping[int, PageLoss]) -> int:
    """Return how many of the last changes of size must be lost because their data is."""
    lost = {
        (piece.index, page)
        for page, (count, _) in pages.items()
        for piece in file.pieces[page][len(file.pieces[page]) - count :]
    }
    for number, size in enumerate(file.sizes):
        if (size.index, (size.size - 1) // PAGE) in lost and not size.truncates:
            return len(file.sizes) - number
    return 0


def cut_short(file: UnsyncedFile, pages_lost: int) -> bytes:
    """Return the content if the last `pages_lost` pages of the file's one write are lost."""
    if not pages_lost:
        return file.content()
    pieces = [piece for page in sorted(file.pieces) for piece in file.pieces[page]]
    data = file.base
    for piece in pieces[: len(pieces) - pages_lost]:
        data = overwrite(data, piece.offset, piece.data)
    return data
