"""Comparing what is on the disk with what the log makes of it.

If the ops that were recorded do not lead from what was there to what is there, something wrote that nobody saw.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import Allocate, Create, Item, Node, Trace, Truncate, Write

_SHOWN = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Gone:
    """A file that lost its last name."""

    index: int
    """How many items the log had just after."""
    node: Node
    size: int
    """How many bytes it had."""


def unexplained_content(trace: Trace, home: Path, is_rebuilt: Callable[[str], bool]) -> Iterator[str]:
    """Compare what is below home with what the trace makes of what was there."""
    real, told = dict(_content(home, "")), trace.end().content()
    paths = sorted(path for path in real.keys() | told.keys() if real.get(path, ...) != told.get(path, ...))
    paths = [path for path in paths if not is_rebuilt(path)]
    if paths:
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        yield (
            f"The recorded ops do not explain what is in {', '.join(paths[:_SHOWN])}{more}: native code wrote there, "
            "or another process, or a file object that was opened before recording began."
        )


def unexplained_sizes(log: Log, removed: list[Gone]) -> Iterator[str]:
    """Compare the sizes of files that are gone with what the log knows to have been written to them."""
    start = log.start_sizes()
    sizes: dict[Node, int] = {}
    later = iter(removed)
    gone = next(later, None)
    for index, item in enumerate(log.items, 1):
        _follow(sizes, start, item)
        if gone is not None and gone.index == index:
            told = sizes.get(gone.node, start.get(gone.node, 0))
            path = log.path(gone.node)
            if told != gone.size and path is not None:
                yield (
                    f"The recorded ops do not explain what was in {path} when it was removed or replaced: it had "
                    f"{gone.size} bytes, and they account for {told}."
                )
            gone = next(later, None)


def _follow(sizes: dict[Node, int], start: dict[Node, int], item: Item) -> None:
    match item:
        case Create():
            sizes[item.node] = 0
        case Write():
            sizes[item.node] = max(sizes.get(item.node, start.get(item.node, 0)), item.end)
        case Truncate():
            sizes[item.node] = item.size
        case Allocate():
            sizes[item.node] = max(sizes.get(item.node, start.get(item.node, 0)), item.size)


def _content(folder: Path | str, prefix: str) -> Iterator[tuple[str, bytes | str | None]]:
    """Read what is below a folder, in the form of `Tree.content`."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        path = prefix + entry.name
        if entry.is_symlink():
            yield path, os.readlink(entry.path)
        elif entry.is_dir():
            yield path, None
            yield from _content(entry.path, path + "/")
        else:
            yield path, Path(entry.path).read_bytes() if entry.is_file() else b""  # else a pipe, or a socket
