"""The rules of the disk models, once more: written as constraints, and tried against every combination there is.

It shares nothing with the models but the ops. Nothing is folded, cached or skipped: all ops of a run stay in its
history, every crash point is looked at from scratch, and what is durable is one more constraint.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.trace.ops import (
    PAGE,
    SECTOR,
    Allocate,
    Create,
    Fsync,
    Item,
    Link,
    Node,
    Rename,
    Sync,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
    replay,
)

Found = frozenset[tuple[str, object]]
"""What is at each path of a disk, and which paths share a file."""
_Flushes = dict[int, tuple[set[int], int]]


class TooMany(Exception):
    """There are too many combinations to try them all."""


def found(tree: Tree) -> Found:
    return frozenset({**tree.content(), **{f"{path} = ": first for path, first in tree.links().items()}}.items())


def disks(trace: Trace, model: Model, until: int, most: int) -> set[Found]:
    """Every disk that a crash after `until` items can leave."""
    if model == "kill":
        return set(_after_kill(trace, until))
    history = _History(trace.start, model)
    for index, item in enumerate(trace.items[:until]):
        history.take(index, item)
    return set(history.disks(most))


def _after_kill(trace: Trace, until: int) -> Iterator[Found]:
    yield found(replay(trace.start, trace.items[:until]))
    last = trace.items[until - 1] if until else None
    if isinstance(last, Write):
        before = replay(trace.start, trace.items[: until - 1])
        for end in range((last.offset // PAGE + 1) * PAGE, last.end, PAGE):
            cut = before.copy()
            cut.apply(dataclasses.replace(last, data=last.data[: end - last.offset]))
            yield found(cut)


@dataclasses.dataclass
class _Bytes:
    """The bytes that one op put into one unit."""

    index: int
    unit: int
    start: int
    data: bytes
    zeroes: bool = False
    durable: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclasses.dataclass
class _Size:
    index: int
    size: int
    before: int
    page: int | None  # whose bytes grew the file; None for a truncate or an allocation
    durable: bool = False
    without_data: bool = False  # made durable by the fsync of other pages
    clean: bool = False  # an fsync that failed was told of it

    @property
    def cuts(self) -> bool:
        return self.size < self.before


@dataclasses.dataclass
class _Name:
    """One change of names; in a journal, a change of size takes the place of one."""

    index: int
    folder: Node
    removed: tuple[tuple[Node, str], ...] = ()
    added: tuple[tuple[tuple[Node, str], Node], ...] = ()
    half: int = 0  # 1 and 2 are the halves of a move between folders
    durable: bool = False


class _File:
    def __init__(self, base: bytes, unit: int) -> None:
        self.base = base
        self.unit = unit
        self.size = len(base)
        self.bytes: list[_Bytes] = []
        self.sizes: list[_Size] = []
        self.dirty: set[int] = set()
        self.flushes: _Flushes = {}  # by a rename: the units, and how many changes of size

    def put(self, index: int, start: int, data: bytes, *, zeroes: bool = False) -> None:
        end = start + len(data)
        for unit in range(start // self.unit, (end - 1) // self.unit + 1):
            first, last = max(start, unit * self.unit), min(end, (unit + 1) * self.unit)
            self.bytes.append(_Bytes(index, unit, first, data[first - start : last - start], zeroes))
            self.dirty.add(unit)

    def write(self, index: int, op: Write) -> None:
        for page in range(op.offset // PAGE, (op.end - 1) // PAGE + 1):
            end = min(op.end, (page + 1) * PAGE)
            if end > self.size:
                self.sizes.append(_Size(index, end, self.size, page))
                self.size = end
        self.put(index, op.offset, op.data)

    def set_size(self, index: int, size: int) -> None:
        behind = min(self.size, (size + PAGE - 1) // PAGE * PAGE)
        if size < behind:
            self.put(index, size, bytes(behind - size), zeroes=True)
        self.dirty = {unit for unit in self.dirty if unit * self.unit < size}
        self.sizes.append(_Size(index, size, self.size, None))
        self.size = size

    def of(self, unit: int) -> list[_Bytes]:
        return [put for put in self.bytes if put.unit == unit]

    def spanned(self, span: tuple[int, int] | None) -> set[int]:
        return {
            unit
            for unit in self.dirty
            if span is None or (unit * self.unit < span[1] and span[0] < (unit + 1) * self.unit)
        }

    def fail(self, span: tuple[int, int] | None) -> None:
        self.dirty -= self.spanned(span)
        for size in self.sizes:
            size.clean = True

    def sync(self, op: Fsync, *, journal: bool) -> None:
        written = self.spanned(op.span)
        self.dirty -= written
        needed = self._sizes_to_read(written)
        for put in self.bytes:
            put.durable |= put.unit in written
        for size in self.sizes[:needed]:
            if not size.durable and size.page is not None and not self._followed(size):
                size.without_data = True
            size.durable = True
        if not journal and not (op.span and op.data_only):
            told = [number for number, size in enumerate(self.sizes) if size.page is None and not size.clean]
            for size in self.sizes[: told[-1] + 1 if told else 0]:
                size.durable = True
        if op.span is None:
            for size in self.sizes:
                size.clean = True

    def flush(self, index: int) -> None:
        """Apply a rename over another file."""
        self.flushes[index] = (set(self.dirty), self._sizes_to_read(self.dirty))

    def _sizes_to_read(self, units: set[int]) -> int:
        """How many changes of size it takes to read what is not durable in some units."""
        top = min(self.size, max((put.end for put in self.bytes if put.unit in units and not put.durable), default=0))
        return max((number for number, size in enumerate(self.sizes, 1) if size.before < top <= size.size), default=0)

    def _followed(self, size: _Size) -> bool:
        """Whether a durable truncate followed, which the journal keeps together with the data before it."""
        return any(later.page is None and later.durable and later.index > size.index for later in self.sizes)

    def content(self, kept: int, units: dict[int, list[_Bytes]]) -> bytes:
        """The content after the first `kept` changes of size, where each unit holds what reached it."""
        size = self.sizes[kept - 1].size if kept else len(self.base)
        events: list[_Bytes | _Size] = [put for left in units.values() for put in left if put.data]
        events += [cut for cut in self.sizes[:kept] if cut.cuts]
        events.sort(key=lambda event: (event.index, isinstance(event, _Size)))
        edges = {0, size, len(self.base)}
        for event in events:
            edges |= {event.size} if isinstance(event, _Size) else {event.start, event.end}
        parts = []
        for start, end in itertools.pairwise(sorted(edge for edge in edges if edge <= size)):
            part = self.base[start:end].ljust(end - start, b"\0")
            for event in events:
                if isinstance(event, _Size):
                    part = bytes(end - start) if event.size <= start else part
                elif event.start <= start and end <= event.end:
                    part = event.data[start - event.start : end - event.start]
            parts.append(part)
        return b"".join(parts)

    def states(self, journal_until: float | None, renames: list[int], most: int) -> Iterator[bytes]:
        """Every content. In a journal that is kept until an item, None: there is none."""
        flushes = {index: self.flushes[index] for index in renames if index in self.flushes}
        journal = journal_until is not None
        touched = sorted({put.unit for put in self.bytes})
        choices = [list(_prefixes(self.of(unit), tears=journal)) for unit in touched]
        for kept in range(len(self.sizes) + 1):
            if any(size.durable for size in self.sizes[kept:]):
                continue
            if journal_until is not None and not self._in_journal(kept, journal_until, flushes):
                continue
            allowed = [
                [left for left, whole in choice if not journal or self._is_journaled(kept, unit, left, whole, flushes)]
                for unit, choice in zip(touched, choices, strict=True)
            ]
            if math.prod(map(len, allowed)) > most:
                raise TooMany
            for combination in itertools.product(*allowed):
                yield self.content(kept, dict(zip(touched, combination, strict=True)))

    def _in_journal(self, kept: int, until: float, flushes: _Flushes) -> bool:
        return all(needed <= kept for _, needed in flushes.values()) and all(
            (number < kept) == (size.index < until) for number, size in enumerate(self.sizes) if size.page is None
        )

    def _is_journaled(self, kept: int, unit: int, left: list[_Bytes], whole: int, flushes: _Flushes) -> bool:
        """Whether a page may hold `left`, of which the first `whole` are not torn."""
        puts = self.of(unit)
        without_data = max((needed for _, needed in flushes.values()), default=0)
        for number, put in enumerate(puts):
            is_whole = number < whole
            if not is_whole and any(put.index <= index and unit in units for index, (units, _) in flushes.items()):
                return False
            for count, size in enumerate(self.sizes):
                is_cut = any(later.page is None and later.index > size.index for later in self.sizes[:kept])
                is_needed = not size.without_data and (is_cut or count >= without_data)
                grew = size.index == put.index and size.page == unit and is_needed
                zeroed = put.zeroes and size.index == put.index
                if count < kept and (grew or zeroed) and not is_whole:
                    return False
                freed = size.cuts and size.index < put.index and unit * PAGE >= size.size
                if count >= kept and freed and number < len(left):
                    return False
        return True


def _prefixes(puts: Sequence[_Bytes], *, tears: bool) -> Iterator[tuple[list[_Bytes], int]]:
    """What a unit can hold, and how much of it is not torn."""
    durable = max((number for number, put in enumerate(puts, 1) if put.durable), default=0)
    for count in range(durable, len(puts) + 1):
        yield list(puts[:count]), count
        if tears and count < len(puts):
            put = puts[count]
            for edge in range((put.start // SECTOR + 1) * SECTOR, put.end, SECTOR):
                front = dataclasses.replace(put, data=put.data[: edge - put.start])
                back = dataclasses.replace(put, start=edge, data=put.data[edge - put.start :])
                yield [*puts[:count], front], count
                yield [*puts[:count], back], count


class _History:
    """All that happened before a crash."""

    def __init__(self, start: Tree, model: Model) -> None:
        self.start = start
        self.end = start.copy()
        self.model = model
        self.journal = model != "posix"
        self.names: list[_Name] = []
        self.files: dict[Node, _File] = {}
        self.changed: dict[Node, int] = {}
        self.sized: dict[Node, int] = {}
        self.failed: dict[Node, int] = {}
        self.replacing: dict[Node, list[int]] = {}

    def file(self, node: Node) -> _File:
        if node not in self.files:
            self.files[node] = _File(self.start.data.get(node, b""), PAGE if self.journal else SECTOR)
        return self.files[node]

    def take(self, index: int, item: Item) -> None:
        match item:
            case Create() | Link():
                self.names.append(_Name(index, item.folder, (), (((item.folder, item.name), item.node),)))
                self.changed |= {item.folder: index, item.node: index}
                if isinstance(item, Create):
                    self.sized[item.node] = index
            case Unlink():
                self.names.append(_Name(index, item.folder, ((item.folder, item.name),)))
                self.changed |= {item.folder: index, item.node: index}
            case Rename():
                self.rename(index, item)
            case Write():
                file = self.file(item.node)
                self.changed[item.node] = index
                if item.end > file.size:
                    self.sized[item.node] = index
                file.write(index, item)
            case Truncate() | Allocate():
                file = self.file(item.node)
                self.changed[item.node] = index
                size = max(item.size, file.size) if isinstance(item, Allocate) else item.size
                if size != file.size:
                    self.sized[item.node] = index
                    file.set_size(index, size)
                    if self.journal:
                        self.names.append(_Name(index, item.node))
            case Fsync():
                self.fsync(index, item)
            case Sync():
                self.commit(float("inf"))
                for name in self.names:
                    name.durable = True
                for node, file in self.files.items():
                    file.sync(Fsync(node), journal=self.journal)
        self.end.apply(item)

    def rename(self, index: int, op: Rename) -> None:
        old, new = (op.folder, op.name), (op.new_folder, op.new_name)
        if self.journal or op.folder == op.new_folder:
            self.names.append(_Name(index, op.folder, (old,), ((new, op.node),)))
        else:
            self.names.append(_Name(index, op.new_folder, (), ((new, op.node),), half=1))
            self.names.append(_Name(index, op.folder, (old,), half=2))
        self.changed |= {op.folder: index, op.new_folder: index, op.node: index}
        if op.replaced is not None and self.model == "ext4":
            self.replacing.setdefault(op.node, []).append(index)
            self.file(op.node).flush(index)

    def fsync(self, index: int, op: Fsync) -> None:
        is_folder = self.end.kinds.get(op.node) == "folder"
        if op.failed and is_folder:
            self.failed[op.node] = index
        elif op.failed:
            self.file(op.node).fail(op.span)
        elif is_folder and self.failed.get(op.node, -1) >= self.changed.get(op.node, -1) and op.node in self.failed:
            pass
        else:
            if self.journal:
                self.commit((self.sized if op.data_only and not is_folder else self.changed).get(op.node, -1))
            for name in self.names:
                name.durable |= not self.journal and name.folder == op.node
            if not is_folder:
                self.file(op.node).sync(op, journal=self.journal)

    def commit(self, until: float) -> None:
        """The journal is durable until an item."""
        for name in self.names:
            name.durable |= name.index <= until
        for file in self.files.values():
            for size in file.sizes:
                size.durable |= self.journal and size.page is None and size.index <= until

    def kept_names(self) -> Iterator[list[_Name]]:
        if self.journal:
            durable = max((number for number, name in enumerate(self.names, 1) if name.durable), default=0)
            yield from (self.names[:count] for count in range(durable, len(self.names) + 1))
            return
        for kept in itertools.product([False, True], repeat=len(self.names)):
            chosen = [name for name, is_kept in zip(self.names, kept, strict=True) if is_kept]
            halves = {(name.index, name.half) for name in chosen}
            if all(name in chosen for name in self.names if name.durable) and all(
                (index, 1) in halves for index, half in halves if half == 2
            ):
                yield chosen

    def disks(self, most: int) -> Iterator[Found]:
        tries = 0
        for names in self.kept_names():
            tree = self.end.copy()
            tree.entries = dict(self.start.entries)
            for name in names:
                for entry in name.removed:
                    tree.entries.pop(entry, None)
                tree.entries.update(name.added)
            seen = {node for _, node in tree.walk()}
            until: float | None = None
            if self.journal:
                until = self.names[len(names)].index if len(names) < len(self.names) else float("inf")
            kept = {name.index for name in names}
            choices: list[list[tuple[Node, bytes]]] = []
            for node, file in self.files.items():
                if node in seen:
                    renames = [index for index in self.replacing.get(node, ()) if index in kept]
                    states = set(file.states(until, renames, most))
                    choices.append([(node, content) for content in states])
            for contents in itertools.product(*choices):
                tries += 1
                if tries > most:
                    raise TooMany
                tree.data = {**tree.data, **dict(contents)}
                yield found(tree)
