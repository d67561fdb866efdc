"""Paused: which runs wait for a human, and which worker has claimed one to resume it."""

from __future__ import annotations

import builtins
import math
from typing import Any, Protocol, runtime_checkable

from pydantic import Field

from pytest_wfstate.contracts.framework import FrameworkType, Open
from pytest_wfstate.contracts.moments import Moment
from pytest_wfstate.contracts.records import U32, U64, Flag, Json, Number, Record, Text, left_out
from pytest_wfstate.errors import NotFound

__all__ = [
    "ApprovalField",
    "Edge",
    "FencedPausedStore",
    "PausedStore",
    "PausedWorkflow",
    "Stage",
    "StageStep",
    "Workflow",
]


class StageStep(FrameworkType):
    """What a stage does: its `type`, and the fields that go with that type.

    Known types are pattern, proposal, sub_workflow, approval, loop_until, for_each, dedup and deliver.
    """

    type: Open[Text]


class Stage(FrameworkType):
    """One node of a workflow."""

    id: Open[Text]
    name: Open[Text]
    step: Open[StageStep]
    compensation: Json = left_out()
    timeout_ms: Open[U64 | None] = left_out()


class Edge(FrameworkType):
    """A transition from one stage to another, taken while all its conditions hold."""

    from_: Open[Text] = Field(validation_alias="from", serialization_alias="from")
    to: Open[Text]
    conditions: Open[list[Json]] = Field(default_factory=list)
    label: Open[Text] = ""


class Workflow(FrameworkType):
    """A graph of stages, as the framework defines it."""

    id: Open[Text]
    name: Open[Text]
    start: Open[Text]
    goal: Json = left_out()
    stages: Open[list[Open[Stage]]] = Field(default_factory=list)
    edges: Open[list[Open[Edge]]] = Field(default_factory=list)
    max_iterations: Open[U32] = 100
    metadata: Open[dict[Text, Json]] = Field(default_factory=dict)


class ApprovalField(FrameworkType):
    """One value that the human is asked for."""

    name: Open[Text]
    label: Open[Text | None] = left_out()
    field_type: Open[Text | None] = left_out()
    options: Open[list[Json] | None] = left_out()
    required: Open[Flag | None] = left_out()


class PausedWorkflow(Record):
    """A run that waits for approval, with everything needed to continue it."""

    run_id: Text
    workflow: Workflow
    paused_stage_id: Text
    prompt: Text
    fields: list[Open[ApprovalField]]
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


def no_token(run_id: str) -> NotFound:
    """Return the error for a handle without a token for this run."""
    return NotFound(
        f"this handle has no token for run {run_id!r}: it has not claimed the run, or has completed or removed it. "
        "Ask for the token right after claim(run_id) has returned the record, and keep it with your work."
    )


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

    def complete(self, run_id: str) -> bool | None:
        """Release the claim on a run that is done. A late call never releases another handle's claim.

        The result means nothing, unless the store is a `FencedPausedStore` and a token was passed.
        """

    def remove(self, run_id: str) -> None:
        """Remove the run, paused or claimed. Removing it again is not an error."""

    def list(self) -> builtins.list[str]:
        """Return the ids of all paused runs, sorted."""


@runtime_checkable
class FencedPausedStore(PausedStore, Protocol):
    """A `PausedStore` whose claims have fencing tokens, so that a restarted worker can tell whether it lost its run."""

    def token(self, run_id: str) -> str:
        """Return the fencing token of this handle's claim on the run. Every claim has a new one.

        Raises:
            NotFound: this handle has not claimed the run, or has completed or removed it.

        """

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        """Release the claim on a run that is done.

        With a token, release it only if the token is that of the run's present claim, whichever handle made that, and
        return whether it was. Without one, the rule of `PausedStore` holds.
        """

    def renew(self, run_id: str, token: str) -> bool:
        """Make the claim as young as a new one, if the token is that of the run's present claim; return whether."""
