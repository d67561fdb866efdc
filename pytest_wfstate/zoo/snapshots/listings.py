"""Snapshot stores that mix up which snapshot is which: load, latest and list."""

from __future__ import annotations

import builtins
import json
import os

from pytest_wfstate.contracts.snapshots import CheckpointKey, CheckpointMeta, Snapshot
from pytest_wfstate.stores.file import FileSnapshotStore
from pytest_wfstate.zoo._json import JsonSnapshots
from pytest_wfstate.zoo.base import animal


@animal(
    "snapshots",
    "load.missing",
    "save.load",
    "ids.never-collide",
    "random.calls",
    "load.exact",
    "workflows.apart",
    "fork.any-step",
    "fork.source-untouched",
    "fork.workflow",
    "fork.missing",
    "values.refused",
    "ids.never-joined",
)
class MissingIsAnError(FileSnapshotStore):
    """To load a snapshot that is not there raises KeyError. A run's first start looks like a failure."""

    async def load(self, key: CheckpointKey) -> Snapshot | None:
        found = await super().load(key)
        if found is None:
            raise KeyError(key.run_id)
        return found


@animal(
    "snapshots",
    "save.replaces",
    "save.survives-restart",
    "handles.see-each-other",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "latest.not-last-saved",
    "list.ordered",
    "list.many",
    "workflows.apart",
    "fork.apart",
    "fork.newest-source",
)
class AppendsForEver(JsonSnapshots):
    """Snapshots are appended to the run, also if there is one with that key.

    The first is loaded, the last is the latest, and both are listed.
    """

    def put(self, snapshot: Snapshot) -> None:
        self.check(snapshot.key.workflow_id, snapshot.key.run_id)
        with self.changed(snapshot.key.workflow_id, snapshot.key.run_id) as run:
            run.setdefault("all", []).append(json.loads(snapshot.to_json()))

    def all(self, workflow_id: str, run_id: str) -> builtins.list[Snapshot]:
        self.check(workflow_id, run_id)
        return [Snapshot.model_validate(one) for one in self.read(workflow_id, run_id).get("all", [])]

    def load(self, key: CheckpointKey) -> Snapshot | None:
        return next((one for one in self.all(key.workflow_id, key.run_id) if one.key == key), None)

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        return max(reversed(self.all(workflow_id, run_id)), key=lambda one: one.key.super_step, default=None)

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return sorted((one.meta() for one in self.all(workflow_id, run_id)), key=lambda one: one.super_step)


@animal(
    "snapshots",
    "save.replaces",
    "save.survives-restart",
    "handles.see-each-other",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "latest.not-last-saved",
    "list.ordered",
    "list.many",
    "workflows.apart",
    "fork.apart",
    "fork.newest-source",
    "values.refused",
    "errors.save",
)
class FirstSaveWins(JsonSnapshots):
    """A super-step that was saved is done, so a second save of it is passed over.

    A step that was retried keeps the values of the attempt that failed.
    """

    def save(self, snapshot: Snapshot) -> None:
        if self.load(snapshot.key) is None:
            super().save(snapshot)


@animal(
    "snapshots",
    "save.steps",
    "latest.highest",
    "list.all",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "save.any-step",
    "load.exact",
    "latest.not-last-saved",
    "list.ordered",
    "list.ordered-after-restart",
    "list.stamps",
    "list.many",
    "workflows.apart",
    "fork.one-snapshot",
    "fork.any-step",
    "fork.source-untouched",
    "fork.apart",
    "fork.goes-on",
)
class KeepsOnlyTheLatest(JsonSnapshots):
    """A run has one snapshot, the one that was saved last. There is nothing to go back to."""

    def put(self, snapshot: Snapshot) -> None:
        self.check(snapshot.key.workflow_id, snapshot.key.run_id)
        with self.changed(snapshot.key.workflow_id, snapshot.key.run_id) as run:
            run.clear()
        super().put(snapshot)


@animal(
    "snapshots",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "save.any-step",
    "latest.not-last-saved",
    "list.ordered",
    "list.ordered-after-restart",
    "list.many",
    "fork.any-step",
)
class RewindsOnSave(JsonSnapshots):
    """A save drops the super-steps after it, for a run that saves an earlier one must have gone back.

    Who saves out of order loses snapshots.
    """

    def put(self, snapshot: Snapshot) -> None:
        self.check(snapshot.key.workflow_id, snapshot.key.run_id)
        with self.changed(snapshot.key.workflow_id, snapshot.key.run_id) as run:
            for step in [step for step in run if int(step) > snapshot.key.super_step]:
                del run[step]
        super().put(snapshot)


@animal("snapshots", "list.many")
class KeepsAHundred(JsonSnapshots):
    """A run keeps its hundred highest super-steps, lest files grow. Nobody said so to those who fork from the first."""

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        found = super().run(workflow_id, run_id)
        return {step: found[step] for step in sorted(found)[-100:]}


