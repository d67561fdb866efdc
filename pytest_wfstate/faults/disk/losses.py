"""A crash point: one point of a run, and all the disks that a crash there can leave.

What is not durable at that point is described by *axes*. The position on an axis is how much of one thing is lost: at
0 nothing is. The axes of one file make up a part, and so do those of all names. A part's loss has a position for each
of its axes, and a disk's loss has a loss for each part. Equivalent losses are produced once, as far as that can be
decided part by part.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Literal, TypeVar

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.disk.unsynced import (
    Entry,
    NameChange,
    PageLoss,
    UnsyncedFile,
    at_least,
    cut_short,
    without_data,
)
from pytest_wfstate.faults.trace.ops import HOME, PAGE, Kind, Node, Tree

T = TypeVar("T")
PartLoss = tuple[int, ...]
"""A position for each axis of a part."""
DiskLoss = tuple[PartLoss, ...]
"""A loss for each part of a crash point."""

_MOST_COMPARED = 4096  # losses of a part compared with each other: their outcomes are kept in memory
_MOST_BYTES = 2**28  # built to compare the losses of one part


class Rank(enum.IntEnum):
    """How likely a loss is to expose a bug: lower ranks are tried first."""

    KEPT = 0
    GONE = 1
    ONE_LOST = 2
    ONE_KEPT = 3
    ONE_TORN = 4
    MORE = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """One position on an axis: what is lost there."""

    lost: tuple[int, ...] = ()
    """The items of the trace that are lost, in whole or in part."""
    loss: PageLoss = (0, 0)
    """What is lost of a page, on the axis of a page."""


@dataclasses.dataclass(frozen=True, slots=True)
class LossAxis:
    """One thing that may be lost. At the first position nothing is."""

    kind: Literal["names", "size", "page", "write"]
    number: int  # of the page, or of the change of names
    positions: tuple[Position, ...]
    possible: int
    """How many ways to lose it there are; several may share a position."""


class Part:
    """The names, or one file: its axes, and the distinct losses among the first `most`."""

    def __init__(self, axes: Sequence[LossAxis], most: float) -> None:
        self.axes = axes
        self.kept: PartLoss = (0,) * len(axes)
        self.gone: PartLoss = tuple(len(axis.positions) - 1 for axis in axes)
        self.possible = math.prod(axis.possible for axis in axes)
        """How many ways to lose there are."""
        self.complete = True
        """Whether every way was tried; known once all losses were."""
        self._most = most
        self._compared = min(_MOST_COMPARED, most)
        self._has_more = False
        self._found: list[tuple[Rank, PartLoss]] = []
        self._looking = self._look()

    def losses(self) -> Iterator[tuple[Rank, PartLoss]]:
        """Yield the distinct losses by rank. The first loses nothing.

        Late ones are not compared with the others, and may be equivalent to one of them.
        """
        number = 0
        while number < len(self._found) or self._find():
            yield self._found[number]
            number += 1
        if self._has_more:
            yield from self._rest()

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return a key that is equal for equivalent losses."""
        raise NotImplementedError

    def positions(self, loss: PartLoss) -> Iterator[tuple[LossAxis, Position]]:
        """Yield the axes that are not at 0, with their positions."""
        for axis, position in zip(self.axes, loss, strict=True):
            if position:
                yield axis, axis.positions[position]

    def _find(self) -> bool:
        ranked = next(self._looking, None)
        if ranked is not None:
            self._found.append(ranked)
        return ranked is not None

    def _look(self) -> Iterator[tuple[Rank, PartLoss]]:
        seen: set[Hashable] = set()
        for number, (rank, loss) in enumerate(self._in_order()):
            if number == self._compared:
                self._has_more = True
                return
            outcome = self.outcome(loss)
            if outcome not in seen:
                seen.add(outcome)
                yield rank, loss

    def _rest(self) -> Iterator[tuple[Rank, PartLoss]]:
        for number, ranked in enumerate(self._in_order()):
            if number >= self._most:
                self.complete = False
                return
            if number >= self._compared:
                yield ranked

    def _in_order(self) -> Iterator[tuple[Rank, PartLoss]]:
        """Yield every loss once."""
        ranked: set[PartLoss] = set()
        sizes = [len(axis.positions) for axis in self.axes]
        singles = [(axis, position) for axis, size in enumerate(sizes) for position in range(1, size)]
        whole = [single for single in singles if not self._is_tear(*single)]
        for rank, losses in (
            (Rank.KEPT, [self.kept]),
            (Rank.GONE, [self.gone]),
            (Rank.ONE_LOST, [_replaced(self.kept, *single) for single in whole]),
            (Rank.ONE_KEPT, [_replaced(self.gone, axis, 0) for axis in range(len(sizes))]),
            (Rank.ONE_TORN, [_replaced(self.kept, *single) for single in singles if single not in whole]),
        ):
            for loss in losses:
                if loss not in ranked:
                    ranked.add(loss)
                    yield rank, loss
        for loss in combinations(sizes):
            if loss not in ranked:
                yield Rank.MORE, loss

    def _is_tear(self, axis: int, position: int) -> bool:
        return self.axes[axis].positions[position].loss[1] > 0


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

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return the node of every name that may change."""
        changed = {entry: self._entries.get(entry, HOME) for entry in self._touched}
        for change in self.kept_changes(loss):
            change.apply(changed)
        return tuple(changed.get(entry, HOME) for entry in self._touched)

    def entries(self, loss: PartLoss) -> dict[Entry, Node]:
        """Return the node of every name."""
        entries = dict(self._entries)
        for change in self.kept_changes(loss):
            change.apply(entries)
        return entries

    def kept_changes(self, loss: PartLoss) -> Sequence[NameChange]:
        """Return the changes that are not lost: under posix any of them, elsewhere a prefix."""
        if self._model != "posix":
            return self._unsynced[: len(self._unsynced) - loss[0]] if loss else self._unsynced
        lost = {axis.number for axis, position in zip(self.axes, loss, strict=True) if position}
        gone: set[int] = set()
        kept: list[NameChange] = []
        for number, change in enumerate(self._unsynced):
            if number in lost or (change.second_half and change.index in gone):
                gone.add(change.index)
            else:
                kept.append(change)
        return kept

    def lost_indexes(self, loss: PartLoss) -> set[int]:
        """Return the items of the trace whose changes are lost."""
        return {change.index for change in self._unsynced} - {change.index for change in self.kept_changes(loss)}


class Data(Part):
    """The content of one file: what is on the disk, and what may reach it."""

    def __init__(self, file: UnsyncedFile, model: Model, axes: Sequence[LossAxis], most: float) -> None:
        super().__init__(axes, most)
        self._file = file
        self._model = model
        self._compared = min(self._compared, max(len(axes), _MOST_BYTES // (file.size + 1)))

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return a key for the content of the file: the contents themselves would fill the memory."""
        if self._model == "kill":
            return loss
        if any(size.truncates for size in self._file.sizes):  # then pages hold what truncates left of them
            return hashlib.blake2b(self.content(loss, flushed=-1), digest_size=16).digest()
        # The positions of a page differ in its content, which counts only below the size of the file.
        sizes_lost, pages = self._lost(loss, flushed=-1)
        size = self._file.size_without(sizes_lost)
        return size, frozenset((page, loss) for page, loss in pages.items() if page * PAGE < size)

    def content(self, loss: PartLoss, *, flushed: int) -> bytes:
        """Return the content of the file if everything written before item `flushed` is durable."""
        if loss == self.kept:
            return self._whole
        if self._model == "kill":
            return cut_short(self._file, loss[0])
        return self._file.content(*self._lost(loss, flushed))

    @functools.cached_property
    def _whole(self) -> bytes:
        return self._file.content()

    def _lost(self, loss: PartLoss, flushed: int) -> tuple[int, dict[int, PageLoss]]:
        """Return how many changes of the size are lost, and what of each page."""
        file = self._file
        sizes_lost = loss[0] if self.axes[0].kind == "size" else 0
        pages = {axis.number: position.loss for axis, position in self.positions(loss) if axis.kind == "page"}
        if flushed >= 0:
            pages = {page: at_least(file.pieces[page], flushed, page_loss) for page, page_loss in pages.items()}
            sizes_lost = min(sizes_lost, sum(size.index > flushed for size in file.sizes))
        if self._model != "posix":
            sizes_lost = max(sizes_lost, without_data(file, pages))
        return sizes_lost, pages


