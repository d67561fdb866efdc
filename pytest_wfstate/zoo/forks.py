"""Snapshot stores that fork badly."""

from __future__ import annotations

import itertools
import os

from pytest_wfstate.contracts.clock import milliseconds, now
from pytest_wfstate.contracts.snapshots import CheckpointKey, Edits, Snapshot, new_run_id, no_source
from pytest_wfstate.errors import NotFound
from pytest_wfstate.zoo.base import animal
from pytest_wfstate.zoo.json_stores import JsonSnapshots


@animal(
    "snapshots",
    "fork.copies fork.edits fork.one-snapshot fork.any-step fork.apart fork.goes-on fork.survives-restart",
    "fork.seen-by-others fork.newest-source fork.of-fork fork.new-id fork.new-id-after-restart fork.workflow",
    "fork.edits-mapping fork.edits-falsy aliasing.edits aliasing.forked fork.stamp",
)
class ForkKeepsTheLabel(JsonSnapshots):
    """A fork is a copy, label and all. Nobody can tell later what it was forked from."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return super().forked(source, edits).model_copy(update={"label": source.label})


@animal("snapshots", "fork.stamp")
class ForkKeepsTheTime(JsonSnapshots):
    """A fork has the time stamp of its source, which may be of last month. What cleans up old runs takes it along."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return super().forked(source, edits).model_copy(update={"timestamp_ms": source.timestamp_ms})


@animal(
    "snapshots",
    "fork.edits fork.survives-restart fork.of-fork fork.new-id fork.edits-mapping fork.edits-falsy",
    "fork.edits-refused aliasing.edits",
)
class ForkForgetsTheEdits(JsonSnapshots):
    """The edits are applied to a copy of the values, and it is not the copy that is saved."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        dict(source.values).update(edits)
        return super().forked(source, ())


@animal("snapshots", "fork.edits-falsy")
class ForkLosesFalsyEdits(JsonSnapshots):
    """An edit counts if there is something in it. Nobody can clear a value, or set it to 0."""

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return super().forked(source, {name: value for name, value in dict(edits).items() if value})


@animal(
    "snapshots",
    "fork.edits fork.source-untouched fork.of-fork fork.edits-mapping fork.edits-refused race.save-fork",
)
class ForkEditsItsSource(JsonSnapshots):
    """The edits are written into the source, which is then copied. The run that should stay as it was is changed."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        found = self.load(source)
        if found is not None:
            self.put(found.model_copy(update={"values": {**found.values, **dict(edits)}}))
        return super().fork(source, edits)


@animal("snapshots", "fork.apart")
class ForkIsAView(JsonSnapshots):
    """A fork costs nothing: it only says what it is a fork of, and how it differs.

    What is saved over the source afterwards changes every fork of it.
    """

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        fork = super().forked(source, edits)
        return fork.model_copy(update={"values": {"from": source.key.model_dump(), "edits": dict(edits)}})

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        found = super().run(workflow_id, run_id)
        for step, one in found.items():
            if one.values.keys() == {"from", "edits"}:
                source = self.load(CheckpointKey(**one.values["from"]))
                values = {**(source.values if source else {}), **one.values["edits"]}
                found[step] = one.model_copy(update={"values": values})
        return found


@animal("snapshots", "fork.one-snapshot fork.any-step")
class ForkCopiesTheRun(JsonSnapshots):
    """A fork takes the whole history of its source along. It goes on after super-steps that were to be undone."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        run_id = super().fork(source, edits)
        for step, one in self.run(source.workflow_id, source.run_id).items():
            if step != source.super_step:
                self.put(one.forked(run_id, (), one.timestamp_ms))
        return run_id


@animal("snapshots", "fork.seen-by-others fork.new-id fork.new-id-after-restart fork.stamp")
class CountsForks(JsonSnapshots):
    """The ids of forks are counted, from 1 whenever a worker starts. Two workers give the same id to different runs."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._numbers = itertools.count(1)

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        return source.forked(f"fork-{next(self._numbers)}", edits, milliseconds(now()))


@animal("snapshots", "fork.missing fork.missing-named")
class ForksNothing(JsonSnapshots):
    """A source that is not there is taken to be empty. A mistyped super-step gives a run that knows nothing."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        if self.load(source) is None:
            fork = Snapshot(key=source, values={}, timestamp_ms=0).forked(new_run_id(), edits, milliseconds(now()))
            self.put(fork)
            return fork.key.run_id
        return super().fork(source, edits)


@animal("snapshots", "fork.missing-named")
class ForkErrorSaysNothing(JsonSnapshots):
    """The error for a source that is not there does not say which. Whoever reads the log looks for it in vain."""

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        try:
            return super().fork(source, edits)
        except NotFound:
            raise NotFound("no such checkpoint") from None


@animal(
    "snapshots",
    "fork.apart fork.seen-by-others fork.new-id aliasing.edits aliasing.forked kill.fork power.fork errors.fork",
)
class ForksWaitForTheEnd(JsonSnapshots):
    """A fork is kept by the handle that made it, and written when that is closed.

    No other worker sees it until then, and none ever if this one is killed.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._forks: dict[tuple[str, str], Snapshot] = {}

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        found = self.load(source)
        if found is None:
            raise no_source(source)
        fork = self.forked(found, edits)
        fork.values.update(edits)
        self._forks[fork.key.workflow_id, fork.key.run_id] = fork
        return fork.key.run_id

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        fork = self._forks.get((workflow_id, run_id))
        return {**({fork.key.super_step: fork} if fork else {}), **super().run(workflow_id, run_id)}

    def close(self) -> None:
        for fork in self._forks.values():
            self.put(fork)


@animal("snapshots", "fork.apart fork.goes-on")
class ForksAreReadOnly(JsonSnapshots):
    """A fork is a picture of the past, so nothing can be saved to its run. It cannot go on."""

    def save(self, snapshot: Snapshot) -> None:
        latest = self.latest(snapshot.key.workflow_id, snapshot.key.run_id)
        if latest and latest.label.startswith("fork-of:"):
            raise ValueError(f"run {snapshot.key.run_id!r} is a fork")
        super().save(snapshot)
