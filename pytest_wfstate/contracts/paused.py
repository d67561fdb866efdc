"""Paused: which runs wait for a human, and which worker has taken one up again."""

from __future__ import annotations

import builtins
import math
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from pytest_wfstate.contracts.records import (
    U32,
    U64,
    Flag,
    FrameworkType,
    Json,
    Moment,
    Number,
    Record,
    Text,
    left_out,
)

__all__ = ["ApprovalField", "Edge", "PausedStore", "PausedWorkflow", "Stage", "StageStep", "Workflow"]


class StageStep(FrameworkType):
    """What a stage does: its `type`, and the fields that go with that type."""

    type: Literal["pattern", "proposal", "sub_workflow", "approval", "loop_until", "for_each", "dedup", "deliver"]


class Stage(FrameworkType):
    """One node of a workflow."""

    id: Text
    name: Text
    step: StageStep
    compensation: Json = left_out()
    timeout_ms: U64 | None = left_out()


class Edge(FrameworkType):
    """A way from one stage to another, open while all its conditions hold."""

    from_: Text = Field(validation_alias="from", serialization_alias="from")
    to: Text
    conditions: list[Json] = Field(default_factory=list)
    label: Text = ""


class Workflow(FrameworkType):
    """A graph of stages, as the framework defines it."""

    id: Text
    name: Text
    start: Text
    goal: Json = left_out()
    stages: list[Stage] = Field(default_factory=list)
    edges: list[Edge] = Field(default_factory=list)
    max_iterations: U32 = 100
    metadata: dict[Text, Json] = Field(default_factory=dict)


class ApprovalField(Record):
    """One thing that the human is asked for."""

    name: Text
    label: Text | None = left_out()
    field_type: Text | None = left_out()
    options: list[Json] | None = left_out()
    required: Flag | None = left_out()


class PausedWorkflow(Record):
    """A run that waits for approval, with all that is needed to go on."""

    run_id: Text
    workflow: Workflow
    paused_stage_id: Text
    prompt: Text
    fields: list[ApprovalField]
    output_key: Text
    wf_state: dict[Text, Json]
    stage_results: list[Json]
    completed_stage_ids: list[Text]
    iterations: U32
    prior_duration_ms: Number
    created_at: Moment


def check_age(older_than: Any) -> float:
    """Give the age that a claim must have to be recovered: None means any.

    Raises:
        ValueError: it is not a number of seconds from 0 up.

    """
    if older_than is None:
        return -math.inf
    if isinstance(older_than, bool) or not isinstance(older_than, (int, float)) or not older_than >= 0:
        raise ValueError(f"older_than is {older_than!r}. It is a number of seconds from 0 up, or None for any age.")
    return older_than


@runtime_checkable
class PausedStore(Protocol):
    """Keeps one `PausedWorkflow` per run, and hands each to one worker at a time."""

    def save(self, paused: PausedWorkflow) -> None:
        """Keep `paused` as the run's paused state. A worker's claim on the run is not touched."""

    def load(self, run_id: str) -> PausedWorkflow | None:
        """Give the run's paused state, or None if it is not paused: unknown, claimed or done."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        """Take the paused run: it is in flight, and of this handle, until completed or recovered.

        None means that nothing is paused. Of several claims at once, one gets the record.
        """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        """Make claimed runs paused again whose worker is gone, and count them.

        A run that was paused anew meanwhile only loses its old claim. Claims younger than `older_than` seconds
        are left alone altogether, so that the start of a second worker does not steal live work.
        """

    def complete(self, run_id: str) -> None:
        """Drop the claim of a run that is done. A late call never frees the claim of another handle."""

    def remove(self, run_id: str) -> None:
        """Forget the run, paused or claimed. Forgetting it again is no error."""

    def list(self) -> builtins.list[str]:
        """Give the ids of all paused runs, sorted."""
