from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from pytest_wfstate import (
    InvalidId,
    MemoryEffectStore,
    SideEffectRecord,
    WorkflowCheckpoint,
    as_sync,
    samples,
)
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.values import TRICKY_IDS, checkpoints, effects, id_pairs


@pytest.fixture
def store() -> Any:
    return as_sync(MemoryEffectStore())


@pytest.fixture
def other(store: Any) -> Any:
    return store.handle()


class TestSaveAndLoad:
    def test_a_checkpoint_is_missing_until_it_is_saved(self, store: Any) -> None:
        """Seed 000: in_memory_roundtrip and fs_save_and_load_roundtrip."""
        assert store.load_checkpoint("t1") is None

        checkpoint = WorkflowCheckpoint.new("t1", "agent-1")
        store.save_checkpoint(checkpoint)

        loaded = store.load_checkpoint("t1")
        assert (loaded.task_id, loaded.agent_id) == ("t1", "agent-1")
        assert loaded == checkpoint

    @pytest.mark.parametrize(
        "fields",
        [
            {"agent_id": "", "step_index": 0, "completed_tool_ids": [], "side_effects_log": [], "updated_at": 0},
            {"agent_id": "Grüße 你好 🎉\x00\u2028", "completed_tool_ids": ["", "é", "e\u0301", "\0"]},
            {"side_effects_log": [samples.effect("", tool_name="", target="", completed_at=0)]},
            {"side_effects_log": [samples.effect(target=None), samples.effect(), samples.effect(target=None)]},
            {"step_index": 2**32 - 1, "updated_at": 2**63 - 1},
            {"updated_at": -(2**63)},
        ],
        ids=["falsy", "unicode", "falsy effect", "same effect thrice", "highest", "lowest"],
    )
    def test_falsy_and_extreme_values_are_loaded_as_they_were_saved(self, store: Any, fields: dict[str, Any]) -> None:
        checkpoint = samples.checkpoint(**fields)

        store.save_checkpoint(checkpoint)

        assert store.load_checkpoint("task-1").to_json() == checkpoint.to_json()

    @settings(max_examples=40, deadline=None)
    @given(checkpoint=checkpoints)
    def test_any_checkpoint_is_loaded_as_it_was_saved(self, checkpoint: WorkflowCheckpoint) -> None:
        store = as_sync(MemoryEffectStore())
        store.save_checkpoint(checkpoint)

        assert store.load_checkpoint(checkpoint.task_id).to_json() == checkpoint.to_json()

    def test_the_last_save_wins(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint(agent_id="long" * 1000))
        store.save_checkpoint(samples.checkpoint(agent_id="last"))

        assert store.load_checkpoint("task-1") == samples.checkpoint(agent_id="last")

    def test_a_save_replaces_what_was_marked(self, store: Any) -> None:
        store.mark_step_complete("task-1", "use-9", samples.effect("use-9"))

        store.save_checkpoint(samples.checkpoint())

        assert store.load_checkpoint("task-1") == samples.checkpoint()


