"""Stores that delete too much, too little, or what is not theirs."""

from __future__ import annotations

from typing import Any

from pytest_wfstate.errors import NotFound
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import trait
from pytest_wfstate.zoo.json_stores import JsonFiles


@trait(
    paused="remove.idempotent remove.others recover.older-than-paused-again race.killed-remove",
)
class DeleteWantsIt(JsonFiles):
    """To delete what is not there is an error. Who cleans up after a crash, and is not the first, fails."""

    def drop(self, *ids: str) -> None:
        self.check(*ids)
        if not self.folder.path(self.name(*ids)).exists():
            raise NotFound(f"there is no run {ids}")
        super().drop(*ids)


@trait(effects="delete.others", paused="complete.others remove.others")
class DeletesAllThatBeginAlike(JsonFiles):
    """A delete takes along every file that begins with the id, to get at leftovers too. With `run-1` goes `run-10`."""

    def unlink(self, held: LockedFolder, name: str) -> None:
        held.unlink(*(one for one in held.names() if one.startswith(name.removesuffix(".json"))))
        super().unlink(held, name)


@trait(runs="create.others update.others upsert.others ids.never-joined", snapshots="save.others")
class SaveClearsAllThatBeginAlike(JsonFiles):
    """Before a file is written, all whose names begin like it are removed, for they must be leftovers of it.

    Run `aa` goes when run `a` is saved.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.unlink(*(one for one in held.names() if one.startswith(name.removesuffix(".json")) and one != name))
        super().write(held, name, data)


@trait(
    effects="mark.after-delete save.after-delete delete.seen-at-once race.mark-delete",
)
class DeletedForGood(JsonFiles):
    """A delete leaves a tombstone, lest a late save bring the run back. Nobody can ever use its id again."""

    def unlink(self, held: LockedFolder, name: str) -> None:
        super().unlink(held, name)
        held.replace(name + ".gone", b"")

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        if not held.exists(name + ".gone"):
            super().write(held, name, data)


@trait(effects="delete.forgets mark.after-delete")
class BackupComesBack(JsonFiles):
    """The file before the last is kept as a backup, and read if there is no other.

    A delete leaves it: the run is back, one step younger.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        before = self.folder.read(name)
        if before is not None:
            held.replace(name + ".bak", before)
        super().write(held, name, data)

    def document(self, name: str) -> dict[str, Any]:
        return super().document(name) or super().document(name + ".bak")


@trait(
    resume="kill.delete power.delete errors.delete race.load",
)
class DeletedInTwoSteps(JsonFiles):
    """A delete empties the file and then removes it. Who dies in between leaves a run that cannot be read."""

    def unlink(self, held: LockedFolder, name: str) -> None:
        if held.exists(name):
            held.write(name, b"", durable=True)
        super().unlink(held, name)
