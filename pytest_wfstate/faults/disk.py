"""A disk: what a crash left, at the very path that the workload used."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Content = Mapping[str, bytes | str | None]
"""Path below home to the bytes of a file, the target of a symlink, or None for a folder."""

_MEMORY = "/dev/shm"
_ROOM = 256 * 2**20


class Disk:
    """What a check gets to see: the disk after a crash, and what the outside knows."""

    def __init__(self, home: Path, acked: list[Any], effects: list[str], crash: Callable[[], str]) -> None:
        self.home = home
        """The folder, as the crash left it."""
        self.acked = acked
        """What the workload had acknowledged, by `crash.ack(value)`, in order."""
        self.effects = effects
        """What it had done to the outside world, such as `charge('order-1', 12)`, in order."""
        self._crash = crash

    @property
    def crash(self) -> str:
        """Where it died, in words."""
        return self._crash()

    def __repr__(self) -> str:
        return f"<Disk {self.home}, acked {self.acked}, effects {self.effects}, crash: {self.crash}>"


class Home:
    """A folder that can be made to hold anything, again and again, with new inodes each time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def build(self, content: Content) -> None:
        """Make the folder hold `content`, and nothing else."""
        _remove(self.path)
        os.mkdir(self.path)
        base = f"{self.path}/"
        for path, held in content.items():
            if held is None:
                os.mkdir(base + path)
            elif isinstance(held, str):
                os.symlink(held, base + path)
            else:
                fd = os.open(base + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                try:
                    while held:
                        held = held[os.write(fd, held) :]
                finally:
                    os.close(fd)

    def content(self) -> dict[str, bytes | str | None]:
        """Read what the folder holds."""
        return dict(sorted(_read(self.path, "")))


@contextlib.contextmanager
def memory_home() -> Iterator[Home]:
    """Make a home for the time of an exploration: in memory where there is room, for speed, else on the disk."""
    base = tempfile.mkdtemp(prefix="wfstate-", dir=_MEMORY if _has_room(_MEMORY) else None)
    try:
        home = Home(Path(base) / "home")
        os.mkdir(home.path)
        yield home
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _has_room(folder: str) -> bool:
    try:
        return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM
    except OSError:
        return False


def _remove(path: str | os.PathLike[str]) -> None:
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            _remove(entry.path)
        else:
            os.unlink(entry.path)
    os.rmdir(path)


def _read(folder: str | os.PathLike[str], prefix: str) -> Iterator[tuple[str, bytes | str | None]]:
    for entry in os.scandir(folder):
        path = prefix + entry.name
        if entry.is_symlink():
            yield path, os.readlink(entry.path)
        elif entry.is_dir():
            yield path, None
            yield from _read(entry.path, path + "/")
        else:
            yield path, Path(entry.path).read_bytes()
