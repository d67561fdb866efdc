from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from pytest_wfstate import (
    ApprovalField,
    MemoryPausedStore,
    PausedStore,
    PausedWorkflow,
    Workflow,
    samples,
)
from tests.unit.values import JSON_VALUES, TRICKY_IDS, id_pairs, label, paused

OLD, NEW = samples.paused(iterations=1), samples.paused(iterations=2)


@pytest.fixture
def store() -> MemoryPausedStore:
    return MemoryPausedStore()


@pytest.fixture
def other(store: MemoryPausedStore) -> PausedStore:
    return store.handle()


class TestSaveAndLoad:
    def test_a_run_is_paused_until_it_is_removed(self, store: PausedStore) -> None:
        """Seed 001: save_load_remove_roundtrip."""
        assert store.load("missing") is None

        store.save(samples.paused("run-1"))
        loaded = store.load("run-1")
        assert loaded is not None
        assert (loaded.run_id, loaded.output_key, loaded.prompt) == ("run-1", "approval", "approve?")
        assert loaded == samples.paused("run-1")
        assert store.list() == ["run-1"]

        store.remove("run-1")
        assert store.load("run-1") is None
        store.remove("run-1")

    @pytest.mark.parametrize("value", JSON_VALUES, ids=label)
    def test_any_state_is_loaded_as_it_was_saved(self, store: PausedStore, value: Any) -> None:
        record = samples.paused(wf_state={"": value, "größe": value}, stage_results=[value])

        store.save(record)

        assert json_of(store.load("run-1")) == record.to_json()

    def test_falsy_fields_are_loaded_as_they_were_saved(self, store: PausedStore) -> None:
        record = samples.paused(
            workflow=Workflow(id="", name="", start="", max_iterations=0),
            paused_stage_id="",
            prompt="",
            fields=[ApprovalField(name="", label="", options=[], required=False)],
            output_key="",
            wf_state={},
            stage_results=[],
            completed_stage_ids=[],
            iterations=0,
            prior_duration_ms=0.0,
        )

        store.save(record)

        assert json_of(store.load("run-1")) == record.to_json()

    @settings(max_examples=40, deadline=None)
    @given(record=paused)
    def test_any_run_is_loaded_and_claimed_as_it_was_saved(self, record: PausedWorkflow) -> None:
        store = MemoryPausedStore()
        store.save(record)

        assert json_of(store.load(record.run_id)) == record.to_json()
        assert json_of(store.claim(record.run_id)) == record.to_json()

    def test_fields_that_only_the_framework_knows_come_back(self, store: PausedStore) -> None:
        workflow = Workflow.model_validate(
            {
                "id": "wf",
                "name": "WF",
                "start": "gate",
                "stages": [{"id": "gate", "name": "Gate", "step": {"type": "dedup", "by": ["x"]}, "retries": 0}],
                "edges": [{"from": "gate", "to": "gate", "weight": None}],
                "owner": {"team": ""},
            }
        )

        store.save(samples.paused(workflow=workflow))

        loaded = store.load("run-1")
        assert loaded is not None
        assert loaded.workflow.to_json() == workflow.to_json()

    def test_the_last_save_wins(self, store: PausedStore) -> None:
        store.save(samples.paused(prompt="long " * 1000))
        store.save(NEW)

        assert store.load("run-1") == NEW

    def test_a_missing_run_is_none(self, store: PausedStore) -> None:
        store.save(samples.paused("run-1"))

        assert store.load("run-2") is None
        assert store.claim("run-2") is None


class TestList:
    def test_an_empty_store_lists_nothing(self, store: PausedStore) -> None:
        assert store.list() == []

    def test_ids_are_sorted(self, store: PausedStore) -> None:
        for run_id in TRICKY_IDS:
            store.save(samples.paused(run_id))

        assert store.list() == sorted(TRICKY_IDS)

    def test_claimed_runs_are_not_listed_until_they_are_recovered(self, store: PausedStore) -> None:
        store.save(samples.paused("a"))
        store.save(samples.paused("b"))

        store.claim("a")
        assert store.list() == ["b"]

        store.recover_orphaned()
        assert store.list() == ["a", "b"]


