"""Crashes during recovery: which disks to recover from, and how to join both runs into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import CrashedRun, State
from pytest_wfstate.faults.trace.ops import HOME, OPS, Fsync, Item, Node, Sync, Trace


def firsts(run: CrashedRun, tried: Sequence[State]) -> list[State]:
    """Return the disks from which recovery is to be crashed: those of a kill, and then those of a power cut."""
    if run.model == "kill":
        return list(tried)
    # A kill leaves everything, but part of it is not durable yet. Points with equal disks may differ in that part, so
    # only those after an fsync, which shrinks it, are left out.
    points = [point for point in crash_points(run.trace, run.model) if not _synced(run.trace.items[: point.index])]
    return [*(State(run, point, point.kept) for point in points), *(state for state in tried if state.lost())]


def second_run(first: State, second: Trace) -> CrashedRun:
    """Join a run, its crash and the recovery `second` into one run, to crash in its second part."""
    run, index = first.run, first.point.index
    if first.lost() or run.model == "kill":
        # What a power cut left is durable, and a second kill loses nothing that the first kept.
        markers = [item for item in run.trace.items[:index] if not isinstance(item, OPS)]
        trace = Trace(second.start, [*markers, *second.items], second.began)
        return CrashedRun(trace, run.model, run.worlds, len(markers), first)
    # Everything was kept, as by a kill: what was not fsynced can still be lost during recovery.
    joined = [*run.trace.items[:index], *_renumbered(second, first)]
    trace = Trace(run.trace.start, joined, run.trace.began)
    return CrashedRun(trace, run.model, run.worlds, index, first)


def _synced(items: Sequence[Item]) -> bool:
    """Whether the last item only flushed what was there."""
    return bool(items) and isinstance(items[-1], (Fsync, Sync)) and not getattr(items[-1], "failed", False)


def _renumbered(second: Trace, first: State) -> list[Item]:
    """Return the items of a recovery, with the nodes of the first run for the files that it knew."""
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
