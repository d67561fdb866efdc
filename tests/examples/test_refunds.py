"""A refund is sent once, wherever the agent dies; agents and stores for which that does not hold are caught."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk, FileEffectStore, FilePausedStore, samples
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
    """Say where a line of the example is, as a report does."""
    source = Path(refunds.__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(source, 1) if line.strip() == text)
    return f"refunds.py:{number}"


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_a_refund_is_sent_once(crash: Crash, model: Model, depth: int) -> None:
    assert explore(crash, refund_agent, model=model, depth=depth).skipped == 0


@pytest.mark.parametrize("model", MODELS)
def test_without_an_idempotency_key_it_is_sent_twice(crash: Crash, model: Model) -> None:
    with pytest.raises(CrashBug) as caught:
        explore(crash, agent_without_a_key, model=model)

    report = str(caught.value)
    assert f"effects         refund('order-17')   tests/examples/{line_of('bank.refund(ORDER)')}" in report
    assert "assert ['order-17', 'order-17'] == ['order-17']" in report
    assert "No fsync helps; make the step idempotent or record it first." in report


@pytest.mark.parametrize("model", MODELS)
def test_marked_before_it_is_sent_it_may_never_be(crash: Crash, model: Model) -> None:
    with pytest.raises(CrashBug) as caught:
        explore(crash, agent_that_marks_first, model=model)

    report = str(caught.value)
    assert "effects" not in report
    assert "assert [] == ['order-17']" in report
    assert "it died" in report


@pytest.mark.parametrize("model", ["ext4", "xfs", "posix"])
def test_a_store_that_renames_without_fsync_is_of_no_use_after_a_power_cut(crash: Crash, model: Model) -> None:
    with pytest.raises(CrashBug) as caught:
        explore(crash, refund_agent, CarelessStore, model)

    report = str(caught.value)
    assert "done.json: 0 bytes" in report
    assert "JSONDecodeError" in report
    assert "An fsync of done.tmp before rename done.tmp to done.json" in report
    assert line_of("tmp.rename(self._file)") in report


def test_a_store_that_renames_without_fsync_survives_the_death_of_its_process(crash: Crash) -> None:
    assert explore(crash, refund_agent, CarelessStore, "kill").verdict == "CLEAN"


def test_killed_between_tmp_write_and_rename_the_old_record_stands(crash: Crash) -> None:
    def setup(home: Path) -> None:
        FilePausedStore(home).save(samples.paused("run-1", iterations=1))

    def worker(home: Path) -> None:
        FilePausedStore(home).save(samples.paused("run-1", iterations=2))

    disk = crash.kill(worker, at=crash.between("write", "rename"), setup=setup)

    assert (disk.home / "run-1.json.tmp").exists()
    assert FilePausedStore(disk.home).load("run-1") == samples.paused("run-1", iterations=1)


def test_killed_between_claim_and_complete_the_run_is_given_back(crash: Crash) -> None:
    def setup(home: Path) -> None:
        FilePausedStore(home).save(samples.paused("run-1"))

    def worker(home: Path) -> None:
        store = FilePausedStore(home)
        store.claim("run-1")
        store.complete("run-1")

    disk = crash.kill(worker, at=crash.between(FilePausedStore.claim, FilePausedStore.complete), setup=setup)

    store = FilePausedStore(disk.home)
    assert store.claim("run-1") is None
    assert store.recover_orphaned() == 1
    assert store.claim("run-1") == samples.paused("run-1")


def test_killed_between_the_refund_and_its_mark_it_is_not_sent_again(crash: Crash) -> None:
    bank = crash.world(FakeBank())

    async def work(home: Path) -> None:
        await refund_agent(FileEffectStore(home), bank)

    disk = crash.kill(work, at=crash.after(bank.refund))

    assert list(disk.home.iterdir()) == []  # the agent does not know that it was sent
    crash.kill(work, at=crash.after(FileEffectStore.mark_step_complete))
    assert bank.refunds == [ORDER]
