from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import (
    CheckpointKey,
    MemorySnapshotStore,
    NotFound,
    Snapshot,
    as_sync,
    samples,
)
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.values import (
    JSON_VALUES,
    TRICKY_IDS,
    id_pairs,
    json_objects,
    label,
    snapshots,
    u64,
)


@pytest.fixture
def store() -> Any:
    return as_sync(MemorySnapshotStore())


@pytest.fixture
def other(store: Any) -> Any:
    return store.handle()


class TestSaveAndLoad:
    def test_the_latest_has_the_highest_super_step(self, store: Any) -> None:
        """Seed 003: save_and_latest."""
        store.save(samples.snapshot("r", 0, values={"messages": []}))
        store.save(samples.snapshot("r", 2, values={"messages": [{"id": "m1"}]}))

        latest = store.latest("wf", "r")

        assert latest.key.super_step == 2
        assert latest.values["messages"][0]["id"] == "m1"

    def test_the_latest_is_not_the_last_saved(self, store: Any) -> None:
        for super_step in [3, 10, 9]:
            store.save(samples.snapshot("r", super_step))

        assert store.latest("wf", "r") == samples.snapshot("r", 10)

    @pytest.mark.parametrize("value", JSON_VALUES, ids=label)
    def test_any_value_is_loaded_as_it_was_saved(self, store: Any, value: Any) -> None:
        snapshot = samples.snapshot(values={"": value, "größe": value}, label="", timestamp_ms=0)

        store.save(snapshot)

        assert store.load(snapshot.key).to_json() == snapshot.to_json()
        assert store.latest("wf", "run-1").to_json() == snapshot.to_json()

    @settings(max_examples=40, deadline=None)
    @given(snapshot=snapshots)
    def test_any_snapshot_is_loaded_as_it_was_saved(self, snapshot: Snapshot) -> None:
        store = as_sync(MemorySnapshotStore())
        store.save(snapshot)

        assert store.load(snapshot.key).to_json() == snapshot.to_json()
        assert store.list(snapshot.key.workflow_id, snapshot.key.run_id) == [snapshot.meta()]

    def test_what_is_missing_is_none_or_an_empty_list(self, store: Any) -> None:
        store.save(samples.snapshot("run-1", 1))

        assert store.load(samples.key("run-1", 0)) is None
        assert store.load(samples.key("run-2", 1)) is None
        assert store.load(samples.key("run-1", 1, "wf-2")) is None
        assert store.latest("wf", "run-2") is None
        assert store.latest("wf-2", "run-1") is None
        assert store.list("wf", "run-2") == []
        assert store.list("wf-2", "run-1") == []

    def test_the_same_key_again_replaces_the_snapshot(self, store: Any) -> None:
        store.save(samples.snapshot(super_step=1, values={"a": "long" * 1000, "b": 1}, label="old", timestamp_ms=1))
        new = samples.snapshot(super_step=1, values={"a": 2}, label="new", timestamp_ms=2)

        store.save(new)

        assert store.load(new.key) == new
        assert store.latest("wf", "run-1") == new
        assert store.list("wf", "run-1") == [new.meta()]

    def test_an_older_snapshot_can_be_replaced_too(self, store: Any) -> None:
        for super_step in range(3):
            store.save(samples.snapshot(super_step=super_step))
        new = samples.snapshot(super_step=1, values={}, timestamp_ms=7)

        store.save(new)

        assert store.load(new.key) == new
        assert store.latest("wf", "run-1") == samples.snapshot(super_step=2)
        assert [meta.timestamp_ms == 7 for meta in store.list("wf", "run-1")] == [False, True, False]


class TestList:
    def test_there_is_one_line_per_snapshot(self, store: Any) -> None:
        """Seed 003: list_returns_meta_in_order."""
        for super_step in range(4):
            store.save(samples.snapshot("r", super_step, timestamp_ms=100 - super_step))

        assert store.list("wf", "r") == [samples.snapshot("r", n, timestamp_ms=100 - n).meta() for n in range(4)]

    @settings(max_examples=30, deadline=None)
    @given(super_steps=st.lists(u64 | st.integers(0, 12), max_size=8))
    def test_any_order_of_saving_is_listed_by_super_step(self, super_steps: list[int]) -> None:
        store = as_sync(MemorySnapshotStore())
        for super_step in super_steps:
            store.save(samples.snapshot(super_step=super_step))

        listed = [meta.super_step for meta in store.list("wf", "run-1")]
        latest = store.latest("wf", "run-1")

        assert listed == sorted(set(super_steps))
        assert (latest.key.super_step if latest else None) == max(super_steps, default=None)

    def test_many_snapshots_through_two_handles_are_all_kept(self, store: Any, other: Any) -> None:
        for super_step in range(200):
            (store, other)[super_step % 2].save(samples.snapshot(super_step=super_step))

        assert [meta.super_step for meta in store.list("wf", "run-1")] == list(range(200))
        assert other.load(samples.key(super_step=77)) == samples.snapshot(super_step=77)


