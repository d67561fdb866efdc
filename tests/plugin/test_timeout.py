"""A time limit strikes anywhere: the test fails with the limit's own error, not with a violation of the store.

Nobody waits for it: what blocks forever sends the signal of the limit first.
"""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import ALONE

TESTS = """
import asyncio, dataclasses, itertools, os, select, signal, threading
import pytest
from hypothesis import strategies
from pytest_wfstate import MemoryResumeStore
from pytest_wfstate.suites import ResumeSuite

TEST = os.getpid()

def strike():
    os.kill(TEST, signal.SIGALRM)

def forever(*_):
    strike()
    threading.Event().wait()

def blocks_at(nth):
    calls = itertools.count(1)
    return lambda *_: forever() if next(calls) >= nth else None

def save(home):
    (home / "note").write_text("1")

def save_slowly(home):
    try:
        save(home)
    except OSError:
        forever()

@pytest.mark.parametrize("nth", [1, 2])
def test_check(crash, nth):
    crash.explore(save, blocks_at(nth))

def test_check_of_a_crashed_recovery(crash):
    checks = itertools.count(1)
    def check(disk):
        save(disk.home)
        if next(checks) > 4:  # disks of one crash
            forever()
    crash.explore(save, check, depth=2, model="kill")

def test_workload(crash):
    crash.explore(forever, blocks_at(1))

def test_workload_with_an_error(crash):
    crash.errors(save_slowly, lambda disk: None)

def test_killed_workload(crash):
    crash.kill(forever, at=crash.before("rename"), timeout=1e6)

@pytest.mark.parametrize("nth", [1, 2])
def test_check_of_a_race(race, nth):
    race.explore(None, [save, save], blocks_at(nth))

def test_client(race):
    def spin(home):  # a client that waits is a hang, which the lab reports at once
        strike()
        while True:
            pass
    race.explore(None, [save, spin], blocks_at(1))

@pytest.mark.parametrize("by", ["line", "await"])
def test_client_in_memory(race, by):
    async def wait(shared):
        forever()
    def select_nothing(shared):
        strike()
        select.select([], [], [])
    race.explore(dict, [wait if by == "await" else select_nothing] * 2, blocks_at(1), by=by)

async def work(disk):
    forever()

async def work_later(disk):
    await asyncio.create_task(work(disk))

@pytest.mark.parametrize("check", [work, work_later])
def test_async_check(crash, check):
    crash.explore(save, check)

class Blocks(MemoryResumeStore):
    def save(self, *args, **kwargs):
        forever()

class TestClause(ResumeSuite):
    medium = "memory"
    def open(self, home):
        return Blocks()

def arguments_that_block(ids):
    return strategies.builds(forever)

class TestGenerating(ResumeSuite):
    medium = "memory"
    contract = dataclasses.replace(
        ResumeSuite.contract,
        operations=[
            dataclasses.replace(operation, arguments=arguments_that_block)
            for operation in ResumeSuite.contract.operations
        ],
    )
    def open(self, home):
        return MemoryResumeStore()
"""


REPORT = """
def pytest_runtest_logreport(report):
    if report.when == "call":
        print(f"\\nENDED {report.nodeid.partition('::')[2]}: {report.longrepr.reprcrash.message}")
"""


def test_a_time_limit_is_not_taken_for_a_violation(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest(REPORT)
    chosen = "not (TestClause or TestGenerating) or TestClause and save_load or random"
    result = pytester.runpytest_subprocess(
        *ALONE, "--timeout=300", "--wfstate-timeout=600", "--tb=no", "-s", "-k", chosen
    )
    ends = re.findall(r"^ENDED (.*?): (.*)", result.stdout.str(), re.MULTILINE)
    assert len(ends) == 16
    assert {test: end for test, end in ends if not end.startswith("Failed: Timeout")} == {}
    # The three clauses count as failed, whatever they failed with; no exploration does.
    result.stdout.re_match_lines([r"wfstate: .* 3 violations, .*"])
