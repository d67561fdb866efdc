"""Snapshot stores that mix up which snapshot is which: load, latest and list."""

from __future__ import annotations

import builtins
import json

from pytest_wfstate.contracts.snapshots import CheckpointKey, CheckpointMeta, Snapshot
from pytest_wfstate.zoo.base import animal
from pytest_wfstate.zoo.json_stores import JsonSnapshots


@animal(
    "snapshots",
    "save.replaces save.survives-restart handles.see-each-other save.replaces-everywhere save.step-zero",
    "latest.not-last-saved list.ordered list.many workflows.apart fork.apart fork.newest-source",
)
class AppendsForEver(JsonSnapshots):
    """Snapshots are appended to the run, also if there is one with that key.

    The first is loaded, the last is the latest, and both are listed.
    """

    def put(self, record: Snapshot) -> None:
        self.check(record.key.workflow_id, record.key.run_id)
        with self.changed(record.key.workflow_id, record.key.run_id) as run:
            run.setdefault("all", []).append(json.loads(record.to_json()))

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
    "save.steps latest.highest list.all save.replaces-everywhere save.step-zero save.any-step load.exact",
    "latest.not-last-saved list.ordered list.ordered-after-restart list.stamps list.many workflows.apart",
    "fork.one-snapshot fork.any-step fork.source-untouched fork.apart fork.goes-on",
)
class KeepsOnlyTheLatest(JsonSnapshots):
    """A run has one snapshot, the one that was saved last. There is nothing to go back to."""

    def put(self, record: Snapshot) -> None:
        self.check(record.key.workflow_id, record.key.run_id)
        with self.changed(record.key.workflow_id, record.key.run_id) as run:
            run.clear()
        super().put(record)


@animal("snapshots", "list.many")
class KeepsAHundred(JsonSnapshots):
    """A run keeps its hundred highest super-steps, lest files grow. Nobody said so to those who fork from the first."""

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        found = super().run(workflow_id, run_id)
        return {step: found[step] for step in sorted(found)[-100:]}


@animal(
    "snapshots",
    "save.step-zero save.any-step latest.not-last-saved list.ordered list.ordered-after-restart list.many",
    "race.save-save",
)
class ListsAsSaved(JsonSnapshots):
    """Snapshots are listed in the order in which they came. A step that is saved late stands at the end."""

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return [one.meta() for one in self.run(workflow_id, run_id).values()]


@animal(
    "snapshots",
    "save.replaces-everywhere save.step-zero save.any-step latest.not-last-saved list.ordered",
    "list.ordered-after-restart list.stamps list.many fork.goes-on",
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


@animal("snapshots", "load.exact fork.any-step fork.missing fork.missing-named")
class LoadsTheNearest(JsonSnapshots):
    """Where there is no snapshot of a super-step, the last one before it is loaded.

    A run goes on from a state that it takes for another.
    """

    def load(self, key: CheckpointKey) -> Snapshot | None:
        before = [one for step, one in self.run(key.workflow_id, key.run_id).items() if step <= key.super_step]
        return super().load(key) or max(before, key=lambda one: one.key.super_step, default=None)


@animal("snapshots", "ids.never-joined")
class JoinsIds(JsonSnapshots):
    """A file is named after workflow and run with a dash between them. Run `b-c` of `a` is run `c` of `a-b`."""

    def name(self, *ids: str) -> str:
        return super().name("-".join(ids))


@animal("snapshots", "workflows.apart fork.workflow fork.missing")
class IgnoresTheWorkflow(JsonSnapshots):
    """Run ids are unique, so a file is named after the run alone. Two workflows that count their runs share them."""

    def name(self, *ids: str) -> str:
        return super().name(ids[1])
