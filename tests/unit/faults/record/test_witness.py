"""What the recorder says is what the kernel was asked to do, by witnesses who know nothing of it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.faults.record.recording import forked

KINDS = {
    "mkdir": "mkdir",
    "mkdirat": "mkdir",
    "rmdir": "rmdir",
    "unlink": "unlink",
    "rename": "rename",
    "renameat": "rename",
    "renameat2": "rename",
    "link": "link",
    "linkat": "link",
    "symlink": "symlink",
    "symlinkat": "symlink",
    "fsync": "fsync",
    "fdatasync": "fdatasync",
    "ftruncate": "truncate",
    "truncate": "truncate",
    "fallocate": "allocate",
}
WRITES = {"write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range", "splice"}
CALLS = {*KINDS, *WRITES, "open", "openat", "creat", "unlinkat"}

CUT = re.compile(r"^(\d+ +)(.*) <unfinished \.\.\.>$")
RESUMED = re.compile(r"^(\d+ +)<\.\.\. \w+ resumed>(.*)$")
SAID = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")


def witnessed(strace: str, home: Path) -> list[str]:
    """Read what strace saw of changes below home, in the words of the recorder."""
    made: set[str] = set()
    ops = []
    for line in whole_lines(strace):
        found = SAID.match(line)
        if found is None or int(found[3]) < 0 or str(home) not in found[2]:
            continue
        call, args, result = found[1], found[2], int(found[3])
        if call in WRITES and result and _goes_to(call, args, home):
            ops.append(f"write {result}")
        elif call == "openat" and "O_CREAT" in args:
            path = args.split('"')[1]
            if "O_TRUNC" in args and (path in made or path.endswith("soft")):
                ops.append("truncate 0")
            elif path not in made:
                ops.append("create 0")
            made.add(path)
        elif call == "unlinkat":
            ops.append("rmdir 0" if "AT_REMOVEDIR" in args else "unlink 0")
        elif call in KINDS:
            ops.append(f"{KINDS[call]} 0")
    return ops


def whole_lines(strace: str) -> Iterator[str]:
    """Put together the lines that strace cut because another thread came in between, where the call ended."""
    begun: dict[str, str] = {}
    for line in strace.splitlines():
        if cut := CUT.match(line):
            begun[cut[1]] = cut[2]
        elif resumed := RESUMED.match(line):
            yield resumed[1] + begun.pop(resumed[1]) + resumed[2]
        else:
            yield line


def _goes_to(call: str, args: str, home: Path) -> bool:
    paths: list[str] = re.findall(r"\d+<([^>]*)>", args)
    return paths[1 if call in ("copy_file_range", "splice") else 0].startswith(str(home))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_strace_saw_what_was_recorded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    told = tmp_path / "strace"
    command = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={','.join(sorted(CALLS))}", "-o", str(told)]
    run = subprocess.run(
        [*command, sys.executable, "-m", "tests.unit.faults.record.witness_workload", str(home)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    if "ptrace" in run.stderr and "not permitted" in run.stderr:
        pytest.skip("strace may not trace here")
    assert run.returncode == 0, run.stderr
    recorded = run.stdout.splitlines()
    assert len(recorded) > 30
    assert witnessed(told.read_text(), home) == recorded


@pytest.mark.parametrize("limit", [1, 100, 4096, 5000])
def test_a_real_kill_tears_a_write_into_a_prefix(limit: int, tmp_path: Path) -> None:
    """As the model `kill` has it: what a dying process wrote last may be there in part, up to some byte."""
    data = bytes(range(256)) * 40

    def workload() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open(tmp_path / "a", "wb") as file:
            file.write(data)

    assert os.waitstatus_to_exitcode(forked(workload)) == -signal.SIGXFSZ
    assert (tmp_path / "a").read_bytes() == data[:limit]
