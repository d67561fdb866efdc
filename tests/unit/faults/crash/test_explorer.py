"""Exploring: one run, every disk that a crash could have left, and a check of each."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk
from pytest_wfstate.faults.bounds import PROFILES, Bounds, CheckFails, Model
from pytest_wfstate.faults.crash import explorer
from pytest_wfstate.faults.disk.losses import CrashPoint
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, distinct_states
from pytest_wfstate.faults.trace.ops import HOME, PAGE, Create, Fsync, Trace, Tree, Write
from pytest_wfstate.labs.settings import Settings
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import append, read, save, save_without_file_fsync, save_without_fsync, sync, write


def accept(_: Disk) -> None:
    """Find nothing wrong with any disk."""


def _equal(one: object, other: object) -> None:
    assert one == other


def _cuts_in_memory() -> int:
    gc.collect()
    return sum(type(one) is CrashPoint for one in gc.get_objects())


class Tried(list[tuple[dict[str, bytes | None], list[Any]]]):
    """A check that notes every disk and what was acknowledged, and finds nothing wrong."""

    def __call__(self, disk: Disk) -> None:
        files = {path.name: path.read_bytes() if path.is_file() else None for path in disk.home.iterdir()}
        self.append((files, disk.acked))


class TestCallables:
    def test_may_be_plain(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert (read(disk.home) == "text") >= len(disk.acked)

        def workload(home: Path) -> None:
            save(home, "text")
            crash.ack()

        assert crash.explore(workload, check).verdict == "CLEAN"

    def test_may_be_async(self, crash: Crash) -> None:
        async def setup(home: Path) -> None:
            await asyncio.to_thread(save, home, "old")

        async def workload(home: Path) -> None:
            await asyncio.to_thread(save, home, "new")
            crash.ack("new")

        async def check(disk: Disk) -> None:
            found = await asyncio.to_thread(read, disk.home)
            assert found == "new" or (found == "old" and not disk.acked)

        assert crash.explore(workload, check, setup=setup).verdict == "CLEAN"

    def test_an_async_check_that_fails_is_a_violation(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save_without_fsync(home, "text")
            crash.ack("text")

        async def check(disk: Disk) -> None:
            await asyncio.sleep(0)
            assert not disk.acked or read(disk.home) == "text"

        with pytest.raises(CrashBug, match="acknowledged    'text'"):
            crash.explore(workload, check)

    def test_tasks_that_a_call_leaves_do_not_reach_into_the_next(self, crash: Crash) -> None:
        async def later(home: Path) -> None:
            await asyncio.sleep(0)
            (home / "late").touch()

        async def workload(home: Path) -> None:
            (home / "note").touch()
            task = asyncio.get_running_loop().create_task(later(home))
            tasks.append(task)

        async def check(disk: Disk) -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not (disk.home / "late").exists()

        tasks: list[asyncio.Task[None]] = []
        crash.explore(workload, check)
        assert tasks[0].cancelled()

    def test_a_sync_exploration_leaves_the_event_loop_of_the_thread_alone(self, crash: Crash) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            crash.explore(lambda home: save(home, "text"), accept)
            assert asyncio.get_event_loop_policy().get_event_loop() is loop
        finally:
            asyncio.set_event_loop(None)
            loop.close()


class TestRunningLoop:
    def test_aexplore_runs_on_it(self, crash: Crash) -> None:
        loops = set()

        async def workload(home: Path) -> None:
            loops.add(asyncio.get_running_loop())
            save(home, "text")

        async def check(_: Disk) -> None:
            loops.add(asyncio.get_running_loop())

        async def main() -> None:
            loops.add(asyncio.get_running_loop())
            explored = await crash.aexplore(workload, check)
            assert explored.verdict == "CLEAN"
            assert explored.tried > 1

        asyncio.run(main())
        assert len(loops) == 1

    def test_aexplore_takes_plain_callables_and_finds_violations(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save_without_fsync(home, "text")
            crash.ack()

        def check(disk: Disk) -> None:
            assert not disk.acked or read(disk.home) == "text"

        with pytest.raises(CrashBug):
            asyncio.run(crash.aexplore(workload, check))

    @pytest.mark.parametrize("call", ["explore", "errors", "kill", "points"])
    def test_other_calls_name_what_to_use_there(self, crash: Crash, call: str) -> None:
        async def main() -> None:
            arguments: dict[str, Any] = {"at": crash.before("write")} if call == "kill" else {}
            getattr(crash, call)(accept, *([accept] if call in ("explore", "errors") else []), **arguments)

        with pytest.raises(RuntimeError, match=rf"event loop, .* Use `await crash\.a{call}\(\.\.\.\)` there"):
            asyncio.run(main())

    @pytest.mark.parametrize("name", ["explore", "errors", "kill", "points"])
    def test_what_to_use_there_takes_the_same_arguments(self, name: str) -> None:
        ours, theirs = inspect.signature(getattr(Crash, name)), inspect.signature(getattr(Crash, f"a{name}"))
        assert ours == theirs

    def test_aerrors_runs_on_it(self, crash: Crash) -> None:
        loops = set()

        async def workload(home: Path) -> None:
            loops.add(asyncio.get_running_loop())
            save(home, "text")

        async def check(_: Disk) -> None:
            loops.add(asyncio.get_running_loop())

        async def main() -> None:
            loops.add(asyncio.get_running_loop())
            assert (await crash.aerrors(workload, check)).tried > 1

        asyncio.run(main())
        assert len(loops) == 1

    def test_apoints_runs_on_it(self, crash: Crash) -> None:
        async def workload(home: Path) -> None:
            save(home, "text")

        async def main() -> list[str]:
            return await crash.apoints(workload)

        lines = asyncio.run(main())
        assert [line.split()[0] for line in lines] == ["create", "write", "fsync", "rename", "fsync"]


class TestSetup:
    def test_what_it_leaves_is_on_the_disk(self, crash: Crash) -> None:
        tried = Tried()
        crash.explore(lambda home: append(home / "log", "two"), tried, setup=lambda home: write(home / "log", b"one\n"))
        assert {files["log"] for files, _ in tried} == {b"one\n", b"one\ntwo\n", b"one\n" + bytes(4)}

    def test_is_not_recorded(self, crash: Crash) -> None:
        def setup(home: Path) -> None:
            crash.ack("setup")
            save(home, "old", "old")

        tried = Tried()
        explored = crash.explore(lambda home: sync(home), tried, setup=setup)
        assert explored.distinct == 1
        assert tried == [({"old": b"old"}, [])] * 2  # once without a crash


class TestDisk:
    def test_tells_what_was_acknowledged_before_the_crash(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "1")
            crash.ack(1)
            save(home, "2")
            crash.ack(2)

        tried = Tried()
        crash.explore(workload, tried)
        assert {tuple(acked) for _, acked in tried} == {(), (1,), (1, 2)}
        assert all(int(files.get("note") or b"0") >= len(acked) for files, acked in tried)

    def test_has_what_was_acknowledged_as_it_was_then(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            told = ["one"]
            save(home, "1")
            crash.ack(told)
            told.append("two")

        def check(disk: Disk) -> None:
            assert disk.acked in ([], [["one"]])
            for told in disk.acked:
                told.append("changed by a check")

        assert crash.explore(workload, check).tried > 2

    def test_tells_where_it_died(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            (home / "note").touch()
            crash.ack("made")

        died = []
        crash.explore(workload, lambda disk: died.append(disk.crash), model="kill")
        line = workload.__code__.co_firstlineno
        here = f"{os.path.relpath(__file__)}:{{}}"
        assert died[1:] == [
            "before it did anything",
            f'after create note ({here.format(line + 1)}) (home / "note").touch()',
            f"after ack of 'made' ({here.format(line + 2)}) crash.ack(\"made\")",
        ]

    def test_is_at_the_path_of_the_workload_with_new_inodes(self, crash: Crash) -> None:
        seen: list[tuple[Path, int]] = []

        def workload(home: Path) -> None:
            save(home, "text")
            seen.append((home, (home / "note").stat().st_ino))

        def check(disk: Disk) -> None:
            if (disk.home / "note").exists():
                held.append(os.open(disk.home / "note", os.O_RDONLY))  # an inode that is in use is not given again
                seen.append((disk.home, os.fstat(held[-1]).st_ino))

        held: list[int] = []
        crash.explore(workload, check, unmeasured="skip")
        for fd in held:
            os.close(fd)
        homes, inodes = zip(*seen, strict=True)
        assert len(set(homes)) == 1
        assert len(set(inodes)) == len(inodes) > 2

    def test_says_where_it_is(self, crash: Crash) -> None:
        crash.explore(lambda home: (home / "note").touch(), lambda disk: _equal(repr(disk), f"<Disk {disk.home}>"))


class TestOddFiles:
    """A disk is built as it was, whatever is on it."""

    def test_second_names_stay_second_names(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            write(home / "lock.1", b"1")
            os.link(home / "lock.1", home / "lock")

        def check(disk: Disk) -> None:
            if (disk.home / "lock").exists() and (disk.home / "lock.1").exists():
                assert (disk.home / "lock").samefile(disk.home / "lock.1")
                both.append(disk.crash)

        both: list[str] = []
        crash.explore(workload, check)
        crash.explore(lambda home: write(home / "x", b"x"), check, setup=workload)
        assert len(both) > 5

    def test_errors_start_from_second_names_too(self, crash: Crash) -> None:
        def setup(home: Path) -> None:
            write(home / "a", b"1")
            os.link(home / "a", home / "b")

        def workload(home: Path) -> None:
            append(home / "a", "2")
            assert (home / "b").read_text() == "12\n"

        assert crash.errors(workload, accept, setup=setup, errors=("short",)).tried == 2

    @pytest.mark.parametrize(
        "name", ["with space", "new\nline", "ünïcode", os.fsdecode(b"not-\xff-utf8"), "-rf", "%s{0}"]
    )
    def test_any_name_will_do(self, crash: Crash, name: str) -> None:
        def workload(home: Path) -> None:
            write(home / name, b"1")
            crash.ack()

        def check(disk: Disk) -> None:
            assert not disk.acked or (disk.home / name).read_bytes() == b"1"

        with pytest.raises(CrashBug) as caught:
            crash.explore(workload, check)
        assert str(caught.value).encode().decode()  # it can be shown anywhere
        assert all(line.isprintable() for line in str(caught.value).splitlines())

    def test_symlinks_and_empty_folders(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            (home / "folder" / "empty").mkdir(parents=True)
            (home / "link").symlink_to("folder")
            (home / "broken").symlink_to(home / "nothing")

        def check(disk: Disk) -> None:
            found.update(
                (path.name, os.readlink(path).removeprefix(f"{disk.home}/") if path.is_symlink() else "")
                for path in disk.home.rglob("*")
            )

        found: set[tuple[str, str]] = set()
        assert crash.explore(workload, check).verdict == "CLEAN"
        assert found == {("folder", ""), ("empty", ""), ("link", "folder"), ("broken", "nothing")}

    def test_a_check_may_leave_folders_that_cannot_be_entered(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            (disk.home / "closed" / "inner").mkdir(parents=True)
            (disk.home / "closed" / "inner" / "file").touch()
            (disk.home / "closed" / "inner").chmod(0)
            (disk.home / "closed").chmod(stat.S_IRUSR)

        assert crash.explore(lambda home: save(home, "text"), check).verdict == "CLEAN"

    def test_a_check_may_take_home_away(self, crash: Crash, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("mine")

        def check(disk: Disk) -> None:
            for path in disk.home.iterdir():
                path.unlink()
            disk.home.rmdir()
            disk.home.symlink_to(tmp_path)

        assert crash.explore(lambda home: save(home, "text"), check).verdict == "CLEAN"
        assert (tmp_path / "precious").read_text() == "mine"


class TestErrors:
    def test_an_exception_in_the_workload_surfaces_as_itself(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            raise LookupError("mine")

        with pytest.raises(LookupError, match=r"^mine$") as caught:
            crash.explore(workload, accept)
        assert caught.traceback[-1].name == "workload"

    def test_an_exception_in_the_setup_surfaces_as_itself(self, crash: Crash) -> None:
        with pytest.raises(FileNotFoundError):
            crash.explore(accept, accept, setup=lambda home: append(home / "nothing", "x"))

    def test_a_check_that_always_fails_says_nothing_about_crashes(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert read(disk.home) == "other"

        with pytest.raises(CheckFails, match=r"^your check fails without a crash: AssertionError") as caught:
            crash.explore(lambda home: save(home, "text"), check)
        assert isinstance(caught.value.__cause__, AssertionError)

    @pytest.mark.parametrize("raised", [pytest.fail.Exception("no"), SystemExit(1), OSError("no")], ids=repr)
    def test_a_check_may_fail_in_any_way(self, crash: Crash, raised: BaseException) -> None:
        def workload(home: Path) -> None:
            save_without_file_fsync(home, "text")

        def check(disk: Disk) -> None:
            if read(disk.home) not in (None, "text"):
                raise raised

        with pytest.raises(CrashBug, match=f"the check said  .*{type(raised).__name__}"):
            crash.explore(workload, check)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"model": "ntfs"}, r"^model is 'ntfs', which is unknown\. One of: kill, ext4, xfs, posix\.$"),
            ({"model": ""}, "^model is '', which is unknown"),
            ({"depth": 3}, r"^depth is 3\. It is 1 \(crash the workload\) or 2"),
            ({"depth": "2"}, "^depth is '2'"),
            ({"children": "all"}, r"^children='all' is unknown\. Pass 'forbid', or 'readonly'"),
            ({"unmeasured": "pass"}, r"^unmeasured is 'pass', which is unknown\. One of: fail, skip\.$"),
        ],
    )
    def test_a_wrong_argument_is_told(self, crash: Crash, wrong: dict[str, Any], said: str) -> None:
        ran: list[Path] = []
        with pytest.raises(ValueError, match=said):
            crash.explore(ran.append, accept, **wrong)
        assert not ran

    def test_an_ack_that_cannot_be_copied_is_told_where_it_is_made(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            crash.ack(number for number in range(3))

        with pytest.raises(TypeError, match=r"generator.* cannot be acknowledged: it cannot be copied"):
            crash.explore(workload, accept)

    def test_after_any_error_the_next_exploration_works(self, crash: Crash) -> None:
        for wrong in (KeyboardInterrupt(), ValueError()):

            def workload(home: Path, wrong: BaseException = wrong) -> None:
                save(home, "text")
                raise wrong

            with pytest.raises(type(wrong)):
                crash.explore(workload, accept)
        assert crash.explore(lambda home: save(home, "text"), accept).verdict == "CLEAN"


class TestCounts:
    def test_of_a_run_that_is_seen_in_full(self, crash: Crash) -> None:
        tried = Tried()
        explored = crash.explore(lambda home: write(home / "note", b"1"), tried)
        # Nothing; the file without its byte, or with it, or with a zero in its place.
        disks: list[dict[str, bytes | None]] = [{}, {"note": b""}, {"note": b"1"}, {"note": b"\0"}]
        assert sorted(map(str, (files for files, _ in tried[1:]))) == sorted(map(str, disks))
        assert (explored.tried, explored.distinct, explored.skipped) == (4, 4, 0)
        # Before anything 1; after the create 2; after the write 2 for the name, 2 for the size, 2 for the page.
        assert explored.possible == 1 + 2 + 8
        assert 0 < explored.seconds < 60
        assert explored.verdict == "CLEAN"
        assert explored.replay == ""
        assert str(explored).startswith("posix: 4 distinct disks checked of 11 possible combinations, in ")

    def test_of_more_combinations_than_python_prints(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            for number in range(10):
                write(home / str(number), b"x" * 2**20)

        explored = lab(bounds=Bounds(1, 600)).explore(workload, accept)
        assert explored.possible > 10**1000
        assert re.search(r"of about 10\^\d{3,4} possible combinations, about 10\^\d{3,4} combinations", str(explored))

    def test_of_a_violation(self, lab: Lab) -> None:
        results: list[CrashResult] = []
        crash = lab(done=results.append)

        def check(disk: Disk) -> None:
            assert read(disk.home) != ""

        with pytest.raises(CrashBug) as caught:
            crash.explore(lambda home: save_without_file_fsync(home, "text"), check)
        (explored,) = results
        assert explored.verdict == "VIOLATED"
        assert explored.replay == caught.value.replay_id
        assert 0 < explored.tried <= explored.distinct

    @pytest.mark.parametrize("wrong", ["workload", "check"])
    def test_a_run_that_went_wrong_is_not_clean(self, lab: Lab, wrong: str) -> None:
        results: list[CrashResult] = []
        crash = lab(done=results.append)

        def workload(home: Path) -> None:
            save(home, "text")
            assert wrong != "workload"

        def check(_: Disk) -> None:
            assert wrong != "check"

        with pytest.raises(AssertionError):
            crash.explore(workload, check)
        assert [explored.verdict for explored in results] == ["NOT_MEASURED"]


class TestDistinct:
    def test_no_disk_is_checked_twice_with_the_same_promises(self, crash: Crash) -> None:
        tried = Tried()

        def workload(home: Path) -> None:
            for number in (1, 2):
                write(home / "note", str(number).encode())
                sync(home)
                crash.ack(number)

        explored = crash.explore(workload, tried)
        assert len(set(map(str, tried[1:]))) == explored.tried == explored.distinct

    def test_the_same_disk_with_another_promise_is_another(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            crash.ack(1)
            crash.ack(2)

        tried = Tried()
        crash.explore(workload, tried)
        assert [acked for files, acked in tried[1:] if files == {"note": b"text"}] == [[], [1], [1, 2]]


def three_notes(home: Path) -> None:
    for number in (1, 2, 3):
        write(home / f"{number}.tmp", bytes([number]) * 1500)
        os.replace(home / f"{number}.tmp", home / f"{number}")


@pytest.fixture(scope="module")
def everything() -> Tried:
    """All disks that crashes of `three_notes` can leave, in order."""
    tried = Tried()
    crash = Crash(Settings(bounds=PROFILES["thorough"]))
    crash.explore(three_notes, tried)
    crash.close()
    return tried


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that bounds go by, to be set."""
    time = [0.0]
    monkeypatch.setattr(explorer, "now", lambda: time[0])
    return time


