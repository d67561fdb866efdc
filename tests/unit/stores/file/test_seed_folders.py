"""Folders that the stores which these contracts come from have written: they open here."""

from __future__ import annotations

import datetime
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import (
    CorruptRecord,
    Crash,
    Disk,
    FakeDisk,
    FileEffectStore,
    FilePausedStore,
    FileResumeStore,
    ForeignFile,
    as_sync,
    samples,
)
from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.stores.file.names import only_id
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
    assert run.created_at.replace(microsecond=0) == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert json.loads(run.to_json())["created_at"] == "2026-01-02T03:04:05.678901234Z"


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


# Ids whose files have other names here. A name with a separator is none in a folder.
OTHER_IDS = ["Run-1", "run 1", "run.1", "größe", "RUN_a", "50%"]


def as_seed(home: Path, run: str, suffix: str = ".json") -> None:
    (home / f"{run}{suffix}").write_text((PAUSED % run), encoding="utf-8")


def only_our_names(home: Path) -> bool:
    return all(only_id(name.split(".")[0]) is not None for name in contents(home))


@pytest.fixture(params=OTHER_IDS)
def run_id(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestPausedRunsWithOtherIds:
    def test_are_loaded_and_listed_where_they_are(self, run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id)
        before = contents(tmp_path)
        store = FilePausedStore(tmp_path)

        run = store.load(run_id)

        assert run is not None
        assert (run.run_id, store.list()) == (run_id, [run_id])
        assert contents(tmp_path) == before

    def test_are_claimed_once_and_completed(self, run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id)
        store = FilePausedStore(tmp_path)

        assert store.claim(run_id) is not None

        assert (store.claim(run_id), store.load(run_id), store.list()) == (None, None, [])
        store.complete(run_id)
        assert (store.recover_orphaned(), contents(tmp_path)) == (0, {})

    def test_are_recovered(self, run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id, ".inflight")
        store = FilePausedStore(tmp_path)

        assert (store.list(), store.recover_orphaned(), store.list()) == ([], 1, [run_id])

        assert only_our_names(tmp_path)
        assert store.claim(run_id) is not None

    def test_are_completed_by_a_worker_that_was_restarted(self, run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id, ".inflight")
        store = FilePausedStore(tmp_path)

        store.complete(run_id)

        assert (store.recover_orphaned(), contents(tmp_path)) == (0, {})

    @pytest.mark.parametrize("suffixes", [[".json"], [".inflight"], [".json", ".inflight"]], ids=str)
    def test_are_removed_for_good(self, run_id: str, suffixes: list[str], tmp_path: Path) -> None:
        for suffix in suffixes:
            as_seed(tmp_path, run_id, suffix)
        store = FilePausedStore(tmp_path)

        store.remove(run_id)

        assert (store.load(run_id), store.list(), store.recover_orphaned()) == (None, [], 0)
        assert contents(tmp_path) == {}

    def test_are_replaced_by_a_save(self, run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id)
        store = FilePausedStore(tmp_path)

        store.save(samples.paused(run_id))

        assert (store.load(run_id), store.list()) == (samples.paused(run_id), [run_id])
        assert only_our_names(tmp_path)
        store.remove(run_id)
        assert (store.load(run_id), contents(tmp_path)) == (None, {})

    def test_lose_to_our_own_file_of_the_same_id(self, run_id: str, tmp_path: Path) -> None:
        store = FilePausedStore(tmp_path)
        store.save(samples.paused(run_id, prompt="newer"))
        as_seed(tmp_path, run_id)

        assert store.load(run_id) == store.claim(run_id) == samples.paused(run_id, prompt="newer")

        assert (store.load(run_id), store.list()) == (None, [])


def test_a_file_that_holds_another_run_is_not_taken_for_the_one_it_is_named_after(tmp_path: Path) -> None:
    (tmp_path / "Run-1.json").write_text(PAUSED % "Run-2")
    store = FilePausedStore(tmp_path)

    assert store.load("Run-1") is None
    store.remove("Run-1")
    with pytest.warns(ForeignFile, match="'Run-1.json'"):
        assert store.list() == []
    assert list(contents(tmp_path)) == ["Run-1.json"]


@pytest.mark.parametrize("run", ["../secret", "sub/run", "/etc/run"])
def test_a_name_with_a_separator_is_not_followed(run: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    for place in (tmp_path / "secret.json", home / "sub" / "run.json"):
        place.write_text(PAUSED % run)
    store = FilePausedStore(home)

    assert (store.load(run), store.claim(run)) == (None, None)
    store.remove(run)

    assert (tmp_path / "secret.json").exists()
    assert (home / "sub" / "run.json").exists()


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "torn": lambda path: path.write_text(path.read_text()[:40]),
    "empty": lambda path: path.write_text(""),
    "zeros": lambda path: path.write_bytes(bytes(200)),
    "garbage": lambda path: path.write_bytes(b"\xff\x00 no JSON"),
    "no id": lambda path: path.write_text("{}"),
    "not an object": lambda path: path.write_text("[1]"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
class TestADamagedFileOfASeed:
    def test_of_a_paused_run_does_not_vanish(self, damage: Callable[[Path], Any], run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id)
        damage(tmp_path / f"{run_id}.json")
        before = contents(tmp_path)
        store = FilePausedStore(tmp_path)

        assert store.list() == [run_id]
        with pytest.raises(CorruptRecord) as error:
            store.load(run_id)
        assert error.value.where == str(tmp_path / f"{run_id}.json")
        assert contents(tmp_path) == before
        with pytest.raises(CorruptRecord):
            store.claim(run_id)
        assert store.list() == [run_id]
        with pytest.raises(CorruptRecord):
            FilePausedStore(tmp_path).load(run_id)

    @pytest.mark.parametrize("heal", ["save", "remove"])
    def test_of_a_paused_run_is_healed(
        self, damage: Callable[[Path], Any], run_id: str, heal: str, tmp_path: Path
    ) -> None:
        as_seed(tmp_path, run_id)
        damage(tmp_path / f"{run_id}.json")
        store = FilePausedStore(tmp_path)

        if heal == "save":
            store.save(samples.paused(run_id))
        else:
            store.remove(run_id)

        healed = samples.paused(run_id) if heal == "save" else None
        assert (store.load(run_id), store.list()) == (healed, [run_id] if healed else [])
        assert len(contents(tmp_path)) == len(store.list())

    def test_of_a_claimed_run_is_recovered(self, damage: Callable[[Path], Any], run_id: str, tmp_path: Path) -> None:
        as_seed(tmp_path, run_id, ".inflight")
        damage(tmp_path / f"{run_id}.inflight")
        store = FilePausedStore(tmp_path)

        assert (store.list(), store.recover_orphaned(), store.list()) == ([], 1, [run_id])
        with pytest.raises(CorruptRecord):
            store.load(run_id)

    def test_of_a_resume_point_is_reported_and_healed(
        self, damage: Callable[[Path], Any], run_id: str, tmp_path: Path
    ) -> None:
        path = tmp_path / f"{run_id}.json"
        path.write_text(RESUME.replace("run-1", run_id))
        damage(path)
        store = FileResumeStore(tmp_path)

        with pytest.raises(CorruptRecord):
            store.load(run_id)
        store.save(samples.resume_point(run_id))
        assert store.load(run_id) == samples.resume_point(run_id)
        store.delete(run_id)
        assert (store.load(run_id), contents(tmp_path)) == (None, {})

    @pytest.mark.parametrize("task_id", ["a.b", "Task 1", "größe!", "ⓐ ka"])
    @pytest.mark.parametrize("heal", ["save", "delete"])
    def test_of_a_task_is_reported_and_healed(
        self, damage: Callable[[Path], Any], task_id: str, heal: str, tmp_path: Path
    ) -> None:
        path = tmp_path / (task_id.translate(str.maketrans(".! ", "___")) + ".json")
        path.write_text(CHECKPOINT.replace("task-a", task_id))
        damage(path)
        store = as_sync(FileEffectStore(tmp_path))
        before = contents(tmp_path)

        with pytest.raises(CorruptRecord):
            store.load_checkpoint(task_id)
        with pytest.raises(CorruptRecord):  # the effect may be in it
            store.mark_step_complete(task_id, "use-1", samples.effect("use-1"))
        assert contents(tmp_path) == before
        if heal == "save":
            store.save_checkpoint(samples.checkpoint(task_id))
        else:
            store.delete_checkpoint(task_id)

        healed = samples.checkpoint(task_id) if heal == "save" else None
        assert as_sync(FileEffectStore(tmp_path)).load_checkpoint(task_id) == healed


@pytest.mark.parametrize("open_", [FilePausedStore, FileResumeStore], ids=["paused", "resume"])
def test_a_file_of_a_seed_that_cannot_be_read_is_reported(
    open_: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_seed(tmp_path, "Run-1")
    store, real = open_(tmp_path), os.open

    def open_file(path: Any, *args: Any) -> int:
        if Path(path).name == "Run-1.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args)

    monkeypatch.setattr(os, "open", open_file)

    with pytest.raises(PermissionError):
        store.load("Run-1")
    if isinstance(store, FilePausedStore):
        assert store.list() == ["Run-1"]
    assert list(contents(tmp_path)) == ["Run-1.json"]


def test_a_damaged_journal_of_ours_is_not_taken_for_the_file_of_another_task(tmp_path: Path) -> None:
    store = as_sync(FileEffectStore(tmp_path))
    store.save_checkpoint(samples.checkpoint("a_b"))
    path = tmp_path / "a_b.json"
    path.write_bytes(path.read_bytes()[:-20])

    assert store.load_checkpoint("a.b") is None
    store.delete_checkpoint("a.b")
    with pytest.raises(CorruptRecord):
        as_sync(FileEffectStore(tmp_path)).load_checkpoint("a_b")


def test_a_damaged_file_is_not_that_of_an_id_in_other_case(fake_disk: FakeDisk) -> None:
    fake_disk.ignore_case()
    store = FilePausedStore(fake_disk.home / "store")
    store.save(samples.paused("run-1"))
    (fake_disk.home / "store" / "run-1.json").write_text("{")

    assert store.load("Run-1") is None
    store.remove("Run-1")
    assert store.list() == ["run-1"]


class TestAnIdThatLooksLikeOneOfOurNames:
    """The file of a seed's run `%52un` has the name that the run `Run` has here."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> FilePausedStore:
        as_seed(tmp_path, "%52un")
        return FilePausedStore(tmp_path)

    def test_is_loaded_where_it_is(self, store: FilePausedStore) -> None:
        run = store.load("%52un")

        assert run is not None
        assert (run.run_id, store.list()) == ("%52un", ["%52un"])
        assert (store.load("Run"), store.claim("Run")) == (None, None)

    @pytest.mark.parametrize("act", ["save", "remove", "complete", "claim", "renew"])
    def test_is_not_touched_by_changes_of_the_other(self, store: FilePausedStore, act: str) -> None:
        calls: dict[str, Callable[[], Any]] = {
            "save": lambda: store.save(samples.paused("Run")),
            "remove": lambda: store.remove("Run"),
            "complete": lambda: store.complete("Run"),
            "claim": lambda: store.claim("Run"),
            "renew": lambda: store.renew("Run", token="x"),
        }
        calls[act]()

        assert store.list() == (["%52un", "Run"] if act == "save" else ["%52un"])
        run = store.claim("%52un")
        assert run is not None
        assert run.run_id == "%52un"

    def test_is_changed_under_a_name_of_its_own(self, store: FilePausedStore) -> None:
        assert (store.list(), store.claim("%52un") is None, store.list()) == (["%52un"], False, [])
        store.save(samples.paused("Run"))
        assert (store.recover_orphaned(), store.list()) == (1, ["%52un", "Run"])

    def test_is_told_from_a_seeds_run_of_the_other_id(self, store: FilePausedStore, tmp_path: Path) -> None:
        as_seed(tmp_path, "Run")

        assert [store.load(run).run_id for run in ("Run", "%52un")] == ["Run", "%52un"]  # type: ignore[union-attr]
        assert [store.claim(run).run_id for run in ("Run", "%52un")] == ["Run", "%52un"]  # type: ignore[union-attr]

    @pytest.mark.parametrize("theirs", [".json", ".inflight"])
    def test_is_recovered_beside_the_other(self, theirs: str, tmp_path: Path) -> None:
        store = FilePausedStore(tmp_path)
        store.save(samples.paused("Run"))
        if theirs == ".json":
            store.claim("Run")
        as_seed(tmp_path, "%52un", theirs)

        store.recover_orphaned()

        assert store.list() == ["%52un", "Run"]
        assert [store.load(run).run_id for run in store.list()] == ["%52un", "Run"]  # type: ignore[union-attr]

    def test_is_a_resume_point_like_any_other(self, tmp_path: Path) -> None:
        (tmp_path / "%52un.json").write_text(RESUME.replace("run-1", "%52un"))
        store = FileResumeStore(tmp_path)

        assert (store.load("%52un"), store.load("Run")) == (samples.resume_point("%52un"), None)
        store.save(samples.resume_point("Run"))
        store.delete("Run")
        assert store.load("%52un") == samples.resume_point("%52un")

    def test_is_listed_if_it_looks_shortened(self, tmp_path: Path) -> None:
        run_id = "a" * 100 + "~" + "0" * 64
        as_seed(tmp_path, run_id)
        store = FilePausedStore(tmp_path)

        assert store.list() == [run_id]
        assert store.claim(run_id) is not None


# What `char::is_alphanumeric` keeps: Alphabetic (letters, vowel signs, circled letters) and the numbers.
RUST_NAMES = {
    "हिन्दी": "हिन_दी",
    "ⓐ.1": "ⓐ_1",
    "தமிழ்": "தமிழ_",
    "🅰 x": "🅰_x",
    "🚀x": "_x",
    "x²Ⅷ½": "x²Ⅷ½",
    "ไทยที่": "ไทยที_",
    "ကြည့်ပါ": "ကြည__ပါ",
    "a\u2013b…c™d€e": "a_b_c_d_e",
    "हिन्दी ุ े ैौ": "हिन_दी_ุ_े_ैौ",
}


@pytest.mark.parametrize(("task_id", "name"), RUST_NAMES.items())
def test_a_task_is_found_whatever_letters_the_seed_keeps(task_id: str, name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.json").write_text(CHECKPOINT.replace("task-a", task_id))
    store = as_sync(FileEffectStore(tmp_path))

    assert store.load_checkpoint(task_id).step_index == 2
    store.mark_step_complete(task_id, "use-3", samples.effect("use-3"))

    assert as_sync(FileEffectStore(tmp_path)).load_checkpoint(task_id).step_index == 3
    assert only_our_names(tmp_path)


class TestAReadOnlyFolder:
    @pytest.fixture
    def home(self, fake_disk: FakeDisk) -> Path:
        as_seed(fake_disk.home, "Run-1")
        as_seed(fake_disk.home, "%52un")
        as_seed(fake_disk.home, "Torn")
        (fake_disk.home / "Torn.json").write_text("{")
        fake_disk.read_only(fake_disk.home)
        return fake_disk.home

    def test_of_paused_runs_is_read(self, home: Path) -> None:
        store = FilePausedStore(home, mode=0o640)

        assert store.list() == ["%52un", "Run-1", "Torn"]
        assert [store.load(run) is None for run in ("Run-1", "%52un", "Run")] == [False, False, True]
        with pytest.raises(CorruptRecord):
            store.load("Torn")

    def test_of_tasks_is_read(self, fake_disk: FakeDisk) -> None:
        (fake_disk.home / "ⓐ_.json").write_text(CHECKPOINT.replace("task-a", "ⓐ!"))
        fake_disk.read_only(fake_disk.home)

        assert as_sync(FileEffectStore(fake_disk.home)).load_checkpoint("ⓐ!").step_index == 2


SANITIZED = {"proj/task.1 final": "proj_task_1_final", "Task": "Task", "größe!": "größe_", "a.b": "a_b"}


@pytest.mark.parametrize(("task_id", "name"), SANITIZED.items(), ids=list(SANITIZED.values()))
def test_a_task_with_another_id_is_loaded_goes_on_and_is_deleted(task_id: str, name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.json").write_text(CHECKPOINT.replace("task-a", task_id))
    store = as_sync(FileEffectStore(tmp_path))

    assert store.load_checkpoint(task_id).completed_tool_ids == {"use-1", "use-2"}
    store.mark_step_complete(task_id, "use-1", samples.effect("use-1"))
    store.mark_step_complete(task_id, "use-3", samples.effect("use-3"))

    assert as_sync(FileEffectStore(tmp_path)).load_checkpoint(task_id).step_index == 3
    assert only_our_names(tmp_path)
    store.delete_checkpoint(task_id)
    assert (store.load_checkpoint(task_id), contents(tmp_path)) == (None, {})


@pytest.mark.parametrize("change", ["save", "mark", "delete"])
def test_a_task_does_not_touch_that_of_another_id_with_its_name(change: str, tmp_path: Path) -> None:
    (tmp_path / "a_b.json").write_text(CHECKPOINT.replace("task-a", "a.b"))
    store = as_sync(FileEffectStore(tmp_path))
    theirs = store.load_checkpoint("a.b")

    assert store.load_checkpoint("a_b") is None
    if change == "save":
        store.save_checkpoint(samples.checkpoint("a_b"))
    elif change == "mark":
        store.mark_step_complete("a_b", "use-9", samples.effect("use-9"))
    else:
        store.delete_checkpoint("a_b")

    again = as_sync(FileEffectStore(tmp_path))
    assert again.load_checkpoint("a.b") == theirs
    assert (again.load_checkpoint("a_b") is None) == (change == "delete")


@pytest.mark.parametrize("run", OTHER_IDS)
def test_a_resume_point_with_another_id_is_loaded_replaced_and_deleted(run: str, tmp_path: Path) -> None:
    (tmp_path / f"{run}.json").write_text(RESUME.replace("run-1", run))
    store = FileResumeStore(tmp_path)

    assert store.load(run) == samples.resume_point(run)
    store.save(samples.resume_point(run, step=4))
    assert store.load(run) == samples.resume_point(run, step=4)
    store.delete(run)
    assert (store.load(run), contents(tmp_path)) == (None, {})


@pytest.mark.parametrize("act", ["claim", "remove", "save", "recover"])
def test_a_crash_while_a_file_gets_our_name_loses_nothing(crash: Crash, act: str) -> None:
    def setup(home: Path) -> None:
        as_seed(home, "Run-1", ".inflight" if act == "recover" else ".json")

    def workload(home: Path) -> None:
        store = FilePausedStore(home)
        calls: dict[str, Callable[[], Any]] = {
            "claim": lambda: store.claim("Run-1"),
            "remove": lambda: store.remove("Run-1"),
            "save": lambda: store.save(samples.paused("Run-1")),
            "recover": store.recover_orphaned,
        }
        calls[act]()
        crash.ack(act)

    def check(disk: Disk) -> None:
        store = FilePausedStore(disk.home)
        paused = store.list()
        if disk.acked:
            assert paused == (["Run-1"] if act in ("save", "recover") else [])
        store.recover_orphaned()
        assert store.list() == ([] if act == "remove" and (disk.acked or not paused) else ["Run-1"])
        store.remove("Run-1")
        assert (store.list(), store.recover_orphaned()) == ([], 0)

    crash.explore(workload, check, setup=setup)


@pytest.mark.parametrize("model", ["kill", "ext4", "xfs", "posix"])
@pytest.mark.parametrize("act", ["mark", "save", "delete"])
def test_a_crash_while_a_task_gets_our_name_loses_nothing(crash: Crash, act: str, model: Model) -> None:
    def setup(home: Path) -> None:
        (home / "Task_1.json").write_text(CHECKPOINT.replace("task-a", "Task.1"))

    def workload(home: Path) -> None:
        store = as_sync(FileEffectStore(home))
        if act == "mark":
            store.mark_step_complete("Task.1", "use-3", samples.effect("use-3"))
        elif act == "save":
            store.save_checkpoint(samples.checkpoint("Task.1", step_index=3))
        else:
            store.delete_checkpoint("Task.1")
        crash.ack(act)

    def check(disk: Disk) -> None:
        store = as_sync(FileEffectStore(disk.home))
        task = store.load_checkpoint("Task.1")
        step = None if task is None else task.step_index
        after = None if act == "delete" else 3
        assert step == after if disk.acked else step in (2, after)
        store.delete_checkpoint("Task.1")
        assert as_sync(FileEffectStore(disk.home)).load_checkpoint("Task.1") is None

    crash.explore(workload, check, setup=setup, model=model)


def test_a_crash_while_a_task_is_deleted_does_not_leave_only_the_damaged_file_of_its_name(crash: Crash) -> None:
    def setup(home: Path) -> None:
        as_sync(FileEffectStore(home)).save_checkpoint(samples.checkpoint("Task.1"))
        (home / "Task_1.json").write_text("{")

    def workload(home: Path) -> None:
        as_sync(FileEffectStore(home)).delete_checkpoint("Task.1")
        crash.ack("deleted")

    def check(disk: Disk) -> None:
        task = as_sync(FileEffectStore(disk.home)).load_checkpoint("Task.1")
        assert task is None if disk.acked else task in (None, samples.checkpoint("Task.1"))

    crash.explore(workload, check, setup=setup, model="posix")
