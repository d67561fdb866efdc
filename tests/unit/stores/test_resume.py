from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from pytest_wfstate import MemoryResumeStore, ResumePoint, ResumeStore, samples
from tests.unit.values import JSON_VALUES, TRICKY_IDS, id_pairs, label, resume_points


@pytest.fixture
def store() -> MemoryResumeStore:
    return MemoryResumeStore()


@pytest.fixture
def other(store: MemoryResumeStore) -> MemoryResumeStore:
    return store.handle()


def test_a_point_is_loaded_as_it_was_saved_until_it_is_deleted(store: ResumeStore) -> None:
    """Seed 002: round_trips_checkpoint_on_filesystem."""
    point = ResumePoint(
        run_id="run-1", workflow_name="wf", step=3, next_node_id="tool", scope_snapshot={"input": {"k": "v"}}
    )

    store.save(point)
    assert store.load("run-1") == point

    store.delete("run-1")
    assert store.load("run-1") is None


@pytest.mark.parametrize("value", JSON_VALUES, ids=label)
def test_any_scope_is_loaded_as_it_was_saved(store: ResumeStore, value: Any) -> None:
    point = samples.resume_point(scope_snapshot=value)

    store.save(point)

    assert json_of(store) == point.to_json()


@settings(max_examples=50, deadline=None)
@given(point=resume_points)
def test_any_point_is_loaded_as_it_was_saved(point: ResumePoint) -> None:
    store = MemoryResumeStore()
    store.save(point)

    loaded = store.load(point.run_id)
    assert loaded is not None
    assert loaded.to_json() == point.to_json()


def test_a_missing_point_is_none(store: ResumeStore) -> None:
    store.save(samples.resume_point("run-1"))

    assert store.load("run-2") is None


def test_the_last_save_wins(store: ResumeStore) -> None:
    store.save(samples.resume_point(step=1, scope_snapshot="long " * 1000))
    store.save(samples.resume_point(step=2))

    assert store.load("run-1") == samples.resume_point(step=2)


def test_deleting_a_missing_record_does_nothing(store: ResumeStore) -> None:
    store.save(samples.resume_point("run-1"))

    store.delete("run-1")
    store.delete("run-1")
    store.delete("never")

    assert store.load("run-1") is None


def test_a_deleted_point_can_be_saved_again(store: ResumeStore) -> None:
    store.save(samples.resume_point(step=1))
    store.delete("run-1")

    store.save(samples.resume_point(step=2))

    assert store.load("run-1") == samples.resume_point(step=2)


def test_a_point_that_is_changed_after_saving_stays_as_it_was(store: ResumeStore) -> None:
    point = samples.resume_point()
    store.save(point)

    point.scope_snapshot["input"]["k"] = "changed"
    point.step = 99

    assert store.load("run-1") == samples.resume_point()


def test_a_point_that_was_loaded_and_changed_stays_as_it_was(store: ResumeStore) -> None:
    store.save(samples.resume_point())
    loaded = store.load("run-1")
    assert loaded is not None

    loaded.scope_snapshot["input"]["k"] = "changed"
    loaded.step = 99

    assert store.load("run-1") == samples.resume_point()


def test_no_two_ids_share_a_point(store: ResumeStore) -> None:
    for number, run_id in enumerate(TRICKY_IDS):
        store.save(samples.resume_point(run_id, step=number))

    loaded = [store.load(run_id) for run_id in TRICKY_IDS]

    assert loaded == [samples.resume_point(run_id, step=number) for number, run_id in enumerate(TRICKY_IDS)]


def test_deleting_some_ids_leaves_all_others(store: ResumeStore) -> None:
    for run_id in TRICKY_IDS:
        store.save(samples.resume_point(run_id))

    for run_id in TRICKY_IDS[::2]:
        store.delete(run_id)

    assert [run_id for run_id in TRICKY_IDS if store.load(run_id) is None] == TRICKY_IDS[::2]


@settings(max_examples=60, deadline=None)
@given(pair=id_pairs)
def test_no_pair_of_ids_shares_a_point(pair: tuple[str, str]) -> None:
    one, two = pair
    store = MemoryResumeStore()
    store.save(samples.resume_point(one, step=1))
    assert store.load(two) is None

    store.save(samples.resume_point(two, step=2))
    assert store.load(one) == samples.resume_point(one, step=1)

    store.delete(one)
    assert store.load(two) == samples.resume_point(two, step=2)


def test_what_one_handle_wrote_the_other_sees(store: ResumeStore, other: ResumeStore) -> None:
    store.save(samples.resume_point(step=1))
    assert other.load("run-1") == samples.resume_point(step=1)

    other.save(samples.resume_point(step=2))
    assert store.load("run-1") == samples.resume_point(step=2)

    store.delete("run-1")
    assert other.load("run-1") is None


def test_closing_keeps_everything_and_may_be_repeated(store: Any, other: ResumeStore) -> None:
    with store as same:
        same.save(samples.resume_point())
    store.close()

    assert other.load("run-1") == store.load("run-1") == samples.resume_point()


def json_of(store: ResumeStore) -> str:
    point = store.load("run-1")
    assert point is not None
    return point.to_json()