class TestBounds:
    @pytest.mark.parametrize("states", [1, 7, 50, 200])
    def test_a_bound_cuts_off_the_tail(self, lab: Lab, everything: Tried, states: int) -> None:
        tried = Tried()
        explored = lab(bounds=Bounds(states, 600)).explore(three_notes, tried)
        assert explored.tried == states < len(everything)
        assert explored.skipped > 0
        assert list(tried) == everything[: 1 + states]
        assert "combinations skipped" in str(explored)

    def test_prefixes_come_first(self, everything: Tried) -> None:
        prefixes = [{}, {"1.tmp": b""}, {"1.tmp": b"\1" * 1500}, {"1": b"\1" * 1500}]
        assert [files for files, _ in everything[1:5]] == prefixes

    def test_time_is_a_bound(self, lab: Lab, clock: list[float]) -> None:
        def check(_: Disk) -> None:
            clock[0] += 1

        explored = lab(bounds=Bounds(10**9, 20)).explore(three_notes, check)
        assert explored.tried == 21
        assert explored.skipped > 0

    def test_time_is_a_bound_where_no_disk_is_new(self) -> None:
        unsynced = Write(1, 0, b"new" * PAGE)
        trace = Trace(Tree(), [Create(HOME, "a", 1, "file"), unsynced, *[Fsync(HOME, failed=True)] * 30])
        counters = Counters(time_left=lambda: False)
        found = list(distinct_states(CrashedRun(trace, "posix", ()), counters))
        assert 0 < len(found) < counters.looked == 50
        assert counters.skipped > 0

    @pytest.mark.parametrize(("losses", "skipped"), [(5, True), (math.inf, False)])
    def test_of_the_ways_to_lose_at_one_point(self, lab: Lab, losses: float, skipped: bool) -> None:
        crash = lab(bounds=Bounds(math.inf, math.inf, losses))
        explored = crash.explore(lambda home: [(home / name).touch() for name in "abcd"], accept)
        assert bool(explored.skipped) == skipped

    def test_there_is_none_in_the_thorough_profile(self) -> None:
        bounds = PROFILES["thorough"]
        assert (bounds.states, bounds.seconds, bounds.losses) == (math.inf, math.inf, math.inf)

    def test_one_disk_is_checked_at_the_least(self, lab: Lab) -> None:
        assert lab(bounds=Bounds(0, -1)).explore(three_notes, accept).tried == 1

    def test_the_time_of_setup_and_workload_does_not_count(self, lab: Lab, clock: list[float]) -> None:
        def slow(home: Path) -> None:
            save(home, "text")
            clock[0] += 1000

        explored = lab(bounds=Bounds(10**9, 1)).explore(slow, accept, setup=slow)
        assert explored.skipped == 0
        assert explored.seconds == 2000

    @pytest.mark.usefixtures("frozen_clock")
    def test_a_frozen_clock_is_not_asked(self, crash: Crash) -> None:
        explored = crash.explore(lambda home: save(home, "text"), accept)
        assert explored.seconds > 0

    def test_progress_is_told_now_and_then(self, lab: Lab) -> None:
        told: list[int] = []
        explored = lab(progress=lambda result: told.append(result.tried)).explore(three_notes, accept)
        assert told == list(range(64, explored.tried + 1, 64))


class TestSeveralExplorations:
    def test_each_starts_from_an_empty_home(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            assert list(home.iterdir()) == []
            save(home, "text")

        crash.explore(workload, accept)
        crash.explore(workload, accept)

    def test_none_of_them_is_kept_in_memory(self, crash: Crash) -> None:
        before = _cuts_in_memory()
        crash.explore(three_notes, accept)
        assert _cuts_in_memory() <= before

    def test_each_finds_the_world_as_it_was(self, crash: Crash) -> None:
        ledger = crash.world([])

        def workload(home: Path) -> None:
            save(home, "text")
            ledger.append("sent")

        def check(_: Disk) -> None:
            ledger.append("checked")

        models: tuple[Model, ...] = ("kill", "posix")
        for model in models:
            assert ledger == []
            crash.explore(workload, check, model=model)
        assert ledger == []
