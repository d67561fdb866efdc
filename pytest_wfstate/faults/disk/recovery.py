"""Recoveries that are crashed as well: which disks to recover from, and what the two runs come to as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import CrashedRun, State
from pytest_wfstate.faults.trace.ops import HOME, OPS, Fsync, Item, Node, Sync, Trace


def firsts(run: CrashedRun, tried: Sequence[State]) -> list[State]:
    """Give the disks from which recovery is to be crashed: those of a kill, and then those of a power cut."""
    if run.model == "kill":
        return list(tried)
    # What a kill leaves is all there, but part of it is not on the disk yet. Two cuts that leave the same may differ in
    # how much that is, so none is left out but those after an fsync, which only makes it less.
    at = [point for point in crash_points(run.trace, run.model) if not _synced(run.trace.items[: point.index])]
    return [*(State(run, point, point.kept) for point in at), *(state for state in tried if state.lost())]


def second_run(first: State, second: Trace) -> CrashedRun:
    """Give a run, its crash and the recovery `second` as one run, whose end is to crash."""
    run, index = first.run, first.point.index
    if first.lost() or run.model == "kill":
        # What a power cut left is on the disk; and of two kills, the second takes nothing that the first did not.
        markers = [item for item in run.trace.items[:index] if not isinstance(item, OPS)]
        return CrashedRun(Trace(second.start, [*markers, *second.items]), run.model, run.worlds, len(markers), first)
    # All of it was kept, as by a kill: then what was not fsynced can still be lost with the recovery.
    joined = [*run.trace.items[:index], *_renumbered(second, first)]
    return CrashedRun(Trace(run.trace.start, joined), run.model, run.worlds, index, first)


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
