"""A violation, told to someone at two in the morning: smallest case first, in sentences, with the line that did it."""

from __future__ import annotations

import os
import traceback

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.log import is_users
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
)
from pytest_wfstate.faults.states import State

_MOST_TOLD = 8  # acks or effects
_WIDEST = 200  # of what is shown of one


class CrashBug(WfstateError, AssertionError):
    """A crash can leave a disk that the check does not accept. The text is the report."""

    def __init__(self, text: str, replay_id: str) -> None:
        super().__init__(text)
        self.replay_id = replay_id


def report(
    state: State,
    error: BaseException,
    advice: list[str],
    counts: str,
    kept_at: str | None,
    replay: tuple[str, str] | None,
) -> str:
    """Write the whole report; `replay` is the test and the replay id."""
    words = Words(state.life.trace)
    items = state.life.trace.items[: state.cut.index]
    what = "a killed process" if state.life.model == "kill" else f"a power cut ({state.life.model})"
    when = " during recovery" if state.life.first else ""
    lines = [f"{what}{when} can leave a disk that the check does not accept.", ""]
    lines += _paragraph("acknowledged", _last([words.told(item) for item in items if isinstance(item, Ack)]))
    if effects := [words.told(item) for item in items if isinstance(item, Effect)]:
        lines += _paragraph("effects", _last(effects))
    if state.life.first:
        lines += _crash(state.life.first, Words(state.life.first.life.trace), "first it died")
        lines += _crash(state, words, "then recovery")
    else:
        lines += _crash(state, words, "it died")
    lines += _paragraph("on the disk", _held(state))
    lines += _paragraph("the check said", said(error))
    lines += ["", *advice] if advice else []
    lines += ["", counts]
    if kept_at:
        lines += [f"The disk was kept in {kept_at}"]
    if replay:
        lines += ['Replay it:  pytest "{}" --wfstate-replay={}'.format(*replay)]
    return "\n".join(lines)


def _crash(state: State, words: Words, title: str) -> list[str]:
    lost = [words.loss(state, index) for index in state.lost()]
    return [*_paragraph(title, _died(state, words)), *(_paragraph("lost", lost) if lost else [])]


def where_it_died(state: State) -> str:
    """Say in a few words where a state's crash was."""
    return " ".join(line.strip() for line in _died(state, Words(state.life.trace)))


def describe(trace: Trace) -> list[str]:
    """List the items of a trace in words, one line each."""
    words = Words(trace)
    return [words.op(index) for index in range(len(trace.items))]


class Words:
    """The words for the ops of a state's trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._tree, self._until = trace.start.copy(), 0

    def op(self, index: int) -> str:
        """Say what an item did, and where."""
        item = self._trace.items[index]
        where = f" ({_short(item.where)})" if item.where else ""
        return f"{self._verb(index, item)}{where}"

    def told(self, item: Ack | Effect) -> str:
        """Say what the outside knows."""
        what = repr(item.value) if isinstance(item, Ack) else item.call
        return f"{_shortened(what)}{_at(item.where)}"

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
                return f"{verb} {self._path(tree, item.folder, item.name)}"
            case Link():
                return f"link {self._path(tree, item.folder, item.name)}"
            case Unlink():
                return f"unlink {self._path(tree, item.folder, item.name)}"
            case Rename():
                old, new = self._path(tree, item.folder, item.name), self._path(tree, item.new_folder, item.new_name)
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
                return f"ack of {_shortened(repr(item.value))}"
            case Effect():
                return f"effect {_shortened(item.call)}"
            case Called():
                return f"{'return from' if item.returned else 'call of'} {item.name}"

    def file(self, node: Node, index: int) -> str:
        """Give a file's name at a point, or one that it had before or after."""
        for until in (index, len(self._trace.items)):
            for path, found in self._before(until).walk():
                if found == node:
                    return shown(path)
        return "a file that has no name any more"

    def folder(self, node: Node, index: int) -> str:
        """Give a folder's name at a point."""
        return "the folder (home)" if node == HOME else f"the folder {self.file(node, index)}"

    def _path(self, tree: Tree, folder: Node, name: str) -> str:
        return shown(tree.path_of(folder, name))

    def _before(self, index: int) -> Tree:
        """Give the names just before an item. What files hold is left out: to copy it again and again takes long."""
        if index < self._until:
            self._tree, self._until = self._trace.start.copy(), 0
        for item in self._trace.items[self._until : index]:
            if isinstance(item, Create | Link | Unlink | Rename):
                self._tree.apply(item)
        self._until = index
        return self._tree


def _died(state: State, words: Words) -> list[str]:
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
    links = state.tree().links()
    for name, held in state.tree().content().items():
        path = shown(name)
        if name in links:
            lines.append(f"{path}: the same file as {shown(links[name])}")
        elif held is None:
            lines.append(f"{path}/")
        elif isinstance(held, str):
            lines.append(f"{path} -> {shown(held)}")
        else:
            zeros = ", all zeros" if held and not held.strip(b"\0") else ""
            lines.append(f"{path}: {len(held):,} bytes{zeros}")
    return [*lines[:12], f"and {len(lines) - 12} more"] if len(lines) > 12 else lines or ["nothing"]


def said(error: BaseException) -> list[str]:
    """Give what a check said, and where."""
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    at = _at(Line(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name)) if frames else ""
    return [text[0] + at, *text[1:12]]


def shown(path: str) -> str:
    """Give a path in characters that can be shown: names may hold anything."""
    return path if path.isprintable() else path.encode("unicode_escape", "surrogatepass").decode()


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _last(lines: list[str]) -> list[str]:
    """Give the last of many lines, or say that there is none."""
    hidden = len(lines) - _MOST_TOLD
    return [f"{hidden} more, and then", *lines[-_MOST_TOLD:]] if hidden > 0 else lines or ["nothing"]


def _paragraph(title: str, lines: list[str]) -> list[str]:
    return [f"  {title if not number else '':16}{line}" for number, line in enumerate(lines)]


def _at(where: Line | None) -> str:
    return f"   {_short(where)}" if where else ""


def _short(where: Line) -> str:
    path = os.path.relpath(where.path)
    return f"{path if not path.startswith('..') else where.path}:{where.number}"
