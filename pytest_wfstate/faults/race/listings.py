"""Listings of folders: read in one step, and each entry looked at when the client asks for more than its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pytest_wfstate.faults.race.file_calls import Effect, Target
from pytest_wfstate.faults.race.file_steps import FileSteps

_RealEntry = os.DirEntry


class _StandsInForEntry(type):
    """Makes `isinstance` true for real entries too, which the client may have kept."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, _RealEntry)


class SteppedEntry(metaclass=_StandsInForEntry):
    """An entry of a listing, whose lookups wait for the schedule. As with the real one, each is made only once."""

    def __init__(self, entry: os.DirEntry[Any], folder: int | None, steps: FileSteps) -> None:
        self._entry = entry
        self._folder = folder
        self._steps = steps
        self._seen: set[bool] = set()

    @property
    def name(self) -> Any:
        """The name in its folder."""
        return self._entry.name

    @property
    def path(self) -> Any:
        """The path of the listing, and the name."""
        return self._entry.path

    def inode(self) -> int:
        """Return the number of its inode, known from the listing."""
        return self._entry.inode()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        if follow_symlinks and self._entry.is_symlink():
            self._look(Effect.PROBE, follow=True)
        return self._entry.is_dir(follow_symlinks=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""
        if follow_symlinks and self._entry.is_symlink():
            self._look(Effect.PROBE, follow=True)
        return self._entry.is_file(follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        """Whether it is a symlink, known from the listing."""
        return self._entry.is_symlink()

    def is_junction(self) -> bool:
        """Return False: there are none on this system."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its status."""
        self._look(Effect.STAT, follow=follow_symlinks and self._entry.is_symlink())
        return self._entry.stat(follow_symlinks=follow_symlinks)

    def __fspath__(self) -> Any:
        return self._entry.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def _look(self, effect: Effect, *, follow: bool) -> None:
        if follow not in self._seen:
            self._seen.add(follow)
            self._steps.step("stat", Target(self._entry.path, effect, self._folder, follow))


class SteppedListing:
    """An iterator over the entries of a folder."""

    def __init__(self, entries: Any, folder: int | None, steps: FileSteps) -> None:
        with entries:
            self._entries: Iterator[SteppedEntry] = iter([SteppedEntry(entry, folder, steps) for entry in entries])

    def __iter__(self) -> Iterator[SteppedEntry]:
        return self

    def __next__(self) -> SteppedEntry:
        return next(self._entries)

    def __enter__(self) -> SteppedListing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the entries that are left."""
        self._entries = iter(())