class TestFork:
    def test_makes_a_new_run_with_edits(self, store: Any) -> None:
        """Seed 003: fork_creates_new_run_with_edits."""
        store.save(samples.snapshot("main", 1, values={"a": 1}))

        new_run = store.fork(samples.key("main", 1), [("a", 99)])

        forked = store.latest("wf", new_run)
        assert forked.values["a"] == 99
        assert forked.label == "fork-of:main"

    def test_copies_the_snapshot_at_the_same_super_step_now(self, store: Any, frozen_clock: FrozenClock) -> None:
        store.save(samples.snapshot("main", 7, values={"a": 1, "b": [2]}))
        frozen_clock.tick(0.1239)

        new_run = store.fork(samples.key("main", 7), {"c": {}})

        forked = samples.snapshot(
            new_run,
            7,
            values={"a": 1, "b": [2], "c": {}},
            label="fork-of:main",
            timestamp_ms=int(frozen_clock.now.timestamp()) * 1000 + 123,
        )
        assert store.load(samples.key(new_run, 7)) == forked
        assert store.list("wf", new_run) == [forked.meta()]

    def test_leaves_the_source_as_it_was(self, store: Any) -> None:
        for super_step in range(3):
            store.save(samples.snapshot("main", super_step))

        store.fork(samples.key("main", 1), {"messages": "edited"})

        assert store.load(samples.key("main", 1)) == samples.snapshot("main", 1)
        assert len(store.list("wf", "main")) == 3

    def test_copies_one_snapshot_of_many(self, store: Any) -> None:
        for super_step in range(3):
            store.save(samples.snapshot("main", super_step))

        new_run = store.fork(samples.key("main", 1))

        assert [meta.super_step for meta in store.list("wf", new_run)] == [1]

    def test_stays_in_the_workflow(self, store: Any) -> None:
        store.save(samples.snapshot("main", 1, "wf/2"))

        new_run = store.fork(samples.key("main", 1, "wf/2"))

        assert store.latest("wf/2", new_run) is not None
        assert store.latest("wf", new_run) is None

    def test_every_fork_is_a_run_of_its_own(self, store: Any) -> None:
        store.save(samples.snapshot("main"))

        one, two = store.fork(samples.key("main"), {"n": 1}), store.fork(samples.key("main"), {"n": 2})

        assert one != two
        assert re.fullmatch(r"run-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one)
        assert [store.latest("wf", run).values["n"] for run in (one, two)] == [1, 2]

    def test_a_fork_can_be_forked(self, store: Any) -> None:
        store.save(samples.snapshot("main", values={"a": 1}))

        first = store.fork(samples.key("main"), {"b": 2})
        second = store.fork(samples.key(first), {"c": 3})

        forked = store.latest("wf", second)
        assert forked.values == {"a": 1, "b": 2, "c": 3}
        assert forked.label == f"fork-of:{first}"

    @pytest.mark.parametrize(
        "edits",
        [{"a": 2, "b": 3}, [("a", 2), ("b", 3)], (("b", 3), ("a", 1), ("a", 2)), {"a": 2, "b": 3}.items()],
        ids=["mapping", "pairs", "last pair wins", "items"],
    )
    def test_edits_are_a_mapping_or_pairs(self, store: Any, edits: Any) -> None:
        store.save(samples.snapshot("main", values={"a": 1}))

        assert store.latest("wf", store.fork(samples.key("main"), edits)).values == {"a": 2, "b": 3}

    @settings(max_examples=30, deadline=None)
    @given(values=json_objects, edits=json_objects)
    def test_any_edits_replace_and_add(self, values: dict[str, Any], edits: dict[str, Any]) -> None:
        store = as_sync(MemorySnapshotStore())
        store.save(samples.snapshot("main", values=values))

        new_run = store.fork(samples.key("main"), edits)

        assert store.latest("wf", new_run).values == {**values, **edits}

    @pytest.mark.parametrize("key", [samples.key("main", 2), samples.key("r/1", 1), samples.key("main", 1, "wf-2")])
    def test_of_a_missing_source_names_it(self, store: Any, key: CheckpointKey) -> None:
        store.save(samples.snapshot("main", 1))

        with pytest.raises(NotFound, match=rf"{key.run_id}#{key.super_step} of workflow '{key.workflow_id}'"):
            store.fork(key, {"a": 1})

        assert store.list("wf", "main") == [samples.snapshot("main", 1).meta()]

    @pytest.mark.parametrize("bad", [7, [1], ["abc"]], ids=repr)
    def test_with_what_is_neither_mapping_nor_pairs_is_refused(self, store: Any, bad: Any) -> None:
        store.save(samples.snapshot())
        before = everything(store)

        with pytest.raises((TypeError, ValueError)):
            store.fork(samples.key(), bad)

        assert everything(store) == before


class TestNothingIsLive:
    def test_a_snapshot_that_is_changed_after_saving_stays_as_it_was(self, store: Any) -> None:
        snapshot = samples.snapshot()
        store.save(snapshot)

        change(snapshot)
        snapshot.key.run_id = "changed"

        assert store.load(samples.key()) == samples.snapshot()

    def test_a_snapshot_that_was_loaded_and_changed_stays_as_it_was(self, store: Any) -> None:
        store.save(samples.snapshot())

        change(store.load(samples.key()))

        assert store.load(samples.key()) == samples.snapshot()

    def test_the_latest_that_is_changed_stays_as_it_was(self, store: Any) -> None:
        store.save(samples.snapshot())

        change(store.latest("wf", "run-1"))

        assert store.latest("wf", "run-1") == samples.snapshot()

    def test_a_listing_that_is_changed_is_a_copy(self, store: Any) -> None:
        store.save(samples.snapshot())

        listed = store.list("wf", "run-1")
        listed[0].run_id = "changed"
        listed.append(listed[0])

        assert store.list("wf", "run-1") == [samples.snapshot().meta()]

    def test_an_edit_that_is_changed_after_the_fork_stays_as_it_was(self, store: Any) -> None:
        store.save(samples.snapshot())
        edits = {"list": [1]}

        new_run = store.fork(samples.key(), edits)
        edits["list"].append(2)

        assert store.latest("wf", new_run).values["list"] == [1]

    def test_a_fork_that_is_changed_leaves_its_source(self, store: Any) -> None:
        store.save(samples.snapshot())
        new_run = store.fork(samples.key())

        change(store.latest("wf", new_run))

        assert store.load(samples.key()) == samples.snapshot()
        assert store.latest("wf", new_run).values == samples.snapshot().values

    def test_a_key_is_not_changed_by_its_use(self, store: Any) -> None:
        store.save(samples.snapshot())
        key = samples.key()

        store.load(key)
        store.fork(key)

        assert key == samples.key()


class TestIds:
    def test_no_two_runs_share_a_snapshot(self, store: Any) -> None:
        for number, run_id in enumerate(TRICKY_IDS):
            store.save(samples.snapshot(run_id, values={"n": number}))

        loaded = [store.latest("wf", run_id) for run_id in TRICKY_IDS]

        assert loaded == [samples.snapshot(run_id, values={"n": n}) for n, run_id in enumerate(TRICKY_IDS)]

    def test_no_two_workflows_share_a_snapshot(self, store: Any) -> None:
        for number, workflow_id in enumerate(TRICKY_IDS):
            store.save(samples.snapshot("r", 0, workflow_id, values={"n": number}))

        loaded = [store.latest(workflow_id, "r").values["n"] for workflow_id in TRICKY_IDS]

        assert loaded == list(range(len(TRICKY_IDS)))

    @pytest.mark.parametrize(
        ("one", "two"),
        [
            (("a.b", "c"), ("a", "b.c")),
            (("a/b", "c"), ("a", "b/c")),
            (("ab", "c"), ("a", "bc")),
            (("a", "b"), ("b", "a")),
            (("x" * 1024, "y"), ("x" * 1024, "z")),
            (("x" * 600, "x" * 700), ("x" * 700, "x" * 600)),
        ],
        ids=["dot", "slash", "joined", "swapped", "long", "long swapped"],
    )
    def test_a_workflow_and_a_run_are_not_mixed_up(
        self, store: Any, one: tuple[str, str], two: tuple[str, str]
    ) -> None:
        store.save(samples.snapshot(one[1], 0, one[0]))

        assert store.latest(*one) is not None
        assert store.latest(*two) is None
        assert store.list(*two) == []

    @settings(max_examples=50, deadline=None)
    @given(pair=id_pairs)
    def test_no_pair_of_ids_shares_a_snapshot(self, pair: tuple[str, str]) -> None:
        one, two = pair
        store = as_sync(MemorySnapshotStore())
        store.save(samples.snapshot(one, 1, two))
        assert store.latest(one, two) is None

        store.save(samples.snapshot(two, 2, one))
        assert store.list(one, two) == [samples.snapshot(two, 2, one).meta()]
        assert store.list(two, one) == [samples.snapshot(one, 1, two).meta()]


class TestHandles:
    def test_what_one_wrote_the_other_sees(self, store: Any, other: Any) -> None:
        store.save(samples.snapshot(super_step=1))
        assert other.latest("wf", "run-1") == samples.snapshot(super_step=1)

        other.save(samples.snapshot(super_step=2))
        store.save(samples.snapshot(super_step=1, label="replaced"))
        assert store.latest("wf", "run-1") == samples.snapshot(super_step=2)
        assert other.load(samples.key(super_step=1)).label == "replaced"

        forked = other.fork(samples.key(super_step=2))
        assert store.latest("wf", forked) == other.latest("wf", forked)
        assert store.list("wf", "run-1") == other.list("wf", "run-1")


def change(snapshot: Snapshot) -> None:
    snapshot.label = "changed"
    snapshot.values["messages"].append("changed")
    snapshot.values["changed"] = True


def everything(store: Any) -> Any:
    """Look behind the contract, which lists no runs: a fork that was refused must not be there under any id."""
    return {run: dict(steps) for run, steps in store._snapshots.items()}
