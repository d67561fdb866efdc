"""What a crash at any point leaves of a file store, under every model of a disk, judged by the memory store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from pytest_wfstate import Crash, CrashBug
from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.labs.settings import Settings
from pytest_wfstate.stores.file import effects, journal, paused, runs, snapshots

from .crashes import CLOCK, Call, Scenario, Trial, do, recover, repeat
from .scenarios import FORK, PAIRS, SCENARIOS

FIRST_OF_EACH = [scenario for scenario in SCENARIOS if not scenario.before]
ON_ONE_HANDLE = [one for one in SCENARIOS if all(type(call) is Call and call.handle == 0 for call in one.calls)]
ONE_OF_EACH_METHOD = {(one.contract.name, one.calls[-1].method): one for one in reversed(ON_ONE_HANDLE)}.values()


@pytest.fixture(scope="module", autouse=True)
def a_world_without_chance() -> Iterator[None]:
    """Time and new ids are given, and journals are compacted after three changes."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (effects, paused, runs, snapshots):
            patch.setattr(module, "now", CLOCK)
        patch.setattr(snapshots, "new_run_id", lambda: FORK)
        patch.setattr(journal, "_LEAST_CHANGES", 2)
        yield


@pytest.fixture
def crash() -> Iterator[Crash]:
    """A lab without bounds: every disk is looked at, however slow the machine."""
    lab = Crash(Settings(bounds=dataclasses.replace(PROFILES["thorough"], samples=1)))  # all have the same check
    yield lab
    lab.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_crash_leaves_all_that_was_acknowledged_and_one_of_the_same_call_does_too(
    crash: Crash, scenario: Scenario
) -> None:
    """Under posix, which allows all that the other models do."""
    trial = Trial(crash, scenario, repeat)
    result = crash.explore(trial.workload, trial.check, setup=trial.setup, model="posix", depth=2)
    assert result.skipped == 0


@pytest.mark.parametrize(("scenario", "second"), [pytest.param(*pair, id=str(pair[0])) for pair in PAIRS])
def test_a_crash_of_another_call_on_what_a_crash_left_does_no_harm(
    crash: Crash, scenario: Scenario, second: Call
) -> None:
    trial = Trial(crash, scenario, do(second))
    result = crash.explore(trial.workload, trial.check, setup=trial.setup, model="posix", depth=2)
    assert result.skipped == 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_after_an_error_the_same_handle_goes_on(crash: Crash, scenario: Scenario) -> None:
    trial = Trial(crash, scenario, recover)
    result = crash.errors(trial.stubborn_workload, trial.check, setup=trial.setup)
    assert result.skipped == 0


@pytest.mark.parametrize("scenario", ONE_OF_EACH_METHOD, ids=str)
def test_after_an_error_a_new_process_goes_on(crash: Crash, scenario: Scenario) -> None:
    trial = Trial(crash, scenario, recover)
    result = crash.errors(trial.restarted_workload, trial.check, setup=trial.setup)
    assert result.skipped == 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_without_fsync_the_death_of_the_process_does_no_harm(crash: Crash, scenario: Scenario) -> None:
    trial = Trial(crash, scenario, repeat, durability="process")
    result = crash.explore(trial.workload, trial.check, setup=trial.setup, model="kill", depth=2)
    assert result.skipped == 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_without_fsync_a_power_cut_mixes_nothing_up(crash: Crash, scenario: Scenario) -> None:
    trial = Trial(crash, scenario, durability="process")
    result = crash.explore(trial.workload, trial.check_nothing_is_mixed_up, setup=trial.setup, model="posix")
    assert result.skipped == 0


@pytest.mark.parametrize("scenario", FIRST_OF_EACH, ids=str)
def test_without_fsync_a_power_cut_loses_what_was_acknowledged(crash: Crash, scenario: Scenario) -> None:
    trial = Trial(crash, scenario, durability="process")
    with pytest.raises(CrashBug):
        crash.explore(trial.workload, trial.check, setup=trial.setup, model="posix")
