"""What is not on the disk yet: the parts of files and names that a crash may keep or lose.

A file is made of pages, which reach the disk each on its own, and of a size. A folder is made of changes of names.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence

from pytest_wfstate.faults.trace.ops import PAGE, SECTOR, Node, Write, overwrite, resize

Entry = tuple[Node, str]
Loss = tuple[int, int]
"""Of a page: how many of its last pieces are lost, and how many bytes a tear leaves of the first of those."""


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """The part of a write that lies in one page."""

    index: int  # of the write in the trace
    offset: int  # in the file
    data: bytes

    @property
    def page(self) -> int:
        """The page it lies in."""
        return self.offset // PAGE

    def tears(self) -> list[int]:
        """Give how many bytes of it a tear can leave, longest first."""
        first = (self.offset // SECTOR + 1) * SECTOR
        return [at - self.offset for at in range(first, self.offset + len(self.data), SECTOR)][::-1]


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """A change of a file's size: by truncating, by allocating, or by as much of a write as ends at a page."""

    index: int
    size: int
    before: int
    truncates: bool = False  # whether what lay past the size is gone


@dataclasses.dataclass(frozen=True, slots=True)
class NameChange:
    """A change of names that is kept or lost as one: some removed, some set."""

    index: int
    folder: Node  # whose fsync makes it durable
    removed: tuple[Entry, ...]
    added: tuple[tuple[Entry, Node], ...]
    second_half: bool = False  # of a move between folders: the old name goes only if the new one came

    def touched(self) -> list[Entry]:
        """Give the names that it is about."""
        return [*self.removed, *(entry for entry, _ in self.added)]

    def apply(self, entries: dict[Entry, Node]) -> None:
        """Make the change."""
        for entry in self.removed:
            entries.pop(entry, None)
        entries.update(self.added)


@dataclasses.dataclass(slots=True)
class UnsyncedFile:
    """One file at a cut: what is on the disk, and what may get there."""

    base: bytes = b""
    pieces: dict[int, list[Piece]] = dataclasses.field(default_factory=dict)  # by page
    sizes: list[Resize] = dataclasses.field(default_factory=list)
    size: int = 0
    # Since a failed fsync, what was dirty then counts as clean. None: none has failed.
    redirtied: set[int] | None = None
    resized: bool = False
    version: int = 0
    """Counts the changes, so that what was derived from the file can be kept until the next."""

    def copy(self) -> UnsyncedFile:
        """Make a file that can be changed without changing this one."""
        pieces = {page: list(pieces) for page, pieces in self.pieces.items()}
        redirtied = None if self.redirtied is None else set(self.redirtied)
        return UnsyncedFile(self.base, pieces, list(self.sizes), self.size, redirtied, self.resized, self.version)

    def write(self, index: int, op: Write) -> None:
        """Take a write: it is in memory only."""
        self.version += 1
        at = op.offset
        while at < op.end:
            end = min(op.end, (at // PAGE + 1) * PAGE)
            self.pieces.setdefault(at // PAGE, []).append(Piece(index, at, op.data[at - op.offset : end - op.offset]))
            if self.redirtied is not None:
                self.redirtied.add(at // PAGE)
            if end > self.size:
                self.resize(Resize(index, end, self.size))
            at = end

    def resize(self, change: Resize) -> None:
        """Take a change of size: it is in memory only."""
        self.version += 1
        self.sizes.append(change)
        self.size = change.size
        self.resized = True

    def fsync(self) -> None:
        """Bring to the disk what the kernel knows to be dirty."""
        self.version += 1
        if self.redirtied is None:
            self.base, self.pieces, self.sizes = self.content(), {}, []
            return
        # The kernel writes the pages that were dirtied since the failure, and knows nothing of the others.
        sizes = list(self.sizes) if self.resized else []
        pieces = {page: self.pieces.pop(page) for page in self.redirtied if page in self.pieces}
        kept = UnsyncedFile(self.base, pieces, sizes)
        self.base = kept.content()
        if self.resized:
            self.sizes = []
        self.redirtied, self.resized = (set(), False) if self.pieces or self.sizes else (None, False)

    def fail(self) -> None:
        """Take an fsync that failed: what was dirty counts as clean, and is not on the disk."""
        self.redirtied, self.resized = set(), False

    def content(self, sizes_lost: int = 0, pages: Mapping[int, Loss] | None = None) -> bytes:
        """Give the file with so many size changes lost, and of each page so many pieces, and a tear of the next."""
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
        """Tell how long the file is with so many size changes lost."""
        kept = len(self.sizes) - sizes_lost
        return self.sizes[kept - 1].size if kept else len(self.base)

    def only_grows(self, page: int) -> bool:
        """Tell whether every piece of a page was put behind all there was, so that nothing older can show there."""
        if any(size.truncates for size in self.sizes):
            return False  # with the truncate lost, what it cut off shows again
        before = {size.index: size.before for size in self.sizes if (size.size - 1) // PAGE == page}
        return all(piece.offset >= before.get(piece.index, math.inf) for piece in self.pieces[page])

    def losses(self, page: int) -> tuple[list[Loss], int]:
        """Give what may be lost of a page, nothing first, and how many ways there were: some come to the same."""
        pieces = self.pieces[page]
        possible = [(0, 0)]
        for count, piece in enumerate(reversed(pieces), 1):
            possible += [(count, torn) for torn in piece.tears()]
            possible.append((count, 0))
        if any(size.truncates for size in self.sizes):
            return possible, len(possible)  # what a page holds depends on the size too
        found: dict[bytes, Loss] = {}
        start = page * PAGE
        for loss in possible:
            alone = UnsyncedFile(self.base[start : start + PAGE])
            alone.pieces = {0: [Piece(one.index, one.offset - start, one.data) for one in left_of(pieces, loss)]}
            alone.sizes = [Resize(0, PAGE, 0)]
            found.setdefault(alone.content(), loss)
        return list(found.values()), len(possible)


def left_of(pieces: Sequence[Piece], loss: Loss) -> list[Piece]:
    """Give what is left of a page's pieces."""
    count, torn = loss
    kept = list(pieces[: len(pieces) - count])
    if torn:
        piece = pieces[len(kept)]
        kept.append(Piece(piece.index, piece.offset, piece.data[:torn]))
    return kept


def at_least(pieces: Sequence[Piece], flushed: int, loss: Loss) -> Loss:
    """Restore what a rename at `flushed` brought to the disk."""
    most = sum(piece.index > flushed for piece in pieces)
    return (most, 0) if loss[0] > most else loss


def without_data(file: UnsyncedFile, pages: Mapping[int, Loss]) -> int:
    """Tell how many of the last size changes must be lost because data that they cover is."""
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
    """Give the file with only the first pages of its one write."""
    if not pages_lost:
        return file.content()
    pieces = [piece for page in sorted(file.pieces) for piece in file.pieces[page]]
    data = file.base
    for piece in pieces[: len(pieces) - pages_lost]:
        data = overwrite(data, piece.offset, piece.data)
    return data
