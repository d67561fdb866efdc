"""A user's type checker knows every public name: `py.typed` is shipped, and the annotations are right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pytest_wfstate

RIGHT = f"""
import datetime

from pytest_wfstate import {", ".join(pytest_wfstate.__all__)}

async def test_effects(effect_store: EffectStore) -> None:
    await effect_store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
    checkpoint: WorkflowCheckpoint | None = await effect_store.load_checkpoint("task-1")
    assert checkpoint is not None
    assert checkpoint.is_completed("use-1")

def test_paused(paused_store: PausedStore, frozen_clock: FrozenClock) -> None:
    paused_store.save(samples.paused("run-1", iterations=2))
    record: PausedWorkflow | None = paused_store.claim("run-1")
    assert record is not None
    frozen_clock.tick(61)
    now: datetime.datetime = frozen_clock.now
    assert paused_store.recover_orphaned(older_than=60) == 1, now

def test_resume(fake_disk: FakeDisk) -> None:
    store: ResumeStore = FileResumeStore(fake_disk.home, durability="process")
    store.save(ResumePoint(run_id="r", workflow_name="wf", step=1, next_node_id="n", scope_snapshot=None))
    fake_disk.fill(free=10)

async def test_snapshots(snapshot_store: SnapshotStore) -> None:
    await snapshot_store.save(samples.snapshot("run-1", 1))
    run_id: RunId = await snapshot_store.fork(samples.key("run-1", 1), {{"a": 1}})
    listed: list[CheckpointMeta] = await snapshot_store.list("wf", run_id)
    assert listed

async def test_runs(run_store: RunStore) -> None:
    await run_store.upsert_step("run-1", WorkflowStepState(step_id="fetch", status=TaskStatus.RUNNING))
    steps: list[WorkflowStepState] = await run_store.list_steps("run-1")
    assert steps

stores: list[EffectStore] = [MemoryEffectStore(), FileEffectStore("x")]
more: list[PausedStore] = [MemoryPausedStore(), FilePausedStore("x")]
others: list[ResumeStore] = [MemoryResumeStore(), FileResumeStore("x")]
graphs: list[SnapshotStore] = [MemorySnapshotStore(), FileSnapshotStore("x")]
runs: list[RunStore] = [MemoryRunStore(), FileRunStore("x")]
"""

WRONG = """
from pytest_wfstate import FileResumeStore, PausedStore, samples

def test_paused(paused_store: PausedStore) -> None:
    paused_store.save("not a record")
    paused_store.claim(1)
    FileResumeStore("x", durability="hope")
    samples.nothing()
"""

RIGHT_SUITE = """
from pathlib import Path

from pytest_wfstate import FilePausedStore, PausedWorkflow
from pytest_wfstate.suites import PausedSuite

class TestStore(PausedSuite):
    level = "safe"
    medium = "disk"
    known_failures = {"paused.list.sorted": "see #12"}

    def open(self, home: Path) -> FilePausedStore:
        return FilePausedStore(home)

    def close(self, store: FilePausedStore) -> None:
        store.close()

    def encode(self, record: PausedWorkflow) -> dict[str, object]:
        return record.model_dump()

    def decode(self, value: dict[str, object]) -> PausedWorkflow:
        return PausedWorkflow.model_validate(value)

    def normalise(self, record: PausedWorkflow) -> PausedWorkflow:
        return record

class TestAsync(PausedSuite):
    async def open(self, home: Path) -> FilePausedStore:
        return FilePausedStore(home)

    async def close(self, store: FilePausedStore) -> None:
        store.close()
"""

WRONG_SUITE = """
from pytest_wfstate.suites import PausedSuite

class TestStore(PausedSuite):
    level = "high"
    known_failures = ["paused.list.sorted"]
"""

# Left out: what users without our extras do not have, and what the annotations that users meet do not mention.
CONFIG = """
[mypy]
strict = true

[mypy-sqlalchemy.*,psycopg.*,redis.*,trio.*,hypothesis.*,pyfakefs.*]
follow_imports = skip
"""

FILES = {
    "right.py": (RIGHT, []),
    "wrong.py": (WRONG, ["5", "6", "7", "8"]),
    "right_suite.py": (RIGHT_SUITE, []),
    "wrong_suite.py": (WRONG_SUITE, ["5", "6"]),
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the errors that mypy finds in all files."""
    folder = tmp_path_factory.mktemp("typing")
    for name, (text, _) in FILES.items():
        Path(folder, name).write_text(text)
    Path(folder, "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", *FILES]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not result.stderr
    return [line for line in result.stdout.splitlines() if ": error: " in line]


@pytest.mark.parametrize("name", FILES)
def test_wrong_use_is_found_and_right_use_passes(errors: list[str], name: str) -> None:
    assert [line.split(":")[1] for line in errors if line.startswith(f"{name}:")] == FILES[name][1]
