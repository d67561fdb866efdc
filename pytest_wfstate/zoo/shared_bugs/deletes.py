"""Stores that delete too much, too little, or the wrong record."""

from __future__ import annotations

from typing import Any

from pytest_wfstate.errors import NotFound
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import shared_bug
from pytest_wfstate.zoo.correct_stores import JsonFiles


@shared_bug(
    paused="remove.idempotent remove.others recover.older-than-paused-again race.remove-renew",
    history="clear.idempotent",
)
class DeleteWantsIt(JsonFiles):
    """Deleting a missing record raises an error. When two processes clean up after a crash, the second one fails."""

    def drop(self, *ids: str) -> None:
        self.check(*ids)
        if not self.folder.path(self.name(*ids)).exists():
            raise NotFound(f"no record of {ids}")
        super().drop(*ids)


@shared_bug(effects="delete.others", paused="complete.others remove.others", history="append.others")
class DeletesAllThatBeginAlike(JsonFiles):
    """A delete removes every file whose name starts with the id, as leftovers. `run-10` is deleted with `run-1`."""

    def unlink(self, held: LockedFolder, name: str) -> None:
        held.unlink(*(other for other in held.names() if other.startswith(name.removesuffix(".json"))))
        super().unlink(held, name)


@shared_bug(runs="create.others update.others upsert.others ids.never-joined", snapshots="save.others")
class SaveClearsAllThatBeginAlike(JsonFiles):
    """A save first removes all files whose names start like its own, as leftovers. Saving run `a` deletes run `aa`."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        stem = name.removesuffix(".json")
        held.unlink(*(other for other in held.names() if other.startswith(stem) and other != name))
        super().write(held, name, data)


@shared_bug(
    effects="mark.after-delete save.after-delete delete.seen-at-once",
    history="append.after-clear clear.elsewhere",
)
class DeletedForGood(JsonFiles):
    """A delete leaves a tombstone, so that no late save brings the run back. The id can never be used again."""

    def unlink(self, held: LockedFolder, name: str) -> None:
        super().unlink(held, name)
        held.replace(name + ".gone", b"")

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        if not held.exists(name + ".gone"):
            super().write(held, name, data)


@shared_bug(effects="delete.forgets mark.after-delete", history="clear.forgets append.after-clear append.others")
class BackupComesBack(JsonFiles):
    """The previous version of a file is kept as a backup, and read if the file is missing.

    A delete leaves the backup: the run is back in its previous state.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        before = self.folder.read(name)
        if before is not None:
            held.replace(name + ".bak", before)
        super().write(held, name, data)

    def document(self, name: str) -> dict[str, Any]:
        return super().document(name) or super().document(name + ".bak")


@shared_bug(
    resume="kill.delete power.delete errors.delete race.load", history="kill.clear power.clear errors.clear race.read"
)
class DeletedInTwoSteps(JsonFiles):
    """A delete empties the file and then removes it. A crash in between leaves a run that cannot be read."""

    def unlink(self, held: LockedFolder, name: str) -> None:
        if held.exists(name):
            held.write(name, b"", durable=True)
        super().unlink(held, name)
