"""The parts of a disk at a crash point: all names, and the content of each file."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, overload

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.disk.changes import Change, Entry, KeptJournal, NameChange, UnitLoss
from pytest_wfstate.faults.disk.losses import KEPT, LossAxis, Part, PartLoss, Position, Rank, SingleLoss, one
from pytest_wfstate.faults.disk.unsynced import FileAt
from pytest_wfstate.faults.trace.ops import HOME, PAGE, Kind, Layout, Node, Tree, overwrite

_MOST_BYTES = 2**28  # built to compare the losses of one part
_MOST_REMEMBERED = 64  # axes that are lost, to remember the hash of the content


class Names(Part):
    """All names of a tree: those on the disk, and the changes to them that are not durable."""

    def __init__(
        self,
        entries: dict[Entry, Node],
        unsynced: Sequence[NameChange],
        model: Model,
        axes: Sequence[LossAxis],
        most: float,
    ) -> None:
        super().__init__(axes, most)
        self._entries = entries
        self._unsynced = unsynced
        self._model = model
        self._touched = sorted({entry for change in unsynced for entry in change.touched()})
        self._layouts: dict[PartLoss, Layout] = {}

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return the node of every name that may change, and what the content of files depends on."""
        changed = {entry: self._entries.get(entry, HOME) for entry in self._touched}
        kept = self.kept_changes(loss)
        for change in kept:
            change.apply(changed)
        sizes = sum(not change.touched() for change in kept)
        flushes = tuple(change.index for change in kept if change.replaces) if self._model == "ext4" else ()
        return tuple(changed.get(entry, HOME) for entry in self._touched), sizes, flushes

    def entries(self, loss: PartLoss) -> dict[Entry, Node]:
        """Return the node of every name."""
        entries = dict(self._entries)
        for change in self.kept_changes(loss):
            change.apply(entries)
        return entries

    def layout(self, loss: PartLoss, kinds: dict[Node, Kind]) -> Layout:
        """Return every path with its node, a folder before what is in it, sorted."""
        if loss not in self._layouts:
            tree = Tree()
            tree.entries, tree.kinds = self.entries(loss), kinds
            self._layouts[loss] = tuple(tree.walk())
        return self._layouts[loss]

    def losing(self, items: Collection[int]) -> PartLoss:
        """Return the loss of as many of these items as can be lost without others."""
        lost = {
            axis: max(number for number, position in enumerate(at.positions) if set(position.lost) <= set(items))
            for axis, at in enumerate(self.axes)
        }
        return tuple((axis, number) for axis, number in lost.items() if number)

    def kept_changes(self, loss: PartLoss) -> Sequence[NameChange]:
        """Return the changes that are not lost: under posix any of them, elsewhere a prefix."""
        if self._model != "posix":
            return self._unsynced[: len(self._unsynced) - loss[0][1]] if loss else self._unsynced
        lost = {axis.number for axis, _ in self.moved(loss)}
        gone: set[int] = set()
        kept: list[NameChange] = []
        for number, change in enumerate(self._unsynced):
            if number in lost or (change.second_half and change.index in gone):
                gone.add(change.index)
            else:
                kept.append(change)
        return kept

    def single_losses(self) -> Iterator[SingleLoss]:
        """Yield the loss of each change, and the loss of all others, the last change first."""
        for single in super().single_losses():
            yield single
            if self._model == "posix":
                ((axis, _),) = single.make()
                yield single._replace(rank=Rank.ONE_KEPT, how="kept", make=functools.partial(self._all_but, {axis}))

    def lost_from(self, loss: PartLoss) -> float:
        """Return the first item that is lost from the journal, if there is one."""
        kept = len(self.kept_changes(loss))
        lost = self._model != "posix" and kept < len(self._unsynced)
        return self._unsynced[kept].index if lost else math.inf