# Scripts of calls on run-1 by two handles: what a call returns stands behind it. Then: what is paused, how many runs a
# recovery re-arms, and what is paused after it.
SCRIPTS: dict[str, tuple[str, PausedWorkflow | None, int, PausedWorkflow | None]] = {
    "a paused run has nothing to recover": ("save OLD", OLD, 0, OLD),
    "a claim has one winner and hides the run": ("save OLD, claim OLD, other claim None", None, 1, OLD),
    "a run paused again can be claimed again": ("save OLD, claim OLD, save NEW, other claim NEW", None, 1, NEW),
    "a run paused again loses only its marker": ("save OLD, claim OLD, save NEW, recover 0, claim NEW", None, 1, NEW),
    "a save leaves the claim alone": ("save OLD, claim OLD, other save NEW, complete", NEW, 0, NEW),
    "complete ends a run": ("save OLD, claim OLD, complete, complete, claim None", None, 0, None),
    "complete leaves a run paused again": ("save OLD, claim OLD, save NEW, complete", NEW, 0, NEW),
    "complete leaves a run that is not claimed": ("save OLD, complete", OLD, 0, OLD),
    "complete of an unknown run does nothing": ("complete", None, 0, None),
    "a late complete does not free the claim of another handle": (
        "save OLD, claim OLD, other recover 1, other claim OLD, complete",
        None,
        1,
        OLD,
    ),
    "a late complete does not free a claim of the run paused again": (
        "save OLD, claim OLD, save NEW, other claim NEW, complete",
        None,
        1,
        NEW,
    ),
    "the owner frees its claim after a late complete": (
        "save OLD, claim OLD, other recover 1, other claim OLD, complete, other complete",
        None,
        0,
        None,
    ),
    "a restarted worker completes what it had claimed": ("save OLD, claim OLD, other complete", None, 0, None),
    "a handle that completed its own claim stays late for good": (
        "save OLD, claim OLD, complete, other save NEW, other claim NEW, complete",
        None,
        1,
        NEW,
    ),
    "a handle that claims again owns the new claim": (
        "save OLD, claim OLD, other recover 1, claim OLD, complete",
        None,
        0,
        None,
    ),
    "a recovered run can be claimed once": (
        "save OLD, claim OLD, other recover 1, other claim OLD, claim None, other complete",
        None,
        0,
        None,
    ),
    "remove forgets a claimed run": ("save OLD, claim OLD, other remove", None, 0, None),
    "remove forgets a run that is paused and claimed": ("save OLD, claim OLD, save NEW, other remove", None, 0, None),
    "remove does nothing the second time": ("remove, save OLD, remove, remove", None, 0, None),
    "a save after a remove is paused": ("save OLD, claim OLD, remove, save NEW, complete", NEW, 0, NEW),
    "a late complete does not free a claim after a remove": (
        "save OLD, claim OLD, other remove, other save NEW, other claim NEW, complete",
        None,
        1,
        NEW,
    ),
    "a closed handle still owns its claim": ("save OLD, claim OLD, close, complete", None, 0, None),
}


@pytest.mark.parametrize(("script", "paused_", "rearmed", "recovered"), SCRIPTS.values(), ids=list(SCRIPTS))
def test_claims(store: Any, other: Any, script: str, paused_: Any, rearmed: int, recovered: Any) -> None:
    records = {"OLD": OLD, "NEW": NEW, "None": None}
    for step in script.split(", "):
        words = step.split()
        handle = other if words[0] == "other" else store
        call, *value = words[1:] if words[0] == "other" else words
        match call:
            case "save":
                handle.save(records[value[0]])
            case "claim":
                assert handle.claim("run-1") == records[value[0]], step
            case "recover":
                assert handle.recover_orphaned() == int(value[0]), step
            case "close":
                handle.close()
            case _:
                getattr(handle, call)("run-1")
    assert store.load("run-1") == other.load("run-1") == paused_
    assert other.recover_orphaned() == rearmed
    assert store.load("run-1") == recovered


class TestClaim:
    def test_a_run_is_claimed_exactly_once(self, store: PausedStore) -> None:
        """Seed 001: claim_is_exactly_once."""
        store.save(samples.paused("run-x"))

        assert store.claim("run-x") == samples.paused("run-x")
        assert store.list() == []
        assert store.claim("run-x") is None

        store.complete("run-x")
        store.complete("run-x")
        assert store.claim("run-x") is None


class TestComplete:
    def test_a_claim_of_another_run_gives_no_right_to_this_one(self, store: PausedStore, other: PausedStore) -> None:
        """`store` claimed `a`, so for `b` it counts as a restarted worker, and for `a` as its owner."""
        for run_id in "ab":
            store.save(samples.paused(run_id))
        store.claim("a")
        other.claim("b")

        store.complete("b")

        assert other.recover_orphaned() == 1
        assert other.list() == ["a"]


