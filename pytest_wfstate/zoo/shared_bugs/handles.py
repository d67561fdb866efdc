"""Stores whose handles hold state that is not on disk, or miss what is."""

from __future__ import annotations

import json
import os
from typing import Any

from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import shared_bug
from pytest_wfstate.zoo.correct_stores import JsonFiles


@shared_bug(
    effects="save.survives-restart mark.in-order mark.survives-restart handles.see-each-other values.falsy "
    "values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded "
    "corrupt.stays-local mark.idempotent-after-restart mark.idempotent-elsewhere mark.idempotent-saved "
    "mark.counts-on mark.keeps-agent mark.seen-at-once mark.not-lost mark.after-save mark.after-delete "
    "mark.others mark.long-log mark.values mark.any-id mark.ids-differ mark.wrong-effect mark.bad-id "
    "save.after-marks save.after-delete delete.seen-at-once delete.others aliasing.marked corrupt.heals "
    "mark.sets-time mark.again-keeps-time mark.too-many save.unsound",
    paused="save.survives-restart list.sorted list.thousand recover.rearms remove.paused handles.see-each-other "
    "values.falsy values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded "
    "corrupt.stays-local claim.leaves-winner claim.keeps-record claim.replaces save.after-end "
    "save.refused save.while-claimed recover.paused-again recover.once recover.all complete.leaves-paused "
    "complete.paused-again complete.others values.unknown list.only-paused ids.refused-by-all ids.claimed "
    "ids.claims-never-collide corrupt.heals complete.not-anothers complete.not-anothers-after-save "
    "recover.older-than recover.older-than-limit recover.older-than-paused-again recover.bad-age "
    "token.others token.refused "
    "renew.extends renew.lost renew.paused-again token.new complete.token complete.token-lost "
    "complete.token-not-handle complete.token-paused-again complete.token-once",
    resume="save.survives-restart delete.forgets handles.see-each-other values.falsy values.unicode values.large "
    "ids.any-text ids.never-collide aliasing.saved aliasing.loaded corrupt.stays-local save.shorter "
    "save.any-json save.exact-numbers save.others save.after-delete save.elsewhere delete.seen-at-once "
    "delete.others load.before-folder corrupt.heals save.unsound",
    runs="save.survives-restart update.context upsert.survives-restart handles.see-each-other values.falsy "
    "values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded "
    "corrupt.stays-local create.keeps-steps create.replaces-all create.framework-fields update.nothing-else "
    "update.falsy update.unknown update.steps-alone upsert.whole upsert.before-run upsert.leaves-run "
    "upsert.others upsert.seen-at-once upsert.statuses steps.in-order-after-restart steps.begin-anew "
    "steps.many list.thousand delete.others delete.then-create delete.seen-at-once values.refused "
    "aliasing.handed-over "
    "aliasing.steps ids.any-step ids.steps-never-collide ids.refused-everywhere corrupt.heals update.stamp "
    "update.stamp-alone",
    snapshots="save.survives-restart save.steps list.all handles.see-each-other values.falsy values.unicode "
    "values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded corrupt.stays-local "
    "save.replaces-everywhere save.step-zero save.any-step latest.not-last-saved list.ordered-after-restart "
    "list.stamps list.many list.thousand workflows.apart fork.source-untouched fork.apart fork.goes-on "
    "fork.survives-restart fork.seen-by-others fork.new-id fork.new-id-after-restart fork.missing "
    "fork.edits-falsy fork.edits-refused values.refused aliasing.edits aliasing.forked ids.any-workflow "
    "ids.never-joined ids.refused-everywhere fork.stamp",
    history="save.survives-restart append.adds read.limit pop.newest clear.forgets "
    "handles.see-each-other values.falsy values.unicode values.large ids.any-text "
    "ids.never-collide aliasing.saved aliasing.loaded corrupt.stays-local append.nothing "
    "append.again append.any-json append.exact-numbers append.many append.elsewhere "
    "append.after-clear append.others ids.refused-by-all append.all-or-none append.a-list "
    "pop.elsewhere clear.elsewhere corrupt.heals",
    queue="save.survives-restart values.falsy values.unicode values.large ids.any-text "
    "ids.never-collide aliasing.saved aliasing.loaded take.oldest take.hides retry.waits "
    "recover.waits put.again put.taken put.any-json put.exact-numbers put.refused take.many "
    "take.counts take.elsewhere done.after-restart done.others retry.keeps-place "
    "recover.keeps-place recover.all ids.refused done.token-lost done.token-once "
    "retry.token-lost retry.token-once token.others token.refused token.new "
    "recover.older-than recover.older-than-limit recover.bad-age",
)
class IndexInMemory(JsonFiles):
    """A handle finds its files through an index that it never writes.

    After a restart the files are still there, but the index is empty.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._index: set[str] = set()

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        super().write(held, name, data)
        self._index.add(name)

    def document(self, name: str) -> dict[str, Any]:
        document = super().document(name)
        return document if name in self._index else {}


@shared_bug(
    effects="handles.see-each-other mark.seen-at-once mark.after-delete delete.seen-at-once mark.sets-time race.load",
    history="handles.see-each-other pop.elsewhere clear.elsewhere race.read append.after-clear",
    queue="take.elsewhere race.list done.token-lost retry.token-lost",
    lock="held.elsewhere release.frees release.once release.any-handle acquire.expired",
)
class NeverLooksAgain(JsonFiles):
    """A handle reads a file once and trusts its copy until it changes the file itself.

    It never sees what other workers save, and does their work again.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._known: dict[str, str] = {}

    def document(self, name: str) -> dict[str, Any]:
        if name not in self._known:
            self._known[name] = json.dumps(super().document(name))
        return dict(json.loads(self._known[name]))

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        super().write(held, name, data)
        self._known.pop(name, None)

    def unlink(self, held: LockedFolder, name: str) -> None:
        super().unlink(held, name)
        self._known.pop(name, None)


