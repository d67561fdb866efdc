"""Each model leaves exactly the disks that its rules allow: compared with a naive enumeration, on random runs.

300 runs, and 10,000 with `--wfstate-profile=thorough`. The number of a run is its seed.
"""

from __future__ import annotations

import math
import random

import pytest

from pytest_wfstate.faults.bounds import MODELS
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.trace.ops import (
    HOME,
    PAGE,
    SECTOR,
    Allocate,
    Create,
    Fsync,
    Item,
    Link,
    Rename,
    Sync,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
)
from pytest_wfstate.labs import options
from tests.unit.faults.disk import naive

CHUNKS = 20
RUNS = {"quick": 15, "default": 15, "thorough": 500}  # in a chunk
MOST = 1000  # disks at one crash point

EDGES = (0, 5, 100, SECTOR - 2, SECTOR, 600, PAGE - SECTOR, PAGE - 3, PAGE, PAGE + 500, 2 * PAGE)
LENGTHS = (1, 5, 20, SECTOR, 700, PAGE)


class RandomRun:
    """A short run of ops that a real disk would accept."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.start = Tree()
        self.now = self.start
        if self.random.random() < 0.8:
            self.start.entries[HOME, "a"] = 1
            self.start.add(1, "file")
            self.start.data[1] = b"o" * self.random.choice((0, *EDGES))
        self.now = self.start.copy()
        self.items: list[Item] = []
        kinds = self.random.choice(["write resize fsync", "write resize fsync names", "names write fsync"]).split()
        for _ in range(self.random.randint(1, 7)):
            item = getattr(self, self.random.choice(kinds))()
            if item is not None:
                self.add(item)
        self.trace = Trace(self.start, self.items)

    def add(self, item: Item) -> None:
        self.items.append(item)
        self.now.apply(item)

    def files(self) -> list[int]:
        return [node for _, node in self.now.walk() if self.now.kinds[node] == "file"]

    def write(self) -> Item | None:
        files = self.files()
        if not files:
            return None
        again = [item for item in self.items if isinstance(item, Write) and item.node in files]
        if again and self.random.random() < 0.3:
            return self.random.choice(again)
        byte = self.random.choice((b"o", b"\0", *[bytes([65 + len(self.items)])] * 5))
        data = byte * self.random.choice(LENGTHS)
        op = Write(self.random.choice(files), self.random.choice(EDGES), data)
        if self.random.random() < 0.2:
            self.add(op)
            return Fsync(op.node, data_only=self.random.random() < 0.5, span=(op.offset, op.end))
        return op

    def resize(self) -> Item | None:
        files = self.files()
        if not files:
            return None
        resize = self.random.choice((Truncate, Truncate, Allocate))
        return resize(self.random.choice(files), self.random.choice(EDGES))

    def fsync(self) -> Item:
        if self.random.random() < 0.1:
            return Sync()
        node = self.random.choice([HOME, *(node for _, node in self.now.walk())])
        span = None
        if self.now.kinds[node] == "file" and self.random.random() < 0.4:
            start = self.random.choice(EDGES)
            span = (start, start + self.random.choice(LENGTHS))
        return Fsync(node, self.random.random() < 0.3, failed=self.random.random() < 0.3, span=span)

    def names(self) -> Item | None:
        folders = [HOME, *(node for _, node in self.now.walk() if self.now.kinds[node] == "folder")]
        folder, name = self.random.choice(folders), self.random.choice("abc")
        taken = self.now.entries.get((folder, name))
        kind = self.random.choice(["create", "mkdir", "unlink", "link", "rename"])
        if taken is None and kind in ("create", "mkdir"):
            return Create(folder, name, 10 + len(self.items), "file" if kind == "create" else "folder")
        if taken is not None and kind == "unlink" and self.now.kinds[taken] == "file":
            return Unlink(folder, name, taken)
        if not self.files():
            return None
        node = self.random.choice(self.files())
        if taken is None and kind == "link":
            return Link(folder, name, node)
        old = self.random.choice([entry for entry, other in self.now.entries.items() if other == node])
        is_file = taken is None or self.now.kinds[taken] == "file"
        if kind == "rename" and is_file and taken != node:
            return Rename(*old, folder, name, node, taken)
        return None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_model_leaves_exactly_the_disks_that_its_rules_allow(chunk: int, request: pytest.FixtureRequest) -> None:
    compared = 0
    for number in range(RUNS[options.profile(request.config)]):
        seed = number * CHUNKS + chunk
        compared += compare(RandomRun(seed).trace, f"run {seed}")
    assert compared > 0


def compare(trace: Trace, run: str) -> int:
    """Compare all disks at all crash points, and return how many there were."""
    compared = 0
    for model in MODELS:
        for point in crash_points(trace, model, math.inf):
            if point.possible > MOST:
                continue
            try:
                allowed = naive.disks(trace, model, point.index, MOST)
            except naive.TooMany:
                continue
            left = {naive.found(point.tree(loss)) for _, loss in point.losses()}
            assert left == allowed, f"{run}, {model}, after {point.index} items: {trace.items}"
            compared += len(left)
    return compared
