"""A disk: what a crash left, at the very path that the workload used."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_wfstate.errors import WfstateError

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

Content = Mapping[str, bytes | str | None]
"""Path below home to the bytes of a file, the target of a symlink, or None for a folder."""

_MEMORY = "/dev/shm"
_ROOM = 256 * 2**20


class NoRealDisk(WfstateError, RuntimeError):
    """There is no real disk to work on: pyfakefs has put its own in its place."""

    __module__ = "pytest_wfstate"


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
        return f"<Disk {self.home}>"  # short, because pytest shows it wherever a check asserts something


class Home:
    """A folder that can be made to hold anything, again and again, with new inodes each time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def build(self, content: Content, links: Mapping[str, str]) -> None:
        """Make the folder hold `content`, and nothing else; `links` are second names of files, with the first."""
        remove(self.path)
        os.mkdir(self.path)
        base = f"{self.path}/"
        for path, held in content.items():
            if path in links:
                os.link(base + links[path], base + path, follow_symlinks=False)
            elif held is None:
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

    def links(self) -> dict[str, str]:
        """Find files that have several names: all but the first name, with the first."""
        names: dict[int, str] = {}
        links: dict[str, str] = {}
        for path in self.content():
            found = os.lstat(self.path / path)
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                first = names.setdefault(found.st_ino, path)
                links |= {path: first} if first != path else {}
        return links


def need_real_disk() -> None:
    """Refuse to work on a disk that pyfakefs has made up.

    Raises:
        NoRealDisk: it has.
    """
    if not isinstance(os, types.ModuleType):  # pyfakefs puts an object of its own here, as in every module
        raise NoRealDisk(
            "crash and fake_disk cannot be used in one test: the lab records what is done to real files, and fake_disk "
            "(pyfakefs) has put a disk of its own in their place. Write two tests; for a full disk there is also "
            'crash.errors(workload, check, errors=("ENOSPC",)).'
        )


@contextlib.contextmanager
def memory_home(name: str = "home") -> Iterator[Home]:
    """Make a home for the time of an exploration: in memory where there is room, for speed, else on the disk."""
    base = tempfile.mkdtemp(prefix="wfstate-", dir=memory_folder())
    try:
        home = Home(Path(base) / name)
        os.mkdir(home.path)
        yield home
    finally:
        with contextlib.suppress(OSError):
            remove(base)


def memory_folder(room: int = _ROOM) -> str | None:
    """Give a folder that is kept in memory and has so many bytes of room; or None, for the usual one on the disk."""
    try:
        has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > room
    except OSError:
        return None
    return _MEMORY if has_room else None


def remove(path: str | os.PathLike[str]) -> None:
    """Remove whatever is there, also folders that may not be read or written, and nothing that a link leads to."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # what unlinking a folder fails with depends on the system
        _remove_folder(path)


def _remove_folder(path: str | os.PathLike[str]) -> None:
    try:
        _empty(path)
    except PermissionError:
        os.chmod(path, 0o700)
        _empty(path)
    os.rmdir(path)


def _empty(path: str | os.PathLike[str]) -> None:
    with os.scandir(path) as found:
        entries = list(found)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            _remove_folder(entry.path)
        else:
            os.unlink(entry.path)


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
