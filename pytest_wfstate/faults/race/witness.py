"""Witnesses: whether the steps of a client explain all that it did to files.

Native code makes no steps, nor does a file object that is older than the client's process.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from pytest_wfstate.faults.race.lookup import Lookups

_Status = tuple[int, ...]
_MOST_PATHS = 20_000  # that are kept

_scandir, _fstat, _lstat, _lseek = os.scandir, os.fstat, os.lstat, os.lseek  # the real ones, whatever replaces them


class HomeWitness:
    """Sees what changes below a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._explained = dict(self._look())
        self._explaining = threading.Lock()

    def explain(self) -> None:
        """Take whatever is different now as done by a step, or by another client."""
        with self._explaining:  # what a thread saw earlier must not replace what another one saw since
            self._explained = dict(self._look())

    def unexplained(self) -> list[str]:
        """Return the paths of what is different otherwise.

        A folder is left out if what is different is in it.
        """
        before, now = self._explained, dict(self._look())
        changed = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
        return sorted(changed - {os.path.dirname(path) for path in changed})

    def _look(self, folder: str = "") -> Iterator[tuple[str, _Status]]:
        folder = folder or self._folder
        entries: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError):  # it may be gone, or hidden
            yield folder, _status(_lstat(folder))
            with _scandir(folder) as found:
                entries += found
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._look(entry.path)
            else:
                with contextlib.suppress(OSError):  # gone since
                    yield entry.path, _status(entry.stat(follow_symlinks=False))


class WitnessedPaths:
    """After which operations it was seen that a client does nothing else before the next one.

    What it does depends on more than the names and failures of its operations, such as on what it read. So if it goes
    another way than before, the operation before that is watched the next time.
    """

    def __init__(self) -> None:
        self._paths: dict[int, set[int]] = {}
        """For each path that was watched, those one operation longer that were not."""
        self._watched: set[int] = set()
        self._path = 0

    def begin(self) -> None:
        """Begin a run."""
        self._path = 0

    def failed(self, name: str) -> None:
        """Note how the last operation failed."""
        self._path = hash((self._path, name))

    def step(self, kind: str, path: str, *, is_watched: bool) -> None:
        """Note the next operation, and whether the time before it was watched."""
        longer = hash((self._path, kind, path))
        if is_watched:
            self._watched.add(longer)
            self._paths.setdefault(self._path, set()).discard(longer)
        elif longer not in self._watched:
            self._paths[self._path].add(longer)
        self._path = longer
        if len(self._watched) > _MOST_PATHS:
            self._watched.clear()
            self._paths.clear()

    def needs_watch(self) -> bool:
        """Whether to watch what the client does next."""
        return bool(self._paths.get(self._path, {-1}))


class OlderFiles:
    """Files below home that were open before the client's process began, such as those that `setup` left open.

    They are not those of any schedule, for each of which home is built again; and all clients share their locks and
    their positions.
    """

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        found = {fd: lookups.descriptor(fd) for fd in lookups.open_descriptors()}
        self._names = {(fd, lookup.inode): lookup.name for fd, lookup in found.items() if lookup.is_below_home}
        self._left = {key: self._look(key[0]) for key in self._names}

    def name(self, fd: object) -> str | None:
        """Return the name of the file that a descriptor is of, if it is one of them."""
        if not self._names or not isinstance(fd, int):
            return None
        return self._names.get((fd, self._lookups.descriptor(fd).inode))

    def used(self) -> list[int]:
        """Return the descriptors of those that were read or written since."""
        return [fd for (fd, _), left in self._left.items() if self.name(fd) and self._look(fd) != left]

    def _look(self, fd: int) -> _Status:
        return *_status(_fstat(fd)), _lseek(fd, 0, os.SEEK_CUR)


def _status(status: os.stat_result) -> _Status:
    """Return what differs whenever a file was changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
