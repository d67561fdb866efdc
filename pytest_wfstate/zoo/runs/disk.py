"""Run stores that do not survive: a killed process, a power cut, a disk that fails."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from pytest_wfstate.stores.file import FileRunStore
from pytest_wfstate.stores.file._folder import Held, write_all
from pytest_wfstate.zoo._json import JsonRuns
from pytest_wfstate.zoo.base import animal


@animal(
    "runs",
    "kill.create",
    "kill.update",
    "kill.delete",
    "kill.upsert",
    "power.create",
    "errors.create",
    "power.update",
    "errors.update",
    "power.delete",
    "power.upsert",
    "errors.upsert",
)
class WritesInPlace(JsonRuns):
    """A run is written with `open(path, 'w')`, steps and all.

    A process that dies before the last byte leaves half a run.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.write(name, data, durable=True)
        held.sync()


@animal(
    "runs",
    "kill.create",
    "kill.update",
    "kill.upsert",
    "power.create",
    "errors.create",
    "power.update",
    "errors.update",
    "power.upsert",
    "errors.upsert",
)
class RemovesTheOldFirst(JsonRuns):
    """The file of a run is removed, then written anew, so that no old bytes are left.

    A process that dies in between leaves no run.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.unlink(name)
        super().write(held, name, data)


@animal("runs", "power.create", "power.update", "power.delete", "power.upsert")
class NeverSyncs(FileRunStore):
    """A step is acknowledged when the system has taken it, not when the disk has it.

    After a power cut it was never done.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, durability="process")


@animal(
    "runs",
    "power.create",
    "errors.create",
    "power.update",
    "errors.update",
    "power.delete",
    "power.upsert",
    "errors.upsert",
)
class ForgetsTheFolder(JsonRuns):
    """A run's file is fsynced and renamed, and its folder never fsynced.

    After a power cut the run is as it was long ago.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.write(name + ".tmp", data, durable=True)
        held.rename(name + ".tmp", name)


@animal("runs", "power.delete")
class DeletesForNow(JsonRuns):
    """A file is removed, and the folder that held its name is not fsynced. After a power cut the run is there again."""

    def delete(self, *ids: str) -> None:
        with self.folder.exclusive() as held:
            held.unlink(self.name(*ids))


@animal("runs", "create.others", "update.others", "upsert.others", "ids.never-joined")
class ClearsLeftovers(JsonRuns):
    """Before a run is written, files whose names begin with its id are cleared away.

    Run `aa` goes when a step of `a` is kept.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        for file in held.folder.home.glob(f"{name.removesuffix('.json')}?*"):
            if file.name != name:
                file.unlink()
        super().write(held, name, data)


@animal("runs", "errors.create", "errors.update", "errors.upsert")
class SwallowsErrors(JsonRuns):
    """A full disk is logged, and the run goes on. Its steps are acknowledged, and not there after a restart."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            super().write(held, name, data)


@animal("runs", "corrupt.heals", "kill.delete", "power.delete", "errors.delete")
class DeletesInTwoSteps(JsonRuns):
    """The run is deleted first, its steps afterwards. A process that dies in between leaves steps without a run."""

    def delete_run(self, run_task_id: str) -> None:
        self.check(run_task_id)
        with self.changed(run_task_id) as document:
            document.pop("run", None)
        super().delete_run(run_task_id)


@animal(
    "runs",
    "kill.create",
    "kill.update",
    "kill.upsert",
    "power.create",
    "errors.create",
    "power.update",
    "errors.update",
    "power.upsert",
    "errors.upsert",
)
class CreatesInTwoSteps(JsonRuns):
    """A run that is created again is removed first, then written, then given its steps back.

    A process that dies in between loses them.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        document = json.loads(data)
        if "run" in document and "steps" in document:
            super().write(held, name, json.dumps({"run": document["run"]}).encode())
        super().write(held, name, data)


@animal("runs", "power.create", "errors.create", "power.update", "errors.update", "power.upsert", "errors.upsert")
class AppendsToATornLine(JsonRuns):
    """Each change is a line at the end of the file, and a line that cannot be read is passed over.

    What is appended to a line that was cut short is passed over with it.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        if not held.exists(name):
            return super().write(held, name, data + b"\n")
        fd = os.open(held.path(name), os.O_WRONLY | os.O_APPEND)
        try:
            write_all(fd, data + b"\n")
            return held.folder.sync(fd)
        finally:
            os.close(fd)

    def parse(self, data: bytes) -> dict[str, Any]:
        for line in reversed(data.splitlines()):
            with contextlib.suppress(ValueError):
                return dict(json.loads(line))
        return super().parse(data)