@animal("snapshots", "random.calls", "save.step-zero", "save.any-step", "latest.not-last-saved", "list.many")
class LatestIsLastSaved(JsonSnapshots):
    """The latest snapshot is the one at the end of the file. A step that is saved late hides those after it."""

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        return next(reversed(self.run(workflow_id, run_id).values()), None)


@animal(
    "snapshots",
    "save.steps",
    "latest.highest",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "save.any-step",
    "load.exact",
    "latest.not-last-saved",
    "list.many",
    "workflows.apart",
    "fork.one-snapshot",
    "fork.source-untouched",
    "fork.apart",
    "fork.goes-on",
)
class LatestIsTheFirst(JsonSnapshots):
    """The latest snapshot is the first of the list, which was newest first once.

    Every run starts from its beginning.
    """

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        run = self.run(workflow_id, run_id)
        return run[min(run)] if run else None


@animal(
    "snapshots",
    "save.survives-restart",
    "save.steps",
    "handles.see-each-other",
    "values.falsy",
    "values.unicode",
    "values.large",
    "ids.any-text",
    "ids.never-collide",
    "aliasing.saved",
    "aliasing.loaded",
    "corrupt.stays-local",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "save.any-step",
    "latest.not-last-saved",
    "list.many",
    "workflows.apart",
    "fork.source-untouched",
    "fork.apart",
    "fork.goes-on",
    "fork.survives-restart",
    "fork.seen-by-others",
    "fork.new-id",
    "fork.new-id-after-restart",
    "fork.missing",
    "fork.edits-falsy",
    "fork.edits-refused",
    "values.refused",
    "aliasing.edits",
    "aliasing.forked",
    "ids.any-workflow",
    "ids.never-joined",
    "ids.refused-everywhere",
    "fork.stamp",
)
class LatestIsInMemory(JsonSnapshots):
    """Each handle remembers which snapshot of a run is the latest that it saved, and asks nobody else.

    After a restart there is none.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._latest: dict[tuple[str, str], int] = {}

    def put(self, snapshot: Snapshot) -> None:
        super().put(snapshot)
        run = (snapshot.key.workflow_id, snapshot.key.run_id)
        self._latest[run] = max(snapshot.key.super_step, self._latest.get(run, 0))

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        step = self._latest.get((workflow_id, run_id))
        return self.run(workflow_id, run_id).get(-1 if step is None else step)


@animal(
    "snapshots",
    "random.calls",
    "save.step-zero",
    "save.any-step",
    "latest.not-last-saved",
    "list.ordered",
    "list.ordered-after-restart",
    "list.many",
)
class ListsAsSaved(JsonSnapshots):
    """Snapshots are listed in the order in which they came. A step that is saved late stands at the end."""

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return [one.meta() for one in self.run(workflow_id, run_id).values()]


@animal(
    "snapshots",
    "save.steps",
    "random.calls",
    "save.replaces-everywhere",
    "save.any-step",
    "load.exact",
    "latest.not-last-saved",
    "list.ordered",
    "list.ordered-after-restart",
    "list.many",
    "workflows.apart",
    "fork.one-snapshot",
    "fork.source-untouched",
    "fork.apart",
    "fork.goes-on",
)
class ListsAsText(JsonSnapshots):
    """Super-steps are sorted as text: 10 comes before 9. Ten steps are enough to see it."""

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return sorted(super().list(workflow_id, run_id), key=lambda one: str(one.super_step))


@animal(
    "snapshots",
    "random.calls",
    "save.replaces-everywhere",
    "save.step-zero",
    "save.any-step",
    "latest.not-last-saved",
    "list.ordered",
    "list.ordered-after-restart",
    "list.stamps",
    "list.many",
    "fork.goes-on",
)
class OrdersByClock(JsonSnapshots):
    """Snapshots are listed by their time stamps, and the youngest is the latest.

    Of two workers whose clocks differ one hides the steps of the other.
    """

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        found = super().run(workflow_id, run_id)
        return dict(sorted(found.items(), key=lambda one: one[1].timestamp_ms))

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        return next(reversed(self.run(workflow_id, run_id).values()), None)

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return [one.meta() for one in self.run(workflow_id, run_id).values()]


@animal("snapshots", "random.calls", "load.exact", "fork.any-step", "fork.missing", "fork.missing-named")
class LoadsTheNearest(JsonSnapshots):
    """Where there is no snapshot of a super-step, the last one before it is loaded.

    A run goes on from a state that it takes for another.
    """

    def load(self, key: CheckpointKey) -> Snapshot | None:
        before = [one for step, one in self.run(key.workflow_id, key.run_id).items() if step <= key.super_step]
        return super().load(key) or max(before, key=lambda one: one.key.super_step, default=None)


@animal("snapshots", "save.step-zero", "load.exact", "list.many", "fork.any-step", "fork.missing")
class ZeroIsNoStep(JsonSnapshots):
    """To load without a super-step gives the latest snapshot, and 0 counts as none. The first step cannot be loaded."""

    def load(self, key: CheckpointKey) -> Snapshot | None:
        return super().load(key) if key.super_step else self.latest(key.workflow_id, key.run_id)
