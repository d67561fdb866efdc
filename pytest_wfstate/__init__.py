"""Prove that the place where a durable agent keeps its state survives crashes, races and bad input.

Every public name can be imported from here. Each is loaded on first use: a pytest run that does not use this package
pays nothing for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_wfstate import samples
    from pytest_wfstate.contracts import (
        ApprovalField,
        CheckpointKey,
        CheckpointMeta,
        Edge,
        Edits,
        EffectStore,
        PausedStore,
        PausedWorkflow,
        ResumePoint,
        ResumeStore,
        RunId,
        RunStore,
        SideEffectRecord,
        Snapshot,
        SnapshotStore,
        Stage,
        StageStep,
        StepKind,
        TaskStatus,
        Workflow,
        WorkflowCheckpoint,
        WorkflowDefinition,
        WorkflowExecutionState,
        WorkflowStep,
        WorkflowStepState,
    )
    from pytest_wfstate.errors import (
        AdapterError,
        CannotLock,
        CorruptRecord,
        InvalidId,
        InvalidSetting,
        LoopDeadlock,
        LostConnection,
        MissingExtra,
        NewerSchema,
        NotFound,
        StoreTimeout,
        UnusableDatabase,
        Violation,
        WfstateError,
    )
    from pytest_wfstate.faults.fake_disk import FakeDisk
    from pytest_wfstate.faults.frozen_clock import FrozenClock
    from pytest_wfstate.faults.servers import CannotStart, GivenServer, NoServer, NotOurs, Server
    from pytest_wfstate.labs.crash import (
        CannotCopy,
        CheckFails,
        Crash,
        CrashBug,
        CrashResult,
        Disk,
        ErrorBug,
        NeverReached,
        NoRealDisk,
        NotMeasured,
        TraceChanged,
    )
    from pytest_wfstate.labs.race import ClientDied, Outcome, Race, RaceBug, RaceResult, StormResult
    from pytest_wfstate.stores.adapt import as_async, as_sync
    from pytest_wfstate.stores.file import (
        FileEffectStore,
        FilePausedStore,
        FileResumeStore,
        FileRunStore,
        FileSnapshotStore,
    )
    from pytest_wfstate.stores.memory import (
        MemoryEffectStore,
        MemoryPausedStore,
        MemoryResumeStore,
        MemoryRunStore,
        MemorySnapshotStore,
    )
    from pytest_wfstate.stores.redis import (
        NotDurable,
        RedisEffectStore,
        RedisPausedStore,
        RedisResumeStore,
        RedisRunStore,
        RedisSnapshotStore,
    )
    from pytest_wfstate.stores.sql import (
        SqlEffectStore,
        SqlPausedStore,
        SqlResumeStore,
        SqlRunStore,
        SqlSnapshotStore,
    )

__all__ = [
    "AdapterError",
    "ApprovalField",
    "CannotCopy",
    "CannotLock",
    "CannotStart",
    "CheckFails",
    "CheckpointKey",
    "CheckpointMeta",
    "ClientDied",
    "CorruptRecord",
    "Crash",
    "CrashBug",
    "CrashResult",
    "Disk",
    "Edge",
    "Edits",
    "EffectStore",
    "ErrorBug",
    "FakeDisk",
    "FileEffectStore",
    "FilePausedStore",
    "FileResumeStore",
    "FileRunStore",
    "FileSnapshotStore",
    "FrozenClock",
    "GivenServer",
    "InvalidId",
    "InvalidSetting",
    "LoopDeadlock",
    "LostConnection",
    "MemoryEffectStore",
    "MemoryPausedStore",
    "MemoryResumeStore",
    "MemoryRunStore",
    "MemorySnapshotStore",
    "MissingExtra",
    "NeverReached",
    "NewerSchema",
    "NoRealDisk",
    "NoServer",
    "NotDurable",
    "NotFound",
    "NotMeasured",
    "NotOurs",
    "Outcome",
    "PausedStore",
    "PausedWorkflow",
    "Race",
    "RaceBug",
    "RaceResult",
    "RedisEffectStore",
    "RedisPausedStore",
    "RedisResumeStore",
    "RedisRunStore",
    "RedisSnapshotStore",
    "ResumePoint",
    "ResumeStore",
    "RunId",
    "RunStore",
    "Server",
    "SideEffectRecord",
    "Snapshot",
    "SnapshotStore",
    "SqlEffectStore",
    "SqlPausedStore",
    "SqlResumeStore",
    "SqlRunStore",
    "SqlSnapshotStore",
    "Stage",
    "StageStep",
    "StepKind",
    "StoreTimeout",
    "StormResult",
    "TaskStatus",
    "TraceChanged",
    "UnusableDatabase",
    "Violation",
    "WfstateError",
    "Workflow",
    "WorkflowCheckpoint",
    "WorkflowDefinition",
    "WorkflowExecutionState",
    "WorkflowStep",
    "WorkflowStepState",
    "as_async",
    "as_sync",
    "samples",
]

# Where names live, searched in this order: modules that need an extra are last.
_MODULES = (
    "errors",
    "contracts",
    "stores.memory",
    "stores.file",
    "stores.adapt",
    "labs.crash",
    "faults.frozen_clock",
    "faults.fake_disk",
    "labs.race",
    "faults.servers",
    "stores.redis",
    "stores.sql",
)


def __getattr__(name: str) -> Any:
    if name == "samples":
        return importlib.import_module(f"{__name__}.samples")
    if name in __all__:
        for path in _MODULES:
            module = importlib.import_module(f"{__name__}.{path}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
