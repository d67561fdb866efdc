from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import (
    MemoryRunStore,
    NotFound,
    TaskStatus,
    WorkflowDefinition,
    WorkflowExecutionState,
    WorkflowStep,
    WorkflowStepState,
    as_sync,
    samples,
)
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.values import (
    JSON_VALUES,
    TRICKY_IDS,
    id_pairs,
    ids,
    json_values,
    label,
    runs,
    steps,
)

DEFINITION = WorkflowDefinition.new([WorkflowStep.checkpoint("c", "Checkpoint", "ok")])


@pytest.fixture
def store() -> Any:
    return as_sync(MemoryRunStore())


@pytest.fixture
def other(store: Any) -> Any:
    return store.handle()


class TestRun:
    def test_a_run_is_loaded_as_it_was_created(self, store: Any) -> None:
        """Seed 004: create_get_roundtrip."""
        state = WorkflowExecutionState.new(
            "run-1", "agent-1", "thread-test", "user-test", DEFINITION, entry_point="main", input={"x": 1}
        )

        store.create_run(state)

        got = store.get_run("run-1")
        assert (got.agent_id, got.entry_point, got.input) == ("agent-1", "main", {"x": 1})
        assert got == state

    @pytest.mark.parametrize("value", JSON_VALUES, ids=label)
    def test_any_input_and_context_are_loaded_as_they_were_created(self, store: Any, value: Any) -> None:
        state = samples.run(input=value, context={"": value}, workspace_id="", entry_point=None)

        store.create_run(state)

        assert store.get_run("run-1").to_json() == state.to_json()

    @settings(max_examples=40, deadline=None)
    @given(state=runs)
    def test_any_run_is_loaded_as_it_was_created(self, state: WorkflowExecutionState) -> None:
        store = as_sync(MemoryRunStore())
        store.create_run(state)

        assert store.get_run(state.run_task_id).to_json() == state.to_json()

    def test_fields_that_only_the_framework_knows_come_back(self, store: Any) -> None:
        definition = WorkflowDefinition.model_validate(
            {
                "id": "wf",
                "steps": [{"id": "s", "label": "S", "kind": {"type": "reply", "to": ["x"]}, "retries": 0}],
                "owner": {"team": None},
            }
        )

        store.create_run(samples.run(definition=definition))

        assert store.get_run("run-1").definition.to_json() == definition.to_json()

    def test_a_missing_run_is_none(self, store: Any) -> None:
        store.create_run(samples.run("run-1"))

        assert store.get_run("run-2") is None

    def test_creating_it_again_replaces_it_and_keeps_its_steps(self, store: Any) -> None:
        store.create_run(samples.run(agent_id="old", workspace_id="old"))
        store.upsert_step("run-1", samples.step("b"))
        store.upsert_step("run-1", samples.step("a"))

        store.create_run(samples.run(agent_id="new", workspace_id=None))

        assert store.get_run("run-1") == samples.run(agent_id="new", workspace_id=None)
        assert store.list_steps("run-1") == [samples.step("b"), samples.step("a")]


