"""A store that breaks its contract in one way and in another: what fails for one reason is reported once."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import WITH_XDIST, Run

SUITE = """
import os
from pytest_wfstate import ResumePoint
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.suites import ResumeSuite

class Store:
    def __init__(self, home):
        self.home = home

    def path(self, run_id):
        return self.home / f"{check_id('id', run_id).encode().hex()[:200]}.json"

    def save(self, point):
        with open(self.path(point.run_id), "w") as file:
            file.write(point.to_json())
            file.flush()
            os.fsync(file.fileno())
        self.sync()

    def load(self, run_id):
        path = self.path(run_id)
        if not path.exists():
            return None
        point = ResumePoint.from_json(path.read_text(), run_id)
        return point.model_copy(update={"step": point.step + 1})

    def delete(self, run_id):
        self.path(run_id).unlink(missing_ok=True)
        self.sync()

    def sync(self):
        folder = os.open(self.home, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

class TestStore(ResumeSuite):
    def open(self, home):
        return Store(home)
"""
CAUSE = "load() returns a record with another step"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("test_store.py").write_text(SUITE)


def shown_in_full(result: pytest.RunResult) -> list[str]:
    return [line.strip("_ ") for line in result.outlines if re.fullmatch(r"_+ TestStore\.\w+ _+", line)]


@pytest.mark.usefixtures("suite", "wide")
def test_a_broken_store_fits_on_two_screens(run: Run) -> None:
    result = run("-q", "--wfstate-profile=quick")
    counts = result.parseoutcomes()
    assert counts["failed"] > 25
    assert len(result.outlines) <= 100
    result.stdout.fnmatch_lines(
        [
            "resume.kill.save: If the process is killed during save, *",
            "Judged against the store's own uninterrupted runs, since it deviates from its contract without any fault:",
            f"{CAUSE}, as resume.save.load reports.",
            "  on the disk     61.json: 0 bytes",
            f"wfstate: TestStore: core *; * clauses judged against the store's own uninterrupted runs, since {CAUSE}*",
            f"wfstate: TestStore: resume.save.load and * more fail because {CAUSE}: fix this first",
            "wfstate: TestStore: resume.kill.save and 1 more fail because after a kill, load() raises CorruptRecord",
            "wfstate: only the first failure for each reason is shown in full: -v shows all",
        ]
    )
    shown = [line for line in result.outlines if line.startswith("FAILED ")]
    assert len(shown) == counts["failed"], "each has its line"


@pytest.mark.usefixtures("suite", "wide")
def test_the_first_failure_for_each_reason_is_shown_in_full_under_xdist(pytester: pytest.Pytester) -> None:
    chosen = "save_load or save_replaces or save_unsound or delete_others"
    result = pytester.runpytest_subprocess("-n1", *WITH_XDIST, "-q", "-k", chosen)
    assert result.parseoutcomes()["failed"] == 4
    assert shown_in_full(result) == ["TestStore.test_save_load", "TestStore.test_save_unsound"]
    result.stdout.fnmatch_lines(
        [
            f"wfstate: TestStore: resume.save.load and 2 more fail because {CAUSE}: fix this first",
            "wfstate: TestStore: resume.save.unsound fails because save() does not raise ValueError",
        ]
    )


@pytest.mark.usefixtures("suite")
def test_each_is_shown_in_full_if_asked(run: Run) -> None:
    result = run("-v", "--wfstate-profile=quick", "-k", "save_load or save_replaces")
    assert shown_in_full(result) == ["TestStore.test_save_load", "TestStore.test_save_replaces"]


@pytest.mark.usefixtures("suite")
def test_one_that_runs_alone_is_shown_in_full(run: Run) -> None:
    result = run("--wfstate-profile=quick", "-k", "resume.save.replaces")
    assert shown_in_full(result) == ["TestStore.test_save_replaces"]
    assert "fix this first" not in result.stdout.str()


@pytest.mark.usefixtures("suite")
def test_an_id_that_fails_for_a_reason_that_is_reported_is_counted(run: Run) -> None:
    result = run("--wfstate-profile=quick", "-v", "-k", "resume.save.load or resume.ids.never-collide")
    result.stdout.fnmatch_lines(
        ["resume.ids.never-collide: *", "store.load('run') -> *", "So do * others, which begin:"]
    )
