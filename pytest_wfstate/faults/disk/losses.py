"""A cut: one point of a run, and all the disks that a crash there can leave.

What was not on the disk at that point is given as *dials*. The positions of a dial tell how much of one thing is lost:
at 0 all of it was kept. The dials of one file make up a part, and so do those of all names; a choice sets all dials of
all parts. What comes to the same is given once, as far as that can be told part by part.
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
from pytest_wfstate.faults.disk.unsynced import Entry, Loss, NameChange, UnsyncedFile, at_least, cut_short, without_data
from pytest_wfstate.faults.trace.ops import HOME, PAGE, Kind, Node, Tree

T = TypeVar("T")
PartLoss = tuple[int, ...]
"""A position for each dial of a part."""
DiskLoss = tuple[PartLoss, ...]
"""A setting for each part of a cut."""

_MOST_COMPARED = 4096  # of them, to leave out those that come to the same: all that were seen are kept in memory
_MOST_BYTES = 2**28  # that the settings of one part may come to, to be compared


class Rank(enum.IntEnum):
    """How telling a loss is: the lower, the sooner it is tried."""

    KEPT = 0
    GONE = 1
    ONE_LOST = 2
    ONE_KEPT = 3
    ONE_TORN = 4
    MORE = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """One position of a dial: what is lost there."""

    lost: tuple[int, ...] = ()
    """The items of the trace that are lost, in whole or in part."""
    loss: Loss = (0, 0)
    """Of a page, what is lost of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class LossAxis:
    """One thing that may be lost. At its first position all of it was kept."""

    kind: Literal["names", "size", "page", "write"]
    number: int  # of the page, or of the change of names
    positions: tuple[Position, ...]
    possible: int
    """How many ways to lose there are; some may come to the same position."""


class Part:
    """The names, or one file: dials, and the settings of them that differ, of the first `most`."""

    def __init__(self, axes: Sequence[LossAxis], most: float) -> None:
        self.axes = axes
        self.kept: PartLoss = (0,) * len(axes)
        self.gone: PartLoss = tuple(len(axis.positions) - 1 for axis in axes)
        self.possible = math.prod(axis.possible for axis in axes)
        """How many ways to lose there are."""
        self.complete = True
        """Whether every way was looked at; known when all settings were."""
        self._most = most
        self._compared = min(_MOST_COMPARED, most)
        self._has_more = False
        self._found: list[tuple[Rank, PartLoss]] = []
        self._looking = self._look()

    def settings(self) -> Iterator[tuple[Rank, PartLoss]]:
        """Give the settings that come to different things, the most telling first. All kept is the first.

        Late ones are not compared any more, and may come to the same.
        """
        number = 0
        while number < len(self._found) or self._find():
            yield self._found[number]
            number += 1
        if self._has_more:
            yield from self._rest()

    def outcome(self, setting: PartLoss) -> Hashable:
        """Tell what a setting comes to."""
        raise NotImplementedError

    def at(self, setting: PartLoss) -> Iterator[tuple[LossAxis, Position]]:
        """Give the dials that are not at 0, and where they are."""
        for axis, position in zip(self.axes, setting, strict=True):
            if position:
                yield axis, axis.positions[position]

    def _find(self) -> bool:
        found = next(self._looking, None)
        if found is not None:
            self._found.append(found)
        return found is not None

    def _look(self) -> Iterator[tuple[Rank, PartLoss]]:
        seen: set[Hashable] = set()
        for number, (rank, setting) in enumerate(self._in_order()):
            if number == self._compared:
                self._has_more = True
                return
            outcome = self.outcome(setting)
            if outcome not in seen:
                seen.add(outcome)
                yield rank, setting

    def _rest(self) -> Iterator[tuple[Rank, PartLoss]]:
        for number, found in enumerate(self._in_order()):
            if number >= self._most:
                self.complete = False
                return
            if number >= self._compared:
                yield found

    def _in_order(self) -> Iterator[tuple[Rank, PartLoss]]:
        """Give every setting once."""
        telling: dict[PartLoss, Rank] = {}
        sizes = [len(axis.positions) for axis in self.axes]
        singles = [(number, at) for number, size in enumerate(sizes) for at in range(1, size)]
        whole = [one for one in singles if not self._is_tear(*one)]
        for rank, settings in (
            (Rank.KEPT, [self.kept]),
            (Rank.GONE, [self.gone]),
            (Rank.ONE_LOST, [_turn(self.kept, *one) for one in whole]),
            (Rank.ONE_KEPT, [_turn(self.gone, number, 0) for number in range(len(sizes))]),
            (Rank.ONE_TORN, [_turn(self.kept, *one) for one in singles if one not in whole]),
        ):
            for setting in settings:
                if setting not in telling:
                    telling[setting] = rank
                    yield rank, setting
        for setting in turned(sizes):
            if setting not in telling:
                yield Rank.MORE, setting

    def _is_tear(self, number: int, position: int) -> bool:
        return self.axes[number].positions[position].loss[1] > 0


