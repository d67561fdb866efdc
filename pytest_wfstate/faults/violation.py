"""A violation, told to someone at two in the morning: smallest case first, in sentences, with the line that did it."""

from __future__ import annotations

import dataclasses
import os
import traceback

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.log import is_users
from pytest_wfstate.faults.models import cuts
from pytest_wfstate.faults.ops import (
    HOME,
    Ack,
    Allocate,
    Called,
    Create,
    Effect,
    Fsync,
    Item,
    Line,
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
from pytest_wfstate.faults.states import Life, State


class CrashBug(WfstateError, AssertionError):
    """A crash can leave a disk that the check does not accept. The text is the report."""

    def __init__(self, text: str, replay_id: str) -> None:
        super().__init__(text)
        self.replay_id = replay_id


@dataclasses.dataclass(frozen=True, slots=True)
class Mend:
    """An fsync that is missing, and what it would mend."""

    life: Life
    """The same run with that fsync in it."""
    advice: str


def mends(state: State) -> list[Mend]:
    """Give the fsyncs, one for each thing that was lost, that would make the state impossible."""
    found: dict[str, Mend] = {}
    for index in state.lost():
        place = _missing(state.life.trace, index, state.cut.index)
        life, moved = _with_fsyncs(state.life, place)
        cut = next(cut for cut in cuts(life.trace, life.model) if cut.index == moved[state.cut.index])
        if not cut.can_lose(moved[index]):
            found.setdefault(place.advice, Mend(life, place.advice))
    return list(found.values())


@dataclasses.dataclass(frozen=True, slots=True)
class _Missing:
    """An fsync that should be right before or after an op."""

    op: int
    before: bool
    advice: str


def _missing(trace: Trace, index: int, until: int) -> _Missing:
    """Tell which fsync would have brought an item to the disk: a file's before it gets its name, or at once."""
    words = _Words(trace)
    item = trace.items[index]
    if isinstance(item, Create | Link | Unlink | Rename):
        folder = item.new_folder if isinstance(item, Rename) else item.folder
        return _Missing(index, False, f"an fsync of {words.folder(folder, index)} after {words.op(index)}")
    assert isinstance(item, Write | Truncate | Allocate)
    last = index
    for later in range(index + 1, until):
        other = trace.items[later]
        if isinstance(other, Rename | Link) and other.node == item.node:
            return _Missing(later, True, f"an fsync of {words.file(item.node, later)} before {words.op(later)}")
        if isinstance(other, Write | Truncate | Allocate) and other.node == item.node:
            last = later
    return _Missing(last, False, f"an fsync of {words.file(item.node, last)} after {words.op(last)}")


def _with_fsyncs(life: Life, missing: _Missing) -> tuple[Life, list[int]]:
    """Put the fsync into the trace, at every op that the same line of code did; tell where each item went."""
    line = life.trace.items[missing.op]
    items: list[Item] = []
    moved: list[int] = []
    for number, item in enumerate(life.trace.items):
        alike = number == missing.op or (
            type(item) is type(line) and line.where is not None and item.where == line.where
        )
        if alike and missing.before:
            items.append(Fsync(_about(item, missing.before)))
        moved.append(len(items))
        items.append(item)
        if alike and not missing.before:
            items.append(Fsync(_about(item, missing.before)))
    moved.append(len(items))
    return dataclasses.replace(life, trace=Trace(life.trace.start, items)), moved


def _about(item: Item, before: bool) -> Node:
    """Give the file, or else the folder, that the missing fsync next to an op is of."""
    if isinstance(item, Write | Truncate | Allocate) or (before and isinstance(item, Rename | Link)):
        return item.node
    assert isinstance(item, Create | Link | Unlink | Rename)
    return item.new_folder if isinstance(item, Rename) else item.folder


def report(
    state: State, error: BaseException, test: str | None, counts: str, advice: list[str], kept_at: str | None
) -> str:
    """Write the whole report."""
    words = _Words(state.life.trace)
    items = state.life.trace.items[: state.cut.index]
    lost = state.lost()
    what = "a killed process" if state.life.model == "kill" else f"a power cut ({state.life.model})"
    lines = [f"{what} can leave a disk that the check does not accept.", ""]
    lines += _paragraph("acknowledged", [words.told(item) for item in items if isinstance(item, Ack)] or ["nothing"])
    if effects := [words.told(item) for item in items if isinstance(item, Effect)]:
        lines += _paragraph("effects", effects)
    lines += _paragraph("it died", _died(state, words))
    if lost:
        lines += _paragraph("lost", [words.loss(state, index) for index in lost])
    lines += _paragraph("on the disk", _held(state))
    lines += _paragraph("the check said", said(error))
    lines += ["", *advice] if advice else []
    lines += ["", counts]
    if kept_at:
        lines += [f"The disk was kept in {kept_at}"]
    if test:
        lines += [f'Replay it:  pytest "{test}" --wfstate-replay={state.replay}']
    return "\n".join(lines)


def where_it_died(state: State) -> str:
    """Say in a few words where a state's crash was."""
    return "; ".join(_died(state, _Words(state.life.trace)))


def describe(trace: Trace) -> list[str]:
    """List the items of a trace in words, one line each."""
    words = _Words(trace)
    return [words.op(index) for index in range(len(trace.items))]


class _Words:
    """The words for the ops of a state's trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def op(self, index: int) -> str:
        item = self._trace.items[index]
        where = f" ({_short(item.where)})" if item.where else ""
        return f"{self._verb(index, item)}{where}"

    def told(self, item: Ack | Effect) -> str:
        what = repr(item.value) if isinstance(item, Ack) else item.call
        return f"{what}{_at(item.where)}"

    def loss(self, state: State, index: int) -> str:
        """Tell how much of an op was lost."""
        item = self._trace.items[index]
        text = self._verb(index, item)
        torn = [
            f"torn after {left} bytes in page {page}" for at, page, left in state.cut.torn(state.choice) if at == index
        ]
        return f"{text}{', ' + ', '.join(torn) if torn else ''}{_at(item.where)}"

    def _verb(self, index: int, item: Item) -> str:
        tree = self._before(index)
        match item:
            case Create():
                verb = {"file": "create", "folder": "mkdir", "symlink": "symlink"}[item.kind]
                return f"{verb} {tree.path_of(item.folder, item.name)}"
            case Link():
                return f"link {tree.path_of(item.folder, item.name)}"
            case Unlink():
                return f"unlink {tree.path_of(item.folder, item.name)}"
            case Rename():
                old, new = tree.path_of(item.folder, item.name), tree.path_of(item.new_folder, item.new_name)
                return f"rename {old} to {new}"
            case Write():
                return f"write of {len(item.data):,} bytes at {item.offset:,} to {self.file(item.node, index)}"
            case Truncate():
                return f"truncate {self.file(item.node, index)} to {item.size:,} bytes"
            case Allocate():
                return f"allocate {item.size:,} bytes of {self.file(item.node, index)}"
            case Fsync():
                verb = "fdatasync" if item.data_only else "fsync"
                name = (
                    self.folder(item.node, index)
                    if tree.kinds.get(item.node) == "folder"
                    else self.file(item.node, index)
                )
                return f"{verb} of {name}{' that failed' if item.failed else ''}"
            case Sync():
                return "sync"
            case Ack():
                return f"ack of {item.value!r}"
            case Effect():
                return f"effect {item.call}"
            case Called():
                return f"{'return from' if item.returned else 'call of'} {item.name}"

    def file(self, node: Node, index: int) -> str:
        """Give a file's name at a point, or one that it had before or after."""
        for tree in (self._before(index), self._trace.end()):
            for path, found in tree.walk():
                if found == node:
                    return path
        return "a file that has no name any more"

    def folder(self, node: Node, index: int) -> str:
        return "the folder (home)" if node == HOME else f"the folder {self.file(node, index)}"

    def _before(self, index: int) -> Tree:
        return replay(self._trace.start, self._trace.items[:index])


def _died(state: State, words: _Words) -> list[str]:
    index = state.cut.index
    if index == 0:
        return ["before it did anything"]
    item = state.life.trace.items[index - 1]
    lines = [f"after {words.op(index - 1)}"]
    if item.where and item.where.text:
        lines.append(f"    {item.where.text}")
    return lines


def _held(state: State) -> list[str]:
    lines = []
    for path, held in state.content().items():
        if held is None:
            lines.append(f"{path}/")
        elif isinstance(held, str):
            lines.append(f"{path} -> {held}")
        else:
            zeros = ", all zeros" if held and not held.strip(b"\0") else ""
            lines.append(f"{path}: {len(held):,} bytes{zeros}")
    shown = lines[:12]
    return [*shown, f"and {len(lines) - 12} more"] if len(lines) > 12 else shown or ["nothing"]


def said(error: BaseException) -> list[str]:
    """Give what a check said, and where."""
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    at = _at(Line(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name)) if frames else ""
    return [text[0] + at, *text[1:12]]


def _paragraph(title: str, lines: list[str]) -> list[str]:
    return [f"  {title if not number else '':16}{line}" for number, line in enumerate(lines)]


def _at(where: Line | None) -> str:
    return f"   {_short(where)}" if where else ""


def _short(where: Line) -> str:
    path = os.path.relpath(where.path)
    return f"{path if not path.startswith('..') else where.path}:{where.number}"
