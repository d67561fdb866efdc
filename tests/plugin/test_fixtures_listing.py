"""What `pytest --fixtures` tells of our fixtures."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Run

DESCRIPTIONS = {
    "effect_store": "An empty EffectStore: which tool calls of a task are done.",
    "paused_store": "An empty PausedStore: which runs wait for a human, and who has taken one up.",
    "resume_store": "An empty ResumeStore: where a run goes on after a restart.",
    "snapshot_store": "An empty SnapshotStore: the state of a graph after every super-step.",
    "run_store": "An empty RunStore: the definition, context and steps of a run.",
    "frozen_clock": "The time of day, frozen:",
    "fake_disk": "A disk in memory that can be full, read-only or case-insensitive:",
    "crash": "A crash lab:",
    "race": "A race lab:",
    "postgres_server": "A PostgreSQL server of the tests' own:",
    "redis_server": "A Redis server of the tests' own:",
}


@pytest.mark.parametrize(("fixture", "description"), list(DESCRIPTIONS.items()), ids=list(DESCRIPTIONS))
def test_a_fixture_is_described_in_one_line(run: Run, fixture: str, description: str) -> None:
    lines = run("--fixtures").outlines
    (at,) = [number for number, line in enumerate(lines) if line.startswith((f"{fixture} -- ", f"{fixture} ["))]
    told = lines[at + 1 : lines.index("", at)]
    assert len(told) == 1
    assert told[0].strip().startswith(description)


def test_no_other_fixture_is_public(run: Run) -> None:
    lines = run("--fixtures").outlines
    ours = [line.partition(" ")[0] for line in lines if " -- " in line and "pytest_wfstate/plugin.py" in line]
    assert sorted(ours) == sorted(DESCRIPTIONS)
