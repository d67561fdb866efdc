"""Stores that do not return what was saved."""

from __future__ import annotations

import builtins
import json
from typing import Any

from pytest_wfstate.contracts.framework import FrameworkType
from pytest_wfstate.errors import NotFound
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import shared_bug
from pytest_wfstate.zoo.correct_stores import JsonFiles, R


@shared_bug(
    effects="load.missing save.load mark.creates delete.forgets delete.idempotent ids.never-collide mark.wrong-effect "
    "save.after-delete delete.seen-at-once delete.others corrupt.heals save.unsound random.calls",
    paused="load.missing save.load claim.takes complete.ends recover.rearms remove.paused remove.idempotent "
    "ids.never-collide claim.leaves-winner claim.replaces save.after-end save.refused "
    "recover.paused-again recover.once complete.idempotent complete.leaves-paused complete.paused-again "
    "complete.after-restart complete.others complete.own-again remove.claimed remove.both values.unknown "
    "ids.refused-by-all ids.claimed ids.claims-never-collide corrupt.heals complete.not-anothers "
    "complete.not-anothers-after-save recover.older-than recover.age-of-last-claim recover.bad-age "
    "random.calls complete.token complete.token-lost renew.ended complete.token-not-handle "
    "renew.paused-again complete.token-paused-again complete.token-once token.others token.refused",
    resume="load.missing save.load delete.forgets delete.idempotent ids.never-collide save.after-delete "
    "delete.seen-at-once delete.others load.before-folder corrupt.heals save.unsound random.calls",
    runs="load.missing save.load steps.missing delete.forgets delete.idempotent "
    "ids.never-collide update.unknown update.steps-alone update.after-delete "
    "upsert.before-run steps.begin-anew delete.steps-alone delete.seen-at-once "
    "ids.steps-never-collide ids.never-joined corrupt.heals random.calls",
    snapshots="load.missing save.load ids.never-collide load.exact workflows.apart fork.any-step fork.source-untouched "
    "fork.workflow fork.missing values.refused fork.missing-named ids.never-joined random.calls",
    history="load.missing random.calls save.load pop.empty clear.forgets clear.idempotent "
    "ids.never-collide append.nothing append.others append.all-or-none read.bad-limit "
    "pop.falsy pop.elsewhere clear.elsewhere corrupt.heals errors.pop",
    queue="load.missing random.calls take.elsewhere done.token-lost done.token-once "
    "retry.token-lost retry.token-once token.others token.refused recover.age-of-last-take "
    "recover.bad-age take.hides done.ends recover.waits put.taken",
    lock="acquire.free random.calls ids.never-collide held.elsewhere renew.free acquire.bad-time",
)
class MissingIsAnError(JsonFiles):
    """Loading a missing record raises an error, as if it were lost. The first start of a run looks like a failure."""

    def answer(self, record: R | None) -> R | None:
        if record is None:
            raise NotFound("no such record")
        return record


@shared_bug(
    effects="save.replaces save.survives-restart handles.see-each-other mark.after-save save.after-marks "
    "corrupt.heals errors.save",
    paused="save.replaces save.survives-restart handles.see-each-other corrupt.heals errors.save "
    "race.save-recover race.killed-recover",
    resume="save.replaces save.survives-restart handles.see-each-other save.shorter save.others save.elsewhere "
    "corrupt.heals errors.save errors.delete",
    runs="save.replaces save.survives-restart handles.see-each-other create.keeps-steps create.replaces-all "
    "create.keeps-times update.newest update.stamp-alone errors.create",
)
class FirstSaveWins(JsonFiles):
    """A record is written only if there is none, so that workers do not overwrite each other.

    A run that has reached a later stage resumes at an earlier one.
    """

    def put(self, record: Any) -> None:
        if self.stored(record) is None:
            super().put(record)


@shared_bug(
    paused="values.falsy", resume="values.falsy", runs="values.falsy", snapshots="values.falsy fork.edits-falsy"
)
class FalsyIsDropped(JsonFiles):
    """Values are stored only `if value`, to keep files small. Zero, false and "" are lost."""

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        record = super().decode(kind, fields)
        free = {name: value for name, value in record if isinstance(value, dict)}
        return record.model_copy(update={name: _not_falsy(value) for name, value in free.items()})


def _not_falsy(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value or isinstance(value, (list, dict))}


