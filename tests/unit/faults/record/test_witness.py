"""The recorder agrees with independent witnesses: strace, and a real kill."""

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
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")


def witnessed(strace: str, home: Path) -> list[str]:
    """Return the changes below home that strace saw, as the recorder names them."""
    made: set[str] = set()
    ops = []
    for line in whole_lines(strace):
        match = CALL.match(line)
        if match is None or int(match[3]) < 0 or str(home) not in match[2]:
            continue
        call, args, result = match[1], match[2], int(match[3])
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
    """Join the lines that strace split because another thread made a call in between, where the call ended."""
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
    output = tmp_path / "strace"
    command = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={','.join(sorted(CALLS))}", "-o", str(output)]
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
    assert witnessed(output.read_text(), home) == recorded


@pytest.mark.parametrize("limit", [1, 100, 4096, 5000])
def test_a_real_kill_tears_a_write_into_a_prefix(limit: int, tmp_path: Path) -> None:
    """As the model `kill` says: the last write of a dying process may be there in part, up to some byte."""
    data = bytes(range(256)) * 40

    def workload() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open(tmp_path / "a", "wb") as file:
            file.write(data)

    assert os.waitstatus_to_exitcode(forked(workload)) == -signal.SIGXFSZ
    assert (tmp_path / "a").read_bytes() == data[:limit]