class TestContext:
    def test_updating_it_changes_nothing_else(self, store: Any) -> None:
        """Seed 004: update_context_mutates_only_context."""
        store.create_run(samples.run(input={"x": 1}))
        context = {"steps": {"c": "ok"}}

        store.update_context("run-1", context)

        got = store.get_run("run-1")
        assert got.context == context
        assert got.input == {"x": 1}

    def test_updating_it_sets_the_time_of_the_update(self, store: Any, frozen_clock: FrozenClock) -> None:
        store.create_run(samples.run())
        store.upsert_step("run-1", samples.step())
        frozen_clock.tick(1.234567)

        store.update_context("run-1", {"new": True})

        assert store.get_run("run-1") == samples.run(context={"new": True}, updated_at=frozen_clock.now)
        assert store.list_steps("run-1") == [samples.step()]

    @pytest.mark.parametrize("value", JSON_VALUES, ids=label)
    def test_it_can_be_any_json(self, store: Any, value: Any) -> None:
        store.create_run(samples.run())

        store.update_context("run-1", value)

        updated = store.get_run("run-1")
        assert updated.to_json() == samples.run(context=value, updated_at=updated.updated_at).to_json()

    @settings(max_examples=40, deadline=None)
    @given(context=json_values)
    def test_any_json_is_loaded_as_it_was_given(self, context: Any) -> None:
        store = as_sync(MemoryRunStore())
        store.create_run(samples.run())

        store.update_context("run-1", context)

        assert store.get_run("run-1").context == context

    def test_of_an_unknown_run_is_refused(self, store: Any) -> None:
        store.create_run(samples.run("run-1"))

        with pytest.raises(NotFound, match=r"there is no run 'run-2'"):
            store.update_context("run-2", {})

        assert store.get_run("run-2") is None
        assert store.get_run("run-1") == samples.run("run-1")

    def test_of_steps_without_a_run_is_refused(self, store: Any) -> None:
        store.upsert_step("run-1", samples.step())

        with pytest.raises(NotFound, match=r"there is no run 'run-1'"):
            store.update_context("run-1", {})

        assert store.get_run("run-1") is None
        assert store.list_steps("run-1") == [samples.step()]

    def test_of_a_deleted_run_is_refused(self, store: Any) -> None:
        store.create_run(samples.run())
        store.delete_run("run-1")

        with pytest.raises(NotFound):
            store.update_context("run-1", {})

        assert store.get_run("run-1") is None


class TestSteps:
    def test_a_step_is_inserted_then_updated(self, store: Any) -> None:
        """Seed 004: upsert_step_insert_then_update."""
        store.upsert_step("run-1", WorkflowStepState(step_id="fetch", status=TaskStatus.RUNNING))
        assert store.get_step("run-1", "fetch").status is TaskStatus.RUNNING

        done = WorkflowStepState(step_id="fetch", status=TaskStatus.COMPLETED, result={"docs": []})
        store.upsert_step("run-1", done)

        assert store.get_step("run-1", "fetch") == done

    def test_steps_are_listed_as_they_were_inserted_each_run_for_itself(self, store: Any) -> None:
        """Seed 004: list_steps_preserves_insertion_order_and_is_per_run."""
        for step_id in "abc":
            store.upsert_step("run-1", WorkflowStepState(step_id=step_id))
        store.upsert_step("run-2", WorkflowStepState(step_id="x"))

        assert [step.step_id for step in store.list_steps("run-1")] == ["a", "b", "c"]
        assert [step.step_id for step in store.list_steps("run-2")] == ["x"]

    def test_a_step_that_is_updated_keeps_its_place(self, store: Any) -> None:
        for step_id in ["c", "a", "b"]:
            store.upsert_step("run-1", samples.step(step_id))

        store.upsert_step("run-1", samples.step("c", status="failed"))

        assert store.list_steps("run-1") == [samples.step("c", status="failed"), samples.step("a"), samples.step("b")]

    @settings(max_examples=30, deadline=None)
    @given(order=st.lists(st.sampled_from([*"aAb10", "2", ""]).filter(bool) | ids, max_size=10))
    def test_any_order_of_upserts_keeps_that_of_the_first(self, order: list[str]) -> None:
        store = as_sync(MemoryRunStore())
        for number, step_id in enumerate(order):
            store.upsert_step("run-1", samples.step(step_id, result=number))

        listed = store.list_steps("run-1")

        last = {step_id: number for number, step_id in enumerate(order)}
        assert [(step.step_id, step.result) for step in listed] == list(last.items())

    def test_many_steps_through_two_handles_are_all_kept_in_order(self, store: Any, other: Any) -> None:
        for number in range(200):
            (store, other)[number % 2].upsert_step("run-1", samples.step(f"step-{number % 100}", result=number))

        listed = store.list_steps("run-1")

        assert [(step.step_id, step.result) for step in listed] == [(f"step-{n}", n + 100) for n in range(100)]
        assert other.list_steps("run-1") == listed

    @pytest.mark.parametrize("value", JSON_VALUES, ids=label)
    def test_any_result_is_loaded_as_it_was_saved(self, store: Any, value: Any) -> None:
        step = samples.step(result=value, error="", wait_task_id="")

        store.upsert_step("run-1", step)

        assert store.get_step("run-1", "fetch").to_json() == step.to_json()
        assert [listed.to_json() for listed in store.list_steps("run-1")] == [step.to_json()]

    @settings(max_examples=40, deadline=None)
    @given(run_id=ids, step=steps)
    def test_any_step_is_loaded_as_it_was_saved(self, run_id: str, step: WorkflowStepState) -> None:
        store = as_sync(MemoryRunStore())
        store.upsert_step(run_id, step)

        assert store.get_step(run_id, step.step_id).to_json() == step.to_json()

    def test_an_update_leaves_nothing_of_the_old_step(self, store: Any) -> None:
        store.upsert_step("run-1", samples.step(error="old", wait_task_id="old"))

        store.upsert_step("run-1", WorkflowStepState(step_id="fetch"))

        assert store.get_step("run-1", "fetch") == WorkflowStepState(step_id="fetch")

    def test_steps_may_precede_their_run(self, store: Any) -> None:
        store.upsert_step("run-1", samples.step())
        assert store.get_run("run-1") is None

        store.create_run(samples.run())

        assert store.get_run("run-1") == samples.run()
        assert store.list_steps("run-1") == [samples.step()]

    def test_what_is_missing_is_none_or_an_empty_list(self, store: Any) -> None:
        store.create_run(samples.run("run-1"))
        store.upsert_step("run-1", samples.step("fetch"))

        assert store.get_step("run-1", "send") is None
        assert store.get_step("run-2", "fetch") is None
        assert store.list_steps("run-2") == []

    def test_a_run_without_steps_lists_none(self, store: Any) -> None:
        store.create_run(samples.run())

        assert store.list_steps("run-1") == []
        assert store.get_step("run-1", "fetch") is None


