"""Correct stores to put bugs into: a JSON file for each run, as one would write them in an afternoon.

Everything that a bug can be in is a method of its own: how a file is named, written and read, how a record is checked,
stored and decoded. So a known-bad store, or a bug that several contracts share, is a few lines.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from pytest_wfstate.contracts.clock import milliseconds, now, seconds
from pytest_wfstate.contracts.effects import SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import PausedWorkflow, check_age, no_token
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
from pytest_wfstate.stores.file.folder import Folder, LockedFolder
from pytest_wfstate.stores.file.names import stem

R = TypeVar("R")


class JsonFiles:
    """Plain JSON documents, each in a file that is read and replaced as a whole."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.folder = Folder(home, "power")

    def name(self, *ids: str) -> str:
        """Return the file name for these ids."""
        return stem(*ids) + ".json"

    def check(self, *ids: str) -> None:
        """Refuse invalid ids."""
        for value in ids:
            check_id("id", value)

    def checked(self, kind: Any, record: Any) -> Any:
        """Return a copy of a record to store, or refuse an invalid one."""
        return kind.checked(record)

    def put(self, *record: Any, **_: Any) -> None:
        """Store a record that was checked."""
        raise NotImplementedError

    def stored(self, record: Any) -> Any:
        """Return the stored record that this one would replace, or None."""
        raise NotImplementedError

    def answer(self, record: R | None) -> R | None:
        """Return what a caller gets for the record it asked for."""
        return record

    def decode_if_any(self, kind: type[R], fields: dict[str, Any] | None) -> R | None:
        """Return the record of these fields, or None if there are none."""
        return self.decode(kind, fields) if fields else None

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        """Return the record of these fields."""
        try:
            return kind.model_validate(fields)
        except ValidationError as error:
            raise CorruptRecord("a file", str(error)) from error

    def fields(self, *ids: str) -> dict[str, Any]:
        """Return the document of these ids, empty if there is none."""
        return self.document(self.name(*ids))

    def document(self, name: str) -> dict[str, Any]:
        """Return the document in a file, empty if there is none."""
        data = self.folder.read(name)
        return {} if data is None else self.parse(data)

    def parse(self, data: bytes) -> dict[str, Any]:
        """Return the document that these bytes hold."""
        try:
            document: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise CorruptRecord("a file", str(error)) from error
        return document

    @contextlib.contextmanager
    def edit(self, *ids: str) -> Iterator[dict[str, Any]]:
        """Yield a document to change, and write it unless an error was raised."""
        with self.folder.exclusive() as held:
            document = self.fields(*ids)
            yield document
            self.write(held, self.name(*ids), json.dumps(document, ensure_ascii=False).encode())

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        """Replace a file."""
        held.replace(name, data)

    def drop(self, *ids: str) -> None:
        """Remove a document."""
        self.check(*ids)
        with self.folder.exclusive() as held:
            self.unlink(held, self.name(*ids))

    def unlink(self, held: LockedFolder, name: str) -> None:
        """Remove a file."""
        held.unlink(name)
        held.sync()


