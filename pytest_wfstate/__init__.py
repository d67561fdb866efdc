"""Prove that the place where a durable agent keeps its state survives crashes, races and bad input.

Every public name can be imported from here. Each is loaded on first use: a pytest run that does not use this package
pays nothing for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_wfstate import samples
    from pytest_wfstate.contracts import *
    from pytest_wfstate.errors import *
    from pytest_wfstate.faults.fake_disk import *
    from pytest_wfstate.faults.frozen_clock import *
    from pytest_wfstate.faults.servers import *
    from pytest_wfstate.labs.crash import *
    from pytest_wfstate.labs.race import *
    from pytest_wfstate.stores.adapt import *
    from pytest_wfstate.stores.file import *
    from pytest_wfstate.stores.memory import *
    from pytest_wfstate.stores.redis import *
    from pytest_wfstate.stores.sql import *

__all__ = [
    "AdapterError",
    "ApprovalField",
    "CannotCompare",
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
    "FencedPausedStore",
    "FileEffectStore",
    "FileHistoryStore",
    "FileLockStore",
    "FilePausedStore",
    "FileQueueStore",
    "FileResumeStore",
    "FileRunStore",
    "FileSnapshotStore",
    "ForeignFile",
    "FrozenClock",
    "GivenServer",
    "HistoryStore",
    "InvalidId",
    "InvalidSetting",
    "LockStore",
    "LockTimeout",
    "LoopDeadlock",
    "LostConnection",
    "MemoryEffectStore",
    "MemoryHistoryStore",
    "MemoryLockStore",
    "MemoryPausedStore",
    "MemoryQueueStore",
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
    "QueueItem",
    "QueueStore",
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
    "TakenItem",
    "TaskStatus",
    "TraceChanged",
    "UnsafeFile",
    "UnusableDatabase",
    "Violation",
    "WfstateError",
    "Workflow",
    "WorkflowCheckpoint",
    "WorkflowDefinition",
    "WorkflowExecutionState",
    "WorkflowStep",
    "WorkflowStepState",
    "WrongContract",
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
