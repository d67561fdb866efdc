"""Paused: which runs wait for a human, and which worker has claimed one to resume it."""

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
    """A transition from one stage to another, taken while all its conditions hold."""

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
    """One value that the human is asked for."""

    name: Text
    label: Text | None = left_out()
    field_type: Text | None = left_out()
    options: list[Json] | None = left_out()
    required: Flag | None = left_out()


class PausedWorkflow(Record):
    """A run that waits for approval, with everything needed to continue it."""

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
    """Return the age in seconds that a claim must have to be recovered; None means any.

    Raises:
        ValueError: it is negative or not a number.

    """
    if older_than is None:
        return -math.inf
    if isinstance(older_than, bool) or not isinstance(older_than, (int, float)) or not older_than >= 0:
        raise ValueError(
            f"older_than is {older_than!r}. It must be a number of seconds, at least 0, or None for any age."
        )
    return older_than


@runtime_checkable
class PausedStore(Protocol):
    """Keeps one `PausedWorkflow` per run and hands each to one worker at a time."""

    def save(self, paused: PausedWorkflow) -> None:
        """Store `paused` as the run's paused state. A worker's claim on the run is unaffected."""

    def load(self, run_id: str) -> PausedWorkflow | None:
        """Return the run's paused state, or None if it is not paused: unknown, claimed or done."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        """Claim the paused run: it is in flight and belongs to this handle until it is completed or recovered.

        Return None if it is not paused. Of several concurrent claims, exactly one gets the record.
        """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        """Pause claimed runs again whose worker is gone, and return how many there were.

        A run that has paused again in the meantime only loses its old claim. Claims younger than `older_than` seconds
        are left alone, so that a second worker does not steal live work when it starts.
        """

    def complete(self, run_id: str) -> None:
        """Release the claim on a run that is done. A late call never releases another handle's claim."""

    def remove(self, run_id: str) -> None:
        """Remove the run, paused or claimed. Removing it again is not an error."""

    def list(self) -> builtins.list[str]:
        """Return the ids of all paused runs, sorted."""