@shared_bug(
    effects="aliasing.saved aliasing.loaded",
    paused="aliasing.saved aliasing.loaded",
    runs="aliasing.saved aliasing.loaded aliasing.handed-over aliasing.steps",
    snapshots="aliasing.saved aliasing.loaded aliasing.forked",
)
class KeepsTheCallersObject(JsonFiles):
    """A handle caches the caller's own object instead of a copy.

    When the caller changes it, the change is loaded although it was never stored.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._given: dict[str, Any] = {}

    def checked(self, kind: Any, record: Any) -> Any:
        checked = super().checked(kind, record)
        self._given[checked.to_json()] = record
        return checked

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        record = super().decode(kind, fields)
        return self._given.get(record.to_json(), record)


@shared_bug(resume="aliasing.loaded")
class HandsOutItsCache(JsonFiles):
    """A handle parses a record once and returns the same object to every caller.

    What one caller changes, the next takes for stored.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._decoded: dict[str, Any] = {}

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        text = json.dumps(fields)
        if text not in self._decoded:
            self._decoded[text] = super().decode(kind, fields)
        return self._decoded[text]


@shared_bug(
    effects="corrupt.is-loud corrupt.not-reset",
    paused="corrupt.is-loud corrupt.claim",
    resume="corrupt.is-loud",
    runs="corrupt.is-loud",
    snapshots="corrupt.is-loud",
    history="corrupt.is-loud corrupt.not-reset",
    queue="corrupt.is-loud",
    lock="corrupt.is-loud",
)
class DamagedIsMissing(JsonFiles):
    """A damaged file is treated as missing. The run starts over and charges the customer twice."""

    def parse(self, data: bytes) -> dict[str, Any]:
        try:
            return super().parse(data)
        except CorruptRecord:
            return {}


@shared_bug(
    effects="errors.reads errors.mark corrupt.is-loud",
    paused="errors.reads errors.claim errors.complete errors.recover corrupt.is-loud errors.fenced-complete "
    "errors.renew errors.takeover",
    resume="errors.reads corrupt.is-loud",
    runs="errors.reads errors.create errors.upsert corrupt.is-loud",
    snapshots="errors.reads errors.save corrupt.is-loud",
    history="errors.reads errors.append errors.pop corrupt.is-loud",
    queue="errors.reads",
    lock="errors.reads corrupt.is-loud",
)
class UnreadableIsMissing(JsonFiles):
    """A file that the operating system refuses to read is treated as missing.

    As the wrong user, or when its disk returns an error, the run starts over.
    """

    def document(self, name: str) -> dict[str, Any]:
        try:
            return super().document(name)
        except OSError:
            return {}


@shared_bug(paused="corrupt.stays-local race.load", history="corrupt.stays-local race.read", lock="corrupt.stays-local")
class OneBadFileBlindsAll(JsonFiles):
    """A run is looked up by reading every file for its id. If one of them is unreadable, no run is found."""

    def document(self, name: str) -> dict[str, Any]:
        for path in self.folder.home.glob("*.json"):
            self.parse(path.read_bytes())
        return super().document(name)


@shared_bug(paused="corrupt.heals", runs="corrupt.heals", history="corrupt.heals")
class LooksBeforeItChanges(JsonFiles):
    """Before it saves or deletes, a store reads the old record to log it.

    An unreadable file can be neither replaced nor removed.
    """

    def put(self, record: Any) -> None:
        self.stored(record)
        super().put(record)

    def drop(self, *ids: str) -> None:
        self.fields(*ids)
        super().drop(*ids)
