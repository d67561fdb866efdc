from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from pytest_wfstate import (
    EffectStore,
    FileEffectStore,
    InvalidId,
    SideEffectRecord,
    WorkflowCheckpoint,
    as_sync,
    samples,
)
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.stores.handles import BACKENDS, another, opened_sync
from tests.unit.values import BAD_IDS, BAD_TEXT_IDS, TRICKY_IDS, checkpoints, effects, id_pairs, label

ONLY_FILE = pytest.mark.parametrize("effect_store", ["file"], indirect=True)


@pytest.fixture
def store(effect_store: EffectStore) -> Any:
    return as_sync(effect_store)


@pytest.fixture
def other(effect_store: EffectStore) -> Any:
    return as_sync(another(effect_store))


def test_is_an_effect_store(effect_store: EffectStore) -> None:
    assert isinstance(effect_store, EffectStore)


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

    @pytest.mark.parametrize("backend", BACKENDS)
    @settings(max_examples=40, deadline=None)
    @given(checkpoint=checkpoints)
    def test_any_checkpoint_is_loaded_as_it_was_saved(self, backend: str, checkpoint: WorkflowCheckpoint) -> None:
        with opened_sync(backend, "EffectStore") as store:
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

    def test_works_in_its_own_colour(self, effect_store: EffectStore) -> None:
        async def use() -> WorkflowCheckpoint | None:
            await effect_store.save_checkpoint(samples.checkpoint())
            return await effect_store.load_checkpoint("task-1")

        assert asyncio.run(use()) == asyncio.run(use()) == samples.checkpoint()

    @ONLY_FILE
    def test_no_temporary_file_is_left_after_a_save(self, effect_store: FileEffectStore) -> None:
        """Seed 000: fs_atomic_write_produces_no_tmp_file_after_save."""
        as_sync(effect_store).save_checkpoint(samples.checkpoint("atomic-task"))

        assert names(effect_store.directory) == ["atomic-task.json"]


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

    @pytest.mark.parametrize("frozen_clock", ["1969-12-31T23:59:58.5Z"], indirect=True)
    def test_seconds_before_1970_are_rounded_down(self, store: Any, frozen_clock: FrozenClock) -> None:
        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))

        assert store.load_checkpoint("task-1").updated_at == -2
        assert frozen_clock.now.timestamp() == -1.5

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

    @pytest.mark.parametrize("backend", BACKENDS)
    @settings(max_examples=40, deadline=None)
    @given(effect=effects)
    def test_any_effect_is_loaded_as_it_was_marked(self, backend: str, effect: SideEffectRecord) -> None:
        with opened_sync(backend, "EffectStore") as store:
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

    def test_marking_again_at_the_highest_step_index_is_no_error(self, store: Any) -> None:
        store.save_checkpoint(samples.checkpoint(step_index=2**32 - 1))

        store.mark_step_complete("task-1", "use-0", samples.effect("use-0"))

        assert store.load_checkpoint("task-1") == samples.checkpoint(step_index=2**32 - 1)


class TestDelete:
    def test_a_deleted_checkpoint_is_missing(self, store: Any) -> None:
        """Seed 000: delete_removes_checkpoint."""
        store.save_checkpoint(samples.checkpoint("t3"))

        store.delete_checkpoint("t3")

        assert store.load_checkpoint("t3") is None

    def test_deleting_again_or_what_never_was_is_no_error(self, store: Any) -> None:
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

    @pytest.mark.parametrize("backend", BACKENDS)
    @settings(max_examples=50, deadline=None)
    @given(pair=id_pairs)
    def test_no_pair_of_ids_shares_a_checkpoint(self, backend: str, pair: tuple[str, str]) -> None:
        one, two = pair
        with opened_sync(backend, "EffectStore") as store:
            store.save_checkpoint(samples.checkpoint(one, step_index=1))
            assert store.load_checkpoint(two) is None

            store.mark_step_complete(two, "use-1", samples.effect("use-1"))
            assert store.load_checkpoint(one) == samples.checkpoint(one, step_index=1)

            store.delete_checkpoint(one)
            assert store.load_checkpoint(two).task_id == two

    @ONLY_FILE
    def test_special_characters_reach_into_no_other_folder(self, effect_store: FileEffectStore) -> None:
        """Seed 000: fs_checkpoint_path_sanitizes_special_chars."""
        store = as_sync(effect_store)
        around = names(effect_store.directory.parent)

        for task_id in ["proj/task.1 final", "../outside", "/absolute"]:
            store.save_checkpoint(samples.checkpoint(task_id))

        assert store.load_checkpoint("proj/task.1 final").task_id == "proj/task.1 final"
        assert len([path for path in effect_store.directory.rglob("*") if path.is_file()]) == 3
        assert names(effect_store.directory.parent) == around


