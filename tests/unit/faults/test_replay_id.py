"""Replay ids: their format, and that they reproduce the same disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk, NotMeasured
from pytest_wfstate.faults.bounds import MODELS, Model
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, distinct_states, find
from pytest_wfstate.faults.replay_id import (
    CrashId,
    FailedId,
    NoReplayId,
    RaceId,
    ReplayId,
    TraceChanged,
    death_of,
    read_turns,
    turns_text,
)
from pytest_wfstate.faults.trace.ops import Trace, Tree
from pytest_wfstate.labs.lab import Settings
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import append, read, save, save_without_file_fsync, sync, write
from tests.unit.faults.disk.test_models import traces

NUMBERS = st.integers(0, 10**6)
CRASHES = st.builds(
    CrashId,
    st.sampled_from(MODELS),
    NUMBERS,
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=4).map(tuple),
    st.text("0123456789abcdef", min_size=8, max_size=8),
)
FAILED = st.builds(
    FailedId,
    st.sampled_from(["EIO", "ENOSPC", "E2BIG", "short"]),
    st.integers(1, 10**6),
    st.text("0123456789abcdef", min_size=8, max_size=8),
)
CHOICES = st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 5)), min_size=1)
RACES = st.builds(
    RaceId,
    st.sampled_from(["race", "line", "opcode", "await"]),
    CHOICES.map(lambda parts: (*(choice for choices, times in parts for choice in choices * times), death_of(1), 0)),
    st.text("0123456789abcdef", min_size=8, max_size=8),
)


def whole(disk: Disk) -> None:
    """Pass without a note, and with any that is not empty."""
    assert read(disk.home) != ""


class TestText:
    @given(
        st.builds(ReplayId, st.integers(1, 99), st.lists(CRASHES, min_size=1, max_size=2).map(tuple))
        | st.builds(ReplayId, st.integers(1, 99), st.lists(CRASHES, max_size=1).map(tuple), FAILED)
        | st.builds(ReplayId, st.integers(1, 99), race=RACES)
    )
    def test_reads_back(self, replay: ReplayId) -> None:
        assert ReplayId.read(str(replay)) == replay

    @pytest.mark.parametrize(
        "text",
        [
            "posix-4-0.1.1-83dea0de",
            "kill-0-0-00000000",
            "3:xfs-4-0.1.1_1.0.2-83dea0de",
            "2:ext4-4-0-83dea0de+ext4-7-0.0.1-12345678",
            "short-2-83dea0de",
            "2:EIO-3-83dea0de+posix-4-0.1.1-83dea0de",
            "race-0.5_1.12_k0-83dea0de",
            "race-2.5_0.2_1.3_r2x99-83dea0de",
            "late:posix-4-0.1.1-83dea0de",
            "2:mix13:kill-4-0-83dea0de",
            "t0.5_12.1_a.3:posix-4-0-83dea0de+posix-7-0-12345678",
        ],
    )
    def test_is_short_and_needs_no_quotes(self, text: str) -> None:
        assert str(ReplayId.read(text)) == text

    def test_of_a_livelock_is_short(self) -> None:
        race = RaceId("race", (0, 0, *(1, 1, 1, 0, 0, 0) * 1000), "83dea0de")
        assert str(race) == "race-0.2_1.3_0.3_r2x999-83dea0de"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "x",
            "posix-4-0.1.1",
            "posix-4-0.1-83dea0de",
            "ntfs-4-0-83dea0de",
            "0:kill-0-0-00000000",
            "posix-4-0-83DEA0DE",
            "kill-0-0-00000000+",
            "kill-0-0-00000000\n",
            "kill-0-0-00000000+kill-0-0-00000000+kill-0-0-00000000",
            "EIO-0-00000000",
            "EIO-1",
            "kill-0-0-00000000+EIO-1-00000000",
            "EIO-1-00000000+kill-0-0-00000000+kill-0-0-00000000",
            "soon:kill-0-0-00000000",
            "mix0:kill-0-0-00000000",
            "t:kill-0-0-00000000",
            "t0.0:kill-0-0-00000000",
        ],
    )
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(
            NoReplayId, match=r"is not a replay id\. Copy one from the end of a violation's report."
        ) as caught:
            ReplayId.read(text)
        assert isinstance(caught.value, ValueError)
        assert repr(text) in str(caught.value)

    @given(st.lists(st.sampled_from(["0", "1", "12", "a", "bc"]), min_size=1))
    def test_turns_read_back(self, turns: list[str]) -> None:
        order = turns_text(turns)
        assert read_turns(order) == turns
        assert ReplayId.read(f"{order}:kill-0-0-00000000").order == order


class TestFinding:
    @settings(max_examples=100, deadline=None)
    @given(traces(), st.sampled_from(MODELS), st.data())
    def test_returns_the_state(self, trace: Trace, model: Model, data: st.DataObject) -> None:
        run = CrashedRun(trace, model, ())
        states = [state for state, _ in zip(distinct_states(run, Counters()), range(50), strict=False)]
        state = data.draw(st.sampled_from(states))
        (crash,) = state.ids()
        replayed = find(run, CrashId.read(str(crash)))
        assert (replayed.point.index, replayed.loss) == (state.point.index, state.loss)

    @pytest.mark.parametrize("part", ["model", "point", "losses", "fingerprint"])
    def test_of_another_run_is_an_error(self, part: str) -> None:
        others: dict[str, Any] = {"model": "xfs", "point": 99, "losses": ((7, 7, 7),), "fingerprint": "00000000"}
        run = CrashedRun(Trace(Tree(), []), "kill", ())
        (state,) = distinct_states(run, Counters())
        (crash,) = state.ids()
        assert find(run, crash).loss == state.loss
        with pytest.raises(TraceChanged, match="The run differs from the one that"):
            find(run, CrashId(**{name: getattr(crash, name) for name in CrashId.__slots__} | {part: others[part]}))


class TestThroughTheLab:
    """`lab(replay=...)` is what --wfstate-replay sets."""

    @staticmethod
    def violation(explore: Callable[[Crash], object], crash: Crash) -> CrashBug:
        with pytest.raises(CrashBug) as caught:
            explore(crash)
        return caught.value

    @staticmethod
    def disk(error: CrashBug) -> list[str]:
        """The part of a report about the disk, without counts."""
        lines = str(error).splitlines()
        return lines[: lines.index("", 3)]

    @pytest.mark.parametrize("model", ["ext4", "posix"])
    def test_the_same_disk_is_reported(self, lab: Lab, model: Model) -> None:
        def explore(crash: Crash) -> None:
            crash.explore(lambda home: save_without_file_fsync(home, "x" * 6000), whole, model=model)

        first = self.violation(explore, lab())
        again = self.violation(explore, lab(replay=ReplayId.read(first.replay_id)))
        assert self.disk(again) == self.disk(first)
        assert again.replay_id == first.replay_id
        assert "This is one disk, replayed." in str(again)

    def test_nothing_but_that_disk_is_checked(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            save_without_file_fsync(home, "text")

        def check(disk: Disk) -> None:
            crashes.append(disk.crash)
            assert read(disk.home) in (None, "text") or not broken

        crashes: list[str] = []
        broken = True
        first = self.violation(lambda crash: crash.explore(workload, check), lab())
        crashes.clear()
        broken = False
        explored = lab(replay=ReplayId.read(first.replay_id)).explore(workload, check)
        assert len(crashes) == 2  # the run without a crash, and the disk
        assert explored.tried == 1

    def test_the_model_is_that_of_the_id(self, lab: Lab) -> None:
        def explore(crash: Crash) -> None:
            crash.explore(lambda home: save_without_file_fsync(home, "text"), whole)

        first = self.violation(explore, lab(model="ext4"))
        again = self.violation(explore, lab(replay=ReplayId.read(first.replay_id)))
        assert str(again).startswith("A power cut (ext4 model)")

    def test_a_crashed_recovery_is_reproduced(self, lab: Lab) -> None:
        def explore(crash: Crash) -> CrashResult:
            def workload(home: Path) -> None:
                (home / "journal").touch()

            def check(disk: Disk) -> None:
                exists = (disk.home / "journal").exists()
                assert exists or not disk.acked
                if exists:
                    append(disk.home / "journal", "line")
                    sync(disk.home / "journal")
                    crash.ack("line")

            return crash.explore(workload, check, depth=2)

        first = self.violation(explore, lab())
        assert "+" in first.replay_id
        again = self.violation(explore, lab(replay=ReplayId.read(first.replay_id)))
        assert self.disk(again) == self.disk(first)

    def test_a_recovery_from_a_power_cut_is_reproduced(self, lab: Lab) -> None:
        def explore(crash: Crash) -> CrashResult:
            def workload(home: Path) -> None:
                (home / "a").touch()
                (home / "b").touch()

            def check(disk: Disk) -> None:
                names = sorted(path.name for path in disk.home.iterdir())
                assert names != ["b", "c"]
                if names == ["b"]:
                    (disk.home / "c").touch()

            return crash.explore(workload, check, depth=2)

        first = self.violation(explore, lab())
        again = self.violation(explore, lab(replay=ReplayId.read(first.replay_id)))
        assert self.disk(again) == self.disk(first)
        assert "  lost            create a " in str(again)

    def test_a_run_that_has_changed_is_an_error(self, lab: Lab) -> None:
        first = self.violation(
            lambda crash: crash.explore(lambda home: save_without_file_fsync(home, "text"), whole), lab()
        )
        with pytest.raises(TraceChanged, match="the code or the test has changed since"):
            lab(replay=ReplayId.read(first.replay_id)).explore(lambda home: save(home, "text"), whole)

    @pytest.mark.parametrize("change", ["fdatasync", "mkdir", "another folder"])
    def test_small_changes_of_a_run_are_detected(self, lab: Lab, change: str) -> None:
        def explore(crash: Crash, changed: bool) -> None:
            def workload(home: Path) -> None:
                (home / "a").mkdir()
                (home / "b").mkdir()
                write(home / "a" / "x", b"text")
                if changed and change == "another folder":
                    os.rename(home / "a" / "x", home / "b" / "note")
                else:
                    os.rename(home / "a" / "x", home / "a" / "note")
                fd = os.open(home / "a", os.O_RDONLY)
                (os.fdatasync if changed and change == "fdatasync" else os.fsync)(fd)
                os.close(fd)
                (home / "y").mkdir() if changed and change == "mkdir" else (home / "y").touch()

            def check(disk: Disk) -> None:
                assert not (disk.home / "a" / "note").exists() or read(disk.home / "a") == "text"

            crash.explore(workload, check)

        first = self.violation(lambda crash: explore(crash, False), lab())
        with pytest.raises(TraceChanged):
            explore(lab(replay=ReplayId.read(first.replay_id)), True)

    @pytest.mark.parametrize(
        ("steps", "others"),
        [
            pytest.param(["b", "c"], ["b", "b"], id="a name that was free"),
            pytest.param(["b", "old"], ["b", "c"], id="a name that was taken"),
            pytest.param(["note", "c"], ["c", "note"], id="a name that was used before"),
        ],
    )
    def test_an_op_on_another_name_is_detected(self, lab: Lab, steps: list[str], others: list[str]) -> None:
        def explore(crash: Crash, names: list[str]) -> None:
            def workload(home: Path) -> None:
                write(home / "note", b"text")
                sync(home / "note")
                for name in names:
                    write(home / "tmp", b"text")
                    os.replace(home / "tmp", home / name)

            def check(disk: Disk) -> None:
                assert all(path.read_bytes() for path in disk.home.iterdir())

            crash.explore(workload, check, setup=lambda home: write(home / "old", b"text"))

        first = self.violation(lambda crash: explore(crash, steps), lab())
        self.violation(lambda crash: explore(crash, steps), lab(replay=ReplayId.read(first.replay_id)))
        with pytest.raises(TraceChanged):
            explore(lab(replay=ReplayId.read(first.replay_id)), others)

    def test_a_name_that_is_not_used_again_is_detected(self, lab: Lab) -> None:
        """The same files are created and removed, so only the name differs."""

        def explore(crash: Crash, name: str) -> None:
            def workload(home: Path) -> None:
                (home / "lock").touch()
                (home / "lock").unlink()
                crash.ack()
                (home / name).touch()

            def check(disk: Disk) -> None:
                assert not disk.acked or any(disk.home.iterdir())

            crash.explore(workload, check, model="kill")

        first = self.violation(lambda crash: explore(crash, "lock"), lab())
        self.violation(lambda crash: explore(crash, "lock"), lab(replay=ReplayId.read(first.replay_id)))
        with pytest.raises(TraceChanged):
            explore(lab(replay=ReplayId.read(first.replay_id)), "note")

    def test_random_parts_of_names_may_change(self, lab: Lab) -> None:
        """Also of existing files, however they sort: a replay leads to the same disk."""
        broken: list[list[str | None]] = []

        def explore(crash: Crash, old: str, new: str, tmp: str) -> None:
            def setup(home: Path) -> None:
                write(home / old, b"first")
                write(home / new, b"second")

            def workload(home: Path) -> None:
                write(home / tmp, b"text")
                os.replace(home / tmp, home / old)
                append(home / new, "more")

            def check(disk: Disk) -> None:
                notes = [read(disk.home, name) for name in (old, new, tmp)]
                if notes[0] != "first" and notes[1] != "secondmore\n":
                    broken.append(notes)
                    raise AssertionError

            crash.explore(workload, check, setup=setup)

        def replayed(*names: str) -> list[str | None]:
            broken.clear()
            crash = lab(replay=ReplayId.read(first.replay_id))
            self.violation(lambda crash: explore(crash, *names), crash)
            return broken[0]

        first = self.violation(lambda crash: explore(crash, "b", "c", "a"), lab())
        assert replayed("b", "c", "a") == replayed("c", "b", "a") == replayed("a", "b", "c")

    def test_content_and_names_may_change(self, lab: Lab) -> None:
        def explore(crash: Crash, text: str) -> None:
            def workload(home: Path) -> None:
                write(home / f"{text}.tmp", text.encode())
                os.replace(home / f"{text}.tmp", home / "note")

            def check(disk: Disk) -> None:
                assert read(disk.home) != ""

            crash.explore(workload, check)

        first = self.violation(lambda crash: explore(crash, "abc"), lab())
        self.violation(lambda crash: explore(crash, "xyz"), lab(replay=ReplayId.read(first.replay_id)))


class TestSeveralExplorations:
    @staticmethod
    def explore_two(crash: Crash) -> list[CrashResult]:
        """Explore a sound way to save, and a careless one."""
        return [
            crash.explore(lambda home: save(home, "text"), whole),
            crash.explore(lambda home: save_without_file_fsync(home, "text"), whole),
        ]

    def test_the_id_contains_the_number_of_the_exploration(self, lab: Lab) -> None:
        with pytest.raises(CrashBug) as caught:
            self.explore_two(lab())
        assert caught.value.replay_id.startswith("2:posix-")

    def test_the_others_only_run_without_a_crash(self, lab: Lab) -> None:
        results: list[CrashResult] = []
        with pytest.raises(CrashBug) as first:
            self.explore_two(lab())
        with pytest.raises(CrashBug) as again:
            self.explore_two(lab(replay=ReplayId.read(first.value.replay_id), done=results.append))
        assert again.value.replay_id == first.value.replay_id
        assert [explored.tried for explored in results] == [0, 1]

    def test_the_first_needs_no_number(self, lab: Lab) -> None:
        replay = ReplayId.read("kill-0-0-00000000")
        with pytest.raises(TraceChanged):
            self.explore_two(lab(replay=replay))

    def test_one_that_the_test_never_reaches_is_an_error(self) -> None:
        crash = Crash(Settings(replay=ReplayId.read("2:posix-0-0-00000000")))
        crash.explore(lambda home: save(home, "text"), whole)
        with pytest.raises(
            TraceChanged, match="belongs to exploration 2 of a test, but this test made 1, so nothing was replayed"
        ):
            crash.close()

    def test_one_that_was_not_reached_because_of_an_error_is_not_a_second_error(self) -> None:
        crash = Crash(Settings(replay=ReplayId.read("2:posix-0-0-00000000")))
        with pytest.raises(NotMeasured):
            crash.explore(lambda _: None, whole)
        crash.close()