class FilePart(Part):
    """The content of one file."""

    def __init__(self, file: FileAt, axes: Sequence[LossAxis], most: float) -> None:
        super().__init__(axes, most)
        self.file = file
        self._hashes: dict[tuple[PartLoss, KeptJournal], int] = {}
        self._last: tuple[tuple[PartLoss, KeptJournal], bytes] | None = None

    def content(self, loss: PartLoss, journal: KeptJournal) -> bytes:
        """Return the content of the file. The last is kept: a disk is compared with the others before it is built."""
        if self._last is None or self._last[0] != (loss, journal):
            self._last = (loss, journal), self._content(loss, journal)
        return self._last[1]

    def content_hash(self, loss: PartLoss, journal: KeptJournal) -> int:
        """Return a hash of the content. It is remembered, as crash points share the parts that do not change."""
        if len(loss) > _MOST_REMEMBERED:
            return hash(self.content(loss, journal))
        key = (loss, journal)
        if key not in self._hashes:
            self._hashes[key] = hash(self.content(loss, journal))
        return self._hashes[key]

    def torn(self, loss: PartLoss, journal: KeptJournal) -> list[tuple[int, int, int]]:
        """Return the torn ops: the index, and where the bytes start and end that are missing from a write.

        A torn truncate left zeros, and the old size: these are the bytes that it zeroed.
        """
        raise NotImplementedError

    def nearest(self, wanted: Iterable[tuple[LossAxis, Position]]) -> PartLoss:
        """Return the loss of these positions on axes of another crash point, or of as much as can be lost here."""
        loss: dict[int, int] = {}
        for other, position in wanted:
            axis = self._like(other)
            if axis is not None:
                loss[axis] = _nearest(self.axes[axis], position)
        return tuple((axis, number) for axis, number in sorted(loss.items()) if number)

    def _content(self, loss: PartLoss, journal: KeptJournal) -> bytes:
        raise NotImplementedError

    def _like(self, other: LossAxis) -> int | None:
        """Return the number of the axis that stands for the same thing as one of another crash point."""
        raise NotImplementedError


