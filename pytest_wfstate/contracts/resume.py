"""Resume: where a run continues after a restart."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pytest_wfstate.contracts.records import U64, Json, Record, Text

__all__ = ["ResumePoint", "ResumeStore"]


class ResumePoint(Record):
    """The next node of a run, and the scope to enter it with."""

    run_id: Text
    workflow_name: Text
    step: U64
    next_node_id: Text
    scope_snapshot: Json


@runtime_checkable
class ResumeStore(Protocol):
    """Keeps one `ResumePoint` per run."""

    def save(self, point: ResumePoint) -> None:
        """Store `point`, replacing any that its run had."""

    def load(self, run_id: str) -> ResumePoint | None:
        """Return the point at which the run continues, or None if it has none."""

    def delete(self, run_id: str) -> None:
        """Delete the run. Deleting it again is not an error."""
