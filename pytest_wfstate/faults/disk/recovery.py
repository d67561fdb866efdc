"""Recoveries that are crashed as well: which disks to recover from, and what the two runs come to as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pytest_wfstate.faults.disk.models import cuts
from pytest_wfstate.faults.disk.states import CrashedRun, State
from pytest_wfstate.faults.trace.ops import HOME, OPS, Fsync, Item, Node, Sync, Trace


def firsts(life: CrashedRun, tried: Sequence[State]) -> list[State]:
    """Give the disks from which recovery is to be crashed: those of a kill, and then those of a power cut."""
    if life.model == "kill":
        return list(tried)
    # What a kill leaves is all there, but part of it is not on the disk yet. Two cuts that leave the same may differ in
    # how much that is, so none is left out but those after an fsync, which only makes it less.
    at = [cut for cut in cuts(life.trace, life.model) if not _synced(life.trace.items[: cut.index])]
    return [*(State(life, cut, cut.kept) for cut in at), *(state for state in tried if state.lost())]


def second_life(first: State, second: Trace) -> CrashedRun:
    """Give a run, its crash and the recovery `second` as one run, whose end is to crash."""
    life, index = first.life, first.cut.index
    if first.lost() or life.model == "kill":
        # What a power cut left is on the disk; and of two kills, the second takes nothing that the first did not.
        markers = [item for item in life.trace.items[:index] if not isinstance(item, OPS)]
        return CrashedRun(Trace(second.start, [*markers, *second.items]), life.model, life.worlds, len(markers), first)
    # All of it was kept, as by a kill: then what was not fsynced can still be lost with the recovery.
    joined = [*life.trace.items[:index], *_renumbered(second, first)]
    return CrashedRun(Trace(life.trace.start, joined), life.model, life.worlds, index, first)


def _synced(items: Sequence[Item]) -> bool:
    """Tell whether the last item did nothing but bring to the disk what was there."""
    return bool(items) and isinstance(items[-1], (Fsync, Sync)) and not getattr(items[-1], "failed", False)


def _renumbered(second: Trace, first: State) -> list[Item]:
    """Give the items of a recovery with the nodes that the first run knew its files by."""
    before = first.tree()
    paths = dict(before.walk())
    known = {node: paths[path] for path, node in second.start.walk() if path in paths} | {HOME: HOME}
    offset = max(before.kinds) + 1

    def new(node: Node | None) -> Node | None:
        return node if node is None or node < 0 else known.get(node, node + offset)

    def renumbered(item: Any) -> Any:
        names = [name for name in ("node", "folder", "new_folder", "replaced") if hasattr(item, name)]
        return dataclasses.replace(item, **{name: new(getattr(item, name)) for name in names})

    return [renumbered(item) for item in second.items]