class TestMark:
    def test_what_is_marked_is_to_be_skipped(self, store: Any) -> None:
        """Seed 000: mark_step_and_skip."""
        effect = SideEffectRecord.new("use-1", "write_file", "src/main.rs", reversible=True)

        store.mark_step_complete("t2", "use-1", effect)

        checkpoint = store.load_checkpoint("t2")
        assert checkpoint.is_completed("use-1")
        assert not checkpoint.is_completed("use-2")
        assert checkpoint.step_index == 1

    def test_a_task_without_checkpoint_gets_one_of_an_unknown_agent(
        self, store: Any, frozen_clock: FrozenClock
    ) -> None:
        """Seed 000: fs_mark_step_creates_checkpoint_implicitly."""
        store.mark_step_complete("fresh-task", "use-99", samples.effect("use-99", tool_name="write_file"))

        assert store.load_checkpoint("fresh-task") == WorkflowCheckpoint(
            task_id="fresh-task",
            agent_id="unknown",
            step_index=1,
            completed_tool_ids={"use-99"},
            side_effects_log=[samples.effect("use-99", tool_name="write_file")],
            updated_at=int(frozen_clock.now.timestamp()),
        )

    def test_adds_one_effect_and_leaves_the_rest(self, store: Any, frozen_clock: FrozenClock) -> None:
        before = samples.checkpoint(step_index=7, updated_at=1)
        store.save_checkpoint(before)
        frozen_clock.tick(12.9)

        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))

        assert store.load_checkpoint("task-1") == samples.checkpoint(
            step_index=8,
            completed_tool_ids={"use-0", "use-1"},
            side_effects_log=[samples.effect("use-0"), samples.effect("use-1")],
            updated_at=int(frozen_clock.now.timestamp()),
        )

    def test_marking_again_changes_nothing(self, store: Any, frozen_clock: FrozenClock) -> None:
        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
        once = store.load_checkpoint("task-1")
        frozen_clock.tick(60)

        store.mark_step_complete("task-1", "use-1", samples.effect("use-1", tool_name="another", completed_at=0))

        assert store.load_checkpoint("task-1") == once

    def test_what_a_saved_checkpoint_counts_as_done_is_not_marked_again(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint(completed_tool_ids={"use-1"}, side_effects_log=[], step_index=0))

        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))

        assert store.load_checkpoint("task-1").side_effects_log == []

    def test_what_is_logged_but_not_completed_is_marked(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint(completed_tool_ids=set()))

        store.mark_step_complete("task-1", "use-0", samples.effect("use-0"))

        assert store.load_checkpoint("task-1").side_effects_log == [samples.effect("use-0")] * 2

    @pytest.mark.parametrize("count", [200])
    def test_many_marks_through_two_handles_are_all_kept_in_order(self, store: Any, other: Any, count: int) -> None:
        for number in range(count):
            (store, other)[number % 2].mark_step_complete("task-1", f"use-{number}", samples.effect(f"use-{number}"))

        loaded = store.load_checkpoint("task-1")

        assert [effect.tool_use_id for effect in loaded.side_effects_log] == [f"use-{n}" for n in range(count)]
        assert loaded.step_index == len(loaded.completed_tool_ids) == count
        assert other.load_checkpoint("task-1") == loaded

    @settings(max_examples=40, deadline=None)
    @given(effect=effects)
    def test_any_effect_is_loaded_as_it_was_marked(self, effect: SideEffectRecord) -> None:
        store = as_sync(MemoryEffectStore())
        store.mark_step_complete("task-1", effect.tool_use_id, effect)

        assert store.load_checkpoint("task-1").side_effects_log == [effect]

    def test_the_effect_of_another_tool_call_is_refused(self, store: Any, other: Any) -> None:
        store.save_checkpoint(samples.checkpoint())

        with pytest.raises(InvalidId, match=r"the effect belongs to tool call 'use-2', but 'use-1' is being marked"):
            store.mark_step_complete("task-1", "use-1", samples.effect("use-2"))

        assert store.load_checkpoint("task-1") == other.load_checkpoint("task-1") == samples.checkpoint()

    def test_the_effect_of_another_tool_call_creates_no_checkpoint(self, store: Any) -> None:
        with pytest.raises(InvalidId):
            store.mark_step_complete("task-1", "use-1", samples.effect("use-2"))

        assert store.load_checkpoint("task-1") is None

    def test_a_step_index_that_would_overflow_is_refused(self, store: Any, other: Any) -> None:
        full = samples.checkpoint(step_index=2**32 - 1)
        store.save_checkpoint(full)

        with pytest.raises(ValidationError, match="step_index"):
            store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))

        assert store.load_checkpoint("task-1") == other.load_checkpoint("task-1") == full

    def test_marking_again_at_the_highest_step_index_does_nothing(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint(step_index=2**32 - 1))

        store.mark_step_complete("task-1", "use-0", samples.effect("use-0"))

        assert store.load_checkpoint("task-1") == samples.checkpoint(step_index=2**32 - 1)


class TestDelete:
    def test_a_deleted_checkpoint_is_missing(self, store: Any) -> None:
        """Seed 000: delete_removes_checkpoint."""
        store.save_checkpoint(samples.checkpoint("t3"))

        store.delete_checkpoint("t3")

        assert store.load_checkpoint("t3") is None

    def test_deleting_a_missing_record_does_nothing(self, store: Any) -> None:
        """Seed 000: fs_delete_is_idempotent."""
        store.save_checkpoint(samples.checkpoint("del-task"))

        store.delete_checkpoint("del-task")
        store.delete_checkpoint("del-task")
        store.delete_checkpoint("never-existed")

        assert store.load_checkpoint("del-task") is None

    def test_marking_after_a_delete_starts_afresh(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint())
        store.delete_checkpoint("task-1")

        store.mark_step_complete("task-1", "use-0", samples.effect("use-0"))

        checkpoint = store.load_checkpoint("task-1")
        assert (checkpoint.agent_id, checkpoint.step_index) == ("unknown", 1)


