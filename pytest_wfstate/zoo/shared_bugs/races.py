"""Stores that are correct as long as only one worker runs."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar

from pytest_wfstate.stores.file.folder import Folder, LockedFolder
from pytest_wfstate.stores.file.scope import scope
from pytest_wfstate.zoo.base import shared_bug
from pytest_wfstate.zoo.correct_stores import JsonFiles


class LockOfAHandle(Folder):
    """A folder whose lock is in the memory of one handle and ignored by all others."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home, "power")
        self._own = threading.Lock()

    @scope
    def exclusive(self, id_: str | None = None) -> Generator[LockedFolder]:  # noqa: ARG002 - no other program's files
        """Exclude the other threads of this handle."""
        self._settle()
        fd = os.open(self.home, os.O_RDONLY)
        try:
            with self._own:
                yield LockedFolder(self, fd)
        finally:
            os.close(fd)

    @scope
    def shared(self) -> Generator[list[str]]:
        """Exclude the other threads of this handle."""
        with self._own:
            yield os.listdir(self.home) if self.exists() else []


class LockFile(Folder):
    """A folder that is locked while a file exists. A holder that dies leaves the file behind."""

    _TRIES = 20

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home, "power")
        self._lock = self.path(".lock")

    @scope
    def exclusive(self, id_: str | None = None) -> Generator[LockedFolder]:  # noqa: ARG002 - no other program's files
        """Wait a while for the file to disappear."""
        self._settle()
        tries = 0
        while not self._acquired():
            tries += 1
            if tries == self._TRIES:
                raise TimeoutError(f"{self._lock} has existed for too long")
            time.sleep(0.01)
        fd = os.open(self.home, os.O_RDONLY)
        try:
            yield LockedFolder(self, fd)
        finally:
            os.close(fd)
            os.unlink(self._lock)

    def _acquired(self) -> bool:
        try:
            os.close(os.open(self._lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@shared_bug(
    effects="race.save-save race.save-mark race.mark-mark race.mark-delete",
    paused="race.save-save race.save-claim race.save-complete race.save-recover race.claim-claim "
    "race.claim-complete race.claim-recover race.claim-remove race.complete-complete "
    "race.complete-recover race.recover-recover race.recover-remove race.renew-renew race.recover-renew "
    "race.remove-renew race.save-renew race.claim-renew race.complete-renew",
    resume="race.save-save",
    runs="race.create-run-create-run race.create-run-update-context race.create-run-delete-run "
    "race.create-run-upsert-step race.update-context-update-context race.update-context-delete-run "
    "race.update-context-upsert-step race.delete-run-upsert-step race.upsert-step-upsert-step",
    snapshots="race.save-save",
    history="race.append-append race.append-pop race.append-clear race.pop-pop race.pop-clear",
    queue="race.put-put race.put-take race.put-done race.put-recover race.take-take race.take-done "
    "race.take-recover race.done-done race.done-recover race.recover-recover",
    lock="race.acquire-acquire race.acquire-renew race.acquire-release race.renew-renew "
    "race.renew-release race.release-release",
)
class LockPerHandle(JsonFiles):
    """Each handle has a lock of its own, which excludes only its own threads. Two workers have two handles."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = LockOfAHandle(home)


@shared_bug(
    paused="kill.save kill.claim kill.complete kill.recover kill.remove power.save power.claim power.complete "
    "power.recover power.remove errors.save errors.claim errors.complete errors.recover errors.remove "
    "race.killed-save race.killed-claim race.killed-complete race.killed-recover race.killed-remove "
    "kill.fenced-complete power.fenced-complete errors.fenced-complete kill.renew power.renew "
    "errors.renew kill.takeover power.takeover errors.takeover race.killed-renew"
)
class LeavesItsLock(JsonFiles):
    """The lock is a file that exists or not. A killed process leaves it behind, and all others are locked out."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = LockFile(home)


@shared_bug(
    effects="errors.delete race.delete-delete",
    paused="errors.remove race.complete-remove race.remove-remove race.remove-renew",
    resume="errors.delete race.delete-delete",
    runs="errors.delete race.delete-run-delete-run",
    history="errors.clear race.clear-clear",
)
class ChecksThenDeletes(JsonFiles):
    """A delete checks that the file exists and then removes it. If another worker removes it in between, it fails."""

    def drop(self, *ids: str) -> None:
        self.check(*ids)
        path = self.folder.path(self.name(*ids))
        if path.exists():
            with self.folder.exclusive() as held:
                path.unlink()
                held.sync()


@shared_bug(
    effects="race.save-delete", paused="race.save-remove race.save-complete race.save-renew", resume="race.save-delete"
)
class CopiesTheOldOne(JsonFiles):
    """A save first copies the existing file as a backup. If the file is deleted in between, the save fails."""

    def put(self, record: Any) -> None:
        path = self.folder.path(self.name(record.task_id if hasattr(record, "task_id") else record.run_id))
        if path.exists():
            shutil.copyfile(path, path.with_suffix(".old"))
        super().put(record)


@shared_bug(
    effects="race.load",
    paused="race.load",
    resume="race.load",
    runs="race.get-run race.get-step race.list-steps",
    history="race.read",
)
class ExistsThenOpens(JsonFiles):
    """A load checks that the file exists and then opens it. If it is deleted in between, the load fails."""

    def document(self, name: str) -> dict[str, Any]:
        path = self.folder.path(name)
        return self.parse(path.read_bytes()) if path.exists() else {}


@shared_bug(snapshots="race.save-save race.save-fork race.fork-fork")
class ListsItsRuns(JsonFiles):
    """A file lists all runs; it is read before a save and written after it. Of two concurrent new runs, one is lost."""

    def put(self, record: Any) -> None:
        runs, name = self.listed(), self.name(record.key.workflow_id, record.key.run_id)
        super().put(record)
        with self.folder.exclusive() as held:
            held.replace("runs", json.dumps(sorted({*runs, name})).encode())

    def document(self, name: str) -> dict[str, Any]:
        return super().document(name) if name in self.listed() else {}

    def listed(self) -> list[str]:
        """Return the listed runs."""
        return json.loads(self.folder.read("runs") or b"[]")  # type: ignore[no-any-return]


@shared_bug(
    effects="race.first-use",
    paused="race.first-use",
    resume="race.first-use race.save-save race.load",
    runs="race.first-use",
    snapshots="race.first-use",
    history="race.first-use race.append-append race.read",
    queue="race.first-use race.put-put race.list",
    lock="race.first-use race.acquire-acquire race.acquire-renew race.renew-renew "
    "race.acquire-release race.renew-release race.release-release race.held",
)
class MakesItsFolder(JsonFiles):
    """A new handle makes the folder of the store unless it is there. Of two first ones, both make it, and one fails."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        folder = os.path.join(home, "records")
        if not os.path.exists(folder):
            os.mkdir(folder)
        super().__init__(folder)


@shared_bug(paused="iterators.half-read", runs="iterators.half-read", snapshots="iterators.half-read")
class ListsUnderItsLock(JsonFiles):
    """A list is an iterator, and the process has the lock until it is read to its end. Nobody can write until then."""

    being_read: ClassVar[Counter[str]] = Counter()
    """How many iterators of this process are half-read, by folder."""

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        return functools.partial(self.one_by_one, method) if name in ("list", "list_steps") else method

    def one_by_one(self, method: Callable[..., list[Any]], *args: Any) -> Iterator[Any]:
        """Yield the items of a list."""
        folder = str(self.folder.home)
        self.being_read[folder] += 1
        yield from method(*args)
        self.being_read[folder] -= 1

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        if self.being_read[str(self.folder.home)]:
            raise TimeoutError("the lock is taken")
        super().write(held, name, data)
