"""What a crash can leave of a small trace, for tests that spell out all of it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.trace.ops import HOME, Item, Trace, Tree

Disk = dict[str, bytes | str | None]
POWER: tuple[Model, ...] = ("ext4", "xfs", "posix")


def tree(**files: bytes) -> Tree:
    """A tree with files, whose nodes are 1, 2, 3 ... in this order."""
    new = Tree()
    for node, (name, data) in enumerate(files.items(), 1):
        new.entries[HOME, name] = node
        new.add(node, "file")
        new.data[node] = data
    return new


def left(items: Sequence[Item], model: Model, start: Tree | None = None) -> list[Disk]:
    """The distinct disks that a crash after all items can leave."""
    *_, last = crash_points(Trace(start or Tree(), list(items)), model)
    disks: list[Disk] = []
    for _, loss in last.losses():
        disk = last.tree(loss).content()
        if disk not in disks:
            disks.append(disk)
    return disks


def contents(disks: list[Disk], name: str) -> set[bytes | str | None]:
    return {disk.get(name) for disk in disks}
