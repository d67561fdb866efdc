"""A workload that writes in many ways. It prints what was recorded, one op per line. Run under strace."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import aiofiles
import aiofiles.os

from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.trace.ops import OPS, Write
from tests.unit.faults.trace.texts import in_words


def main(home: Path) -> None:
    with open(home / "text", "w") as file:
        for number in range(3000):
            file.write(f"line {number}\n")
        file.flush()
        os.fsync(file)
    with open(home / "text", "r+b") as update:
        update.seek(5000)
        update.write(b"x" * 10_000)
        update.truncate(7000)
    with open(home / "raw", "wb", buffering=0) as raw:
        raw.write(b"1")
        os.pwrite(raw.fileno(), b"22", 5)
        os.writev(raw.fileno(), [b"3", b"33"])
        os.posix_fallocate(raw.fileno(), 0, 100)
        os.fdatasync(raw.fileno())
    shutil.copyfile(home / "text", home / "copy")
    os.replace(home / "copy", home / "raw")
    (home / "folder" / "deep").mkdir(parents=True)
    shutil.copytree(home / "folder", home / "tree")
    with tempfile.NamedTemporaryFile(dir=home / "tree", delete=False) as named:
        named.write(b"4444")
    os.link(named.name, home / "linked")
    os.symlink("linked", home / "soft")
    with open(home / "soft", "w") as text:
        json.dump({"key": list(range(100))}, text)
    shutil.rmtree(home / "tree")
    os.truncate(home / "linked", 3)
    fd = os.open(home, os.O_RDONLY)
    os.fsync(fd)
    os.rename("linked", "folder/linked", src_dir_fd=fd, dst_dir_fd=fd)
    os.close(fd)
    asyncio.run(in_threads(home))


async def in_threads(home: Path) -> None:
    async with aiofiles.open(home / "async", "w") as file:
        await file.write("55555")
    await aiofiles.os.rename(home / "async", home / "renamed")
    await asyncio.to_thread((home / "renamed").unlink)


if __name__ == "__main__":
    home = Path(sys.argv[1])
    with Recorder(home) as recorder:
        main(home)
    assert recorder.unmeasured == [], recorder.unmeasured
    ops = [item for item in recorder.trace().items if isinstance(item, OPS)]
    for text, op in zip(in_words(recorder.trace()), ops, strict=True):
        print(text.split()[0], len(op.data) if isinstance(op, Write) else 0)  # noqa: T201
