"""Shrinking: what is reported lost the least, at the earliest point."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.bounds import MODELS, Model
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.disk.losses import PartLoss
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, State, distinct_states
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.ops import HOME, SECTOR, Ack, Create, Item, Trace, Tree, Write
from tests.unit.faults.conftest import note_is_kept
from tests.unit.faults.disk.notes import save_without_fsync, sync, write
from tests.unit.faults.disk.small_disks import tree
from tests.unit.faults.disk.test_models import traces


class CountingCheck:
    """A check that fails for some disks, and counts how often it is run."""

    def __init__(self, fails: Callable[[State], bool]) -> None:
        self.fails = fails
        self.checked = 0

    def __call__(self, state: State) -> Steps[BaseException | None]:
        self.checked += 1
        return ValueError() if self.fails(state) else None
        yield


def differs(name: str, wanted: object) -> CountingCheck:
    """Return a check that fails for disks that do not hold `wanted` in a file."""
    return CountingCheck(lambda state: state.tree().content().get(name) != wanted)


def shrunk(state: State, check: CountingCheck, tries: int = 300) -> State:
    shrink = Shrink(state, ValueError(), check, tries)
    assert list(shrink.steps()) == []
    return shrink.state


def last_state(items: list[Item], model: Model, start: Tree) -> State:
    """The state after all items in which all is lost that can be."""
    run = CrashedRun(Trace(start, items), model, ())
    *_, point = crash_points(run.trace, model)
    return State(run, point, tuple(part.gone for part in point.parts))


def test_what_does_not_matter_is_kept() -> None:
    items: list[Item] = [Write(1, 0, b"1"), Write(2, 0, b"2"), Create(HOME, "c", 3), Ack("done")]
    state = shrunk(last_state(items, "posix", tree(a=b"", b=b"")), differs("b", b"2"))
    assert state.lost() == [1]


def test_less_is_lost_of_what_does() -> None:
    items: list[Item] = [Write(1, 0, b"1"), Write(1, 0, b"2"), Write(1, 0, b"3")]
    state = shrunk(last_state(items, "posix", tree(a=b"0")), differs("a", b"3"))
    assert state.tree().content() == {"a": b"2"}


def test_one_loss_is_preferred_to_two_earlier_ones() -> None:
    items: list[Item] = [Create(HOME, "x", 2), Create(HOME, "y", 3), Create(HOME, "z", 4)]

    def fails(state: State) -> bool:
        there = state.tree().content().keys()
        return "z" not in there or not there & {"x", "y"}

    assert shrunk(last_state(items, "posix", Tree()), CountingCheck(fails)).lost() == [2]


def test_the_earliest_point_is_taken() -> None:
    items: list[Item] = [Write(1, 0, b"1"), Ack(1), Ack(2), Create(HOME, "c", 3)]

    def fails(state: State) -> bool:
        return differs("a", b"1").fails(state) and bool(state.run.acked(state.point.index))

    state = shrunk(last_state(items, "posix", tree(a=b"0")), CountingCheck(fails))
    assert (state.point.index, state.lost()) == (2, [0])


def test_a_tear_stays_a_tear_at_an_earlier_point() -> None:
    items: list[Item] = [Write(1, 0, b"n" * 1024), Ack(1), Create(HOME, "c", 3)]
    torn = b"n" * 512 + b"o" * 512

    state = last_state(items, "posix", tree(a=b"o" * 1024))
    (torn_state,) = [
        candidate
        for candidate in distinct_states(state.run, Counters())
        if candidate.point.index == 3 and candidate.tree().content() == {"a": torn, "c": b""}
    ]
    check = CountingCheck(lambda state: state.tree().content().get("a") == torn)
    assert shrunk(torn_state, check).point.index == 1


def test_it_stops_when_its_tries_are_used_up() -> None:
    items: list[Item] = [Write(1, 0, b"1"), Write(2, 0, b"2"), Create(HOME, "c", 3)]
    check = differs("b", b"2")
    shrunk(last_state(items, "posix", tree(a=b"", b=b"")), check, tries=2)
    assert check.checked == 2


def test_nothing_smaller_is_derived_once_its_tries_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file lost thousands of sectors, and deriving a disk takes longer the more of them are lost."""
    derived: list[State] = []
    with_loss = State.with_loss

    def counted(self: State, part: int, loss: PartLoss) -> State:
        derived.append(self)
        return with_loss(self, part, loss)

    monkeypatch.setattr(State, "with_loss", counted)
    size = 500 * SECTOR
    state = last_state([Write(1, 0, b"n" * size)], "posix", tree(a=b"o" * size))
    check = CountingCheck(lambda other: other.loss == state.loss)
    assert shrunk(state, check, tries=20) == state
    assert check.checked == 20
    assert len(derived) <= 21


@settings(max_examples=150, deadline=None)
@given(traces(), st.sampled_from(MODELS), st.sampled_from("abc"), st.data())
def test_nothing_can_be_restored_and_no_earlier_point_fails(
    trace: Trace, model: Model, name: str, data: st.DataObject
) -> None:
    assume(all(point.possible < 1000 for point in crash_points(trace, model)))
    check = differs(name, trace.end().content().get(name))
    failing = [state for state in distinct_states(CrashedRun(trace, model, ()), Counters()) if check.fails(state)]
    assume(failing)
    state = shrunk(data.draw(st.sampled_from(failing)), check, tries=10**6)
    assert check.fails(state)
    for part, loss in enumerate(state.loss):
        for axis, lost in loss:
            assert not any(check.fails(state.with_position(part, axis, position)) for position in range(lost))
    content = state.tree().content()
    same = [other for other in failing if other.lost() == state.lost() and other.tree().content() == content]
    assert all(state.point.index <= other.point.index for other in same)


class TestThroughTheLab:
    def test_the_report_names_one_loss_and_the_first_ack(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            for name in "xyz":
                write(home / name, b"not synced")
            save_without_fsync(home, "text")
            crash.ack(1)
            crash.ack(2)

        with pytest.raises(CrashBug) as caught:
            crash.explore(workload, note_is_kept)
        text = str(caught.value)
        assert "  acknowledged    1  " in text
        assert "  lost            rename note.tmp to note  " in text
        assert text.count("xyz") == text.count("unlink") == 0
        assert [line for line in text.splitlines() if "write of 10 bytes" in line] == []

    def test_a_kill_is_reported_at_the_first_op_that_fails(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            write(home / "a", b"1")
            write(home / "b", b"1")
            os.unlink(home / "a")
            sync(home)

        def check(disk: Disk) -> None:
            assert (disk.home / "a").exists() == (disk.home / "b").exists() or not (disk.home / "a").exists()

        with pytest.raises(CrashBug, match=r"it died         after create a "):
            crash.explore(workload, check, model="kill")