class Data(FilePart):
    """The content of one file: what is on the disk, and what may reach it."""

    def __init__(self, file: FileAt, most: float) -> None:
        self._axes = _FileAxes(file)
        self._is_journaled = file.file.journaling and (file.has_failed or bool(file.file.set_sizes))
        self._possible: int = self._axes.sizes * math.prod(ways**count for ways, count in file.file.ways.items())
        super().__init__(file, self._axes, most)
        self._compared = min(self._compared, max(len(self._axes), _MOST_BYTES // (len(file.file.now) + 1)))

    @property
    def possible(self) -> int:
        """How many ways to lose there are."""
        return self._possible

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return what is lost below the size of the file, if that does not depend on the journal."""
        if self._is_journaled:
            return loss
        kept, lost = self._lost(loss)
        kept = self.file.with_data(kept, lost)
        size, unit = self.file.size(kept), self.file.file.unit
        return kept, frozenset((number, unit_loss) for number, unit_loss in lost.items() if number * unit < size)

    def last(self, axis: int) -> int:
        """Return the last position of an axis, without building it."""
        return self._axes.last(axis)

    def lost(self, loss: PartLoss) -> set[int]:
        """Return the items that are lost, in whole or in part, without building axes."""
        _, units = self._lost(loss)
        changes, pieces = self.file.file.changes, self.file.pieces
        items = {changes[piece.change].index for unit, (count, _) in units.items() for piece in pieces(unit)[-count:]}
        return items | (super().lost(loss[:1]) if loss and self._axes.unit(loss[0][0]) is None else set())

    def torn(self, loss: PartLoss, journal: KeptJournal) -> list[tuple[int, int, int]]:
        """Return the torn ops, with the bytes that are missing, or that a truncate zeroed."""
        kept, lost = self.file.allowed(*self._lost(loss), journal)
        changes = self.file.file.changes[: self.file.changes]
        cuts = {size.index for size in self.file.file.sizes[kept : self.file.sizes] if size.is_cut}
        torn: list[tuple[int, int, int]] = []
        for number, change in enumerate(changes):
            left = list(self._left(number, lost))
            if change.zeroes and change.index in cuts:
                torn += [(change.index, *span) for span in _merged(left)]
            elif left and not change.zeroes:
                torn += [(change.index, *span) for span in _merged(self._missing(number, lost))]
        return torn

    def single_losses(self) -> Iterator[SingleLoss]:
        """Yield what a crash can do to each change of the bytes and of the size, the last one first.

        Of the many ways to tear a write, the end is kept alone, and the beginning lost alone.
        """
        for number in reversed(range(self.file.changes)):
            item = self.file.file.changes[number].index
            yield SingleLoss(item, Rank.ONE_LOST, "lost", functools.partial(self._without, number, slice(None)))
            yield SingleLoss(item, Rank.ONE_KEPT, "kept", functools.partial(self._only, number))
            yield SingleLoss(item, Rank.ONE_TORN, "end kept", functools.partial(self._without, number, slice(-1)))
            yield SingleLoss(item, Rank.ONE_TORN, "start lost", functools.partial(self._without, number, slice(1)))
            if self.file.file.journaling:
                yield SingleLoss(item, Rank.ONE_TORN, "torn", functools.partial(self._torn, number))
        for position in range(1, self._axes.sizes):
            item = self.file.file.sizes[self.file.sizes - position].index
            yield SingleLoss(item, Rank.ONE_LOST, "size lost", functools.partial(one, 0, position))

    def lost_writes(self) -> Iterator[PartLoss]:
        """Yield the loss of each write."""
        for number in range(self.file.changes):
            yield self._without(number, slice(None))

    def torn_writes(self) -> Iterator[PartLoss]:
        """Yield the losses of one torn write each: a tear inside a page, or a write of which only the end is kept."""
        yield from super().torn_writes()
        for number in range(self.file.changes):
            yield self._without(number, slice(-1))

    def _without(self, number: int, part: slice) -> PartLoss:
        """Return the loss of a change, in a part of its units. What was written there later is lost, too."""
        loss: dict[int, int] = {}
        for unit in self.file.file.changes[number].units(self.file.file.unit)[part]:
            pieces = self.file.pieces(unit)
            lost = next((len(pieces) - before for before, piece in enumerate(pieces) if piece.change == number), 0)
            axis = self._axes.number(unit)
            if lost and axis is not None:
                loss[axis] = self.file.position(unit, lost)
        return tuple(sorted(loss.items()))

    def _only(self, number: int) -> PartLoss:
        """Return the loss of everything but a change, and what was written before it in the same places."""
        units = self.file.file.changes[number].units(self.file.file.unit)
        return self._all_but({axis for unit in units if (axis := self._axes.number(unit)) is not None})

    def _torn(self, number: int) -> PartLoss:
        """Return the first tear inside the last page of a change, or nothing if it has none."""
        axis = self._axes.number(self.file.file.changes[number].units(self.file.file.unit)[-1])
        positions = self.axes[axis].positions if axis is not None else ()
        return next(
            (((axis, at),) for at, position in enumerate(positions) if axis is not None and position.loss[1]), KEPT
        )

    def _content(self, loss: PartLoss, journal: KeptJournal) -> bytes:
        return self.file.content(*self.file.allowed(*self._lost(loss), journal))

    def _like(self, other: LossAxis) -> int | None:
        return self._axes.number(other.number) if other.kind != "size" else 0 if self._axes.sizes > 1 else None

    def _left(self, number: int, lost: Mapping[int, UnitLoss]) -> Iterator[tuple[int, int]]:
        """Yield where the bytes of a change start and end that are not lost."""
        for piece, torn in self._pieces(number, lost):
            if torn is None or torn > 0:
                yield piece.start, piece.end if torn is None else piece.start + torn
            elif torn < 0:
                yield piece.end + torn, piece.end

    def _missing(self, number: int, lost: Mapping[int, UnitLoss]) -> Iterator[tuple[int, int]]:
        """Yield where the bytes of a change start and end that are lost."""
        for piece, torn in self._pieces(number, lost):
            if torn is not None:
                yield piece.start + max(torn, 0), piece.end + min(torn, 0)

    def _pieces(self, number: int, lost: Mapping[int, UnitLoss]) -> Iterator[tuple[Change, int | None]]:
        """Yield the pieces of a change, and what is left of each: the bytes of a `UnitLoss`, or None for all."""
        for unit in self.file.file.changes[number].units(self.file.file.unit):
            pieces = self.file.pieces(unit)
            count, torn = lost.get(unit, (0, 0))
            for position, piece in enumerate(pieces, count - len(pieces)):
                if piece.change == number:
                    yield self.file.piece(unit, piece), None if position < 0 else torn if position == 0 else 0

    def _lost(self, loss: PartLoss) -> tuple[int, dict[int, UnitLoss]]:
        """Return how many changes of size are kept, and what is lost of each unit."""
        kept = self.file.sizes
        units: dict[int, UnitLoss] = {}
        for axis, number in loss:
            unit = self._axes.unit(axis)
            if unit is None:
                kept -= number
            else:  # a sector is not torn, so the number says it all
                units[unit] = self.axes[axis].positions[number].loss if self.file.file.journaling else (number, 0)
        return kept, units


class CutWrite(FilePart):
    """The content of the file that was last changed before a kill: a write may have reached only some pages."""

    def __init__(self, file: FileAt, most: float) -> None:
        writes = [change for change in file.file.changes if not change.zeroes]
        pages = len(writes[0].units(PAGE)) if writes else 1
        lost = Position(tuple(change.index for change in writes))
        super().__init__(file, [LossAxis("write", 0, (Position(), *[lost] * (pages - 1)), possible=pages)], most)

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return how many pages are lost."""
        return loss

    def torn(self, loss: PartLoss, journal: KeptJournal) -> list[tuple[int, int, int]]:  # noqa: ARG002
        """Return the torn write, with the bytes that are missing."""
        if loss == KEPT:
            return []
        (write,) = self.file.file.changes
        return [(write.index, self._end(write, loss), write.end)]

    def _content(self, loss: PartLoss, journal: KeptJournal) -> bytes:  # noqa: ARG002
        if loss == KEPT:
            return self.file.content(self.file.sizes, {})
        (write,) = self.file.file.changes
        left = write.clipped(0, self._end(write, loss))
        return overwrite(self.file.file.base, left.start, left.data)

    def _like(self, other: LossAxis) -> int | None:  # noqa: ARG002
        return 0

    def _end(self, write: Change, loss: PartLoss) -> int:
        """Return where the part of the write ends that reached the disk."""
        ((_, pages_lost),) = loss
        return (write.units(PAGE)[-1] + 1 - pages_lost) * PAGE


class _FileAxes(Sequence[LossAxis]):
    """The axes of a file: its size, and each unit that can be lost by itself. They are built when they are needed."""

    def __init__(self, file: FileAt) -> None:
        self._file = file
        grows = not file.file.journaling or len(file.file.set_sizes) < file.sizes  # set sizes are in the journal
        self.sizes = file.sizes + 1 if file.sizes and grows else 1
        """How many positions the size has."""
        self._built: dict[int, LossAxis] = {}

    def number(self, unit: int) -> int | None:
        """Return the number of the axis of a unit, if it has one."""
        number = self._file.file.number_of.get(unit, self._file.units)
        return number + (self.sizes > 1) if number < self._file.units else None

    def unit(self, number: int) -> int | None:
        """Return the unit of an axis; None is the axis of the size."""
        sized = self.sizes > 1
        return None if sized and not number else self._file.file.units[number - sized]

    def last(self, number: int) -> int:
        """Return the last position of an axis, without building it."""
        unit = self.unit(number)
        return self.sizes - 1 if unit is None else self._file.ways(unit) - 1

    def __len__(self) -> int:
        return self._file.units + (self.sizes > 1)

    @overload
    def __getitem__(self, number: int) -> LossAxis: ...
    @overload
    def __getitem__(self, number: slice) -> list[LossAxis]: ...
    def __getitem__(self, number: int | slice) -> LossAxis | list[LossAxis]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        if number not in self._built:
            unit = self.unit(number)
            self._built[number] = self._size() if unit is None else self._of_unit(unit)
        return self._built[number]

    def _size(self) -> LossAxis:
        journaling = self._file.file.journaling
        changes = self._file.file.sizes[: self._file.sizes]
        indexes = [None if journaling and change.page is None else change.index for change in changes]
        return from_the_end("size", indexes)

    def _of_unit(self, unit: int) -> LossAxis:
        positions = tuple(Position(lost, loss) for loss, lost in self._file.losses(unit))
        return LossAxis("page" if self._file.file.journaling else "sector", unit, positions, len(positions))


def from_the_end(kind: Literal["names", "size"], indexes: Sequence[int | None]) -> LossAxis:
    """Return an axis on which ever more of a sequence is lost, the last of it first. None counts as no item."""
    positions = [Position()]
    for index in reversed(indexes):
        last = positions[-1].lost
        positions.append(positions[-1] if index is None or index in last[:1] else Position((index, *last)))
    return LossAxis(kind, 0, tuple(positions), possible=len(positions))


def _nearest(axis: LossAxis, wanted: Position) -> int:
    """Return the position that loses exactly `wanted`, or else as much of it as possible and nothing else."""
    if wanted in axis.positions:
        return axis.positions.index(wanted)
    return max(number for number, position in enumerate(axis.positions) if set(position.lost) <= set(wanted.lost))


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in order, adjacent ones as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