@dataclasses.dataclass(frozen=True, slots=True)
class KnownNodes:
    """What is known of the nodes at a crash point, whatever is lost."""

    kinds: dict[Node, Kind]
    targets: dict[Node, str]
    data: dict[Node, bytes]
    """The content of files that cannot lose anything."""
    replacing: dict[Node, set[int]]
    """For each file, the renames by which it replaced another."""


class CrashPoint:
    """A point of a run, and all the disks that a crash there can leave."""

    def __init__(
        self, index: int, markers: int, model: Model, known: KnownNodes, names: Names, files: dict[Node, Data]
    ) -> None:
        self.index = index
        """How many items of the trace happened before it."""
        self.markers = markers
        """How many of them were markers."""
        self._model = model
        self._known = known
        self._names = names
        self._files = files
        self.parts: list[Part] = [names, *files.values()]
        self._seen: dict[PartLoss, frozenset[Node]] = {}

    @property
    def possible(self) -> int:
        """How many ways there are to keep and lose."""
        return math.prod(part.possible for part in self.parts)

    @property
    def kept(self) -> DiskLoss:
        """The loss of nothing."""
        return tuple(part.kept for part in self.parts)

    def losses(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield every loss once, by rank. Ranks above `Rank.MORE` lose something in several parts."""
        ranked: set[DiskLoss] = set()
        kept = self.kept
        for rank, loss in self._in_one_part():
            loss = self._without_unnamed(loss)
            if rank is Rank.MORE:  # each is distinct, except in a file without a name
                if loss != kept:
                    yield rank, loss
            elif loss not in ranked:
                ranked.add(loss)
                yield rank, loss
        for rank, loss in itertools.chain(self._one_kept(), self._several()):
            if loss not in ranked:
                yield rank, loss

    def is_complete(self) -> bool:
        """Whether `losses` covers all that is possible; known once it is exhausted."""
        return all(part.complete for part in self.parts)

    def lost(self, loss: DiskLoss) -> list[int]:
        """Return the items that are lost, in whole or in part."""
        return sorted({index for _, position in self._positions(loss) for index in position.lost})

    def torn(self, loss: DiskLoss) -> list[tuple[int, int, int]]:
        """Return the torn writes: the index, the page, and the number of bytes left there."""
        return [
            (position.lost[0], axis.number, position.loss[1])
            for axis, position in self._positions(loss)
            if position.loss[1]
        ]

    def losing(self, other: CrashPoint, loss: DiskLoss, moved: Callable[[int], int]) -> DiskLoss:
        """Return the loss here that loses what `loss` loses at another point, as far as it can be lost here.

        `moved` maps an item of the other point's trace to its index in the trace of this one.
        """
        names, *files = loss
        gone = {moved(index) for _, position in other._names.positions(names) for index in position.lost}
        names_lost = [
            max(number for number, position in enumerate(axis.positions) if gone.issuperset(position.lost))
            for axis in self._names.axes
        ]
        torn = {
            (node, axis.kind, axis.number): Position(tuple(map(moved, position.lost)), position.loss)
            for (node, part), file_loss in zip(other._files.items(), files, strict=True)
            for axis, position in part.positions(file_loss)
        }
        return (
            tuple(names_lost),
            *(
                tuple(_nearest(axis, torn.get((node, axis.kind, axis.number), Position())) for axis in part.axes)
                for node, part in self._files.items()
            ),
        )

    def tree(self, loss: DiskLoss) -> Tree:
        """Return what the disk holds after this loss."""
        names, *files = loss
        tree = Tree()
        tree.kinds, tree.targets = self._known.kinds, self._known.targets
        tree.entries = self._names.entries(names)
        tree.data = dict(self._known.data)
        for (node, part), file_loss in zip(self._files.items(), files, strict=True):
            tree.data[node] = part.content(file_loss, flushed=self._flushed(node, names))
        return tree

    def _positions(self, loss: DiskLoss) -> Iterator[tuple[LossAxis, Position]]:
        for part, part_loss in zip(self.parts, loss, strict=True):
            yield from part.positions(part_loss)

    def _in_one_part(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield the losses in which at most one part is neither all kept nor all lost; some are repeated."""
        kept, gone = self.kept, tuple(part.gone for part in self.parts)
        yield Rank.KEPT, kept
        yield Rank.GONE, gone
        for number, part in enumerate(self.parts):
            yield Rank.ONE_LOST, _replaced(kept, number, part.gone)
        losses = [part.losses() for part in self.parts]
        pending = [next(ranked, None) for ranked in losses]
        for rank in Rank:
            rest = gone if rank is Rank.ONE_KEPT else kept
            for number, (part, ranked) in enumerate(zip(self.parts, losses, strict=True)):
                if rank is Rank.ONE_KEPT:
                    yield rank, _replaced(gone, number, part.kept)
                while (first := pending[number]) is not None and first[0] is rank:
                    yield rank, _replaced(rest, number, first[1])
                    pending[number] = next(ranked, None)

    def _one_kept(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield the losses in which one part kept one thing only, and the others everything."""
        kept, linked = self.kept, self._linked(self._names.kept)
        named = [number for number, node in enumerate(self._files, 1) if node in linked]
        for number in (*named, 0):
            losses = self.parts[number].losses()
            for rank, loss in itertools.takewhile(lambda ranked: ranked[0] < Rank.ONE_TORN, losses):
                if rank is Rank.ONE_KEPT:
                    yield Rank.MORE + 1, _replaced(kept, number, loss)

    def _several(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield the losses in which two or more parts lost something; of the files, only those that have a name."""
        files = list(self._files.values())
        for count in range(2, len(self.parts) + 1):
            for number, (_, names_loss) in enumerate(self._names.losses()):
                linked = self._linked(names_loss)
                named = [file for file, node in enumerate(self._files) if node in linked]
                # The first loss of a part loses nothing.
                for picked in itertools.combinations(named, count - bool(number)):
                    for losses in _all_lost([files[file] for file in picked]):
                        disk_loss = [names_loss, *self.kept[1:]]
                        for file, loss in zip(picked, losses, strict=True):
                            disk_loss[file + 1] = loss
                        yield Rank.MORE + count, tuple(disk_loss)

    def _without_unnamed(self, loss: DiskLoss) -> DiskLoss:
        """Return the loss with files that have no name kept: what they hold makes no difference."""
        seen = self._linked(loss[0])
        return (
            loss[0],
            *(
                file_loss if node in seen else part.kept
                for (node, part), file_loss in zip(self._files.items(), loss[1:], strict=True)
            ),
        )

    def _linked(self, loss: PartLoss) -> frozenset[Node]:
        """Return the nodes that have a name."""
        if loss not in self._seen:
            self._seen[loss] = frozenset(self._names.entries(loss).values())
        return self._seen[loss]

    def _flushed(self, node: Node, loss: PartLoss) -> int:
        """Return the last kept rename over another file, which on ext4 flushed this file's data, or -1."""
        renames = self._known.replacing.get(node)
        if self._model != "ext4" or not renames:
            return -1
        lost = self._names.lost_indexes(loss)
        return max((index for index in renames if index < self.index and index not in lost), default=-1)


def combinations(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every combination of positions on axes of these sizes but all 0, those with few above 0 first."""
    movable = [axis for axis, size in enumerate(sizes) if size > 1]
    for count in range(1, len(movable) + 1):
        for picked in itertools.combinations(movable, count):
            for positions in itertools.product(*(range(1, sizes[axis]) for axis in picked)):
                loss = [0] * len(sizes)
                for axis, position in zip(picked, positions, strict=True):
                    loss[axis] = position
                yield tuple(loss)


def _all_lost(parts: Sequence[Part]) -> Iterator[tuple[PartLoss, ...]]:
    """Yield every way in which each of these parts lost something. There may be more than fit in memory."""
    if not parts:
        yield ()
        return
    for _, loss in itertools.islice(parts[0].losses(), 1, None):
        for others in _all_lost(parts[1:]):
            yield (loss, *others)


def _nearest(axis: LossAxis, wanted: Position) -> int:
    """Return the position that loses exactly `wanted`, or else as much of it as possible and nothing else."""
    if wanted in axis.positions:
        return axis.positions.index(wanted)
    return max(number for number, position in enumerate(axis.positions) if set(position.lost) <= set(wanted.lost))


def _replaced(items: tuple[T, ...], number: int, item: T) -> tuple[T, ...]:
    return (*items[:number], item, *items[number + 1 :])
