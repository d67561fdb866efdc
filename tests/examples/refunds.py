"""An agent that sends a refund correctly, and wrong ways to do it that a test should catch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_wfstate import EffectStore, SideEffectRecord

TASK, USE, ORDER = "task-1", "use-1", "order-17"


class FakeBank:
    """A bank that pays once per idempotency key."""

    def __init__(self) -> None:
        self.refunds: list[str] = []
        self._keys: set[str] = set()

    def refund(self, order: str, key: str | None = None) -> None:
        if key not in self._keys:
            self.refunds.append(order)
        if key is not None:
            self._keys.add(key)


def effect() -> SideEffectRecord:
    return SideEffectRecord.new(USE, "send_refund", ORDER, reversible=False)


async def is_done(store: EffectStore) -> bool:
    checkpoint = await store.load_checkpoint(TASK)
    return checkpoint is not None and checkpoint.is_completed(USE)


async def refund_agent(store: EffectStore, bank: FakeBank) -> None:
    """Send the refund unless it was sent. The key covers a crash right after sending: the bank is then asked again."""
    if not await is_done(store):
        bank.refund(ORDER, key=USE)
        await store.mark_step_complete(TASK, USE, effect())


async def agent_without_a_key(store: EffectStore, bank: FakeBank) -> None:
    if not await is_done(store):
        bank.refund(ORDER)
        await store.mark_step_complete(TASK, USE, effect())


async def agent_that_marks_first(store: EffectStore, bank: FakeBank) -> None:
    if not await is_done(store):
        await store.mark_step_complete(TASK, USE, effect())
        bank.refund(ORDER, key=USE)


class CarelessStore:
    """A home-made effect store, atomic by rename, or so it seems."""

    def __init__(self, home: Path) -> None:
        self._file = home / "done.json"

    async def load_checkpoint(self, _task_id: str) -> Any:
        return Done(json.loads(self._file.read_text())) if self._file.exists() else None

    async def mark_step_complete(self, _task_id: str, tool_use_id: str, _effect: SideEffectRecord) -> None:
        tmp = self._file.with_suffix(".tmp")
        tmp.write_text(json.dumps([tool_use_id]))
        tmp.rename(self._file)


class Done(list[str]):
    """The tool calls that are done."""

    def is_completed(self, tool_use_id: str) -> bool:
        return tool_use_id in self
