"""A refund is sent once, wherever the agent dies; agents and stores that break this are caught."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk, FileEffectStore
from pytest_wfstate.faults.bounds import MODELS, Model

from . import refunds
from .refunds import ORDER, CarelessStore, FakeBank, agent_that_marks_first, agent_without_a_key, refund_agent

Agent = Callable[[Any, FakeBank], Awaitable[None]]


def explore(
    crash: Crash, agent: Agent, store: Callable[[Path], Any] = FileEffectStore, model: Model = "posix", depth: int = 1
) -> CrashResult:
    bank = crash.world(FakeBank())

    async def work(home: Path) -> None:
        await agent(store(home), bank)

    async def after_restart(disk: Disk) -> None:
        await work(disk.home)
        assert bank.refunds == [ORDER]

    return crash.explore(work, after_restart, model=model, depth=depth)


def line_of(text: str) -> str:
    """Return where a line of the example is, as a report shows it."""
    source = Path(refunds.__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(source, 1) if line.strip() == text)
    return f"refunds.py:{number}"


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_a_refund_is_sent_once(crash: Crash, model: Model, depth: int) -> None:
    assert explore(crash, refund_agent, model=model, depth=depth).skipped == 0


@pytest.mark.parametrize("model", MODELS)
def test_without_an_idempotency_key_a_refund_is_sent_twice(crash: Crash, model: Model) -> None:
    with pytest.raises(CrashBug) as caught:
        explore(crash, agent_without_a_key, model=model)

    report = str(caught.value)
    assert f"effects         refund('order-17')   tests/examples/{line_of('bank.refund(ORDER)')}" in report
    assert "assert ['order-17', 'order-17'] == ['order-17']" in report
    assert "No fsync helps; make the step idempotent or record it first." in report


@pytest.mark.parametrize("model", MODELS)
def test_a_refund_marked_before_it_is_sent_may_never_be_sent(crash: Crash, model: Model) -> None:
    with pytest.raises(CrashBug) as caught:
        explore(crash, agent_that_marks_first, model=model)

    report = str(caught.value)
    assert "effects" not in report
    assert "assert [] == ['order-17']" in report
    assert "it died" in report


@pytest.mark.parametrize("model", ["ext4", "xfs", "posix"])
def test_a_rename_without_fsync_does_not_survive_a_power_cut(crash: Crash, model: Model) -> None:
    with pytest.raises(CrashBug) as caught:
        explore(crash, refund_agent, CarelessStore, model)

    report = str(caught.value)
    assert re.search(r"done\.json: [1-9]\d* bytes" if model == "posix" else r"done\.json: 0 bytes", report)  # zeros
    assert "JSONDecodeError" in report
    assert "An fsync of done.tmp before rename done.tmp to done.json" in report
    assert line_of("tmp.rename(self._file)") in report


def test_a_rename_without_fsync_survives_a_kill(crash: Crash) -> None:
    assert explore(crash, refund_agent, CarelessStore, "kill").verdict == "CLEAN"


def test_a_refund_is_not_sent_again_after_a_kill_before_its_mark(crash: Crash) -> None:
    bank = crash.world(FakeBank())

    async def work(home: Path) -> None:
        await refund_agent(FileEffectStore(home), bank)

    disk = crash.kill(work, at=crash.after(bank.refund))

    assert list(disk.home.iterdir()) == []  # the agent has no record of it
    crash.kill(work, at=crash.after(FileEffectStore.mark_step_complete))
    assert bank.refunds == [ORDER]