class TestDelete:
    def test_takes_the_steps_along(self, store: Any) -> None:
        """Seed 004: delete_run_cascades_to_steps."""
        store.create_run(samples.run())
        store.upsert_step("run-1", samples.step("s"))

        store.delete_run("run-1")

        assert store.get_run("run-1") is None
        assert store.list_steps("run-1") == []
        assert store.get_step("run-1", "s") is None

    def test_takes_steps_that_have_no_run(self, store: Any) -> None:
        store.upsert_step("run-1", samples.step())

        store.delete_run("run-1")

        assert store.list_steps("run-1") == []

    def test_of_a_missing_run_does_nothing(self, store: Any) -> None:
        store.create_run(samples.run())

        store.delete_run("run-1")
        store.delete_run("run-1")
        store.delete_run("never")

        assert store.get_run("run-1") is None

    def test_leaves_other_runs(self, store: Any) -> None:
        for run_id in ["run-1", "run-2"]:
            store.create_run(samples.run(run_id))
            store.upsert_step(run_id, samples.step())

        store.delete_run("run-1")

        assert store.get_run("run-2") == samples.run("run-2")
        assert store.list_steps("run-2") == [samples.step()]

    def test_a_run_created_after_it_has_no_steps(self, store: Any) -> None:
        store.create_run(samples.run())
        store.upsert_step("run-1", samples.step())
        store.delete_run("run-1")

        store.create_run(samples.run())

        assert store.list_steps("run-1") == []


