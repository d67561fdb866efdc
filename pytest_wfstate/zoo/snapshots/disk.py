"""Snapshot stores that do not survive: a killed process, a power cut, a disk that fails."""

from __future__ import annotations

import contextlib
import os

from pytest_wfstate.stores.file import FileSnapshotStore
from pytest_wfstate.stores.file._folder import Folder, Held
from pytest_wfstate.zoo._json import JsonSnapshots
from pytest_wfstate.zoo.base import animal


@animal("snapshots", "kill.save", "power.save", "errors.save")
class WritesInPlace(JsonSnapshots):
    """A run is written into its file, over the old content. A process that dies meanwhile leaves neither."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.write(name, data, durable=True)
        held.sync()


@animal("snapshots", "kill.save", "power.save", "errors.save")
class RemovesTheOldFirst(JsonSnapshots):
    """The old file is removed before the new one takes its name. A process that dies in between leaves none."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.unlink(name)
        super().write(held, name, data)


@animal("snapshots", "power.save", "power.fork")
class NeverSyncs(FileSnapshotStore):
    """Nothing is fsynced. A power cut takes back what was acknowledged, or leaves it torn."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, durability="process")


@animal("snapshots", "power.save", "errors.save", "power.fork", "errors.fork")
class ForgetsTheFolder(JsonSnapshots):
    """The file is fsynced before it is renamed, the folder that holds its name is not.

    A power cut brings back the old file, or none.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.write(name + ".tmp", data, durable=True)
        held.rename(name + ".tmp", name)


@animal("snapshots", "save.others")
class ClearsLeftovers(JsonSnapshots):
    """Before a file is written, all whose names begin like it are removed, for they must be leftovers of it.

    Run `aa` goes when run `a` is saved.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        for file in held.folder.home.glob(f"{name.removesuffix('.json')}?*"):
            if file.name != name:
                file.unlink()
        super().write(held, name, data)


@animal("snapshots", "errors.save", "errors.fork")
class SwallowsErrors(JsonSnapshots):
    """A save that fails is not to stop the run, so its error is swallowed. Nobody learns that the disk is full."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            super().write(held, name, data)


@animal("snapshots", "power.fork")
class ForksAreCheap(JsonSnapshots):
    """A fork can be made again, so it is not fsynced. Its id is known to others by then, and leads nowhere."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        if b'"fork-of:' in data:
            held.folder = Folder(held.folder.home, "process")
        super().write(held, name, data)
