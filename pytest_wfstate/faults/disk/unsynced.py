"""A file that is not durable yet: what is on the disk, and what may reach it.

It is made of units, pages or sectors, which reach the disk independently, and of a size. What is known of it is a log
that only grows until it is flushed: a crash point is the beginning of a log that it shares with later points, so that
making one takes no time.
"""

from __future__ import annotations

import bisect
import collections
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_wfstate.faults.disk.changes import (
    Change,
    Floor,
    Flush,
    KeptJournal,
    Piece,
    Resize,
    UnitLoss,
    page_end,
    tears_of,
    units_of,
)
from pytest_wfstate.faults.trace.ops import PAGE, SECTOR, Write


class UnsyncedFile:
    """One file: what is on the disk, and the log of what may reach it.

    On a journaling file system the units are pages; elsewhere sectors, whose content does not follow from the size.
    """

    def __init__(self, base: bytes, *, journaling: bool) -> None:
        self.base = base
        self.journaling = journaling
        self.unit = PAGE if journaling else SECTOR
        self.now = bytearray(base)
        """The content if nothing is lost."""
        self.changes: list[Change] = []
        self.sizes: list[Resize] = []
        self.set_sizes: list[int] = []
        """Which of them are truncates and allocations."""
        self.pieces: dict[int, list[Piece]] = {}  # by unit
        self.units: list[int] = []
        """The units that can be lost by themselves."""
        self.number_of: dict[int, int] = {}  # the place of a unit among them
        self.grown: dict[tuple[int, int], int] = {}
        """Which change of size an op made in a page."""
        self.ways: collections.Counter[int] = collections.Counter()
        """How many units there are that can be lost in so many ways."""
        self._ways_of: dict[int, int] = {}
        self.flushes: list[Flush] = []
        self.has_failed = False
        """Whether an fsync has: units that are not dirty may differ from the disk, too."""
        self._is_cut = False
        self._dirty: set[int] = set()  # the units that the kernel knows to be dirty
        self._resized = 0  # the changes of size until then

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to lose."""
        return not self.changes and not self.sizes

    def write(self, index: int, op: Write) -> None:
        """Apply a write, in memory only."""
        old, size = bytes(self.now[op.offset : op.end]), len(self.now)
        self._dirty.update(units_of(op.offset, op.end, self.unit))
        if self._is_held(Change(index, op.offset, op.data), old):
            return
        for page in units_of(op.offset, op.end, PAGE):
            end = min(op.end, (page + 1) * PAGE)
            if end > size:
                self._resize(Resize(index, end, size, page))
                size = end
        self._add(Change(index, op.offset, op.data), old)
        self.now += bytes(size - len(self.now))
        self.now[op.offset : op.end] = op.data

    def set_size(self, index: int, size: int) -> None:
        """Apply a truncate or an allocation, in memory only."""
        before = len(self.now)
        behind = min(before, page_end(size))
        if size < behind:  # the rest of the page is zeroed, and may be written before the new size is
            self._dirty.update(units_of(size, behind, self.unit))
            self._add(Change(index, size, bytes(behind - size), zeroes=True), bytes(self.now[size:behind]))
        self._dirty = {unit for unit in self._dirty if unit * self.unit < size}
        self._resize(Resize(index, size, before))
        del self.now[size:]
        self.now += bytes(size - len(self.now))

    def fail(self, span: tuple[int, int] | None) -> None:
        """Apply an fsync that failed: what was dirty counts as clean, and is not on the disk."""
        self._dirty -= self._within(span)
        self.has_failed = True
        self._resized = len(self.sizes)
        for unit in sorted(self.pieces.keys() - self._ways_of.keys()):
            self._count_ways(unit)  # an appended page can be lost by itself once others are flushed

    def flush(self, index: int) -> None:
        """Apply a rename over another file, which flushes what is dirty, on ext4."""
        self.flushes.append(Flush(index, frozenset(self._dirty), self._end_of(self._dirty)))

    def synced(self, span: tuple[int, int] | None, floor: Floor) -> UnsyncedFile:
        """Return the file after an fsync, of `span` or of all of it, which keeps `floor` besides."""
        if span is None and not self.has_failed:
            return UnsyncedFile(bytes(self.now), journaling=self.journaling)
        # The kernel writes what it knows to be dirty, in whole units, and the size that is needed to read them.
        written = self._within(span)
        pieces = floor.pieces | {unit: len(self.pieces[unit]) for unit in written if unit in self.pieces}
        floor = Floor(max(floor.sizes, sizes_to_read(self.sizes, self._end_of(written))), pieces)
        file = self._above(floor)
        if not file.is_clean:
            file._dirty = self._dirty - written
            file._resized = len(file.sizes) if span is None else max(0, self._resized - floor.sizes)
        return file

    def all_set(self) -> int:
        """Return how many changes of size an fsync keeps because a truncate or an allocation followed them."""
        return self.set_sizes[-1] + 1 if self.set_sizes and self.set_sizes[-1] >= self._resized else 0

    def at(self) -> FileAt:
        """Return the file as it is now."""
        return FileAt(self, len(self.changes), len(self.sizes), len(self.units), self.has_failed)

    def _within(self, span: tuple[int, int] | None) -> set[int]:
        return set(self._dirty) if span is None else self._dirty & set(units_of(*span, self.unit))

    def _end_of(self, units: set[int]) -> int:
        """Return the offset after the last byte that was put into some units, and is still there."""
        return min(len(self.now), max(map(self._end, units), default=0))

    def _end(self, unit: int) -> int:
        ends = [self.changes[piece.change].end for piece in self.pieces.get(unit, ())]
        return min(max(ends, default=0), (unit + 1) * self.unit)

    def _resize(self, change: Resize) -> None:
        if change.page is None:
            self.set_sizes.append(len(self.sizes))
        else:
            self.grown[change.index, change.page] = len(self.sizes)
        self._is_cut = self._is_cut or change.is_cut
        self.sizes.append(change)

    def _add(self, change: Change, old: bytes | None) -> None:
        """Add bytes to the log, given those that they replace."""
        number = len(self.changes)
        self.changes.append(change)
        known = None if self._is_cut else old  # if a cut is lost, others are back
        for unit in change.units(self.unit):
            piece = change.clipped(unit * self.unit, (unit + 1) * self.unit)
            replaced = None if known is None else known[piece.start - change.start : piece.end - change.start]
            if self._is_held(piece, replaced):
                continue
            tears = tuple(tears_of(piece, replaced)) if self.journaling else ()
            self.pieces.setdefault(unit, []).append(Piece(number, tears))
            if unit in self._ways_of or not self._is_appended(piece):
                self._count_ways(unit)

    def _is_held(self, change: Change, old: bytes | None) -> bool:
        """Whether it makes no difference if bytes are lost: they replace equal ones, and no size depends on them."""
        depends = change.end > len(self.base) or (change.zeroes and self.journaling)
        return old == change.data and not self._is_cut and not depends

    def _is_appended(self, piece: Change) -> bool:
        """Whether a piece is lost exactly if its size is: it is if size follows data, and there was none before."""
        page = piece.start // PAGE
        grown = self.grown.get((piece.index, page))
        if not self.journaling or self.has_failed or grown is None or self.sizes[grown].before > piece.start:
            return False
        return not self._is_cut or all(self.sizes[number].size <= page * PAGE for number in self.set_sizes)

    def _count_ways(self, unit: int) -> None:
        if unit in self._ways_of:
            self.ways[self._ways_of[unit]] -= 1
        else:
            self.number_of[unit] = len(self.units)
            self.units.append(unit)
        self._ways_of[unit] = 1 + sum(map(_ways, self.pieces[unit]))
        self.ways[self._ways_of[unit]] += 1

    def _above(self, floor: Floor) -> UnsyncedFile:
        """Return the file in which `floor` is durable."""
        lost = {unit: (len(pieces) - floor.pieces.get(unit, 0), 0) for unit, pieces in self.pieces.items()}
        file = UnsyncedFile(self.at().content(floor.sizes, lost), journaling=self.journaling)
        file.flushes, file.has_failed = list(self.flushes), self.has_failed
        for size in self.sizes[floor.sizes :]:
            file._resize(size)
        cuts = [size for size in self.sizes[: floor.sizes] if size.is_cut]
        left = sorted(
            (piece.change, unit)
            for unit, pieces in self.pieces.items()
            for piece in pieces[floor.pieces.get(unit, 0) :]
        )
        for number, unit in left:
            change = self.changes[number]
            end = min(((unit + 1) * self.unit, *(cut.size for cut in cuts if cut.index >= change.index)))
            piece = change.clipped(unit * self.unit, end)
            if piece.data:
                file._add(piece, None)
        file.now = bytearray(self.now)
        return file


class FileAt:
    """A file at a crash point: the beginning of its log."""

    def __init__(self, file: UnsyncedFile, changes: int, sizes: int, units: int, has_failed: bool) -> None:
        self.file = file
        self.changes = changes
        self.sizes = sizes
        self.units = units
        self.has_failed = has_failed

    def is_now(self, file: UnsyncedFile) -> bool:
        """Whether a file has not changed since."""
        now = (len(file.changes), len(file.sizes), file.has_failed)
        return file is self.file and now == (self.changes, self.sizes, self.has_failed)

    def pieces(self, unit: int) -> Sequence[Piece]:
        """Return the pieces of a unit."""
        pieces = self.file.pieces.get(unit, ())
        if not pieces or pieces[-1].change < self.changes:
            return pieces
        return [piece for piece in pieces if piece.change < self.changes]

    def piece(self, unit: int, piece: Piece) -> Change:
        """Return the bytes of a piece."""
        size = self.file.unit
        return self.file.changes[piece.change].clipped(unit * size, (unit + 1) * size)

    def losses(self, unit: int) -> Iterator[tuple[UnitLoss, tuple[int, ...]]]:
        """Yield the losses of a unit, nothing first, and the items of the trace that each loses, at least in part."""
        lost: tuple[int, ...] = ()
        yield (0, 0), lost
        for count, piece in enumerate(reversed(self.pieces(unit)), 1):
            bytes_of = self.piece(unit, piece)
            lost = (bytes_of.index, *lost)
            for tear in reversed(piece.tears):
                yield (count, tear - bytes_of.start), lost
            for tear in piece.tears:
                yield (count, tear - bytes_of.end), lost
            yield (count, 0), lost

    def ways(self, unit: int) -> int:
        """Return how many losses of a unit there are."""
        return 1 + self.position(unit, len(self.pieces(unit)))

    def position(self, unit: int, count: int) -> int:
        """Return which of the losses of a unit is that of its last `count` pieces, in whole."""
        if not self.file.journaling:
            return count  # sectors are not torn
        pieces = self.pieces(unit)
        return sum(map(_ways, pieces[len(pieces) - count :]))

    def size(self, kept: int) -> int:
        """Return the size after the first `kept` changes of size."""
        return self.file.sizes[kept - 1].size if kept else len(self.file.base)

    def content(self, kept: int, lost: Mapping[int, UnitLoss]) -> bytes:
        """Return the content after the first `kept` changes of size, with these losses of units."""
        changes = self.file.changes[: self.changes]
        size = self.size(kept)
        data = self._window(0, max([size, *(change.end for change in changes)]), changes, kept)
        for units, left in self._runs(lost):
            start, end = units.start * self.file.unit, units.stop * self.file.unit
            if start < size:
                data[start:end] = self._window(start, end, left, kept)
        return bytes(data[:size])

    def _runs(self, lost: Mapping[int, UnitLoss]) -> Iterator[tuple[range, list[Change]]]:
        """Yield what is left of the pieces of each unit; units side by side that lost everything are one run."""
        gone: range | None = None
        for unit, loss in sorted(lost.items()):
            left = self._left(unit, loss)
            if gone is not None and (left or unit != gone.stop):
                yield gone, []
                gone = None
            if left:
                yield range(unit, unit + 1), left
            else:
                gone = range(unit if gone is None else gone.start, unit + 1)
        if gone is not None:
            yield gone, []

    def allowed(self, kept: int, lost: Mapping[int, UnitLoss], journal: KeptJournal) -> tuple[int, dict[int, UnitLoss]]:
        """Return the changes of size that are kept, and the losses of units, as far as the journal allows them."""
        if not self.file.journaling:
            return kept, dict(lost)
        sizes = self.file.sizes
        set_sizes = [number for number in self.file.set_sizes if number < self.sizes]
        journaled = [number for number in set_sizes if sizes[number].index < journal.lost_from]
        until = sizes[journaled[-1]].index if journaled else -1
        flushes = [flush for flush in self.file.flushes if flush.index <= journal.flushed]
        readable = max((self._sizes_to_read(flush) for flush in flushes), default=0)
        kept = max(kept, readable, *(number + 1 for number in journaled[-1:]))
        kept = min(kept, *set_sizes[len(journaled) :][:1], self.sizes)
        losses = {}
        for unit, (count, torn) in lost.items():
            pieces = self.pieces(unit)
            flushed = max((flush.index for flush in flushes if unit in flush.units), default=-1)
            most = len(pieces) - self._needed(unit, pieces, until, flushed)
            losses[unit] = (count, torn) if count <= most else (most, 0)
        return self.with_data(kept, losses, readable), losses

    def with_data(self, kept: int, lost: Mapping[int, UnitLoss], readable: int = 0) -> int:
        """Return how many changes of size are kept where size follows data, if these losses leave so much data.

        The first `readable` of them are kept without it, as what was flushed of other pages needs them.
        """
        if self.file.journaling:
            for unit, (count, _) in lost.items():
                pieces = self.pieces(unit)
                for piece in pieces[len(pieces) - count :]:
                    grown = self.file.grown.get((self.file.changes[piece.change].index, unit), kept)
                    kept = min(kept, grown) if grown >= readable else kept
        return kept

    def journaled(self, lost_from: float) -> Floor:
        """Return what is surely kept if the journal is durable up to an item of the trace."""
        gone = {unit: (len(self.pieces(unit)), 0) for unit in self.file.pieces}
        kept, losses = self.allowed(0, gone, KeptJournal(lost_from))
        return Floor(kept, {unit: len(self.pieces(unit)) - count for unit, (count, _) in losses.items()})

    def _sizes_to_read(self, flush: Flush) -> int:
        until = bisect.bisect_right(self.file.sizes, flush.index, hi=self.sizes, key=operator.attrgetter("index"))
        return sizes_to_read(self.file.sizes[:until], flush.end)

    def _needed(self, unit: int, pieces: Sequence[Piece], until: int, flushed: int) -> int:
        """Return how many pieces of a page are kept with the changes of size that the journal kept `until` an item.

        A truncate is committed after the zeros behind its cut were written, and after the data below it.
        """
        for number, piece in reversed(list(enumerate(pieces, 1))):
            change = self.file.changes[piece.change]
            sized = change.zeroes or (change.index, unit) in self.file.grown
            if change.index <= flushed or (sized and change.index <= until):
                return number
        return 0

    def _left(self, unit: int, loss: UnitLoss) -> list[Change]:
        """Return what a loss leaves of the pieces of a unit."""
        count, torn = loss
        pieces = self.pieces(unit)
        left = [self.piece(unit, piece) for piece in pieces[: len(pieces) - count]]
        if torn:
            first = self.piece(unit, pieces[len(pieces) - count])
            start, end = (first.start, first.start + torn) if torn > 0 else (first.end + torn, first.end)
            left.append(first.clipped(start, end))
        return left

    def _window(self, start: int, end: int, changes: Iterable[Change], kept: int) -> bytearray:
        """Return what `changes` and the cuts among the first `kept` changes of size make of a part of the file."""
        data = bytearray(self.file.base[start:end])
        data += bytes(end - start - len(data))
        cuts = [number for number in self.file.set_sizes if number < self.sizes and self.file.sizes[number].is_cut]
        made = collections.deque(self.file.sizes[number] for number in cuts if number < kept)
        lost = [self.file.sizes[number] for number in cuts if number >= kept] if self.file.journaling else []
        for change in changes:
            while made and made[0].index < change.index:
                _cut(data, made.popleft().size - start)
            # A truncate frees pages. What is written there later gets new ones, which are found only after it.
            below = min((page_end(cut.size) for cut in lost if cut.index < change.index), default=end)
            piece = change.clipped(start, min(end, below))
            data[piece.start - start : piece.end - start] = piece.data
        for cut in made:
            _cut(data, cut.size - start)
        return data


def sizes_to_read(sizes: Sequence[Resize], end: int) -> int:
    """Return how many changes of size are needed to read the byte before an offset."""
    return max((number for number, change in enumerate(sizes, 1) if change.before < end <= change.size), default=0)


def _ways(piece: Piece) -> int:
    """Return how many ways to lose a piece there are: whole, or one end of it at each tear."""
    return 1 + 2 * len(piece.tears)


def _cut(data: bytearray, size: int) -> None:
    """Zero what lies past a size."""
    size = min(max(size, 0), len(data))
    data[size:] = bytes(len(data) - size)