class Names(Part):
    """All names of a tree: those that are on the disk, and the changes to them that are not yet."""

    def __init__(
        self,
        entries: dict[Entry, Node],
        volatile: Sequence[NameChange],
        model: Model,
        axes: Sequence[LossAxis],
        most: float,
    ) -> None:
        super().__init__(axes, most)
        self._entries = entries
        self._volatile = volatile
        self._model = model
        self._touched = sorted({entry for change in volatile for entry in change.touched()})

    def outcome(self, setting: PartLoss) -> Hashable:
        """Tell which nodes the names stand for that may change."""
        changed = {entry: self._entries.get(entry, HOME) for entry in self._touched}
        for change in self.kept_changes(setting):
            change.apply(changed)
        return tuple(changed.get(entry, HOME) for entry in self._touched)

    def entries(self, setting: PartLoss) -> dict[Entry, Node]:
        """Give the names, with what each stands for."""
        entries = dict(self._entries)
        for change in self.kept_changes(setting):
            change.apply(entries)
        return entries

    def kept_changes(self, setting: PartLoss) -> Sequence[NameChange]:
        """Give the changes that are not lost: under posix any of them, elsewhere a prefix."""
        if self._model != "posix":
            return self._volatile[: len(self._volatile) - setting[0]] if setting else self._volatile
        lost = {axis.number for axis, position in zip(self.axes, setting, strict=True) if position}
        gone: set[int] = set()
        kept: list[NameChange] = []
        for number, change in enumerate(self._volatile):
            if number in lost or (change.second_half and change.index in gone):
                gone.add(change.index)
            else:
                kept.append(change)
        return kept

    def lost_indexes(self, setting: PartLoss) -> set[int]:
        """Give the changes that are lost, by the item that made them."""
        return {change.index for change in self._volatile} - {change.index for change in self.kept_changes(setting)}


