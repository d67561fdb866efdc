"""Each model leaves exactly the disks that its rules allow: compared with a naive enumeration, on random runs.

300 runs, and 10,000 with `--wfstate-profile=thorough`. The number of a run is its seed. Crash points that can leave too
many disks are left out, and the test fails if they are more than a few.
"""

from __future__ import annotations

import collections
import math
import random

import pytest

from pytest_wfstate.faults.bounds import MODELS, Model
from pytest_wfstate.faults.disk.losses import CrashPoint
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

CHUNKS = 5
RUNS = {"quick": 60, "default": 60, "thorough": 2000}  # in a chunk
MOST = {"kill": 1000, "ext4": 4000, "xfs": 4000, "posix": 1500}  # disks at one crash point
COMPARED: dict[Model, float] = {"kill": 1, "ext4": 0.99, "xfs": 0.99, "posix": 0.9}  # of the crash points, at the least

EDGES = (0, 5, 100, SECTOR - 2, SECTOR, 600, PAGE - SECTOR, PAGE - 3, PAGE, PAGE + 500, 2 * PAGE)
LENGTHS = (1, 5, 20, SECTOR, 700, PAGE)


class RandomRun:
    """A short run of ops that a real disk would accept."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.start = Tree()
        self.now = self.start
        for node, name in enumerate("ab", 1):
            if self.random.random() < 0.8 / node:
                self.start.entries[HOME, name] = node
                self.start.add(node, "file")
                self.start.data[node] = b"o" * self.random.choice((0, *EDGES))
        self.now = self.start.copy()
        self.items: list[Item] = []
        kinds = self.random.choice(
            ["write resize fsync", "write resize fsync names", "names write fsync", "write fsync replace"]
        ).split()
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

    def written(self) -> list[int]:
        files = self.files()
        return [item.node for item in self.items if isinstance(item, Write) and item.node in files]

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
        nodes = [HOME, *(node for _, node in self.now.walk())]
        written = self.written()
        node = written[-1] if written and self.random.random() < 0.4 else self.random.choice(nodes)
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

    def replace(self) -> Item | None:
        """A rename over another file, of the one that was last written."""
        entries = [entry for entry, node in self.now.entries.items() if self.now.kinds[node] == "file"]
        written = self.written()
        if len(entries) < 2 or not written:
            return None
        old, new = sorted(entries, key=lambda entry: self.now.entries[entry] != written[-1])[:2]
        return Rename(*old, *new, self.now.entries[old], self.now.entries[new])


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_model_leaves_exactly_the_disks_that_its_rules_allow(chunk: int, request: pytest.FixtureRequest) -> None:
    points: collections.Counter[Model] = collections.Counter()
    compared: collections.Counter[Model] = collections.Counter()
    for number in range(RUNS[options.profile(request.config)]):
        seed = number * CHUNKS + chunk
        trace = RandomRun(seed).trace
        for model in MODELS:
            for point in crash_points(trace, model, math.inf):
                points[model] += 1
                compared[model] += compare(trace, point, model, f"run {seed}")
    request.node.user_properties.append(("compared", f"{dict(compared)} of {points['kill']} crash points"))
    assert all(compared[model] >= least * points[model] for model, least in COMPARED.items()), (compared, points)


def compare(trace: Trace, point: CrashPoint, model: Model, run: str) -> bool:
    """Compare all disks at a crash point. Return False if there are too many."""
    if point.possible > MOST[model]:
        return False
    try:
        allowed = naive.disks(trace, model, point.index, MOST[model])
    except naive.TooMany:
        return False
    left = {naive.found(point.tree(loss)) for _, loss in point.losses()}
    assert left == allowed, f"{run}, {model}, after {point.index} items: {trace.items}"
    return True
