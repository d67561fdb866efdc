"""Snapshot stores with broken forks."""

from __future__ import annotations

import itertools
import os

from pytest_wfstate.contracts.clock import milliseconds, now
from pytest_wfstate.contracts.snapshots import CheckpointKey, Edits, Snapshot, new_run_id, no_source
from pytest_wfstate.errors import NotFound
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_stores import JsonSnapshots


@known_bad(
    "snapshots",
    "fork.copies fork.edits fork.one-snapshot fork.any-step fork.apart fork.goes-on fork.survives-restart",
    "fork.seen-by-others fork.newest-source fork.of-fork fork.new-id fork.new-id-after-restart fork.workflow",
    "fork.edits-mapping fork.edits-falsy aliasing.edits aliasing.forked fork.stamp",
)
class ForkKeepsTheLabel(JsonSnapshots):
    """A fork is an exact copy, label included. Later, nothing shows what it was forked from."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return super().forked(source, edits).model_copy(update={"label": source.label})


@known_bad("snapshots", "fork.stamp")
class ForkKeepsTheTime(JsonSnapshots):
    """A fork keeps its source's timestamp, which may be a month old. A cleanup of old runs deletes the new fork."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return super().forked(source, edits).model_copy(update={"timestamp_ms": source.timestamp_ms})


@known_bad(
    "snapshots",
    "fork.edits fork.survives-restart fork.of-fork fork.new-id fork.edits-mapping fork.edits-falsy",
    "fork.edits-refused aliasing.edits",
)
class ForkForgetsTheEdits(JsonSnapshots):
    """The edits are applied to a copy of the values, but the copy is never saved. The fork equals its source."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        dict(source.values).update(edits)
        return super().forked(source, ())


@known_bad("snapshots", "fork.edits-falsy")
class ForkLosesFalsyEdits(JsonSnapshots):
    """Edits that are false or empty are ignored. A value can never be cleared or set to 0."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return super().forked(source, {name: value for name, value in dict(edits).items() if value})


@known_bad(
    "snapshots", "fork.edits fork.source-untouched fork.of-fork fork.edits-mapping fork.edits-refused race.save-fork"
)
class ForkEditsItsSource(JsonSnapshots):
    """The edits are written to the source, which is then copied. The run that should stay as it was is changed."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        snapshot = self.load(source)
        if snapshot is not None:
            self.put(snapshot.model_copy(update={"values": {**snapshot.values, **dict(edits)}}))
        return super().fork(source, edits)


@known_bad("snapshots", "fork.apart")
class ForkIsAView(JsonSnapshots):
    """A fork stores only a reference to its source and its own edits, which costs nothing.

    Saving over the source changes every fork of it.
    """

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        fork = super().forked(source, edits)
        return fork.model_copy(update={"values": {"from": source.key.model_dump(), "edits": dict(edits)}})

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        run = super().run(workflow_id, run_id)
        for step, fork in run.items():
            if fork.values.keys() == {"from", "edits"}:
                source = self.load(CheckpointKey(**fork.values["from"]))
                values = {**(source.values if source else {}), **fork.values["edits"]}
                run[step] = fork.model_copy(update={"values": values})
        return run


@known_bad("snapshots", "fork.one-snapshot fork.any-step")
class ForkCopiesTheRun(JsonSnapshots):
    """A fork copies its source's whole history. It continues after the super-steps that it was meant to undo."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        run_id = super().fork(source, edits)
        for step, snapshot in self.run(source.workflow_id, source.run_id).items():
            if step != source.super_step:
                self.put(snapshot.forked(run_id, (), snapshot.timestamp_ms))
        return run_id


@known_bad("snapshots", "fork.seen-by-others fork.new-id fork.new-id-after-restart fork.stamp")
class CountsForks(JsonSnapshots):
    """Fork ids are counted from 1 each time a worker starts. Two workers give the same id to different runs."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._numbers = itertools.count(1)

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return source.forked(f"fork-{next(self._numbers)}", edits, milliseconds(now()))


@known_bad("snapshots", "fork.missing fork.missing-named")
class ForksNothing(JsonSnapshots):
    """A missing source is treated as empty. A mistyped super-step creates a run without any state."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        if self.load(source) is None:
            fork = Snapshot(key=source, values={}, timestamp_ms=0).forked(new_run_id(), edits, milliseconds(now()))
            self.put(fork)
            return fork.key.run_id
        return super().fork(source, edits)


@known_bad("snapshots", "fork.missing-named")
class ForkErrorSaysNothing(JsonSnapshots):
    """The error for a missing source does not name it. The log does not show which snapshot was asked for."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        try:
            return super().fork(source, edits)
        except NotFound:
            raise NotFound("no such checkpoint") from None


@known_bad(
    "snapshots",
    "fork.apart fork.seen-by-others fork.new-id aliasing.edits aliasing.forked kill.fork power.fork errors.fork",
)
class ForksWaitForTheEnd(JsonSnapshots):
    """A fork stays in the memory of its handle and is written on close.

    No other worker sees it until then, or ever if this process is killed.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._forks: dict[tuple[str, str], Snapshot] = {}

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        snapshot = self.load(source)
        if snapshot is None:
            raise no_source(source)
        fork = self.forked(snapshot, edits)
        fork.values.update(edits)
        self._forks[fork.key.workflow_id, fork.key.run_id] = fork
        return fork.key.run_id

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        fork = self._forks.get((workflow_id, run_id))
        return {**({fork.key.super_step: fork} if fork else {}), **super().run(workflow_id, run_id)}

    def close(self) -> None:
        for fork in self._forks.values():
            self.put(fork)


@known_bad("snapshots", "fork.apart fork.goes-on")
class ForksAreReadOnly(JsonSnapshots):
    """A fork is treated as a picture of the past: saving to its run raises an error. The fork cannot continue."""

    def save(self, snapshot: Snapshot) -> None:
        latest = self.latest(snapshot.key.workflow_id, snapshot.key.run_id)
        if latest and latest.label.startswith("fork-of:"):
            raise ValueError(f"run {snapshot.key.run_id!r} is a fork")
        super().save(snapshot)
