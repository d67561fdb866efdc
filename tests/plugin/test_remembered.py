"""A failure is remembered, and tried first in the next run of its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plugin.bank import BROKEN, CARELESS, failure, replay_id
from tests.plugin.conftest import WITH_XDIST, Run

pytestmark = pytest.mark.usefixtures("notes")

REMEMBERED = "This disk failed in an earlier run of the test, so it was tried first."

FIXED = BROKEN.replace("assert ", "assert True or ")

RACE = """
import os


def test_it(race):
    def client(home):
        path = home / "counter"
        number = int(path.read_text()) if path.exists() else 0
        path.write_text(str(number + 1))

    def check(outcome):
        assert (outcome.home / "counter").read_text() == "2"

    race.explore(None, [client, client], check)
"""

SUITE = """
import os

from pytest_wfstate import ResumePoint
from pytest_wfstate.suites import ResumeSuite


class Store:
    def __init__(self, home):
        self.home = home

    def save(self, point):
        (self.home / "new").write_text(point.to_json())
        os.replace(self.home / "new", self.home / point.run_id)

    def load(self, run_id):
        path = self.home / run_id
        return ResumePoint.from_json(path.read_text(), path) if path.exists() else None


class TestStore(ResumeSuite):
    def open(self, home):
        return Store(home)
"""


def corpus(pytester: pytest.Pytester) -> list[Path]:
    return sorted((pytester.path / ".pytest_cache" / "d" / "wfstate").glob("*"))


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (BROKEN, REMEMBERED),
        (CARELESS, REMEMBERED),
        (RACE, "This schedule failed in an earlier run of the test, so it was run first."),
    ],
    ids=["crash", "error", "race"],
)
def test_it_is_tried_before_anything_else(pytester: pytest.Pytester, run: Run, source: str, note: str) -> None:
    pytester.makepyfile(test_bank=source)
    first = run()
    again = run()
    assert note not in failure(first)
    assert note in failure(again)
    assert replay_id(again) == replay_id(first)
    assert again.ret == first.ret == pytest.ExitCode.TESTS_FAILED
    (file,) = corpus(pytester)
    assert file.read_text().splitlines()[1:] == [replay_id(first)]


def test_what_passes_is_kept_and_fails_again(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    first = run()
    pytester.makepyfile(test_bank=FIXED)
    run().assert_outcomes(passed=1)
    pytester.makepyfile(test_bank=BROKEN)
    assert REMEMBERED in failure(run())
    assert len(corpus(pytester)) == 1
    assert replay_id(first) in corpus(pytester)[0].read_text()


def test_it_is_forgotten_when_the_test_has_changed(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    run()
    pytester.makepyfile(test_bank=BROKEN.replace("save", "save_well"))
    run().assert_outcomes(passed=1)
    assert corpus(pytester) == []


def test_another_violation_is_found_although_it_passes(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    run()
    worse = BROKEN.replace('== order, "forgotten"', '!= ""')
    pytester.makepyfile(test_bank=worse)
    result = run()
    result.assert_outcomes(failed=1)
    assert REMEMBERED not in failure(result)
    assert len(corpus(pytester)[0].read_text().splitlines()) == 3


def test_a_disk_of_another_model_is_left_alone(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    run()
    run("--wfstate-model=kill").assert_outcomes(passed=1)
    assert len(corpus(pytester)) == 1


def test_a_passing_test_checks_as_much_as_without_it(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=FIXED)
    without = run()
    pytester.makepyfile(test_bank=BROKEN)
    run()
    pytester.makepyfile(test_bank=FIXED)
    counts = [
        re.findall(r"wfstate: (1 workload, \d+ disks), 0 violations", result.stdout.str())
        for result in (without, run())
    ]
    assert counts[0] == counts[1] != []


@pytest.mark.parametrize("options", [("-p", "no:cacheprovider"), ("--wfstate-corpus=none",)])
def test_nothing_is_remembered_without_a_cache(pytester: pytest.Pytester, run: Run, options: tuple[str, ...]) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    run(*options)
    assert REMEMBERED not in failure(run(*options))
    assert corpus(pytester) == []


def test_a_folder_can_be_shared(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    run("--wfstate-corpus=failures")
    assert corpus(pytester) == []
    pytester.makeini("[pytest]\nwfstate_corpus = failures")
    assert REMEMBERED in failure(run("--cache-clear"))
    assert len(list((pytester.path / "failures").iterdir())) == 1


def test_a_file_is_not_a_folder(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_bank=BROKEN)
    result = run("--wfstate-corpus=test_bank.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--wfstate-corpus is 'test_bank.py', which is a file. Give a folder, or 'none'."])


def test_workers_of_xdist_share_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_bank=BROKEN, test_race=RACE)
    for workers in ("-n2", "-n1"):
        result = pytester.runpytest_subprocess(workers, "--wfstate-profile=quick", *WITH_XDIST)
        result.assert_outcomes(failed=2)
    assert result.stdout.str().count("failed in an earlier run of the test") == 2
    assert len(corpus(pytester)) == 2


def test_the_clauses_of_a_suite_remember(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_store=SUITE)
    options = ("--wfstate-profile=quick", "-k", "resume.power.save")
    first, again = run(*options), run(*options)
    first.assert_outcomes(failed=1)
    assert REMEMBERED in again.stdout.str()
    assert replay_id(again) == replay_id(first)
