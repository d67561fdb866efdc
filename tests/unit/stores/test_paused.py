from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from pytest_wfstate import ApprovalField, FilePausedStore, InvalidId, PausedStore, PausedWorkflow, Workflow, samples
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.stores.handles import BACKENDS, another, opened
from tests.unit.values import BAD_IDS, BAD_TEXT_IDS, JSON_VALUES, NO_JSON, TRICKY_IDS, id_pairs, label, paused

OLD, NEW = samples.paused(iterations=1), samples.paused(iterations=2)


@pytest.fixture
def store(paused_store: PausedStore) -> PausedStore:
    return paused_store


@pytest.fixture
def other(paused_store: PausedStore) -> PausedStore:
    handle: PausedStore = another(paused_store)
    return handle


@pytest.fixture
def restarted(paused_store: PausedStore) -> PausedStore:
    handle: PausedStore = another(paused_store)
    return handle


def test_is_a_paused_store(store: PausedStore) -> None:
    assert isinstance(store, PausedStore)


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

    @pytest.mark.parametrize("backend", BACKENDS)
    @settings(max_examples=40, deadline=None)
    @given(record=paused)
    def test_any_run_is_loaded_and_claimed_as_it_was_saved(self, backend: str, record: PausedWorkflow) -> None:
        with opened(backend, "PausedStore") as store:
            store.save(record)

            assert store.load(record.run_id).to_json() == record.to_json()
            assert store.claim(record.run_id).to_json() == record.to_json()

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

    def test_of_two_handles_one_wins(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)

        assert store.claim("run-1") == OLD
        assert other.claim("run-1") is None

    def test_a_claimed_run_is_not_loaded(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        assert store.load("run-1") is None
        assert other.load("run-1") is None

    def test_a_run_that_was_paused_anew_can_be_claimed_again(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)

        assert other.claim("run-1") == NEW

    def test_a_claim_replaces_the_older_marker(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)
        other.claim("run-1")

        assert store.recover_orphaned() == 1
        assert store.load("run-1") == NEW

    def test_a_save_leaves_the_claim_alone(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        other.save(NEW)
        other.remove("run-1")
        other.save(NEW)
        store.complete("run-1")

        assert store.load("run-1") == NEW
        assert store.recover_orphaned() == 0


class TestComplete:
    def test_a_completed_run_is_gone(self, store: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        store.complete("run-1")

        assert store.recover_orphaned() == 0
        assert store.load("run-1") is None

    def test_leaves_a_run_that_was_paused_anew(self, store: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)

        store.complete("run-1")

        assert store.load("run-1") == NEW
        assert store.recover_orphaned() == 0

    def test_leaves_a_run_that_nobody_claimed(self, store: PausedStore) -> None:
        store.save(OLD)

        store.complete("run-1")

        assert store.load("run-1") == OLD

    def test_of_a_run_that_never_was_is_no_error(self, store: PausedStore) -> None:
        store.complete("never")

        assert store.list() == []

    def test_a_late_one_does_not_free_the_claim_of_another_handle(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        other.recover_orphaned()
        other.claim("run-1")

        store.complete("run-1")

        assert other.recover_orphaned() == 1
        assert other.load("run-1") == OLD

    def test_a_late_one_does_not_free_a_claim_of_the_run_paused_anew(
        self, store: PausedStore, other: PausedStore
    ) -> None:
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)
        other.claim("run-1")

        store.complete("run-1")

        assert store.recover_orphaned() == 1
        assert store.load("run-1") == NEW

    def test_the_owner_frees_its_claim_after_a_late_one(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        other.recover_orphaned()
        other.claim("run-1")
        store.complete("run-1")

        other.complete("run-1")

        assert store.recover_orphaned() == 0

    def test_a_restarted_worker_finishes_what_it_had_claimed(self, store: PausedStore, restarted: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        restarted.complete("run-1")

        assert restarted.recover_orphaned() == 0
        assert restarted.load("run-1") is None

    def test_a_handle_that_once_claimed_the_run_stays_late_for_good(
        self, store: PausedStore, other: PausedStore
    ) -> None:
        """Completing its own claim does not make a handle a restarted worker."""
        store.save(OLD)
        store.claim("run-1")
        store.complete("run-1")
        other.save(NEW)
        other.claim("run-1")

        store.complete("run-1")

        assert other.recover_orphaned() == 1

    def test_a_handle_that_claims_again_owns_the_new_claim(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        other.recover_orphaned()
        store.claim("run-1")

        store.complete("run-1")

        assert other.recover_orphaned() == 0

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
    def test_an_orphaned_run_is_paused_again(self, store: PausedStore, restarted: PausedStore) -> None:
        """Seed 001: recover_rearms_orphaned_inflight, its first half."""
        store.save(samples.paused("crashed"))
        store.claim("crashed")
        assert restarted.claim("crashed") is None

        assert restarted.recover_orphaned() == 1

        assert restarted.claim("crashed") == samples.paused("crashed")
        restarted.complete("crashed")
        assert restarted.recover_orphaned() == 0

    def test_a_run_that_was_paused_anew_only_loses_its_marker(self, store: PausedStore) -> None:
        """Seed 001: recover_rearms_orphaned_inflight, its second half."""
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)

        assert store.recover_orphaned() == 0
        assert store.load("run-1") == NEW

        assert store.claim("run-1") == NEW
        store.complete("run-1")
        assert store.recover_orphaned() == 0

    @pytest.mark.parametrize("paused_store", ["file"], indirect=True)
    def test_a_stale_marker_is_dropped_unread(self, paused_store: FilePausedStore) -> None:
        """Seed 001: recover_rearms_orphaned_inflight, whose marker is no record."""
        paused_store.save(samples.paused("both"))
        marker = paused_store.directory / "both.inflight"
        marker.write_text("stale")

        assert paused_store.recover_orphaned() == 0

        assert not marker.exists()
        assert paused_store.claim("both") == samples.paused("both")

    def test_an_empty_store_has_nothing_to_recover(self, store: PausedStore) -> None:
        assert store.recover_orphaned() == 0

    def test_paused_runs_are_not_counted(self, store: PausedStore) -> None:
        store.save(OLD)

        assert store.recover_orphaned() == 0
        assert store.load("run-1") == OLD

    def test_only_what_is_paused_again_is_counted(self, store: PausedStore, other: PausedStore) -> None:
        for run_id in ["claimed", "claimed too", "completed", "removed", "paused anew", "paused"]:
            store.save(samples.paused(run_id))
            if run_id != "paused":
                store.claim(run_id)
        store.complete("completed")
        store.remove("removed")
        store.save(samples.paused("paused anew"))

        assert other.recover_orphaned() == 2
        assert other.list() == ["claimed", "claimed too", "paused", "paused anew"]
        assert store.recover_orphaned() == 0

    def test_every_id_is_recovered_as_itself(self, store: PausedStore, restarted: PausedStore) -> None:
        for number, run_id in enumerate(TRICKY_IDS):
            store.save(samples.paused(run_id, iterations=number))
            store.claim(run_id)

        assert restarted.recover_orphaned() == len(TRICKY_IDS)

        assert [restarted.load(run_id) for run_id in TRICKY_IDS] == [
            samples.paused(run_id, iterations=number) for number, run_id in enumerate(TRICKY_IDS)
        ]

    def test_the_record_comes_back_as_it_was(self, store: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        store.recover_orphaned()

        assert json_of(store.load("run-1")) == OLD.to_json()


class TestLeases:
    @pytest.mark.parametrize("frozen_clock", ["2026-01-01T12:00:00.1Z"], indirect=True)
    @pytest.mark.parametrize(("age", "recovered"), [(29.9, 0), (29.999999, 0), (30, 1), (30.000001, 1), (3000, 1)])
    def test_a_claim_is_recovered_once_it_is_as_old_as_asked(
        self, store: PausedStore, other: PausedStore, frozen_clock: FrozenClock, age: float, recovered: int
    ) -> None:
        store.save(OLD)
        store.claim("run-1")
        frozen_clock.tick(age)

        assert other.recover_orphaned(older_than=30) == recovered
        assert other.load("run-1") == (OLD if recovered else None)

    @pytest.mark.parametrize("part", [0.1, 0.2, 0.3, 0.123457, 0.7, 0.999999])
    def test_the_boundary_is_exact_at_any_part_of_a_second(
        self, store: PausedStore, frozen_clock: FrozenClock, part: float
    ) -> None:
        frozen_clock.tick(part)
        store.save(OLD)
        store.claim("run-1")
        frozen_clock.tick(0.3)

        assert store.recover_orphaned(older_than=0.300001) == 0
        assert store.recover_orphaned(older_than=0.3) == 1

    def test_a_claim_has_age_0_at_once(self, store: PausedStore, frozen_clock: FrozenClock) -> None:
        store.save(OLD)
        store.claim("run-1")
        moment = frozen_clock.now

        assert store.recover_orphaned(older_than=0) == 1
        assert frozen_clock.now == moment

    def test_any_age_is_old_enough_if_none_is_asked_for(self, store: PausedStore, frozen_clock: FrozenClock) -> None:
        """Even a claim from the future, after the clock was set back."""
        store.save(OLD)
        store.claim("run-1")
        frozen_clock.tick(-3600)

        assert store.recover_orphaned(older_than=0) == 0
        assert store.recover_orphaned() == 1

    def test_a_young_marker_is_left_alone_altogether(
        self, store: PausedStore, other: PausedStore, frozen_clock: FrozenClock
    ) -> None:
        """Also where the run was paused anew: its marker stays, and so does its time of claim."""
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)
        frozen_clock.tick(29)

        assert other.recover_orphaned(older_than=30) == 0
        assert other.load("run-1") == NEW
        assert has_marker(other, "run-1")

        frozen_clock.tick(1)
        assert other.recover_orphaned(older_than=30) == 0
        assert not has_marker(other, "run-1")

    def test_a_young_marker_of_a_live_worker_still_belongs_to_it(
        self, store: PausedStore, other: PausedStore, frozen_clock: FrozenClock
    ) -> None:
        store.save(OLD)
        store.claim("run-1")
        frozen_clock.tick(29)
        other.recover_orphaned(older_than=30)

        store.complete("run-1")

        assert other.recover_orphaned() == 0

    def test_a_new_claim_starts_a_new_lease(
        self, store: PausedStore, other: PausedStore, frozen_clock: FrozenClock
    ) -> None:
        store.save(OLD)
        store.claim("run-1")
        frozen_clock.tick(100)
        store.save(NEW)
        other.claim("run-1")
        frozen_clock.tick(29)

        assert store.recover_orphaned(older_than=30) == 0

        frozen_clock.tick(1)
        assert store.recover_orphaned(older_than=30) == 1
        assert store.load("run-1") == NEW

    def test_only_old_claims_are_counted(
        self, store: PausedStore, other: PausedStore, frozen_clock: FrozenClock
    ) -> None:
        for run_id in ["old", "older", "young"]:
            store.save(samples.paused(run_id))
        store.claim("old")
        store.claim("older")
        frozen_clock.tick(60)
        store.claim("young")

        assert other.recover_orphaned(older_than=60) == 2
        assert other.list() == ["old", "older"]

    @pytest.mark.parametrize("bad", [-1, -0.001, math.nan, -math.inf, "30", True, [30]], ids=label)
    def test_what_is_no_age_is_refused(self, store: PausedStore, bad: Any) -> None:
        store.save(OLD)
        store.claim("run-1")

        with pytest.raises(ValueError, match=r"^older_than is .* It must be a number of seconds, at least 0, or None"):
            store.recover_orphaned(older_than=bad)

        assert store.load("run-1") is None
        assert store.recover_orphaned() == 1

    @pytest.mark.parametrize("endless", [math.inf, 10**400], ids=["infinity", "10**400"])
    def test_no_claim_is_old_enough_for_an_endless_age(self, store: PausedStore, endless: float) -> None:
        store.save(OLD)
        store.claim("run-1")

        assert store.recover_orphaned(older_than=endless) == 0


class TestRemove:
    def test_forgets_a_claimed_run(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        other.remove("run-1")

        assert store.recover_orphaned() == 0
        assert store.load("run-1") is None

    def test_forgets_a_run_that_is_paused_and_claimed(self, store: PausedStore, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")
        store.save(NEW)

        other.remove("run-1")

        assert store.load("run-1") is None
        assert store.recover_orphaned() == 0

    def test_again_or_of_what_never_was_is_no_error(self, store: PausedStore) -> None:
        store.save(OLD)

        store.remove("run-1")
        store.remove("run-1")
        store.remove("never")

        assert store.list() == []

    def test_a_late_complete_does_not_free_the_claim_after_a_remove(
        self, store: PausedStore, other: PausedStore
    ) -> None:
        store.save(OLD)
        store.claim("run-1")
        other.remove("run-1")
        other.save(NEW)
        other.claim("run-1")

        store.complete("run-1")

        assert other.recover_orphaned() == 1


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

    @pytest.mark.parametrize("backend", BACKENDS)
    @settings(max_examples=50, deadline=None)
    @given(pair=id_pairs)
    def test_no_pair_of_ids_shares_a_run_or_a_claim(self, backend: str, pair: tuple[str, str]) -> None:
        one, two = pair
        with opened(backend, "PausedStore") as store:
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


CALLS_BY_ID: dict[str, Callable[[PausedStore, Any], Any]] = {
    "load": lambda store, bad: store.load(bad),
    "claim": lambda store, bad: store.claim(bad),
    "complete": lambda store, bad: store.complete(bad),
    "remove": lambda store, bad: store.remove(bad),
}


class TestRefusals:
    @pytest.mark.parametrize("bad", BAD_IDS, ids=label)
    @pytest.mark.parametrize("call", CALLS_BY_ID.values(), ids=list(CALLS_BY_ID))
    def test_what_is_no_id_is_refused(
        self, store: PausedStore, call: Callable[[PausedStore, Any], Any], bad: Any
    ) -> None:
        store.save(samples.paused("paused"))
        store.save(samples.paused("claimed"))
        store.claim("claimed")

        with pytest.raises(InvalidId, match=r"^run id .* An id is text of 1 to 1,024 characters"):
            call(store, bad)

        assert store.list() == ["paused"]
        assert store.recover_orphaned() == 1

    @pytest.mark.parametrize("bad", BAD_TEXT_IDS, ids=label)
    def test_a_run_of_what_is_no_id_is_refused(self, store: PausedStore, bad: str) -> None:
        with pytest.raises(InvalidId, match=r"^run id "):
            store.save(samples.paused(bad))

        assert store.list() == []

    @pytest.mark.parametrize("bad", NO_JSON.values(), ids=list(NO_JSON))
    def test_a_rejected_save_changes_nothing(self, store: PausedStore, other: PausedStore, bad: Any) -> None:
        store.save(OLD)
        record = samples.paused(iterations=2)
        record.stage_results.append(bad)

        with pytest.raises(ValidationError):
            store.save(record)

        assert store.load("run-1") == other.load("run-1") == OLD

    def test_a_rejected_first_save_leaves_nothing(self, store: PausedStore) -> None:
        record = samples.paused()
        record.wf_state["bad"] = math.nan

        with pytest.raises(ValidationError):
            store.save(record)

        assert store.list() == []

    @pytest.mark.parametrize(
        "wrong", [None, {"run_id": "run-1"}, samples.resume_point()], ids=["none", "dict", "point"]
    )
    def test_another_type_is_refused(self, store: PausedStore, wrong: Any) -> None:
        store.save(OLD)

        with pytest.raises(TypeError, match=r"^expected a PausedWorkflow, got "):
            store.save(wrong)

        assert store.load("run-1") == OLD


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

    def test_a_closed_handle_still_owns_its_claim(self, store: Any, other: PausedStore) -> None:
        store.save(OLD)
        store.claim("run-1")

        store.close()
        store.complete("run-1")

        assert other.recover_orphaned() == 0


def has_marker(store: Any, run_id: str) -> bool:
    """Look behind the contract, which does not show the marker of a run that is paused as well."""
    if isinstance(store, FilePausedStore):
        return (store.directory / f"{run_id}.inflight").exists()
    return run_id in store._inflight


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
