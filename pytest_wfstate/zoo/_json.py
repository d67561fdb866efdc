"""Stores as one would write them in an afternoon, had one thought of everything: a JSON file a run.

They are right. Animals whose bug is in how files are named, written or read are a few lines over one of these.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_wfstate.contracts.clock import milliseconds, now, seconds
from pytest_wfstate.contracts.effects import SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.contracts.runs import WorkflowExecutionState, WorkflowStepState, no_run
from pytest_wfstate.contracts.snapshots import (
    CheckpointKey,
    CheckpointMeta,
    Edits,
    Snapshot,
    new_run_id,
    no_source,
)
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file._folder import Folder, Held
from pytest_wfstate.stores.file._names import stem


class JsonFiles:
    """Documents of plain JSON, each in a file that is read and replaced as a whole."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.folder = Folder(home, "power")

    def name(self, *ids: str) -> str:
        """Name the file of some ids."""
        return stem(*ids) + ".json"

    def check(self, *ids: str) -> None:
        """Refuse what cannot be an id."""
        for one in ids:
            check_id("id", one)

    def read(self, *ids: str) -> dict[str, Any]:
        """Read a document, empty if there is none."""
        data = self.folder.read(self.name(*ids))
        return {} if data is None else self.parse(data)

    def parse(self, data: bytes) -> dict[str, Any]:
        """Make a document of the content of a file."""
        try:
            document: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise CorruptRecord("a file", str(error)) from error
        return document

    @contextlib.contextmanager
    def changed(self, *ids: str) -> Iterator[dict[str, Any]]:
        """Give a document to change; it is written when that went well."""
        with self.folder.exclusive() as held:
            document = self.read(*ids)
            yield document
            self.write(held, self.name(*ids), json.dumps(document, ensure_ascii=False).encode())

    def write(self, held: Held, name: str, data: bytes) -> None:
        """Put a file in its place."""
        held.replace(name, data)

    def delete(self, *ids: str) -> None:
        """Remove a document."""
        with self.folder.exclusive() as held:
            held.unlink(self.name(*ids))
            held.sync()


class NamesNeverSynced(Folder):
    """A folder whose names nobody brings to the disk."""

    def sync_names(self, fd: int, folder: Path) -> None:
        pass