class TestRecover:
    def test_an_orphaned_run_is_paused_again(self, store: PausedStore, other: PausedStore) -> None:
        """Seed 001: recover_rearms_orphaned_inflight, its first half."""
        store.save(samples.paused("crashed"))
        store.claim("crashed")
        assert other.claim("crashed") is None

        assert other.recover_orphaned() == 1

        assert other.claim("crashed") == samples.paused("crashed")
        other.complete("crashed")
        assert other.recover_orphaned() == 0

    def test_only_what_is_paused_again_is_counted(self, store: PausedStore, other: PausedStore) -> None:
        for run_id in ["claimed", "claimed too", "completed", "removed", "paused again", "paused"]:
            store.save(samples.paused(run_id))
            if run_id != "paused":
                store.claim(run_id)
        store.complete("completed")
        store.remove("removed")
        store.save(samples.paused("paused again"))

        assert other.recover_orphaned() == 2
        assert other.list() == ["claimed", "claimed too", "paused", "paused again"]
        assert store.recover_orphaned() == 0

    def test_every_id_is_recovered_as_itself(self, store: PausedStore, other: PausedStore) -> None:
        for number, run_id in enumerate(TRICKY_IDS):
            store.save(samples.paused(run_id, iterations=number))
            store.claim(run_id)

        assert other.recover_orphaned() == len(TRICKY_IDS)

        assert [other.load(run_id) for run_id in TRICKY_IDS] == [
            samples.paused(run_id, iterations=number) for number, run_id in enumerate(TRICKY_IDS)
        ]

    def test_the_record_comes_back_as_it_was(self, store: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        store.recover_orphaned()

        assert json_of(store.load("run-1")) == OLD.to_json()


class TestNothingIsLive:
    def test_a_run_that_is_changed_after_saving_stays_as_it_was(self, store: PausedStore) -> None:
        record = samples.paused()
        store.save(record)

        change(record)

        assert store.load("run-1") == samples.paused()

    def test_a_run_that_was_loaded_and_changed_stays_as_it_was(self, store: PausedStore) -> None:
        store.save(samples.paused())

        change(store.load("run-1"))

        assert store.load("run-1") == samples.paused()

    def test_a_run_that_was_claimed_and_changed_is_recovered_as_it_was(self, store: PausedStore) -> None:
        store.save(samples.paused())

        change(store.claim("run-1"))
        store.recover_orphaned()

        assert store.load("run-1") == samples.paused()

    def test_a_list_that_is_changed_is_a_copy(self, store: PausedStore) -> None:
        store.save(samples.paused())

        store.list().append("run-2")

        assert store.list() == ["run-1"]


class TestIds:
    def test_no_two_ids_share_a_run(self, store: PausedStore) -> None:
        for number, run_id in enumerate(TRICKY_IDS):
            store.save(samples.paused(run_id, iterations=number))

        claimed = [store.claim(run_id) for run_id in TRICKY_IDS]

        assert claimed == [samples.paused(run_id, iterations=n) for n, run_id in enumerate(TRICKY_IDS)]

    @settings(max_examples=50, deadline=None)
    @given(pair=id_pairs)
    def test_no_pair_of_ids_shares_a_run_or_a_claim(self, pair: tuple[str, str]) -> None:
        one, two = pair
        store = MemoryPausedStore()
        store.save(samples.paused(one))
        assert store.load(two) is None
        assert store.claim(two) is None

        store.save(samples.paused(two))
        assert store.list() == sorted(pair)

        store.claim(one)
        store.complete(two)
        store.remove(two)
        assert store.recover_orphaned() == 1
        assert store.list() == [one]


class TestHandles:
    def test_what_one_wrote_the_other_sees(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        assert other.load("run-1") == OLD
        assert other.list() == ["run-1"]

        other.save(NEW)
        assert store.claim("run-1") == NEW
        assert other.list() == []

        assert other.recover_orphaned() == 1
        assert store.load("run-1") == NEW

        store.remove("run-1")
        assert other.load("run-1") is None

    def test_closing_keeps_everything_and_may_be_repeated(self, store: Any, other: PausedStore) -> None:
        with store as same:
            same.save(OLD)
        store.close()

        assert other.load("run-1") == store.load("run-1") == OLD


def json_of(record: PausedWorkflow | None) -> str:
    assert record is not None
    return record.to_json()


def change(record: PausedWorkflow | None) -> None:
    assert record is not None
    record.prompt = "changed"
    record.workflow.name = "changed"
    record.workflow.stages[0].name = "changed"
    record.workflow.edges[0].to = "changed"
    record.fields[0].name = "changed"
    record.wf_state["amount"] = "changed"
    record.stage_results[0]["ok"] = "changed"
    record.completed_stage_ids.append("changed")
