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
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.disk.changes import KeptJournal, UnitLoss
from pytest_wfstate.faults.trace.ops import Kind, Layout, Node, Tree

if TYPE_CHECKING:
    from pytest_wfstate.faults.disk.parts import FilePart, Names

T = TypeVar("T")
PartLoss = tuple[tuple[int, int], ...]
"""The axes of a part that are not at 0, in order, each with its position: a large file has thousands that are."""
KEPT: PartLoss = ()
"""The loss of nothing."""
DiskLoss = tuple[PartLoss, ...]
"""A loss for each part of a crash point."""

_MOST_COMPARED = 4096  # losses of a part compared with each other: their outcomes are kept in memory


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
    loss: UnitLoss = (0, 0)
    """What is lost of a page or sector, on the axis of one."""


@dataclasses.dataclass(frozen=True, slots=True)
class LossAxis:
    """One thing that may be lost. At the first position nothing is."""

    kind: Literal["names", "size", "page", "sector", "write"]
    number: int  # of the page, the sector, or the change of names
    positions: tuple[Position, ...]
    possible: int
    """How many ways to lose it there are; several may share a position."""


class SingleLoss(NamedTuple):
    """What a crash can do to one item of the trace, in one part."""

    item: int
    rank: Rank
    how: str
    make: Callable[[], PartLoss]
    """Returns the loss; it may be long."""


