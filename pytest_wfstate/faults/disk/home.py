"""A disk: what a crash left, at the same path that the workload used."""

from __future__ import annotations

import contextlib
import os
import stat
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.folders import Content, memory_folder, read_content, remove
from pytest_wfstate.faults.temporary import TemporaryFolder

__tracebackhide__ = True


class NoRealDisk(WfstateError, RuntimeError):
    """The test runs on the file system of pyfakefs, not on a real disk."""


class Disk:
    """The disk after a crash, and what the outside knows: the argument of a check."""

    def __init__(self, home: Path, acked: list[Any], effects: list[str], crash: Callable[[], str]) -> None:
        self.home = home
        """The folder, as the crash left it."""
        self.acked = acked
        """What the workload had acknowledged by `crash.ack(value)`, in order."""
        self.effects = effects
        """What the workload had done to the outside world, such as `charge('order-1', 12)`, in order."""
        self._crash = crash

    @property
    def crash(self) -> str:
        """Where the workload died, as a sentence."""
        return self._crash()

    def __repr__(self) -> str:
        return f"<Disk {self.home}>"  # short: pytest shows it in every failed assertion


class HomeImage(NamedTuple):
    """What a home holds, as data: enough to build it again."""

    content: Content
    links: Mapping[str, str]
    """Further names of files with several, each mapped to the first."""
    times: Mapping[str, int]
    """When each file and folder was last modified, in nanoseconds; home itself is "."."""
    modes: Mapping[str, int] = {}
    """The permissions of each file and folder, where they are known."""
    attributes: Mapping[str, Mapping[str, bytes]] = {}
    """The extended attributes of files and folders that have any."""


class Home:
    """A folder that can be rebuilt with any content, with new inodes each time."""

    def __init__(self, path: Path, base: Path | None = None) -> None:
        self.path = path
        self.base = base or path
        """The folder that was made for it, which holds nothing else at first; or the same."""

    @property
    def surroundings(self) -> Home:
        """That folder, as one to build again in place of home alone."""
        return Home(self.base)

    def build(
        self,
        content: Content,
        links: Mapping[str, str],
        times: Mapping[str, int] | None = None,
        modes: Mapping[str, int] | None = None,
        attributes: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> None:
        """Make the folder hold exactly this, as in a `HomeImage`. What has no time is as new as it is."""
        remove(self.path)
        os.mkdir(self.path)
        base = f"{self.path}/"
        for path, data in content.items():
            if path in links:
                os.link(base + links[path], base + path, follow_symlinks=False)
            elif data is None:
                os.mkdir(base + path)
            elif isinstance(data, str):
                os.symlink(data, base + path)
            else:
                fd = os.open(base + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                try:
                    while data:
                        data = data[os.write(fd, data) :]
                finally:
                    os.close(fd)
        for path, named in (attributes or {}).items():
            for name, value in named.items():
                os.setxattr(base + path, name, value)
        for path, mode in (modes or {}).items():
            os.chmod(base + path, mode)
        for path, time in (times or {}).items():
            os.utime(base + path, ns=(time, time), follow_symlinks=False)

    def image(self) -> HomeImage:
        """Return what the folder holds, to build it again."""
        content = self.content()
        found = {path: os.lstat(self.path / path) for path in (*content, ".")}
        real = {path: status for path, status in found.items() if not stat.S_ISLNK(status.st_mode)}
        return HomeImage(
            content,
            self.links(),
            times={path: status.st_mtime_ns for path, status in found.items()},
            modes={path: stat.S_IMODE(status.st_mode) for path, status in real.items()},
            attributes={path: named for path in real if (named := _attributes(self.path / path))},
        )

    def content(self) -> dict[str, bytes | str | None]:
        """Return what the folder holds."""
        return read_content(self.path)

    def links(self) -> dict[str, str]:
        """Return the further names of files with several, each mapped to the first."""
        names: dict[int, str] = {}
        links: dict[str, str] = {}
        for path in self.content():
            status = os.lstat(self.path / path)
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                first = names.setdefault(status.st_ino, path)
                links |= {path: first} if first != path else {}
        return links


def _attributes(path: Path) -> dict[str, bytes]:
    """Return the extended attributes of a file that any program may set, if the system has them."""
    with contextlib.suppress(AttributeError, OSError):
        return {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")}
    return {}


def need_real_disk() -> None:
    """Raise if pyfakefs has replaced the disk.

    Raises:
        NoRealDisk: it has.
    """
    if not isinstance(os, types.ModuleType):  # pyfakefs replaces `os` in every module
        raise NoRealDisk(
            "crash and fake_disk cannot be used in the same test: the lab records real files, and fake_disk (pyfakefs) "
            'replaces them. Write two tests. For a full disk, use crash.errors(workload, check, errors=("ENOSPC",)).'
        )


@contextlib.contextmanager
def memory_home(name: str = "home") -> Iterator[Home]:
    """Make a home for a block: in memory if there is room, which is faster, else on the disk."""
    folder = TemporaryFolder("home", memory_folder())
    try:
        home = Home(folder.path / name, folder.path)
        os.mkdir(home.path)
        yield home
    finally:
        folder.remove()