def test_the_default_path_is_in_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = FileEffectStore.at_default_path()
    assert names(tmp_path) == []

    as_sync(store).save_checkpoint(samples.checkpoint())

    assert names(tmp_path / ".wfstate" / "effects") == ["task-1.json"]
    assert as_sync(FileEffectStore.at_default_path()).load_checkpoint("task-1") == samples.checkpoint()


CALLS_BY_ID: dict[str, Callable[[Any, Any], Any]] = {
    "load": lambda store, bad: store.load_checkpoint(bad),
    "mark of task": lambda store, bad: store.mark_step_complete(bad, "use-1", samples.effect("use-1")),
    "mark of tool call": lambda store, bad: store.mark_step_complete("task-1", bad, samples.effect("use-1")),
    "delete": lambda store, bad: store.delete_checkpoint(bad),
}


class TestRefusals:
    @pytest.mark.parametrize("bad", BAD_IDS, ids=label)
    @pytest.mark.parametrize("call", CALLS_BY_ID.values(), ids=list(CALLS_BY_ID))
    def test_what_is_no_id_is_refused(self, store: Any, call: Callable[[Any, Any], Any], bad: Any) -> None:
        store.save_checkpoint(samples.checkpoint())

        with pytest.raises(InvalidId, match=r"An id is text of 1 to 1,024 characters"):
            call(store, bad)

        assert store.load_checkpoint("task-1") == samples.checkpoint()

    @pytest.mark.parametrize("bad", BAD_TEXT_IDS, ids=label)
    def test_a_checkpoint_of_what_is_no_id_is_refused(self, store: Any, bad: str) -> None:
        with pytest.raises(InvalidId, match=r"^task id "):
            store.save_checkpoint(samples.checkpoint(bad))

    @pytest.mark.parametrize("bad", BAD_TEXT_IDS, ids=label)
    def test_an_effect_of_what_is_no_id_is_refused(self, store: Any, bad: str) -> None:
        with pytest.raises(InvalidId, match=r"^tool use id "):
            store.mark_step_complete("task-1", bad, samples.effect(bad))

        assert store.load_checkpoint("task-1") is None

    @pytest.mark.parametrize("bad", [math.nan, 1.5, None, 2**63])
    def test_a_checkpoint_that_became_invalid_is_refused(self, store: Any, other: Any, bad: Any) -> None:
        store.save_checkpoint(samples.checkpoint())
        checkpoint = samples.checkpoint(agent_id="new")
        checkpoint.side_effects_log[0].__dict__["completed_at"] = bad

        with pytest.raises(ValidationError):
            store.save_checkpoint(checkpoint)

        assert store.load_checkpoint("task-1") == other.load_checkpoint("task-1") == samples.checkpoint()

    def test_an_effect_that_became_invalid_is_refused(self, store: Any, other: Any) -> None:
        store.save_checkpoint(samples.checkpoint())
        effect = samples.effect("use-1")
        effect.__dict__["completed_at"] = math.nan

        with pytest.raises(ValidationError):
            store.mark_step_complete("task-1", "use-1", effect)

        assert store.load_checkpoint("task-1") == other.load_checkpoint("task-1") == samples.checkpoint()

    @pytest.mark.parametrize("wrong", [None, {"task_id": "task-1"}, samples.effect()], ids=["none", "dict", "effect"])
    def test_another_type_is_no_checkpoint(self, store: Any, wrong: Any) -> None:
        store.save_checkpoint(samples.checkpoint())

        with pytest.raises(TypeError, match=r"^expected a WorkflowCheckpoint, got "):
            store.save_checkpoint(wrong)

        assert store.load_checkpoint("task-1") == samples.checkpoint()

    @pytest.mark.parametrize("wrong", [None, {"tool_use_id": "use-1"}, samples.step()], ids=["none", "dict", "step"])
    def test_another_type_is_no_effect(self, store: Any, wrong: Any) -> None:
        store.save_checkpoint(samples.checkpoint())

        with pytest.raises(TypeError, match=r"^expected a SideEffectRecord, got "):
            store.mark_step_complete("task-1", "use-1", wrong)

        assert store.load_checkpoint("task-1") == samples.checkpoint()


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

    def test_closing_keeps_everything_and_may_be_repeated(self, store: Any, other: Any) -> None:
        store.save_checkpoint(samples.checkpoint())

        store.close()
        store.close()

        assert store.load_checkpoint("task-1") == other.load_checkpoint("task-1") == samples.checkpoint()


def change(checkpoint: WorkflowCheckpoint) -> None:
    checkpoint.agent_id = "changed"
    checkpoint.completed_tool_ids.add("changed")
    checkpoint.side_effects_log[0].tool_name = "changed"
    checkpoint.side_effects_log.append(samples.effect("changed"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
