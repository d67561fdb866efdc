"""What a store promises: its records and its protocol, one module per contract."""

from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint
from pytest_wfstate.contracts.history import HistoryStore
from pytest_wfstate.contracts.lock import LockStore
from pytest_wfstate.contracts.paused import (
    ApprovalField,
    Edge,
    FencedPausedStore,
    PausedStore,
    PausedWorkflow,
    Stage,
    StageStep,
    Workflow,
)
from pytest_wfstate.contracts.queue import QueueItem, QueueStore, TakenItem
from pytest_wfstate.contracts.resume import ResumePoint, ResumeStore
from pytest_wfstate.contracts.runs import (
    RunStore,
    StepKind,
    TaskStatus,
    WorkflowDefinition,
    WorkflowExecutionState,
    WorkflowStep,
    WorkflowStepState,
)
from pytest_wfstate.contracts.snapshots import (
    CheckpointKey,
    CheckpointMeta,
    Edits,
    RunId,
    Snapshot,
    SnapshotStore,
)

__all__ = [
    "ApprovalField",
    "CheckpointKey",
    "CheckpointMeta",
    "Edge",
    "Edits",
    "EffectStore",
    "FencedPausedStore",
    "HistoryStore",
    "LockStore",
    "PausedStore",
    "PausedWorkflow",
    "QueueItem",
    "QueueStore",
    "ResumePoint",
    "ResumeStore",
    "RunId",
    "RunStore",
    "SideEffectRecord",
    "Snapshot",
    "SnapshotStore",
    "Stage",
    "StageStep",
    "StepKind",
    "TakenItem",
    "TaskStatus",
    "Workflow",
    "WorkflowCheckpoint",
    "WorkflowDefinition",
    "WorkflowExecutionState",
    "WorkflowStep",
    "WorkflowStepState",
]
