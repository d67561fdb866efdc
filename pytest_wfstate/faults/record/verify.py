"""Compare what is on the disk with what the log says.

If replaying the recorded ops on the first content does not give the last, something wrote that was not recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pytest_wfstate.faults.folders import read_content
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import Allocate, Create, Item, Node, Trace, Truncate, Write

_SHOWN = 3


@dataclasses.dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that lost its last name."""

    index: int
    """The number of items in the log just after."""
    node: Node
    size: int
    """In bytes."""


def unexplained_content(trace: Trace, home: Path, is_rebuilt: Callable[[str], bool]) -> Iterator[str]:
    """Compare what is below home with the end of the trace."""
    real, replayed = read_content(home), trace.end().content()
    paths = sorted(path for path in real.keys() | replayed.keys() if real.get(path, ...) != replayed.get(path, ...))
    paths = [path for path in paths if not is_rebuilt(path)]
    if paths:
        yield (
            f"The recorded ops do not explain the content of {_listed(paths)}. It was written by "
            "native code, by another process, or through a file object that was opened before recording began."
        )


def unexplained_changes(touched: Iterable[str]) -> Iterator[str]:
    """Report what was changed, by its ctime, although its content shows nothing."""
    paths = list(touched)
    if paths:
        yield (
            f"The recorded ops do not explain when {_listed(paths)} last changed: something was written or created "
            "there and taken back by native code, by another process, or through a file object that was opened before "
            "recording began."
        )


def unexplained_sizes(log: Log, removed: list[RemovedFile]) -> Iterator[str]:
    """Compare the sizes of removed files with what the log says was written to them."""
    start = log.start_sizes()
    sizes: dict[Node, int] = {}
    rest = iter(removed)
    file = next(rest, None)
    for index, item in enumerate(log.items, 1):
        _follow(sizes, start, item)
        if file is not None and file.index == index:
            recorded = sizes.get(file.node, start.get(file.node, 0))
            path = log.path(file.node)
            if recorded != file.size and path is not None:
                yield (
                    f"The recorded ops do not explain the content of {path} when it was removed or replaced: it had "
                    f"{file.size} bytes, of which {recorded} were recorded."
                )
            file = next(rest, None)


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join("home" if path == "." else path for path in paths[:_SHOWN]) + more


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
