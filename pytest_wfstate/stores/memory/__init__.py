"""Stores in memory. They are the specification: every other store must be indistinguishable from them."""

from pytest_wfstate.stores.memory.effects import MemoryEffectStore
from pytest_wfstate.stores.memory.history import MemoryHistoryStore
from pytest_wfstate.stores.memory.lock import MemoryLockStore
from pytest_wfstate.stores.memory.paused import MemoryPausedStore
from pytest_wfstate.stores.memory.queue import MemoryQueueStore
from pytest_wfstate.stores.memory.resume import MemoryResumeStore
from pytest_wfstate.stores.memory.runs import MemoryRunStore
from pytest_wfstate.stores.memory.snapshots import MemorySnapshotStore

__all__ = [
    "MemoryEffectStore",
    "MemoryHistoryStore",
    "MemoryLockStore",
    "MemoryPausedStore",
    "MemoryQueueStore",
    "MemoryResumeStore",
    "MemoryRunStore",
    "MemorySnapshotStore",
]
