"""The memory store is the specification: random calls on several handles give the same results on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pytest_wfstate import (
    FileEffectStore,
    FilePausedStore,
    FileResumeStore,
    FileRunStore,
    FileSnapshotStore,
    MemoryEffectStore,
    MemoryPausedStore,
    MemoryResumeStore,
    MemoryRunStore,
    MemorySnapshotStore,
    samples,
)
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.stores.handles import another, outcome

SETTINGS = settings(max_examples=40, stateful_step_count=20, deadline=None)
IDS = ["a", "A", "a/b"]
run_ids = st.sampled_from(IDS)
bad_or_good_ids = st.sampled_from([*IDS, ""])
handles = st.integers(0, 2)
numbers = st.integers(0, 3)


class Twins(RuleBasedStateMachine):
    """A store in memory and one on disk, three handles on each, which get the same calls."""

    memory: type[Any]
    file: type[Any]

    def __init__(self, clock: FrozenClock) -> None:
        super().__init__()
        self.clock = clock
        self.folder = tempfile.TemporaryDirectory()
        memory, disk = self.memory(), self.file(self.folder.name, durability="process")
        self.memories = [memory, another(memory), another(memory)]
        self.disks = [disk, another(disk), another(disk)]

    def teardown(self) -> None:
        self.folder.cleanup()

    def both(self, handle: int, method: str, *args: Any) -> None:
        expected = outcome(self.memories[handle], method, *args)
        assert outcome(self.disks[handle], method, *args) == expected

    @rule(handle=handles)
    def restart(self, handle: int) -> None:
        self.memories[handle] = another(self.memories[handle])
        self.disks[handle] = another(self.disks[handle])

    @rule(seconds=st.sampled_from([0.1, 1, 9.9, 10]))
    def wait(self, seconds: float) -> None:
        self.clock.tick(seconds)


class PausedTwins(Twins):
    memory, file = MemoryPausedStore, FilePausedStore

    @initialize(run_id=run_ids)
    def start_with_a_claim_that_another_handle_took_over(self, run_id: str) -> None:
        for handle in (0, 1):
            self.save(handle, run_id, handle)
            self.claim(handle, run_id)

    @rule(handle=handles, run_id=run_ids, number=numbers)
    def save(self, handle: int, run_id: str, number: int) -> None:
        self.both(handle, "save", samples.paused(run_id, iterations=number))

    @rule(handle=handles, run_id=bad_or_good_ids)
    def claim(self, handle: int, run_id: str) -> None:
        self.both(handle, "claim", run_id)

    @rule(handle=handles, run_id=bad_or_good_ids)
    def complete(self, handle: int, run_id: str) -> None:
        self.both(handle, "complete", run_id)

    @rule(handle=handles, run_id=bad_or_good_ids)
    def remove(self, handle: int, run_id: str) -> None:
        self.both(handle, "remove", run_id)

    @rule(handle=handles, older_than=st.sampled_from([None, 0, 10, 10.1]))
    def recover(self, handle: int, older_than: float | None) -> None:
        self.both(handle, "recover_orphaned", older_than)

    @invariant()
    def hold_as_many_claims(self) -> None:
        """Look behind the contract, which shows a claim that was freed too early only when it is recovered."""
        assert len(list(Path(self.folder.name).glob("*.inflight"))) == len(self.memories[0]._inflight)

    @invariant()
    def show_the_same(self) -> None:
        self.both(0, "list")
        for run_id in IDS:
            self.both(1, "load", run_id)


class EffectTwins(Twins):
    memory, file = MemoryEffectStore, FileEffectStore

    @rule(handle=handles, task_id=bad_or_good_ids, index=st.sampled_from([0, 1, 2**32 - 2, 2**32 - 1]))
    def save(self, handle: int, task_id: str, index: int) -> None:
        self.both(handle, "save_checkpoint", samples.checkpoint(task_id, step_index=index))

    @rule(handle=handles, task_id=run_ids, use=bad_or_good_ids, effect_of=run_ids | st.none())
    def mark(self, handle: int, task_id: str, use: str, effect_of: str | None) -> None:
        self.both(handle, "mark_step_complete", task_id, use, samples.effect(effect_of or use))

    @rule(handle=handles, task_id=run_ids, count=st.sampled_from([2, 70]))
    def mark_many(self, handle: int, task_id: str, count: int) -> None:
        """As many as make a journal compact itself."""
        for number in range(count):
            self.mark((handle + number) % 3, task_id, f"use-{number}", None)

    @rule(handle=handles, task_id=bad_or_good_ids)
    def delete(self, handle: int, task_id: str) -> None:
        self.both(handle, "delete_checkpoint", task_id)

    @rule(handle=handles, task_id=bad_or_good_ids)
    def load(self, handle: int, task_id: str) -> None:
        self.both(handle, "load_checkpoint", task_id)

    @invariant()
    def show_the_same(self) -> None:
        for handle, task_id in enumerate(IDS):
            self.both(handle, "load_checkpoint", task_id)


class RunTwins(Twins):
    memory, file = MemoryRunStore, FileRunStore

    @rule(handle=handles, run_id=bad_or_good_ids, number=numbers)
    def create(self, handle: int, run_id: str, number: int) -> None:
        self.both(handle, "create_run", samples.run(run_id, input=number))

    @rule(handle=handles, run_id=bad_or_good_ids, context=st.sampled_from([None, {}, 0, {"k": []}, float("nan")]))
    def update_context(self, handle: int, run_id: str, context: Any) -> None:
        self.both(handle, "update_context", run_id, context)

    @rule(handle=handles, run_id=run_ids, step_id=bad_or_good_ids, number=numbers)
    def upsert(self, handle: int, run_id: str, step_id: str, number: int) -> None:
        self.both(handle, "upsert_step", run_id, samples.step(step_id, result=number))

    @rule(handle=handles, run_id=run_ids, count=st.sampled_from([2, 70]))
    def upsert_many(self, handle: int, run_id: str, count: int) -> None:
        """As many as make a journal compact itself."""
        for number in range(count):
            self.upsert((handle + number) % 3, run_id, f"step-{number % 7}", number)

    @rule(handle=handles, run_id=bad_or_good_ids)
    def delete(self, handle: int, run_id: str) -> None:
        self.both(handle, "delete_run", run_id)

    @rule(handle=handles, run_id=bad_or_good_ids, step_id=bad_or_good_ids)
    def get_step(self, handle: int, run_id: str, step_id: str) -> None:
        self.both(handle, "get_step", run_id, step_id)

    @invariant()
    def show_the_same(self) -> None:
        for handle, run_id in enumerate(IDS):
            self.both(handle, "get_run", run_id)
            self.both(handle, "list_steps", run_id)


class SnapshotTwins(Twins):
    memory, file = MemorySnapshotStore, FileSnapshotStore

    def __init__(self, clock: FrozenClock) -> None:
        super().__init__(clock)
        self.runs = [(workflow_id, "r") for workflow_id in IDS]

    @rule(handle=handles, data=st.data(), super_step=numbers, number=numbers)
    def save(self, handle: int, data: Any, super_step: int, number: int) -> None:
        workflow_id, run_id = data.draw(st.sampled_from(self.runs))
        self.both(handle, "save", samples.snapshot(run_id, super_step, workflow_id, values={"n": number}))

    @rule(handle=handles, data=st.data(), super_step=numbers, edits=st.sampled_from([{}, {"n": []}, {"n": {1}}]))
    def fork(self, handle: int, data: Any, super_step: int, edits: dict[str, Any]) -> None:
        """What the store on disk names the new run, the one in memory names it too."""
        workflow_id, run_id = data.draw(st.sampled_from(self.runs))
        key = samples.key(run_id, super_step, workflow_id)

        new_run = outcome(self.disks[handle], "fork", key, edits)
        self.memories[handle]._new_id = lambda: new_run

        assert outcome(self.memories[handle], "fork", key, edits) == new_run
        if isinstance(new_run, str):
            self.runs.append((workflow_id, new_run))

    @rule(handle=handles, data=st.data(), super_step=numbers)
    def load(self, handle: int, data: Any, super_step: int) -> None:
        workflow_id, run_id = data.draw(st.sampled_from(self.runs))
        self.both(handle, "load", samples.key(run_id, super_step, workflow_id))

    @invariant()
    def show_the_same(self) -> None:
        for number, run in enumerate(self.runs):
            self.both(number % 3, "latest", *run)
            self.both(number % 3, "list", *run)


class ResumeTwins(Twins):
    memory, file = MemoryResumeStore, FileResumeStore

    @rule(handle=handles, run_id=bad_or_good_ids, number=numbers)
    def save(self, handle: int, run_id: str, number: int) -> None:
        self.both(handle, "save", samples.resume_point(run_id, step=number))

    @rule(handle=handles, run_id=bad_or_good_ids)
    def delete(self, handle: int, run_id: str) -> None:
        self.both(handle, "delete", run_id)

    @invariant()
    def show_the_same(self) -> None:
        for handle, run_id in enumerate(IDS):
            self.both(handle, "load", run_id)


def run(machine: type[Twins], clock: FrozenClock, settings: settings = SETTINGS) -> None:
    class Started(machine):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(clock)

    run_state_machine_as_test(Started, settings=settings)


def test_paused_stores_agree(frozen_clock: FrozenClock) -> None:
    run(PausedTwins, frozen_clock, settings(SETTINGS, max_examples=60, stateful_step_count=30))


def test_effect_stores_agree(frozen_clock: FrozenClock) -> None:
    run(EffectTwins, frozen_clock)


def test_run_stores_agree(frozen_clock: FrozenClock) -> None:
    run(RunTwins, frozen_clock)


def test_snapshot_stores_agree(frozen_clock: FrozenClock) -> None:
    run(SnapshotTwins, frozen_clock)


def test_resume_stores_agree(frozen_clock: FrozenClock) -> None:
    run(ResumeTwins, frozen_clock)
