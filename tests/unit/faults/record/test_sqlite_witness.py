"""strace as an independent witness: the recorder infers the folder syncs of SQLite, strace sees them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_wfstate.faults.record import sqlite_vfs
from tests.unit.faults.record import sqlite_workload
from tests.unit.faults.record.sqlite_workload import COMMITS, Calls

pytestmark = pytest.mark.skipif(sqlite_vfs._wrapper() is None, reason="this interpreter's SQLite cannot be reached")


@pytest.fixture(scope="module")
def witnessed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Calls, Calls]]:
    """Run all workloads under strace: for each, the recorded calls and those that strace saw."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed (apt-get install strace)")
    root = tmp_path_factory.mktemp("witnessed")
    options = ["-f", "-y", "-s", "0", "-e", "signal=none", "-o", str(root / "strace")]
    options += ["-e", "trace=pwrite64,write,fsync,fdatasync,unlink,unlinkat,ftruncate,fallocate"]
    program = [sys.executable, "-m", "tests.unit.faults.record.sqlite_workload", str(root)]
    done = subprocess.run([strace, *options, *program], capture_output=True, text=True, cwd=Path(__file__).parents[4])
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    recorded = json.loads(root.joinpath("recorded").read_text())
    seen = root.joinpath("strace").read_text().splitlines()
    return {
        case: ([tuple(call) for call in recorded[case]], list(kernel_calls(seen, str(root / case))))
        for case in recorded
    }


_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += \d+$")


def kernel_calls(lines: list[str], home: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield each call below home as name, file, offset and size."""
    for line in lines:
        call = _CALL.search(line)
        path = re.search(r'[<"](/[^>"]*)[>"]', line)
        if call is None or path is None or not (path[1] + "/").startswith(home + "/") or path[1].endswith("-shm"):
            continue
        arguments = call["arguments"].split(", ")
        offset, size = 0, 0
        if call["name"].startswith("pwrite"):
            size, offset = int(arguments[-2]), int(arguments[-1])
        elif call["name"] == "ftruncate":
            size = int(arguments[-1])
        yield call["name"].removesuffix("at"), os.path.relpath(path[1], home), offset, size


@pytest.mark.parametrize("case", sqlite_workload.CASES)
def test_strace_saw_what_was_recorded(witnessed: dict[str, tuple[Calls, Calls]], case: str) -> None:
    recorded, seen = witnessed[case]
    assert recorded == seen
    assert len(recorded) > COMMITS
