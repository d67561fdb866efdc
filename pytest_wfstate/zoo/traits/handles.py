"""Stores whose handles know things that are not on the disk, or never learn what is."""

from __future__ import annotations

import json
import os
from typing import Any

from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import trait
from pytest_wfstate.zoo.json_stores import JsonFiles


@trait(
    effects="save.survives-restart mark.in-order mark.survives-restart handles.see-each-other values.falsy "
    "values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded "
    "corrupt.stays-local mark.idempotent-after-restart mark.idempotent-elsewhere mark.idempotent-saved "
    "mark.counts-on mark.keeps-agent mark.seen-at-once mark.not-lost mark.after-save mark.after-delete "
    "mark.others mark.long-log mark.values mark.any-id mark.ids-differ mark.wrong-effect mark.bad-id "
    "save.after-marks save.after-delete delete.seen-at-once delete.others aliasing.marked corrupt.heals "
    "mark.sets-time mark.again-keeps-time mark.too-many save.unsound race.mark-delete",
    paused="save.survives-restart list.sorted recover.rearms remove.paused handles.see-each-other values.falsy "
    "values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded "
    "corrupt.stays-local claim.leaves-winner claim.keeps-record claim.replaces save.after-end save.refused "
    "save.while-claimed recover.paused-again recover.once recover.all complete.leaves-paused "
    "complete.paused-again complete.others values.unknown list.only-paused ids.refused-by-all ids.claimed "
    "ids.claims-never-collide corrupt.heals complete.not-anothers complete.not-anothers-after-save "
    "recover.older-than recover.older-than-limit recover.older-than-paused-again recover.bad-age "
    "race.complete-recover race.killed-complete race.killed-remove",
    resume="save.survives-restart delete.forgets handles.see-each-other values.falsy values.unicode values.large "
    "ids.any-text ids.never-collide aliasing.saved aliasing.loaded corrupt.stays-local save.shorter "
    "save.any-json save.exact-numbers save.others save.after-delete save.elsewhere delete.seen-at-once "
    "delete.others load.before-folder corrupt.heals save.unsound",
    runs="save.survives-restart update.context upsert.survives-restart handles.see-each-other values.falsy "
    "values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded "
    "corrupt.stays-local create.keeps-steps create.replaces-all create.framework-fields update.nothing-else "
    "update.falsy update.unknown update.steps-alone upsert.whole upsert.before-run upsert.leaves-run "
    "upsert.others upsert.seen-at-once upsert.statuses steps.in-order-after-restart steps.begin-anew "
    "steps.many delete.others delete.then-create delete.seen-at-once values.refused aliasing.handed-over "
    "aliasing.steps ids.any-step ids.steps-never-collide ids.refused-everywhere corrupt.heals update.stamp "
    "update.stamp-alone",
    snapshots="save.survives-restart save.steps list.all handles.see-each-other values.falsy values.unicode "
    "values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded corrupt.stays-local "
    "save.replaces-everywhere save.step-zero save.any-step latest.not-last-saved list.ordered-after-restart "
    "list.stamps list.many workflows.apart fork.source-untouched fork.apart fork.goes-on "
    "fork.survives-restart fork.seen-by-others fork.new-id fork.new-id-after-restart fork.missing "
    "fork.edits-falsy fork.edits-refused values.refused aliasing.edits aliasing.forked ids.any-workflow "
    "ids.never-joined ids.refused-everywhere fork.stamp",
)
class IndexInMemory(JsonFiles):
    """A handle knows its files by an index that it never writes. After a restart they are there, and it has none."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._index: set[str] = set()

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        super().write(held, name, data)
        self._index.add(name)

    def document(self, name: str) -> dict[str, Any]:
        found = super().document(name)
        return found if name in self._index else {}


@trait(
    effects="handles.see-each-other mark.seen-at-once mark.after-delete delete.seen-at-once mark.sets-time race.load",
)
class NeverLooksAgain(JsonFiles):
    """A handle reads a file when it first hears of it, and trusts that until it changes the file itself.

    It never learns what other workers save, and does again what they have done.
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


@trait(
    effects="aliasing.saved aliasing.loaded",
    paused="aliasing.saved aliasing.loaded",
    runs="aliasing.saved aliasing.loaded aliasing.handed-over aliasing.steps",
    snapshots="aliasing.saved aliasing.loaded aliasing.forked",
)
class KeepsTheCallersObject(JsonFiles):
    """A handle keeps what it was given, to save a look at the disk: the caller's own object, and no copy.

    The caller goes on with it, and what it does to it is loaded, and was never stored.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._given: dict[str, Any] = {}

    def checked(self, kind: Any, record: Any) -> Any:
        checked = super().checked(kind, record)
        self._given[checked.to_json()] = record
        return checked

    def made(self, kind: Any, fields: dict[str, Any]) -> Any:
        made = super().made(kind, fields)
        return self._given.get(made.to_json(), made)


@trait(resume="aliasing.loaded")
class HandsOutItsCache(JsonFiles):
    """A handle makes a record of a text once, and gives everybody the same object.

    What one caller adds to it, the next takes for stored.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._made: dict[str, Any] = {}

    def made(self, kind: Any, fields: dict[str, Any]) -> Any:
        text = json.dumps(fields)
        if text not in self._made:
            self._made[text] = super().made(kind, fields)
        return self._made[text]


@trait(
    effects="corrupt.is-loud corrupt.not-reset",
    paused="corrupt.is-loud corrupt.claim",
    resume="corrupt.is-loud",
    runs="corrupt.is-loud",
    snapshots="corrupt.is-loud",
)
class DamagedIsMissing(JsonFiles):
    """A file that cannot be read is taken for none. The run begins again, and charges the customer twice."""

    def parse(self, data: bytes) -> dict[str, Any]:
        try:
            return super().parse(data)
        except CorruptRecord:
            return {}


@trait(resume="corrupt.is-loud")
class UnreadableIsMissing(JsonFiles):
    """A file that the system does not let it read is taken for none.

    Started by another user, or without its disk, the run begins again.
    """

    def document(self, name: str) -> dict[str, Any]:
        try:
            return super().document(name)
        except OSError:
            return {}


@trait(
    paused="corrupt.stays-local race.load",
)
class OneBadFileBlindsAll(JsonFiles):
    """A run is looked for in all files, since its id is in them. If one of them cannot be read, no run is found."""

    def document(self, name: str) -> dict[str, Any]:
        for path in self.folder.home.glob("*.json"):
            self.parse(path.read_bytes())
        return super().document(name)


@trait(paused="corrupt.heals", runs="corrupt.heals")
class LooksBeforeItChanges(JsonFiles):
    """Before it saves or deletes, a store reads what is there, to log it.

    A file that cannot be read can neither be replaced nor removed.
    """

    def put(self, record: Any) -> None:
        self.kept(record)
        super().put(record)

    def drop(self, *ids: str) -> None:
        self.read(*ids)
        super().drop(*ids)