class TestNothingIsLive:
    def test_a_checkpoint_that_is_changed_after_saving_stays_as_it_was(self, store: Any) -> None:
        checkpoint = samples.checkpoint()
        store.save_checkpoint(checkpoint)

        change(checkpoint)

        assert store.load_checkpoint("task-1") == samples.checkpoint()

    def test_a_checkpoint_that_was_loaded_and_changed_stays_as_it_was(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint())

        change(store.load_checkpoint("task-1"))

        assert store.load_checkpoint("task-1") == samples.checkpoint()

    def test_an_effect_that_is_changed_after_marking_stays_as_it_was(self, store: Any) -> None:
        effect = samples.effect("use-1")
        store.mark_step_complete("task-1", "use-1", effect)

        effect.tool_name = "changed"

        assert store.load_checkpoint("task-1").side_effects_log == [samples.effect("use-1")]

    def test_marking_changes_no_checkpoint_that_was_loaded_before(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint())
        loaded = store.load_checkpoint("task-1")

        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))

        assert loaded == samples.checkpoint()

    def test_marking_changes_no_checkpoint_that_was_saved_before(self, store: Any) -> None:
        checkpoint = samples.checkpoint()
        store.save_checkpoint(checkpoint)

        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))

        assert checkpoint == samples.checkpoint()


class TestIds:
    def test_no_two_ids_share_a_checkpoint(self, store: Any) -> None:
        for number, task_id in enumerate(TRICKY_IDS):
            store.save_checkpoint(samples.checkpoint(task_id, step_index=number))

        loaded = [store.load_checkpoint(task_id) for task_id in TRICKY_IDS]

        assert loaded == [samples.checkpoint(task_id, step_index=n) for n, task_id in enumerate(TRICKY_IDS)]

    def test_no_two_ids_share_a_mark(self, store: Any) -> None:
        for task_id in TRICKY_IDS:
            store.mark_step_complete(task_id, "use-1", samples.effect("use-1"))

        assert [store.load_checkpoint(task_id).step_index for task_id in TRICKY_IDS] == [1] * len(TRICKY_IDS)

    def test_no_two_tool_calls_are_taken_for_one(self, store: Any) -> None:
        for tool_use_id in TRICKY_IDS:
            store.mark_step_complete("task-1", tool_use_id, samples.effect(tool_use_id))

        assert store.load_checkpoint("task-1").completed_tool_ids == set(TRICKY_IDS)

    @settings(max_examples=50, deadline=None)
    @given(pair=id_pairs)
    def test_no_pair_of_ids_shares_a_checkpoint(self, pair: tuple[str, str]) -> None:
        one, two = pair
        store = as_sync(MemoryEffectStore())
        store.save_checkpoint(samples.checkpoint(one, step_index=1))
        assert store.load_checkpoint(two) is None

        store.mark_step_complete(two, "use-1", samples.effect("use-1"))
        assert store.load_checkpoint(one) == samples.checkpoint(one, step_index=1)

        store.delete_checkpoint(one)
        assert store.load_checkpoint(two).task_id == two


class TestHandles:
    def test_what_one_wrote_the_other_sees(self, store: Any, other: Any) -> None:
        store.save_checkpoint(samples.checkpoint())
        assert other.load_checkpoint("task-1") == samples.checkpoint()

        other.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
        store.mark_step_complete("task-1", "use-2", samples.effect("use-2"))
        assert other.load_checkpoint("task-1").completed_tool_ids == {"use-0", "use-1", "use-2"}
        assert store.load_checkpoint("task-1") == other.load_checkpoint("task-1")

        other.delete_checkpoint("task-1")
        assert store.load_checkpoint("task-1") is None

        store.mark_step_complete("task-1", "use-3", samples.effect("use-3"))
        assert other.load_checkpoint("task-1").completed_tool_ids == {"use-3"}

    def test_what_the_other_marked_is_not_marked_again(self, store: Any, other: Any) -> None:
        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
        other.mark_step_complete("task-1", "use-2", samples.effect("use-2"))

        store.mark_step_complete("task-1", "use-2", samples.effect("use-2"))

        assert store.load_checkpoint("task-1").step_index == 2


def change(checkpoint: WorkflowCheckpoint) -> None:
    checkpoint.agent_id = "changed"
    checkpoint.completed_tool_ids.add("changed")
    checkpoint.side_effects_log[0].tool_name = "changed"
    checkpoint.side_effects_log.append(samples.effect("changed"))
