"""Folders that the stores which these contracts come from have written: they open here."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from pytest_wfstate import FileEffectStore, FilePausedStore, FileResumeStore, as_sync, samples
from tests.unit.stores.file.kinds import contents

PAUSED = """{
  "run_id": "%s",
  "workflow": {
    "id": "wf",
    "name": "WF",
    "start": "gate",
    "stages": [],
    "edges": [],
    "max_iterations": 100,
    "metadata": {}
  },
  "paused_stage_id": "gate",
  "prompt": "approve?",
  "fields": [],
  "output_key": "approval",
  "wf_state": {},
  "stage_results": [],
  "completed_stage_ids": [],
  "iterations": 1,
  "prior_duration_ms": 0.0,
  "created_at": "2026-01-02T03:04:05.678901234Z"
}"""

CHECKPOINT = """{
  "task_id": "task-a",
  "agent_id": "agent-x",
  "step_index": 2,
  "completed_tool_ids": [
    "use-2",
    "use-1"
  ],
  "side_effects_log": [
    {
      "tool_use_id": "use-1",
      "tool_name": "write_file",
      "target": "src/main.rs",
      "completed_at": 1767323045,
      "reversible": true
    },
    {
      "tool_use_id": "use-2",
      "tool_name": "think",
      "target": null,
      "completed_at": 1767323046,
      "reversible": false
    }
  ],
  "updated_at": 1767323046
}"""

RESUME = """{
  "run_id": "run-1",
  "workflow_name": "wf",
  "step": 3,
  "next_node_id": "tool",
  "scope_snapshot": {
    "input": {
      "k": "v"
    }
  }
}"""


@pytest.fixture
def paused(tmp_path: Path) -> FilePausedStore:
    """A folder with a paused run, a claimed one, one that is both, and what dead writers left."""
    for run in ("run-1", "both"):
        (tmp_path / f"{run}.json").write_text(PAUSED % run)
    (tmp_path / "run-2.inflight").write_text(PAUSED % "run-2")
    (tmp_path / "both.inflight").write_text("stale")
    (tmp_path / ".run-1.0123456789abcdef0123456789abcdef.tmp").write_text(PAUSED % "run-1")
    return FilePausedStore(tmp_path, "process")


def test_paused_runs_are_listed_and_leftovers_are_not(paused: FilePausedStore) -> None:
    assert paused.list() == ["both", "run-1"]


def test_a_paused_run_is_loaded(paused: FilePausedStore) -> None:
    run = paused.load("run-1")

    assert run is not None
    assert (run.run_id, run.prompt, run.workflow.start) == ("run-1", "approve?", "gate")
    assert run.created_at == datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)


def test_a_paused_run_is_claimed_once_and_completed(paused: FilePausedStore) -> None:
    run = paused.claim("run-1")

    assert run is not None
    assert run.run_id == "run-1"
    assert paused.claim("run-1") is None
    assert (paused.directory / "run-1.inflight").read_text() == PAUSED % "run-1"
    paused.complete("run-1")
    assert not (paused.directory / "run-1.inflight").exists()


def test_a_claimed_run_is_not_paused(paused: FilePausedStore) -> None:
    assert paused.load("run-2") is None
    assert paused.claim("run-2") is None


@pytest.mark.parametrize("older_than", [None, 0, 3600])
def test_recovery_rearms_what_a_dead_worker_claimed_and_drops_the_stale_marker(
    paused: FilePausedStore, older_than: float | None
) -> None:
    assert paused.recover_orphaned(older_than) == 1

    assert paused.list() == ["both", "run-1", "run-2"]
    assert not (paused.directory / "both.inflight").exists()
    assert paused.claim("run-2") is not None


def test_a_claim_replaces_the_stale_marker(paused: FilePausedStore) -> None:
    run = paused.claim("both")

    assert run is not None
    assert run.run_id == "both"
    assert (paused.directory / "both.inflight").read_text() == PAUSED % "both"


def test_a_restarted_worker_completes_what_it_had_claimed(paused: FilePausedStore) -> None:
    paused.complete("run-2")

    assert paused.recover_orphaned() == 0


@pytest.mark.parametrize("run", ["run-1", "run-2", "both"])
def test_a_removed_run_is_gone_for_good(paused: FilePausedStore, run: str) -> None:
    paused.remove(run)
    paused.recover_orphaned()

    assert paused.load(run) is None
    assert run not in paused.list()


def test_a_seed_reads_what_is_saved_here(tmp_path: Path) -> None:
    store = FilePausedStore(tmp_path)
    run = samples.paused("run-1")

    store.save(run)

    assert contents(tmp_path) == {"run-1.json": run.to_json(indent=2).encode()}


def test_a_task_is_loaded_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "task-a.json").write_text(CHECKPOINT)
    (tmp_path / "task-a.json.tmp").write_text("{")
    (tmp_path / "task-b.json.tmp").write_text(CHECKPOINT)
    store = as_sync(FileEffectStore(tmp_path, "process"))

    task = store.load_checkpoint("task-a")
    assert (task.agent_id, task.step_index, task.completed_tool_ids) == ("agent-x", 2, {"use-1", "use-2"})
    assert [effect.target for effect in task.side_effects_log] == ["src/main.rs", None]
    assert store.load_checkpoint("task-b") is None

    store.mark_step_complete("task-a", "use-1", samples.effect("use-1"))
    assert store.load_checkpoint("task-a") == task
    store.mark_step_complete("task-a", "use-3", samples.effect("use-3"))
    task = as_sync(FileEffectStore(tmp_path)).load_checkpoint("task-a")
    assert (task.step_index, [effect.tool_use_id for effect in task.side_effects_log]) == (
        3,
        ["use-1", "use-2", "use-3"],
    )

    store.delete_checkpoint("task-a")
    assert store.load_checkpoint("task-a") is None
    assert not (tmp_path / "task-a.json.tmp").exists()


def test_a_resume_point_is_loaded_replaced_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "run-1.json").write_text(RESUME)
    (tmp_path / "run-2.json.tmp").write_text(RESUME)
    store = FileResumeStore(tmp_path, "process")

    assert store.load("run-1") == samples.resume_point("run-1")
    assert store.load("run-2") is None

    store.save(samples.resume_point("run-1", step=4))
    assert store.load("run-1") == samples.resume_point("run-1", step=4)
    store.delete("run-1")
    assert store.load("run-1") is None


def test_a_resume_point_is_written_as_the_seed_writes_it(tmp_path: Path) -> None:
    FileResumeStore(tmp_path).save(samples.resume_point("run-1"))

    assert contents(tmp_path) == {"run-1.json": RESUME.encode()}
