"""The order in which the disks of a run are tried: one of each kind first, then the rest, spread over the run.

Two crashes are of one kind if they strike after the same line of code and lose, or tear, what the same lines wrote. A
loop that saves a thousand times makes a thousand crashes of each kind, and nearly always one of them shows the bug, so
that a bound that cuts off the rest hides little (Pathfinder, OOPSLA 2025, groups crashes in the same spirit).
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
from collections.abc import Callable, Hashable, Iterator, Sequence

from pytest_wfstate.faults.disk.losses import CrashPoint, DiskLoss, Rank
from pytest_wfstate.faults.source_lines import SourceLine
from pytest_wfstate.faults.trace.ops import OPS, Create, Item, Link, Node, Rename, Trace

Candidate = tuple[CrashPoint, DiskLoss]
CallSite = tuple[SourceLine | None, str, str]
"""A line of code, the kind of item that it made, and the suffix of the file."""

_SINGLES = 256
"""How many single losses of a part are sorted by kind, those of the last items: a loop repeats its kinds."""
_IN_A_ROW = 8
"""How many disks of one point are tried before those of the next: building several of one point costs less."""


def in_order(trace: Trace, points: Sequence[CrashPoint]) -> Iterator[Candidate]:
    """Yield every loss at every point once: representatives first, then the others by rank."""
    done: set[tuple[int, int]] = set()  # hashes, as some losses are long
    for point, loss in _representatives(trace, points):
        key = (point.index, hash(loss))
        if key not in done:
            done.add(key)
            yield point, loss
    yield from ((point, loss) for point, loss in _by_rank(points) if (point.index, hash(loss)) not in done)


def _representatives(trace: Trace, points: Sequence[CrashPoint]) -> Iterator[Candidate]:
    """Yield the first loss of each kind, by rank; some are of two kinds."""
    sites = [None, *call_sites(trace)]
    seen: set[Hashable] = set()
    found: list[list[tuple[CrashPoint, Callable[[], DiskLoss]]]] = [[] for _ in Rank]
    for point in points:
        for kind, rank, make in _kinds(point, sites):
            if (sites[point.index], kind) not in seen:
                seen.add((sites[point.index], kind))
                found[rank].append((point, make))
    return ((point, make()) for point, make in itertools.chain(*found))


def _kinds(point: CrashPoint, sites: Sequence[Hashable]) -> Iterator[tuple[Hashable, Rank, Callable[[], DiskLoss]]]:
    """Yield kinds of crashes at a point, and a way to make one of each, which may take long for a large file."""
    yield Rank.KEPT, Rank.KEPT, lambda: point.kept
    lost: set[Hashable] = set()
    for number, part in enumerate(point.parts):
        for single in itertools.islice(part.single_losses(), _SINGLES):
            site = sites[single.item + 1]
            lost.add(site)
            yield (single.how, site), single.rank, functools.partial(point.loss_of, number, single)
    if lost:
        yield frozenset(lost), Rank.GONE, lambda: point.gone


def _by_rank(points: Sequence[CrashPoint]) -> Iterator[Candidate]:
    """Yield every loss by rank, so that all single losses are tried before any pair."""
    ranks = {point: itertools.groupby(point.losses(), key=operator.itemgetter(0)) for point in _spread(points)}
    groups = {point: next(ranked, None) for point, ranked in ranks.items()}
    while pending := {point: group for point, group in groups.items() if group is not None}:
        rank = min(rank for rank, _ in pending.values())
        turn = [point for point, group in pending.items() if group[0] == rank]
        while turn:
            for point in list(turn):
                chunk = list(itertools.islice(pending[point][1], _IN_A_ROW))
                yield from ((point, loss) for _, loss in chunk)
                if len(chunk) < _IN_A_ROW:
                    turn.remove(point)
                    groups[point] = next(ranks[point], None)


def _spread(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return the points so that any first part of them is spread evenly over the run: the bits of numbers reversed."""
    bits = len(points).bit_length()
    return [point for _, point in sorted(zip(_reversed_bits(bits), points, strict=False), key=operator.itemgetter(0))]


def _reversed_bits(bits: int) -> Iterator[int]:
    return (int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits))


def call_sites(trace: Trace) -> list[CallSite]:
    """Return for each item what made it: the line, the kind of item and, as one line may write several, of file."""
    names: dict[Node, str] = {node: name for (_, name), node in trace.start.entries.items()}
    sites: list[CallSite] = []
    for item in trace.items:
        if isinstance(item, Create | Link):
            names[item.node] = item.name
        elif isinstance(item, Rename):
            names[item.node] = item.new_name
        sites.append((item.where, type(item).__name__, _suffix(item, names)))
    return sites


def _suffix(item: Item, names: dict[Node, str]) -> str:
    node = getattr(item, "node", None) if isinstance(item, OPS) else None
    return "" if node is None else os.path.splitext(names.get(node, ""))[1]
