"""What `pytest --fixtures` shows of our fixtures."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Run

DESCRIPTIONS = {
    "effect_store": "An empty EffectStore: which tool calls of a task are done.",
    "paused_store": "An empty PausedStore: the runs that wait for a human, and who claimed each.",
    "resume_store": "An empty ResumeStore: where each run resumes after a restart.",
    "snapshot_store": "An empty SnapshotStore: the state of a graph after every super-step.",
    "run_store": "An empty RunStore: the definition, context and steps of each run.",
    "frozen_clock": "A frozen time of day:",
    "fake_disk": "An in-memory disk that can be full, read-only or case-insensitive:",
    "crash": "A crash lab:",
    "race": "A race lab:",
    "postgres_server": "A PostgreSQL server owned by the tests:",
    "redis_server": "A Redis server owned by the tests:",
}


@pytest.fixture
def lines(run: Run) -> list[str]:
    return run("--fixtures").outlines


@pytest.mark.parametrize(("fixture", "description"), list(DESCRIPTIONS.items()), ids=list(DESCRIPTIONS))
def test_a_fixture_is_described_in_one_line(lines: list[str], fixture: str, description: str) -> None:
    (head,) = [number for number, line in enumerate(lines) if line.startswith((f"{fixture} -- ", f"{fixture} ["))]
    (text,) = lines[head + 1 : lines.index("", head)]
    assert text.strip().startswith(description)


def test_no_other_fixture_is_public(lines: list[str]) -> None:
    ours = [line.partition(" ")[0] for line in lines if " -- " in line and "pytest_wfstate/plugin.py" in line]
    assert sorted(ours) == sorted(DESCRIPTIONS)
