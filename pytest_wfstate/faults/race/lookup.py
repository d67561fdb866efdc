"""Lookups: the entries and inodes that the kernel passes on its way from a path to a file.

Two paths conflict wherever they meet, whatever they are called: through a symlink, `..`, or a second path to home. What
is beside home, in the folder that was made for it, counts as what is below: a lock file is often kept there.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from typing import Any

from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.race.schedule import Key

_MOST_LINKS = 40  # that the kernel follows in one path
_fstat, _lstat, _readlink = os.fstat, os.lstat, os.readlink  # the real ones, whatever stands in for them
_getcwd, _listdir = os.getcwd, os.listdir


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where clients work: home, and the folder around it, which holds nothing that is not theirs."""

    home: str
    base: str

    @classmethod
    def of(cls, home: Home) -> Place:
        """Return the place of a home, with symlinks resolved."""
        return cls(os.path.realpath(home.path), os.path.realpath(home.base))

    def holds(self, path: str) -> bool:
        """Whether a path, without symlinks, is in it."""
        return path == self.base or path.startswith(f"{self.base}/")

    def name(self, path: str) -> str:
        """Return a path relative to home, if it is in it."""
        if path == self.home:
            return "."
        if path.startswith(f"{self.home}/") or not self.holds(path):
            return path.removeprefix(f"{self.home}/")
        return f"..{path.removeprefix(self.base)}"


@dataclasses.dataclass(slots=True)
class Lookup:
    """What is below home on the way to a file, and the file."""

    passed: list[Key] = dataclasses.field(default_factory=list)
    """The entries that were looked up on the way, and the folders that they are in."""
    entry: Key | None = None
    """The entry of the file itself, even if there is none by this name; home has none."""
    inode: int = -1
    """-1 if there is none, or nothing below home leads to it."""
    folder: int = -1
    """The inode of the folder that holds its entry."""
    size: int = 0
    is_folder: bool = False
    name: str = ""
    """The path it ends at, relative to home if it is below or beside it."""
    is_outside: bool = False
    """Whether it ends far from home, where nothing is put back."""
    names: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    """Every inode that was passed, and its path relative to home."""

    @property
    def is_below_home(self) -> bool:
        """Whether anything below home was looked at."""
        return bool(self.names)

    def end(self, status: os.stat_result | None, name: str) -> None:
        """Note the file that it ends at."""
        self.name = name
        if status is not None:
            self.inode, self.size, self.is_folder = status.st_ino, status.st_size, stat.S_ISDIR(status.st_mode)
            self.names.append((self.inode, name))


class Lookups:
    """Looks up paths and descriptors, with home as the folder that matters."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._below = f"{place.home}/"
        self._outside: set[tuple[int, int]] = set()
        """The files far from home that links led to, by device and inode."""

    def may_matter(self, file: Any, dir_fd: int | None) -> bool:
        """Whether looking up a path or descriptor leads to or through home."""
        if isinstance(file, int):
            return self.descriptor(file).is_below_home
        path = _absolute(file, dir_fd)
        return path.startswith(self._below) or self._walk(path, follow=True).is_below_home

    def find(self, file: Any, dir_fd: int | None, *, follow: bool) -> Lookup:
        """Look up a path, or a descriptor."""
        if isinstance(file, int):
            return self.descriptor(file)
        return self._walk(_absolute(file, dir_fd), follow=follow)

    def descriptor(self, fd: int, *, anywhere: bool = False) -> Lookup:
        """Look up a descriptor of a file or folder below home; or, for its locks, of one anywhere."""
        lookup = Lookup()
        try:
            status = _fstat(fd)
            path = _readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")
        except OSError:
            return lookup
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        lookup.is_outside = (status.st_dev, status.st_ino) in self._outside
        if anywhere or (is_file and (lookup.is_outside or self.place.holds(path))):
            lookup.end(status, self.place.name(path))
        return lookup

    def open_descriptors(self) -> dict[int, Lookup]:
        """Look up all descriptors of this process."""
        return {fd: self.descriptor(fd, anywhere=True) for fd in map(int, _listdir("/proc/self/fd"))}

    def _walk(self, path: str, *, follow: bool) -> Lookup:
        """Go from folder to folder as the kernel does; note what is below home, and what links from there lead to."""
        lookup = Lookup()
        folder, rest = (self.place.home, path[len(self._below) :]) if path.startswith(self._below) else ("", path)
        status = _status(folder or "/")
        pending = rest.split("/")[::-1]
        links = 0
        while pending and status is not None:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                folder = os.path.dirname(folder).rstrip("/")
                status, lookup.entry = _status(folder or "/"), None
                continue
            self._pass(lookup, folder, status, name)
            found = _status(f"{folder}/{name}")
            if found is not None and stat.S_ISLNK(found.st_mode) and (follow or pending):
                links += 1
                if links > _MOST_LINKS:
                    break
                target = _readlink(f"{folder}/{name}")
                pending += target.split("/")[::-1]
                if target.startswith("/"):
                    folder, status = "", _status("/")
                continue
            folder, status = f"{folder}/{name}", found
        missing = "/".join(["", *(name for name in reversed(pending) if name not in ("", "."))])
        if missing:
            lookup.entry = None  # a folder on the way is not there
        self._end(lookup, folder + missing, None if missing else status)
        return lookup

    def _end(self, lookup: Lookup, path: str, status: os.stat_result | None) -> None:
        is_in_place = self.place.holds(path)
        if lookup.is_below_home and not is_in_place and (status is None or stat.S_ISREG(status.st_mode)):
            lookup.is_outside = True
            if status is not None:
                self._outside.add((status.st_dev, status.st_ino))
        lookup.end(status if is_in_place or lookup.is_outside else None, self.place.name(path))

    def _pass(self, lookup: Lookup, folder: str, status: os.stat_result, name: str) -> None:
        lookup.entry = None
        if lookup.is_below_home or self.place.holds(folder):
            lookup.entry, lookup.folder = ("entry", status.st_ino, name), status.st_ino
            lookup.passed += [("inode", status.st_ino, ""), lookup.entry]
            lookup.names.append((status.st_ino, self.place.name(folder)))


def _absolute(path: Any, dir_fd: int | None) -> str:
    try:
        text = os.fsdecode("." if path is None else path)
        if text.startswith("/"):
            return text
        return os.path.join(_getcwd() if dir_fd is None else _readlink(f"/proc/self/fd/{dir_fd}"), text)
    except (OSError, TypeError):
        return "/"  # the call will fail too


def _status(path: str) -> os.stat_result | None:
    try:
        return _lstat(path)
    except (OSError, ValueError):
        return None