class Part:
    """The names, or one file: its axes, and the distinct losses among the first `most`."""

    def __init__(self, axes: Sequence[LossAxis], most: float) -> None:
        self.axes = axes
        self.complete = True
        """Whether every way was tried; known once all losses were."""
        self._most = most
        self._compared = min(_MOST_COMPARED, most)
        self._has_more = False
        self._found: list[tuple[Rank, PartLoss]] = []
        self._looking = self._look()

    @functools.cached_property
    def gone(self) -> PartLoss:
        """The loss of everything."""
        lasts = ((axis, self.last(axis)) for axis in range(len(self.axes)))
        return tuple((axis, last) for axis, last in lasts if last)

    def last(self, axis: int) -> int:
        """Return the last position of an axis, where all of it is lost."""
        return len(self.axes[axis].positions) - 1

    @property
    def possible(self) -> int:
        """How many ways to lose there are."""
        return math.prod(axis.possible for axis in self.axes)

    def losses(self) -> Iterator[tuple[Rank, PartLoss]]:
        """Yield the distinct losses by rank. The first loses nothing.

        Late ones, and those of large files, are not compared with the others, and may be equivalent to one of them.
        """
        if len(self.axes) > _MOST_COMPARED:
            yield from self._rest(0)
            return
        number = 0
        while number < len(self._found) or self._find():
            yield self._found[number]
            number += 1
        if self._has_more:
            yield from self._rest(self._compared)

    def outcome(self, loss: PartLoss) -> Hashable:
        """Return a key that is equal for equivalent losses."""
        raise NotImplementedError

    def positions(self, loss: PartLoss) -> Iterator[tuple[LossAxis, Position]]:
        """Yield the axes that are not at 0, with their positions."""
        for axis, number in self.moved(loss):
            yield axis, axis.positions[number]

    def moved(self, loss: PartLoss) -> Iterator[tuple[LossAxis, int]]:
        """Yield the axes that are not at 0, with the numbers of their positions."""
        for axis, number in loss:
            yield self.axes[axis], number

    def lost(self, loss: PartLoss) -> set[int]:
        """Return the items that are lost, in whole or in part."""
        return {index for _, position in self.positions(loss) for index in position.lost}

    def single_losses(self) -> Iterator[SingleLoss]:
        """Yield what a crash can do to each item, the last one first."""
        for axis in reversed(range(len(self.axes))):
            for number, position in enumerate(self.axes[axis].positions[1:], 1):
                yield SingleLoss(position.lost[0], Rank.ONE_LOST, "lost", functools.partial(one, axis, number))

    def lost_writes(self) -> Iterator[PartLoss]:
        """Yield the losses of one write each, where a write is more than one thing to lose."""
        return iter(())

    def torn_writes(self) -> Iterator[PartLoss]:
        """Yield the losses of one torn write each."""
        for axis, lost in enumerate(self.axes):
            for number, position in enumerate(lost.positions):
                if position.loss[1]:
                    yield ((axis, number),)

    def _all_but(self, axes: Container[int]) -> PartLoss:
        """Return the loss of everything but what some axes stand for."""
        return tuple((axis, position) for axis, position in self.gone if axis not in axes)

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

    def _rest(self, first: float) -> Iterator[tuple[Rank, PartLoss]]:
        for number, ranked in enumerate(self._in_order()):
            if number >= self._most:
                self.complete = False
                return
            if number >= first:
                yield ranked

    def _in_order(self) -> Iterator[tuple[Rank, PartLoss]]:
        """Yield every loss once."""
        ranked: set[int] = set()  # hashes, as some are long
        for rank, losses in (
            (Rank.KEPT, iter([KEPT])),
            (Rank.GONE, (self.gone for _ in range(1))),
            (Rank.ONE_LOST, itertools.chain(self.lost_writes(), self._one_lost())),
            (Rank.ONE_KEPT, self._one_kept()),
            (Rank.ONE_TORN, self.torn_writes()),
            (Rank.MORE, self._combinations()),
        ):
            for loss in losses:
                key = hash(loss)
                if key not in ranked:
                    if rank is not Rank.MORE:
                        ranked.add(key)
                    yield rank, loss

    def _one_lost(self) -> Iterator[PartLoss]:
        for axis in range(len(self.axes)):
            for number, position in enumerate(self.axes[axis].positions[1:], 1):
                if not position.loss[1]:
                    yield ((axis, number),)

    def _one_kept(self) -> Iterator[PartLoss]:
        gone = self.gone
        for kept in range(len(gone)):
            yield (*gone[:kept], *gone[kept + 1 :])

    def _combinations(self) -> Iterator[PartLoss]:
        """Yield every combination of positions, those with few above 0 first."""
        movable = [(axis, last) for axis in range(len(self.axes)) if (last := self.last(axis))]
        for count in range(1, len(movable) + 1):
            for picked in itertools.combinations(movable, count):
                for positions in itertools.product(*(range(1, last + 1) for _, last in picked)):
                    yield tuple((axis, position) for (axis, _), position in zip(picked, positions, strict=True))


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
        self,
        index: int,
        markers: int,
        model: Model,
        known: KnownNodes,
        names: Names,
        files: dict[Node, FilePart],
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

    @functools.cached_property
    def size(self) -> int:
        """How many bytes the files hold, if nothing is lost."""
        unsynced = sum(part.file.size(part.file.sizes) for part in self._files.values())
        return unsynced + sum(len(data) for node, data in self._known.data.items() if node not in self._files)

    @property
    def kept(self) -> DiskLoss:
        """The loss of nothing."""
        return (KEPT,) * len(self.parts)

    def losses(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield every loss once, by rank. Ranks above `Rank.MORE` lose something in several parts."""
        ranked: set[int] = set()  # hashes, as some are long
        kept = self.kept
        for rank, loss in self._in_one_part():
            loss = self._without_unnamed(loss)
            if rank is Rank.MORE:  # each is distinct, except in a file without a name
                if loss != kept:
                    yield rank, loss
            elif (key := hash(loss)) not in ranked:
                ranked.add(key)
                yield rank, loss
        for rank, loss in itertools.chain(self._one_kept(), self._several()):
            if hash(loss) not in ranked:
                yield rank, loss

    def loss_of(self, number: int, single: SingleLoss) -> DiskLoss:
        """Return a single loss of one part as a loss of the disk; what is kept alone is all that is kept."""
        rest = tuple(part.gone for part in self.parts) if single.rank is Rank.ONE_KEPT else self.kept
        return self._without_unnamed(_replaced(rest, number, single.make()))

    @property
    def gone(self) -> DiskLoss:
        """The loss of everything that can be lost."""
        return self._without_unnamed(tuple(part.gone for part in self.parts))

    def is_complete(self) -> bool:
        """Whether `losses` covers all that is possible; known once it is exhausted."""
        return all(part.complete for part in self.parts)

    def lost(self, loss: DiskLoss) -> list[int]:
        """Return the items that are lost, in whole or in part."""
        return sorted(
            set[int]().union(*(part.lost(part_loss) for part, part_loss in zip(self.parts, loss, strict=True)))
        )

    def torn(self, loss: DiskLoss) -> list[tuple[int, int, int]]:
        """Return the torn ops: the index, and where the bytes that a write missed, or a cut zeroed, start and end."""
        return [
            torn
            for (node, part), file_loss in zip(self._files.items(), loss[1:], strict=True)
            for torn in part.torn(file_loss, self._journal(node, loss[0]))
        ]

    def losing(self, other: CrashPoint, loss: DiskLoss, moved: Callable[[int], int]) -> DiskLoss:
        """Return the loss here that loses what `loss` loses at another point, as far as it can be lost here.

        `moved` maps an item of the other point's trace to its index in the trace of this one.
        """
        names, *files = loss
        gone = {moved(index) for _, position in other._names.positions(names) for index in position.lost}
        lost: dict[Node, list[tuple[LossAxis, Position]]] = {
            node: list(part.positions(file_loss))
            for (node, part), file_loss in zip(other._files.items(), files, strict=True)
        }
        return (
            self._names.losing(gone),
            *(
                part.nearest((axis, Position(tuple(map(moved, at.lost)), at.loss)) for axis, at in lost.get(node, ()))
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
            tree.data[node] = part.content(file_loss, self._journal(node, names))
        return tree

    def layout(self, loss: DiskLoss) -> Layout:
        """Return every path with its node, a folder before what is in it, sorted."""
        return self._names.layout(loss[0], self._known.kinds)

    def held(self, loss: DiskLoss) -> list[tuple[str, Kind, object]]:
        """Return every path, what is there, and the target of a symlink or a hash of a file's content.

        The hash has 64 bits. Python keeps that of a `bytes` object with it.
        """
        names, *files = loss
        hashes = {
            node: part.content_hash(file_loss, self._journal(node, names))
            for (node, part), file_loss in zip(self._files.items(), files, strict=True)
        }
        known = self._known
        held: list[tuple[str, Kind, object]] = []
        for path, node in self.layout(loss):
            kind = known.kinds[node]
            content = hashes[node] if node in hashes else hash(known.data[node]) if kind == "file" else None
            held.append((path, kind, known.targets.get(node, content)))
        return held

    def key(self, loss: DiskLoss) -> bytes:
        """Return a key that is equal for equal disks: contents would fill the memory."""
        first: dict[Node, int] = {}  # path of a node: two names of one file are not two files
        links = [first.setdefault(node, number) for number, (_, node) in enumerate(self.layout(loss))]
        return hashlib.blake2b(repr((self.held(loss), links)).encode(), digest_size=16).digest()

    def _in_one_part(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield the losses in which at most one part is neither all kept nor all lost; some are repeated."""
        kept = self.kept
        yield Rank.KEPT, kept
        gone = tuple(part.gone for part in self.parts)
        yield Rank.GONE, gone
        for number, part in enumerate(self.parts):
            yield Rank.ONE_LOST, _replaced(kept, number, part.gone)
        losses = [part.losses() for part in self.parts]
        pending = [next(ranked, None) for ranked in losses]
        for rank in Rank:
            rest = gone if rank is Rank.ONE_KEPT else kept
            for number, ranked in enumerate(losses):
                if rank is Rank.ONE_KEPT:
                    yield rank, _replaced(gone, number, KEPT)
                while (first := pending[number]) is not None and first[0] is rank:
                    yield rank, _replaced(rest, number, first[1])
                    pending[number] = next(ranked, None)

    def _one_kept(self) -> Iterator[tuple[int, DiskLoss]]:
        """Yield the losses in which one part kept one thing only, and the others everything."""
        kept, linked = self.kept, self._linked(KEPT)
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
            *(file_loss if node in seen else KEPT for node, file_loss in zip(self._files, loss[1:], strict=True)),
        )

    def _linked(self, loss: PartLoss) -> frozenset[Node]:
        """Return the nodes that have a name."""
        if loss not in self._seen:
            self._seen[loss] = frozenset(self._names.entries(loss).values())
        return self._seen[loss]

    def _journal(self, node: Node, loss: PartLoss) -> KeptJournal:
        """Return what the kept names imply for a file. On ext4, a rename over another file flushed its data."""
        lost_from = self._names.lost_from(loss)
        renames = self._known.replacing.get(node, set()) if self._model == "ext4" else set()
        flushed = max((index for index in renames if index < min(self.index, lost_from)), default=-1)
        return KeptJournal(lost_from, flushed)


def one(axis: int, position: int) -> PartLoss:
    """Return the loss of one thing."""
    return ((axis, position),)


def _all_lost(parts: Sequence[Part]) -> Iterator[tuple[PartLoss, ...]]:
    """Yield every way in which each of these parts lost something. There may be more than fit in memory."""
    if not parts:
        yield ()
        return
    for _, loss in itertools.islice(parts[0].losses(), 1, None):
        for others in _all_lost(parts[1:]):
            yield (loss, *others)


def _replaced(items: tuple[T, ...], number: int, item: T) -> tuple[T, ...]:
    return (*items[:number], item, *items[number + 1 :])