class JsonEffects(JsonFiles):
    """Checkpoints: each is a document, which a mark rewrites."""

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        self.put(self.checked(WorkflowCheckpoint, checkpoint))

    def put(self, record: WorkflowCheckpoint) -> None:
        self.check(record.task_id)
        with self.folder.exclusive() as held:
            self.write_checkpoint(held, record)

    def write_checkpoint(self, held: LockedFolder, checkpoint: WorkflowCheckpoint) -> None:
        """Write a checkpoint that was saved or marked."""
        self.write(held, self.name(checkpoint.task_id), checkpoint.to_json().encode())

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        self.check(task_id)
        return self.answer(self.task(task_id))

    def stored(self, record: WorkflowCheckpoint) -> WorkflowCheckpoint | None:
        return self.task(record.task_id)

    def task(self, task_id: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint of a task."""
        return self.decode_if_any(WorkflowCheckpoint, self.fields(task_id))

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        self.check(task_id)
        effect = check_effect(tool_use_id, effect)
        with self.folder.exclusive() as held:
            checkpoint = self.task(task_id) or self.blank(task_id)
            self.mark(checkpoint, effect)
            self.write_checkpoint(held, checkpoint)

    def delete_checkpoint(self, task_id: str) -> None:
        self.drop(task_id)

    def blank(self, task_id: str) -> WorkflowCheckpoint:
        """Return the checkpoint that the first mark starts from."""
        return WorkflowCheckpoint.new(task_id, "unknown")

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        """Add an effect to a checkpoint."""
        checkpoint.mark(effect, at=seconds(now()))


class JsonPaused(JsonFiles):
    """Paused runs: a document holds the record of a paused run, its claim, or both."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._claimed: dict[str, str] = {}  # the token of this handle's last claim on each run; "" once it is finished

    def save(self, paused: PausedWorkflow) -> None:
        self.put(self.checked(PausedWorkflow, paused))

    def put(self, record: PausedWorkflow) -> None:
        self.check(record.run_id)
        with self.folder.exclusive() as held:
            try:
                run = self.fields(record.run_id)
            except CorruptRecord:
                run = {}  # saving repairs it
            self.write_or_unlink(held, self.name(record.run_id), {**run, "paused": json.loads(record.to_json())})

    def stored(self, record: PausedWorkflow) -> PausedWorkflow | None:
        return self.paused(record.run_id)

    def paused(self, run_id: str) -> PausedWorkflow | None:
        """Return the record of a paused run."""
        return self.decode_if_any(PausedWorkflow, self.fields(run_id).get("paused"))

    def load(self, run_id: str) -> PausedWorkflow | None:
        self.check(run_id)
        return self.answer(self.paused(run_id))

    def claim(self, run_id: str) -> PausedWorkflow | None:
        self.check(run_id)
        with self.folder.exclusive() as held:
            paused = self.paused(run_id)
            if paused is None:
                held.sync()  # the winner of the claim may have died before its fsync
                return None
            claim = {"record": json.loads(paused.to_json()), "token": uuid.uuid4().hex, "at": now().timestamp()}
            self.write_or_unlink(held, self.name(run_id), {"claim": claim})
            self._claimed[run_id] = claim["token"]
        return paused

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age, rearmed = check_age(older_than), 0
        with self.folder.exclusive() as held:
            for name, run in self.runs(held.names()):
                if "claim" in run and round(now().timestamp() - run["claim"]["at"], 6) >= age:
                    rearmed += "paused" not in run
                    self.write_or_unlink(held, name, {"paused": run.get("paused", run["claim"]["record"])})
            held.sync()
        return rearmed

    def token(self, run_id: str) -> str:
        self.check(run_id)
        token = self._claimed.get(run_id)
        if not token:
            raise no_token(run_id)
        return token

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        self.check(run_id, *([] if token is None else [token]))
        with self.folder.exclusive() as held:
            run = self.fields(run_id)
            claimed = run.get("claim", {}).get("token")
            ends = claimed is not None and claimed == (token or self._claimed.get(run_id, claimed))
            if ends:
                del run["claim"]
                self.write_or_unlink(held, self.name(run_id), run)
            held.sync()
        self.finish(run_id, token)
        return None if token is None else ends

    def renew(self, run_id: str, token: str) -> bool:
        self.check(run_id, token)
        with self.folder.exclusive() as held:
            run = self.fields(run_id)
            matches: bool = run.get("claim", {}).get("token") == token
            if matches:
                run["claim"]["at"] = now().timestamp()
                self.write_or_unlink(held, self.name(run_id), run)
            held.sync()
        return matches

    def remove(self, run_id: str) -> None:
        self.drop(run_id)
        self.finish(run_id)

    def finish(self, run_id: str, token: str | None = None) -> None:
        """Forget the token of a claim that has ended, but not that this handle made it."""
        if token in (None, self._claimed.get(run_id)) and run_id in self._claimed:
            self._claimed[run_id] = ""

    def list(self) -> builtins.list[str]:
        with self.folder.shared() as names:
            return sorted(run["paused"]["run_id"] for _, run in self.runs(names) if "paused" in run)

    def runs(self, names: builtins.list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every readable document with the name of its file."""
        for name in sorted(name for name in names if name.endswith(".json")):
            with contextlib.suppress(CorruptRecord):
                yield name, self.document(name)

    def write_or_unlink(self, held: LockedFolder, name: str, run: dict[str, Any]) -> None:
        """Write a document, or remove the file of an empty one."""
        if run:
            self.write(held, name, json.dumps(run, ensure_ascii=False).encode())
        else:
            self.unlink(held, name)


class JsonResume(JsonFiles):
    """Resume points: each is a document."""

    def save(self, point: ResumePoint) -> None:
        self.put(self.checked(ResumePoint, point))

    def put(self, record: ResumePoint) -> None:
        self.check(record.run_id)
        with self.folder.exclusive() as held:
            self.write(held, self.name(record.run_id), record.to_json().encode())

    def stored(self, record: ResumePoint) -> ResumePoint | None:
        return self.point(record.run_id)

    def point(self, run_id: str) -> ResumePoint | None:
        """Return the resume point of a run."""
        return self.decode_if_any(ResumePoint, self.fields(run_id))

    def load(self, run_id: str) -> ResumePoint | None:
        self.check(run_id)
        return self.answer(self.point(run_id))

    def delete(self, run_id: str) -> None:
        self.drop(run_id)


class JsonSnapshots(JsonFiles):
    """Snapshots: the document of a run holds one for each super-step."""

    def save(self, snapshot: Snapshot) -> None:
        self.put(self.checked(Snapshot, snapshot))

    def put(self, record: Snapshot) -> None:
        key = record.key
        self.check(key.workflow_id, key.run_id)
        with self.edit(key.workflow_id, key.run_id) as run:
            run[str(key.super_step)] = json.loads(record.to_json())

    def stored(self, record: Snapshot) -> Snapshot | None:
        return self.run(record.key.workflow_id, record.key.run_id).get(record.key.super_step)

    def run(self, workflow_id: str, run_id: str) -> dict[int, Snapshot]:
        """Return the snapshots of a run by super-step."""
        self.check(workflow_id, run_id)
        document = self.fields(workflow_id, run_id)
        return {int(step): self.decode(Snapshot, fields) for step, fields in document.items()}

    def load(self, key: CheckpointKey) -> Snapshot | None:
        key = CheckpointKey.checked(key)
        return self.answer(self.run(key.workflow_id, key.run_id).get(key.super_step))

    def latest(self, workflow_id: str, run_id: str) -> Snapshot | None:
        run = self.run(workflow_id, run_id)
        return self.answer(run[max(run)] if run else None)

    def list(self, workflow_id: str, run_id: str) -> builtins.list[CheckpointMeta]:
        run = self.run(workflow_id, run_id)
        return [run[step].meta() for step in sorted(run)]

    def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        snapshot = self.load(source)
        if snapshot is None:
            raise no_source(source)
        fork = self.forked(snapshot, edits)
        self.put(fork)
        return fork.key.run_id

    def forked(self, source: Snapshot, edits: Edits) -> Snapshot:
        """Return a fork."""
        return source.forked(new_run_id(), edits, milliseconds(now()))


class JsonRuns(JsonFiles):
    """Runs: a document holds the run, if it was created, and its steps by id."""

    def create_run(self, state: WorkflowExecutionState) -> None:
        self.put(self.checked(WorkflowExecutionState, state))

    def put(self, record: WorkflowExecutionState) -> None:
        self.check(record.run_task_id)
        with self.edit(record.run_task_id) as document:
            document["run"] = json.loads(record.to_json())

    def stored(self, record: WorkflowExecutionState) -> WorkflowExecutionState | None:
        return self.run(record.run_task_id)

    def run(self, run_task_id: str) -> WorkflowExecutionState | None:
        """Return a run without its steps."""
        return self.decode_if_any(WorkflowExecutionState, self.fields(run_task_id).get("run"))

    def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        self.check(run_task_id)
        return self.answer(self.run(run_task_id))

    def update_context(self, run_task_id: str, context: Any) -> None:
        self.check(run_task_id)
        with self.edit(run_task_id) as document:
            if "run" not in document:
                raise no_run(run_task_id)
            state = self.decode(WorkflowExecutionState, document["run"])
            state.context = context
            state.updated_at = now()
            document["run"] = json.loads(state.to_json())

    def delete_run(self, run_task_id: str) -> None:
        self.drop(run_task_id)

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        step = self.checked(WorkflowStepState, step)
        self.check(run_task_id, step.step_id)
        with self.edit(run_task_id) as document:
            document.setdefault("steps", {})[step.step_id] = json.loads(step.to_json())

    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        self.check(run_task_id, step_id)
        return self.answer(self.steps(run_task_id).get(step_id))

    def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        self.check(run_task_id)
        return list(self.steps(run_task_id).values())

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        """Return the steps of a run by id."""
        steps = self.fields(run_task_id).get("steps", {})
        return {step_id: self.decode(WorkflowStepState, fields) for step_id, fields in steps.items()}


CORRECT_STORES: dict[str, type[JsonFiles]] = {
    "effects": JsonEffects,
    "paused": JsonPaused,
    "resume": JsonResume,
    "runs": JsonRuns,
    "snapshots": JsonSnapshots,
}
"""The correct store of each contract."""