class Data(Part):
    """The content of one file: what is on the disk, and what may get there."""

    def __init__(self, file: UnsyncedFile, model: Model, axes: Sequence[LossAxis], most: float) -> None:
        super().__init__(axes, most)
        self._file = file
        self._model = model
        self._compared = min(self._compared, max(len(axes), _MOST_BYTES // (file.size + 1)))

    def outcome(self, setting: PartLoss) -> Hashable:
        """Give a word for what the file holds: all that it may hold would fill the memory."""
        if self._model == "kill":
            return setting
        if any(size.truncates for size in self._file.sizes):  # then pages hold what truncates left of them
            return hashlib.blake2b(self.content(setting, flushed=-1), digest_size=16).digest()
        # The positions of a page differ in what it holds, and show if it lies below the size.
        sizes_lost, pages = self._lost(setting, flushed=-1)
        size = self._file.size_without(sizes_lost)
        return size, frozenset((page, loss) for page, loss in pages.items() if page * PAGE < size)

    def content(self, setting: PartLoss, *, flushed: int) -> bytes:
        """Give what the file holds if all that was written before item `flushed` is on the disk."""
        if setting == self.kept:
            return self._whole
        if self._model == "kill":
            return cut_short(self._file, setting[0])
        return self._file.content(*self._lost(setting, flushed))

    @functools.cached_property
    def _whole(self) -> bytes:
        return self._file.content()

    def _lost(self, setting: PartLoss, flushed: int) -> tuple[int, dict[int, Loss]]:
        """Tell how many changes of the size are lost, and what of each page."""
        file = self._file
        sizes_lost = setting[0] if self.axes[0].kind == "size" else 0
        pages = {axis.number: position.loss for axis, position in self.at(setting) if axis.kind == "page"}
        if flushed >= 0:
            pages = {page: at_least(file.pieces[page], flushed, loss) for page, loss in pages.items()}
            sizes_lost = min(sizes_lost, sum(size.index > flushed for size in file.sizes))
        if self._model != "posix":
            sizes_lost = max(sizes_lost, without_data(file, pages))
        return sizes_lost, pages


@dataclasses.dataclass(frozen=True, slots=True)
class KnownNodes:
    """What a cut knows of its nodes, whatever is lost."""

    kinds: dict[Node, Kind]
    targets: dict[Node, str]
    data: dict[Node, bytes]
    """The content of files that nothing can be lost of."""
    replacing: dict[Node, set[int]]
    """For each file, the renames that put it in the place of another."""


class CrashPoint:
    """A point of a run, and all that a crash there can leave."""

    def __init__(
        self, index: int, markers: int, model: Model, known: KnownNodes, names: Names, files: dict[Node, Data]
    ) -> None:
        self.index = index
        """How many items of the trace were done."""
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
        """The choice that loses nothing."""
        return tuple(part.kept for part in self.parts)

    def can_lose(self, index: int) -> bool:
        """Tell whether an item of the trace can be lost here."""
        axes = [axis for part in self.parts for axis in part.axes]
        return any(index in position.lost for axis in axes for position in axis.positions)

    def choices(self) -> Iterator[tuple[int, DiskLoss]]:
        """Give every choice once, with its class, the most telling first. Classes from `Rank.MORE` on are the rest."""
        telling: set[DiskLoss] = set()
        kept = self.kept
        for rank, choice in self._telling():
            choice = self._without_unnamed(choice)
            if rank is Rank.MORE:  # in one part, and each once: unless it is a file without a name
                if choice != kept:
                    yield rank, choice
            elif choice not in telling:
                telling.add(choice)
                yield rank, choice
        for rank, choice in itertools.chain(self._one_kept(), self._several()):
            if choice not in telling:
                yield rank, choice

    def is_complete(self) -> bool:
        """Tell whether all choices together are all that is possible; known when they were all given."""
        return all(part.complete for part in self.parts)

    def lost(self, choice: DiskLoss) -> list[int]:
        """Give the items that are lost, in whole or in part."""
        return sorted({index for _, position in self._at(choice) for index in position.lost})

    def torn(self, choice: DiskLoss) -> list[tuple[int, int, int]]:
        """Give the lost items that were torn: the index, the page, and the bytes that are left there."""
        return [(at.lost[0], axis.number, at.loss[1]) for axis, at in self._at(choice) if at.loss[1]]

    def losing(self, other: CrashPoint, choice: DiskLoss, moved: Callable[[int], int]) -> DiskLoss:
        """Give the choice that loses here what `choice` loses at another cut, as far as it can be lost here.

        `moved` tells where an item of the other cut's trace is in the trace of this one.
        """
        names, *files = choice
        gone = {moved(index) for _, at in other._names.at(names) for index in at.lost}
        turned = [
            max(at for at, one in enumerate(axis.positions) if gone.issuperset(one.lost)) for axis in self._names.axes
        ]
        torn = {
            (node, axis.kind, axis.number): Position(tuple(map(moved, at.lost)), at.loss)
            for (node, part), setting in zip(other._files.items(), files, strict=True)
            for axis, at in part.at(setting)
        }
        return (
            tuple(turned),
            *(
                tuple(_nearest(axis, torn.get((node, axis.kind, axis.number), Position())) for axis in part.axes)
                for node, part in self._files.items()
            ),
        )

    def tree(self, choice: DiskLoss) -> Tree:
        """Give what the disk holds after this choice."""
        names, *files = choice
        tree = Tree()
        tree.kinds, tree.targets = self._known.kinds, self._known.targets
        tree.entries = self._names.entries(names)
        tree.data = dict(self._known.data)
        for (node, part), setting in zip(self._files.items(), files, strict=True):
            tree.data[node] = part.content(setting, flushed=self._flushed(node, names))
        return tree

    def _at(self, choice: DiskLoss) -> Iterator[tuple[LossAxis, Position]]:
        for part, setting in zip(self.parts, choice, strict=True):
            yield from part.at(setting)

    def _telling(self) -> Iterator[tuple[int, DiskLoss]]:
        """Give the choices in which at most one part is neither all kept nor all lost; some come twice."""
        kept, gone = self.kept, tuple(part.gone for part in self.parts)
        yield Rank.KEPT, kept
        yield Rank.GONE, gone
        for number, part in enumerate(self.parts):
            yield Rank.ONE_LOST, _turn(kept, number, part.gone)
        looks = [part.settings() for part in self.parts]
        waiting = [next(look, None) for look in looks]
        for rank in Rank:
            rest = gone if rank is Rank.ONE_KEPT else kept
            for number, (part, look) in enumerate(zip(self.parts, looks, strict=True)):
                if rank is Rank.ONE_KEPT:
                    yield rank, _turn(gone, number, part.kept)
                while (found := waiting[number]) is not None and found[0] is rank:
                    yield rank, _turn(rest, number, found[1])
                    waiting[number] = next(look, None)

    def _one_kept(self) -> Iterator[tuple[int, DiskLoss]]:
        """Give the choices in which one part kept one thing only, and the others everything."""
        kept, linked = self.kept, self._linked(self._names.kept)
        named = [at for at, node in enumerate(self._files, 1) if node in linked]
        for at in (*named, 0):
            for rank, setting in itertools.takewhile(lambda found: found[0] < Rank.ONE_TORN, self.parts[at].settings()):
                if rank is Rank.ONE_KEPT:
                    yield Rank.MORE + 1, _turn(kept, at, setting)

    def _several(self) -> Iterator[tuple[int, DiskLoss]]:
        """Give the choices in which two parts or more lost something, of the files those that some name stands for."""
        files = list(self._files.values())
        for count in range(2, len(self.parts) + 1):
            for number, (_, setting) in enumerate(self._names.settings()):
                linked = self._linked(setting)
                named = [at for at, node in enumerate(self._files) if node in linked]
                # A part's first setting is that which loses nothing.
                for picked in itertools.combinations(named, count - bool(number)):
                    for settings in _all_lost([files[at] for at in picked]):
                        choice = [setting, *self.kept[1:]]
                        for at, lost in zip(picked, settings, strict=True):
                            choice[at + 1] = lost
                        yield Rank.MORE + count, tuple(choice)

    def _without_unnamed(self, choice: DiskLoss) -> DiskLoss:
        """Take files that no name stands for as kept: what becomes of them makes no difference."""
        seen = self._linked(choice[0])
        return (
            choice[0],
            *(
                setting if node in seen else part.kept
                for (node, part), setting in zip(self._files.items(), choice[1:], strict=True)
            ),
        )

    def _linked(self, setting: PartLoss) -> frozenset[Node]:
        """Give the nodes that some name stands for."""
        if setting not in self._seen:
            self._seen[setting] = frozenset(self._names.entries(setting).values())
        return self._seen[setting]

    def _flushed(self, node: Node, setting: PartLoss) -> int:
        """Tell up to where a kept rename over another file has brought this file's data along: ext4 does that."""
        renames = self._known.replacing.get(node)
        if self._model != "ext4" or not renames:
            return -1
        lost = self._names.lost_indexes(setting)
        return max((index for index in renames if index < self.index and index not in lost), default=-1)


def turned(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Give every way to set dials of these sizes with one or more of them not at 0, few of them first."""
    can_turn = [number for number, size in enumerate(sizes) if size > 1]
    for count in range(1, len(can_turn) + 1):
        for picked in itertools.combinations(can_turn, count):
            for where in itertools.product(*(range(1, sizes[number]) for number in picked)):
                setting = [0] * len(sizes)
                for number, position in zip(picked, where, strict=True):
                    setting[number] = position
                yield tuple(setting)


def _all_lost(parts: Sequence[Part]) -> Iterator[tuple[PartLoss, ...]]:
    """Give every way in which each of these has lost something. There may be more than fit in the memory."""
    if not parts:
        yield ()
        return
    for _, setting in itertools.islice(parts[0].settings(), 1, None):
        for others in _all_lost(parts[1:]):
            yield (setting, *others)


def _nearest(axis: LossAxis, wanted: Position) -> int:
    """Give the position of a dial at which just this is lost, or else as much as possible of it and nothing else."""
    if wanted in axis.positions:
        return axis.positions.index(wanted)
    return max(at for at, one in enumerate(axis.positions) if set(one.lost) <= set(wanted.lost))


def _turn(setting: tuple[T, ...], number: int, position: T) -> tuple[T, ...]:
    return (*setting[:number], position, *setting[number + 1 :])