class TestNothingIsLive:
    def test_a_run_that_is_changed_after_its_creation_stays_as_it_was(self, store: Any) -> None:
        state = samples.run()
        store.create_run(state)

        change_run(state)

        assert store.get_run("run-1") == samples.run()

    def test_a_run_that_was_loaded_and_changed_stays_as_it_was(self, store: Any) -> None:
        store.create_run(samples.run())

        change_run(store.get_run("run-1"))

        assert store.get_run("run-1") == samples.run()

    def test_a_context_that_is_changed_after_the_update_stays_as_it_was(self, store: Any) -> None:
        store.create_run(samples.run())
        context = {"list": [1]}

        store.update_context("run-1", context)
        context["list"].append(2)

        assert store.get_run("run-1").context == {"list": [1]}

    def test_a_step_that_is_changed_after_the_upsert_stays_as_it_was(self, store: Any) -> None:
        step = samples.step()
        store.upsert_step("run-1", step)

        change_step(step)

        assert store.list_steps("run-1") == [samples.step()]

    def test_a_step_that_was_loaded_and_changed_stays_as_it_was(self, store: Any) -> None:
        store.upsert_step("run-1", samples.step())

        change_step(store.get_step("run-1", "fetch"))

        assert store.get_step("run-1", "fetch") == samples.step()

    def test_a_list_of_steps_that_is_changed_is_a_copy(self, store: Any) -> None:
        store.upsert_step("run-1", samples.step())

        listed = store.list_steps("run-1")
        change_step(listed[0])
        listed.append(samples.step("more"))

        assert store.list_steps("run-1") == [samples.step()]

    def test_updating_the_context_changes_no_run_that_was_loaded_before(self, store: Any) -> None:
        store.create_run(samples.run())
        loaded = store.get_run("run-1")

        store.update_context("run-1", {"new": True})

        assert loaded == samples.run()


class TestIds:
    def test_no_two_ids_share_a_run(self, store: Any) -> None:
        for number, run_id in enumerate(TRICKY_IDS):
            store.create_run(samples.run(run_id, input=number))
            store.upsert_step(run_id, samples.step(result=number))

        numbers = list(range(len(TRICKY_IDS)))
        assert [store.get_run(run_id).input for run_id in TRICKY_IDS] == numbers
        assert [store.get_step(run_id, "fetch").result for run_id in TRICKY_IDS] == numbers

    def test_no_two_ids_share_a_step(self, store: Any) -> None:
        for number, step_id in enumerate(TRICKY_IDS):
            store.upsert_step("run-1", samples.step(step_id, result=number))

        assert [step.step_id for step in store.list_steps("run-1")] == TRICKY_IDS
        assert [store.get_step("run-1", step_id).result for step_id in TRICKY_IDS] == list(range(len(TRICKY_IDS)))

    def test_deleting_some_ids_leaves_all_others(self, store: Any) -> None:
        for run_id in TRICKY_IDS:
            store.upsert_step(run_id, samples.step())

        for run_id in TRICKY_IDS[::2]:
            store.delete_run(run_id)

        assert [run_id for run_id in TRICKY_IDS if store.list_steps(run_id) == []] == TRICKY_IDS[::2]

    @settings(max_examples=50, deadline=None)
    @given(pair=id_pairs)
    def test_no_pair_of_ids_shares_a_run_or_a_step(self, pair: tuple[str, str]) -> None:
        one, two = pair
        store = as_sync(MemoryRunStore())
        store.create_run(samples.run(one))
        store.upsert_step(one, samples.step(two))
        assert store.get_run(two) is None
        assert store.get_step(one, one) is None
        assert store.list_steps(two) == []

        store.delete_run(two)
        assert store.list_steps(one) == [samples.step(two)]


class TestHandles:
    def test_what_one_wrote_the_other_sees(self, store: Any, other: Any) -> None:
        store.create_run(samples.run())
        assert other.get_run("run-1") == samples.run()

        other.upsert_step("run-1", samples.step("a"))
        store.upsert_step("run-1", samples.step("b"))
        other.upsert_step("run-1", samples.step("a", status="failed"))
        assert store.list_steps("run-1") == [samples.step("a", status="failed"), samples.step("b")]

        store.update_context("run-1", "from one")
        assert other.get_run("run-1").context == "from one"
        other.update_context("run-1", "from the other")
        assert store.get_run("run-1").context == "from the other"

        other.delete_run("run-1")
        assert store.get_run("run-1") is None
        store.upsert_step("run-1", samples.step("c"))
        assert other.list_steps("run-1") == [samples.step("c")]


def change_run(state: WorkflowExecutionState) -> None:
    state.agent_id = "changed"
    state.definition.steps[0].label = "changed"
    state.input["x"] = "changed"
    state.context["steps"]["changed"] = True


def change_step(step: WorkflowStepState) -> None:
    step.status = TaskStatus.FAILED
    step.result["docs"].append("changed")
