"""What the store fixtures give: one agent's day, on every backend. Run it with `python -m pytest_wfstate`."""

from __future__ import annotations

import asyncio

from pytest_wfstate import EffectStore, PausedStore, ResumeStore, RunStore, SnapshotStore, as_sync, samples


def test_a_refund_is_not_sent_again_after_a_restart(effect_store: EffectStore) -> None:
    async def agent(sent: list[str]) -> None:
        for use in ["refund-1", "refund-2"]:
            done = await effect_store.load_checkpoint("task-1")
            if done is None or not done.is_completed(use):
                sent.append(use)
                await effect_store.mark_step_complete("task-1", use, samples.effect(use))

    sent: list[str] = []
    asyncio.run(agent(sent))
    asyncio.run(agent(sent))
    assert sent == ["refund-1", "refund-2"]


def test_a_paused_run_is_claimed_once(paused_store: PausedStore) -> None:
    paused_store.save(samples.paused("run-1"))
    assert paused_store.claim("run-1") == samples.paused("run-1")
    assert paused_store.claim("run-1") is None


def test_a_dead_workers_run_is_recovered(paused_store: PausedStore) -> None:
    paused_store.save(samples.paused("run-1"))
    paused_store.claim("run-1")
    assert paused_store.recover_orphaned(older_than=3600) == 0, "it is still at work"
    assert paused_store.recover_orphaned() == 1
    assert paused_store.list() == ["run-1"]


def test_a_run_goes_on_where_it_was(resume_store: ResumeStore) -> None:
    resume_store.save(samples.resume_point("run-1", next_node_id="approve"))
    point = resume_store.load("run-1")
    assert point is not None
    assert point.next_node_id == "approve"


def test_a_fork_leaves_the_original_alone(snapshot_store: SnapshotStore) -> None:
    store = as_sync(snapshot_store)
    store.save(samples.snapshot("main", 1, values={"a": 1}))
    fork = store.fork(samples.key("main", 1), {"a": 99})
    assert store.latest("wf", fork).values == {"a": 99}
    assert store.latest("wf", "main").values == {"a": 1}


def test_steps_keep_their_order(run_store: RunStore) -> None:
    store = as_sync(run_store)
    for step in ["fetch", "ask", "pay", "fetch"]:
        store.upsert_step("run-1", samples.step(step))
    assert [step.step_id for step in store.list_steps("run-1")] == ["fetch", "ask", "pay"]
