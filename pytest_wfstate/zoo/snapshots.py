"""Snapshot stores that mix up which snapshot is which: load, latest and list."""

from __future__ import annotations

import builtins
import json

from pytest_wfstate.contracts.snapshots import CheckpointKey, CheckpointMeta, Snapshot
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_stores import JsonSnapshots


@known_bad(
    "snapshots",
    "save.replaces save.survives-restart handles.see-each-other save.replaces-everywhere save.step-zero",
    "latest.not-last-saved list.ordered list.many workflows.apart fork.apart fork.newest-source",
)
class AppendsForEver(JsonSnapshots):
    """Snapshots are appended to the run, even if the key already exists.

    The first one is loaded, the last one is the latest, and both are listed.
    """

    def put(self, record: Snapshot) -> None:
        self.check(record.key.workflow_id, record.key.run_id)
        with self.edit(record.key.workflow_id, record.key.run_id) as run:
            run.setdefault("all", []).append(json.loads(record.to_json()))

    def all(self, workflow_id: str, run_id: str) -> builtins.list[Snapshot]:
        self.check(workflow_id, run_id)
        return [Snapshot.model_validate(fields) for fields in self.fields(workflow_id, run_id).get("all", [])]

    def load(self, key: CheckpointKey) -> Snapshot | None:
        return next((kept for kept in self.all(key.workflow_id, key.run_id) if kept.key == key), None)

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        return max(reversed(self.all(workflow_id, run_id)), key=lambda kept: kept.key.super_step, default=None)

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return sorted((kept.meta() for kept in self.all(workflow_id, run_id)), key=lambda meta: meta.super_step)


@known_bad(
    "snapshots",
    "save.steps latest.highest list.all save.replaces-everywhere save.step-zero save.any-step load.exact",
    "latest.not-last-saved list.ordered list.ordered-after-restart list.stamps list.many workflows.apart",
    "list.thousand fork.one-snapshot fork.any-step fork.source-untouched fork.apart fork.goes-on",
)
class KeepsOnlyTheLatest(JsonSnapshots):
    """A run keeps only the snapshot that was saved last. There is nothing to go back to."""

    def put(self, record: Snapshot) -> None:
        self.check(record.key.workflow_id, record.key.run_id)
        with self.edit(record.key.workflow_id, record.key.run_id) as run:
            run.clear()
        super().put(record)


@known_bad("snapshots", "list.many list.thousand")
class KeepsAHundred(JsonSnapshots):
    """A run keeps only its hundred highest super-steps, to limit file size. Its first steps cannot be forked."""

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        run = super().run(workflow_id, run_id)
        return {step: run[step] for step in sorted(run)[-100:]}


@known_bad(
    "snapshots",
    "save.step-zero save.any-step latest.not-last-saved list.ordered list.ordered-after-restart list.many",
)
class ListsAsSaved(JsonSnapshots):
    """Snapshots are listed in the order they were saved. A step that is saved late is listed last."""

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return [snapshot.meta() for snapshot in self.run(workflow_id, run_id).values()]


@known_bad(
    "snapshots",
    "save.replaces-everywhere save.step-zero save.any-step latest.not-last-saved list.ordered",
    "list.ordered-after-restart list.stamps list.many fork.goes-on",
)
class OrdersByClock(JsonSnapshots):
    """Snapshots are ordered by timestamp, and the newest one is the latest.

    If the clocks of two workers differ, one hides the steps of the other.
    """

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        run = super().run(workflow_id, run_id)
        return dict(sorted(run.items(), key=lambda item: item[1].timestamp_ms))

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        return next(reversed(self.run(workflow_id, run_id).values()), None)

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        return [snapshot.meta() for snapshot in self.run(workflow_id, run_id).values()]


@known_bad("snapshots", "load.exact fork.any-step fork.missing fork.missing-named")
class LoadsTheNearest(JsonSnapshots):
    """If a super-step has no snapshot, the last one before it is loaded. A run continues from the wrong state."""

    def load(self, key: CheckpointKey) -> Snapshot | None:
        run = self.run(key.workflow_id, key.run_id)
        before = [step for step in run if step <= key.super_step]
        return super().load(key) or (run[max(before)] if before else None)


@known_bad("snapshots", "ids.never-joined")
class JoinsIds(JsonSnapshots):
    """A file is named after workflow and run, joined with a dash. Run `b-c` of `a` is also run `c` of `a-b`."""

    def name(self, *ids: str) -> str:
        return super().name("-".join(ids))


@known_bad("snapshots", "workflows.apart fork.workflow fork.missing")
class IgnoresTheWorkflow(JsonSnapshots):
    """Files are named after the run alone, as if run ids were unique. Workflows that number their runs share them."""

    def name(self, *ids: str) -> str:
        return super().name(ids[1])