@shared_bug(paused="values.unknown", runs="create.framework-fields")
class UnknownIsDropped(JsonFiles):
    """A record is copied field by field, as far as its fields are known.

    What a newer framework has added is gone when the run resumes.
    """

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        record = super().decode(kind, fields)
        for _, part in record:
            if isinstance(part, FrameworkType):
                part.__pydantic_extra__.clear()
        return record


@shared_bug(
    effects="values.unicode ids.any-text ids.never-collide mark.values mark.any-id mark.ids-differ",
    paused="values.unicode ids.any-text ids.never-collide ids.claimed ids.claims-never-collide",
    resume="values.unicode ids.any-text ids.never-collide",
    runs="values.unicode ids.any-text ids.never-collide ids.any-step ids.steps-never-collide",
    snapshots="values.unicode ids.any-text ids.never-collide ids.any-workflow",
    history="values.unicode",
    queue="values.unicode ids.any-text ids.never-collide",
)
class AsciiOnly(JsonFiles):
    """Text is written as ASCII, and all other characters are silently dropped. 送金 is gone."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        super().write(held, name, data.decode().encode("ascii", errors="ignore"))


@shared_bug(
    effects="values.large mark.values",
    paused="values.large",
    resume="values.large",
    runs="values.large",
    snapshots="values.large",
    history="values.large",
    queue="values.large",
)
class FilesCutShort(JsonFiles):
    """A file is written by one call that takes at most 64 KiB. Longer records are truncated and cannot be read."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        super().write(held, name, data[: 64 * 1024])


@shared_bug(
    resume="save.exact-numbers",
    snapshots="save.any-step list.stamps",
    history="append.exact-numbers",
    queue="put.exact-numbers",
)
class NumbersAreDoubles(JsonFiles):
    """Integers pass through a double, as in JavaScript. A 17-digit account number ends in a different digit."""

    def parse(self, data: bytes) -> dict[str, Any]:
        super().parse(data)
        document: dict[str, Any] = json.loads(data, parse_int=lambda digits: int(float(digits)))
        return document


@shared_bug(effects="save.unsound", paused="save.refused", runs="values.refused", snapshots="values.refused")
class SavesUnchecked(JsonFiles):
    """A record is written without being validated.

    Whatever its caller has put into it since it was created replaces a valid record, and is loaded as something
    else or not at all.
    """

    def checked(self, kind: Any, record: Any) -> Any:
        return record.model_copy(deep=True) if isinstance(record, kind) else super().checked(kind, record)


@shared_bug(paused="list.thousand", runs="list.thousand steps.many", queue="list.thousand")
class ListsAHundred(JsonFiles):
    """A list has at most a hundred items, as a page of a database client does. The hundred-first is never resumed."""

    def list(self) -> builtins.list[str]:
        return super().list()[:100]  # type: ignore[misc, no-any-return]

    def list_steps(self, run_task_id: str) -> builtins.list[Any]:
        return super().list_steps(run_task_id)[:100]  # type: ignore[misc, no-any-return]


@shared_bug(
    paused="values.any",
    resume="values.any",
    runs="values.any",
    snapshots="values.any",
    history="values.any",
    queue="values.any",
)
class FloatsAreRounded(JsonFiles):
    """Floats are kept with 15 significant digits, as a DECIMAL column may. A sum of prices differs in its last bit."""

    def parse(self, data: bytes) -> dict[str, Any]:
        super().parse(data)
        document: dict[str, Any] = json.loads(data, parse_float=lambda digits: float(f"{float(digits):.15g}"))
        return document


@shared_bug(effects="values.any", paused="values.any", resume="values.any", runs="values.any", snapshots="values.any")
class TextIsTrimmed(JsonFiles):
    """Spaces around a text are cut off, as forms and CHAR columns do. A tool's output is no longer what it was."""

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        record = super().decode(kind, fields)
        return record.model_copy(update={name: value.strip() for name, value in record if isinstance(value, str)})


@shared_bug(paused="values.any", resume="values.any", runs="values.any")
class NameIsAscii(JsonFiles):
    """One field, a mere name, is written as ASCII, as it was meant for logs. The worker that resumes never finds it."""

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        record = super().decode(kind, fields)
        names = {"output_key", "workflow_name", "thread_id"} & kind.model_fields.keys()
        ascii_only = {name: getattr(record, name).encode("ascii", errors="ignore").decode() for name in names}
        return record.model_copy(update=ascii_only)