class RenamesFirst(JsonFiles):
    """Renames a file, and fsyncs it in its new place."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        """Put a file in its place, too soon."""
        held.write(name + ".tmp", data, durable=False)
        held.rename(name + ".tmp", name)
        fd = os.open(held.path(name), os.O_RDONLY)
        try:
            self.folder.sync(fd)
        finally:
            os.close(fd)
        held.sync()


class JsonEffects(JsonFiles):
    """Checkpoints: a document is one, and a mark writes it all anew."""

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        self.check(checkpoint.task_id)
        with self.folder.exclusive() as held:
            self.put(held, checkpoint)

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        self.check(task_id)
        found = self.read(task_id)
        return _made(WorkflowCheckpoint, found) if found else None

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        self.check(task_id)
        effect = check_effect(tool_use_id, effect)
        with self.folder.exclusive() as held:
            checkpoint = JsonEffects.load_checkpoint(self, task_id) or self.blank(task_id)
            self.mark(checkpoint, effect)
            self.put(held, checkpoint)

    def delete_checkpoint(self, task_id: str) -> None:
        self.check(task_id)
        self.delete(task_id)

    def blank(self, task_id: str) -> WorkflowCheckpoint:
        """Make the checkpoint that the first mark starts from."""
        return WorkflowCheckpoint.new(task_id, "unknown")

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        """Count an effect as done."""
        checkpoint.mark(effect, at=seconds(now()))

    def put(self, held: Held, checkpoint: WorkflowCheckpoint) -> None:
        """Write a checkpoint that was checked."""
        self.write(held, self.name(checkpoint.task_id), checkpoint.to_json().encode())


class JsonResume(JsonFiles):
    """Resume points: a document is one."""

    def save(self, point: ResumePoint) -> None:
        self.put(ResumePoint.checked(point))

    def put(self, point: ResumePoint) -> None:
        """Write a point that was checked."""
        self.check(point.run_id)
        with self.folder.exclusive() as held:
            self.write(held, self.name(point.run_id), point.to_json().encode())

    def load(self, run_id: str) -> ResumePoint | None:
        self.check(run_id)
        found = self.read(run_id)
        return _made(ResumePoint, found) if found else None

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        self.check(run_id)
        super().delete(run_id)


class JsonSnapshots(JsonFiles):
    """Snapshots: the document of a run has one for each super-step."""

    def save(self, snapshot: Snapshot) -> None:
        snapshot = Snapshot.checked(snapshot)
        self.put(snapshot)

    def put(self, snapshot: Snapshot) -> None:
        """Write a snapshot that was checked."""
        key = snapshot.key
        self.check(key.workflow_id, key.run_id)
        with self.changed(key.workflow_id, key.run_id) as run:
            run[str(key.super_step)] = json.loads(snapshot.to_json())

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        """Read the snapshots of a run, by super-step."""
        self.check(workflow_id, run_id)
        found = self.read(workflow_id, run_id)
        return {int(step): _made(Snapshot, one) for step, one in found.items()}

    def load(self, key: CheckpointKey) -> Snapshot | None:
        key = CheckpointKey.checked(key)
        return self.run(key.workflow_id, key.run_id).get(key.super_step)

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        run = self.run(workflow_id, run_id)
        return run[max(run)] if run else None

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        run = self.run(workflow_id, run_id)
        return [run[step].meta() for step in sorted(run)]

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        found = self.load(source)
        if found is None:
            raise no_source(source)
        fork = self.forked(found, edits)
        self.put(fork)
        return fork.key.run_id

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        """Make a fork."""
        return source.forked(new_run_id(), edits, milliseconds(now()))


class JsonRuns(JsonFiles):
    """Runs: a document has the run, if it was created, and its steps by their ids."""

    def create_run(self, state: WorkflowExecutionState) -> None:
        state = WorkflowExecutionState.checked(state)
        self.check(state.run_task_id)
        with self.changed(state.run_task_id) as document:
            document["run"] = json.loads(state.to_json())

    def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        self.check(run_task_id)
        found = self.read(run_task_id).get("run")
        return None if found is None else _made(WorkflowExecutionState, found)

    def update_context(self, run_task_id: str, context: Any) -> None:
        self.check(run_task_id)
        with self.changed(run_task_id) as document:
            if "run" not in document:
                raise no_run(run_task_id)
            state = _made(WorkflowExecutionState, document["run"])
            state.context = context
            state.updated_at = now()
            document["run"] = json.loads(state.to_json())

    def delete_run(self, run_task_id: str) -> None:
        self.check(run_task_id)
        self.delete(run_task_id)

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        step = WorkflowStepState.checked(step)
        self.check(run_task_id, step.step_id)
        with self.changed(run_task_id) as document:
            document.setdefault("steps", {})[step.step_id] = json.loads(step.to_json())

    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        self.check(run_task_id, step_id)
        return self.steps(run_task_id).get(step_id)

    def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        self.check(run_task_id)
        return list(self.steps(run_task_id).values())

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        """Read the steps of a run."""
        found = self.read(run_task_id).get("steps", {})
        return {step_id: _made(WorkflowStepState, one) for step_id, one in found.items()}


def without_nan(value: Any) -> Any:
    """Give a value with None for all numbers that have no JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list) else value


def _made(kind: Any, found: Any) -> Any:
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        raise CorruptRecord("a file", str(error)) from error


__all__ = ["JsonEffects", "JsonFiles", "JsonResume", "JsonRuns", "JsonSnapshots", "without_nan"]
