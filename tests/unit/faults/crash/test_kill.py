"""Killing: a child that really dies by SIGKILL, at a point named by files or by code."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import json
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, Disk, NeverReached
from pytest_wfstate.faults.crash.points import Point
from tests.unit.faults.crash.killed import Base, Worker, astep, step
from tests.unit.faults.disk.notes import read, save, sync, write


def names(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def work(home: Path) -> None:
    for name in ("a.json", "b.json"):
        write(home / f"{name}.tmp", b"text")
        sync(home / f"{name}.tmp")
        os.replace(home / f"{name}.tmp", home / name)
        sync(home)


class TestOps:
    @pytest.mark.parametrize(
        ("at", "left"),
        [
            (Crash.before("create"), []),
            (Crash.after("create"), ["a.json.tmp"]),
            (Crash.before("write"), ["a.json.tmp"]),
            (Crash.before("rename"), ["a.json.tmp"]),
            (Crash.after("rename"), ["a.json"]),
            (Crash.before("rename", "b.json*"), ["a.json", "b.json.tmp"]),
            (Crash.before("rename", "*.json"), ["a.json.tmp"]),
            (Crash.after("fsync", "."), ["a.json"]),
            (Crash.after("fsync", ".", nth=2), ["a.json", "b.json"]),
            (Crash.before("write", nth=2), ["a.json", "b.json.tmp"]),
            (Crash.between("write", "rename"), ["a.json.tmp"]),
            (Crash.between("rename", "write"), ["a.json", "b.json.tmp"]),
            (Crash.between("write", "rename", nth=2), ["a.json", "b.json.tmp"]),
        ],
        ids=str,
    )
    def test_are_points(self, crash: Crash, at: Point, left: list[str]) -> None:
        disk = crash.kill(work, at=at)
        assert names(disk.home) == left
        assert disk.crash == str(at)

    def test_before_a_write_nothing_of_it_is_there(self, crash: Crash) -> None:
        assert read(crash.kill(lambda home: write(home / "note", b"text"), at=crash.before("write")).home) == ""
        assert read(crash.kill(lambda home: write(home / "note", b"text"), at=crash.after("write")).home) == "text"

    @pytest.mark.parametrize("kind", ["mkdir", "rmdir", "link", "symlink", "unlink", "truncate", "fdatasync"])
    def test_of_every_kind_are_known(self, crash: Crash, kind: str) -> None:
        def workload(home: Path) -> None:
            (home / "folder").mkdir()
            (home / "folder").rmdir()
            write(home / "a", b"text")
            os.link(home / "a", home / "b")
            os.symlink("a", home / "c")
            os.unlink(home / "b")
            os.truncate(home / "a", 0)
            fd = os.open(home / "a", os.O_RDONLY)
            os.fdatasync(fd)
            os.close(fd)

        before = names(crash.kill(workload, at=crash.before(kind)).home)
        after = names(crash.kill(workload, at=crash.after(kind)).home)
        assert (before == after) == (kind in ("truncate", "fdatasync"))

    def test_of_sqlite_are_points_too(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            connection = sqlite3.connect(home / "db", isolation_level=None)
            connection.execute("create table t (x)")
            connection.execute("insert into t values (1)")

        disk = crash.kill(workload, at=crash.before("unlink", "db-journal", nth=2))
        assert names(disk.home) == ["db", "db-journal"]
        connection = sqlite3.connect(disk.home / "db")
        assert connection.execute("select count(*) from t").fetchall() == [(0,)]  # it was rolled back
        connection.close()

    def test_of_another_thread_are_points_too(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            thread = threading.Thread(target=work, args=(home,))
            thread.start()
            thread.join()

        assert names(crash.kill(workload, at=crash.after("rename", nth=2)).home) == ["a.json", "b.json"]

    @pytest.mark.parametrize("kind", ["renam", "open", "", "Write"])
    def test_a_word_that_is_none_is_told(self, kind: str) -> None:
        with pytest.raises(
            ValueError, match=rf"^'{kind}' is no file operation\. One of: create, write, .*sync; or give"
        ):
            Crash.before(kind)

    @pytest.mark.parametrize(
        ("at", "instead"),
        [
            ("rename", "crash.before('rename'), crash.after('rename') or crash.between(first, last)"),
            (names, "crash.before(...), crash.after(...) or crash.between(first, last)"),
        ],
    )
    def test_what_is_no_point_is_told(self, crash: Crash, at: Any, instead: str) -> None:
        with pytest.raises(TypeError, match=re.escape(f"Give at={instead}.")) as caught:
            crash.kill(lambda _: None, at=at)
        assert str(caught.value).startswith(f"at is {at!r}, which is no point to die at")
        with pytest.raises(TypeError, match=re.escape(str(caught.value))):
            asyncio.run(crash.akill(lambda _: None, at=at))

    def test_points_are_counted_from_one(self) -> None:
        with pytest.raises(ValueError, match=r"nth is 0\. Points are counted from 1\."):
            Crash.after("write", nth=0)


class TestFunctions:
    @pytest.mark.parametrize(
        ("at", "left"),
        [
            (Crash.before(Worker.claim), []),
            (Crash.after(Worker.claim), ["claimed"]),
            (Crash.before(Worker.complete), ["claimed", "result"]),
            (Crash.between(Worker.claim, Worker.complete), ["claimed", "result"]),
            (Crash.between(Worker.claim, "rename"), ["claimed", "result.tmp"]),
            (Crash.between("rename", Worker.complete), ["claimed", "result"]),
            (Crash.after(Worker.run), ["claimed", "completed", "result"]),
        ],
        ids=str,
    )
    def test_methods(self, crash: Crash, at: Point, left: list[str]) -> None:
        assert names(crash.kill(lambda home: Worker(home).run(), at=at).home) == left

    def test_arguments_and_results_pass_through(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            worker = Worker(home)
            assert worker.claim("x", mode=0o400) == "x"
            assert worker.claim("y") == "y"
            assert worker.claim() == "claimed"

        disk = crash.kill(workload, at=crash.after(Worker.claim, nth=3))
        modes = {path.name: path.stat().st_mode & 0o777 for path in disk.home.iterdir()}
        assert modes == {"x": 0o400, "y": 0o600, "claimed": 0o600}

    def test_a_function_that_was_imported_by_name(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            step(home, "one")
            step(home, "two")

        assert names(crash.kill(workload, at=crash.before(step, nth=2)).home) == ["one"]

    @pytest.mark.parametrize("what", [astep, Worker.aclaim], ids=["function", "method"])
    @pytest.mark.parametrize(("point", "left"), [("before", 0), ("after", 1)])
    def test_async_ones(self, crash: Crash, what: Any, point: str, left: int) -> None:
        async def workload(home: Path) -> None:
            assert asyncio.iscoroutinefunction(what)
            await (what(home, "name") if what is astep else Worker(home).aclaim())
            (home / "later").touch()

        assert len(names(crash.kill(workload, at=getattr(crash, point)(what)).home)) == left

    @pytest.mark.parametrize(("what", "left"), [(Worker.made, "made"), (Worker.helped, "helped")])
    def test_of_a_class(self, crash: Crash, what: Callable[[Path], object], left: str) -> None:
        def workload(home: Path) -> None:
            assert isinstance(Worker.made(home), Worker)
            Worker(home).helped(home)

        assert names(crash.kill(workload, at=crash.after(what)).home) == sorted({"made", left})
        assert left not in names(crash.kill(workload, at=crash.before(what)).home)

    def test_of_an_object(self, crash: Crash, tmp_path: Path) -> None:
        bound = Worker(tmp_path).claim
        assert names(crash.kill(lambda home: Worker(home).run(), at=crash.after(bound)).home) == ["claimed"]

    def test_of_a_base_class(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            Worker(home).inherited()

        assert names(crash.kill(workload, at=crash.before(Base.inherited)).home) == ["before"]
        assert names(crash.kill(workload, at=crash.after(Worker.inherited)).home) == ["before", "inherited"]

    def test_inside_a_function(self, crash: Crash) -> None:
        done = ["closed over"]

        def first(home: Path) -> None:
            (home / "first").touch()

        def second(home: Path) -> None:
            (home / done[0]).touch()

        def workload(home: Path) -> None:
            first(home)
            second(home)

        assert names(crash.kill(workload, at=crash.between(first, second)).home) == ["first"]
        assert names(crash.kill(workload, at=crash.after(second)).home) == ["closed over", "first"]

    def test_stay_as_they_were_in_this_process(self, crash: Crash) -> None:
        code = Worker.claim.__code__
        crash.kill(lambda home: Worker(home).run(), at=crash.after(Worker.claim))
        assert Worker.claim.__code__ is code

    def test_one_that_raises_has_not_returned(self, crash: Crash) -> None:
        def fails(_: Path) -> None:
            raise ValueError("no")

        def workload(home: Path) -> None:
            with pytest.raises(ValueError, match="no"):
                fails(home)

        with pytest.raises(NeverReached):
            crash.kill(workload, at=crash.after(fails))

    @pytest.mark.parametrize("what", [os.replace, json, 7, Worker, print], ids=repr)
    def test_what_is_no_function_of_python_is_told(self, what: Any) -> None:
        with pytest.raises(TypeError, match="is no function of Python code, so its calls cannot be watched"):
            Crash.before(what)

    def test_a_generator_is_told(self) -> None:
        def steps() -> Iterator[int]:
            yield 1

        with pytest.raises(TypeError, match="is a generator, so a call of it returns before anything is done"):
            Crash.after(steps)


class TestWorlds:
    @pytest.mark.parametrize(
        ("point", "sent"), [("before", []), ("after", ["one"]), ("between", ["one", "two"])], ids=str
    )
    def test_methods_of_a_world_are_points(self, crash: Crash, point: str, sent: list[str]) -> None:
        mails = crash.world([])

        def workload(home: Path) -> None:
            mails.append("one")
            mails.append("two")
            save(home, "sent")

        at = crash.between(mails.append, "rename") if point == "between" else getattr(crash, point)(mails.append)
        disk = crash.kill(workload, at=at)
        assert mails == sent
        assert disk.effects == [f"append({mail!r})" for mail in sent]

    def test_of_two_worlds_are_told_apart(self, crash: Crash) -> None:
        one, two = crash.world([]), crash.world([])

        def workload(home: Path) -> None:
            one.append(1)
            two.append(2)
            save(home, "text")

        crash.kill(workload, at=crash.after(two.append))
        assert (one, two) == ([1], [2])


class TestNeverReached:
    def test_lists_what_the_run_did(self, crash: Crash) -> None:
        mails = crash.world([])

        def workload(home: Path) -> None:
            mails.append("x")
            Worker(home).run()

        with pytest.raises(NeverReached) as caught:
            crash.kill(workload, at=crash.between(Worker.claim, "fsync"))
        assert str(caught.value) == (
            "the workload ended without coming to between Worker.claim and fsync. It did:\n"
            "  effect append\n"
            "  create claimed\n"
            "  return from Worker.claim\n"
            "  create result.tmp\n"
            "  write result.tmp\n"
            "  rename result.tmp to result\n"
            "  create completed\n"
            "Choose a point among these."
        )

    def test_says_if_it_did_nothing(self, crash: Crash) -> None:
        with pytest.raises(NeverReached, match="It did:\n  nothing\n"):
            crash.kill(lambda _: None, at=crash.before("write"))

    def test_says_how_often_it_was_to_be_reached(self, crash: Crash) -> None:
        with pytest.raises(NeverReached, match=r"after rename of \*\.json, time 3\. It did"):
            crash.kill(work, at=crash.after("rename", "*.json", nth=3))

    def test_shows_what_the_workload_raised(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            raise LookupError("something else is wrong")

        with pytest.raises(NeverReached) as caught:
            crash.kill(workload, at=crash.before("unlink"))
        text = str(caught.value)
        assert text.startswith("the workload raised before it came to before unlink:\nTraceback")
        assert text.endswith("LookupError: something else is wrong\n")
        assert 'raise LookupError("something else is wrong")' in text

    def test_says_that_it_took_too_long(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            (home / "pid").write_text(str(os.getpid()))
            signal.pause()

        disk_home: list[Path] = []

        def setup(home: Path) -> None:
            disk_home.append(home)

        with pytest.raises(NeverReached, match=r"before unlink was not reached in 0\.3 s, and the child was killed"):
            crash.kill(workload, at=crash.before("unlink"), setup=setup, timeout=0.3)
        with pytest.raises(ProcessLookupError):
            os.kill(int((disk_home[0] / "pid").read_text()), 0)

    @pytest.mark.parametrize(
        ("end", "how"),
        [(lambda: os._exit(3), "exit status 3"), (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9")],
    )
    def test_says_that_the_child_died_by_itself(self, crash: Crash, end: Callable[[], None], how: str) -> None:
        with pytest.raises(NeverReached, match=f"the child died by itself before it came to before write: {how}"):
            crash.kill(lambda _: end(), at=crash.before("write"))


class TestReally:
    def test_what_was_in_buffers_is_lost(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            with open(home / "note", "w") as file:
                file.write("written, and not flushed")
                (home / "mark").touch()

        disk = crash.kill(workload, at=crash.after("create", "mark"))
        assert read(disk.home) == ""

    def test_nothing_is_unwound(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            atexit.register((home / "atexit").touch)
            try:
                (home / "mark").touch()
            finally:
                (home / "finally").touch()

        assert names(crash.kill(workload, at=crash.after("create", "mark")).home) == ["mark"]

    def test_locks_are_free(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "lock", os.O_CREAT | os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, b"mine")

        disk = crash.kill(workload, at=crash.after("write"))
        fd = os.open(disk.home / "lock", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)

    def test_memory_of_this_process_is_as_it_was(self, crash: Crash) -> None:
        done: list[str] = []

        def workload(home: Path) -> None:
            done.append("in the child")
            save(home, "text")

        crash.kill(workload, at=crash.before("rename"))
        assert done == []

    def test_its_own_children_do_not_keep_the_test_waiting(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            reads, writes = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(writes)
                os.read(reads, 1)  # until the other end is gone
                os._exit(0)
            (home / "mark").touch()

        assert names(crash.kill(workload, at=crash.after("create"), timeout=20).home) == ["mark"]


def test_setup_is_done_before(crash: Crash) -> None:
    async def setup(home: Path) -> None:
        save(home, "old")

    disk = crash.kill(lambda home: save(home, "new"), at=crash.before("rename"), setup=setup)
    assert read(disk.home) == "old"
    assert names(disk.home) == ["note", "note.tmp"]


def test_what_was_acknowledged_is_told(crash: Crash) -> None:
    async def workload(home: Path) -> None:
        crash.ack({"one": 1})
        save(home, "text")
        crash.ack("never")

    assert crash.kill(workload, at=crash.before("rename")).acked == [{"one": 1}]


def test_each_kill_has_a_home_of_its_own(crash: Crash) -> None:
    first = crash.kill(work, at=crash.before("rename"))
    second = crash.kill(work, at=crash.after("rename"))
    assert (names(first.home), names(second.home)) == (["a.json.tmp"], ["a.json"])


class TestRunningLoop:
    """`akill` is `kill` for who has an event loop already."""

    def test_setup_runs_on_it_and_the_workload_dies_elsewhere(self, crash: Crash) -> None:
        loops = set()

        async def setup(home: Path) -> None:
            loops.add(asyncio.get_running_loop())
            (home / "old").touch()

        async def workload(home: Path) -> None:
            await asyncio.sleep(0)
            crash.ack("begun")
            (home / "a").touch()
            (home / "b").touch()

        async def main() -> Disk:
            loops.add(asyncio.get_running_loop())
            return await crash.akill(workload, at=crash.after("create", "a"), setup=setup)

        disk = asyncio.run(main())
        assert names(disk.home) == ["a", "old"]
        assert disk.acked == ["begun"]
        assert len(loops) == 1

    def test_worlds_may_be_async(self, crash: Crash) -> None:
        class Bank:
            def __init__(self) -> None:
                self.charged = 0

            async def charge(self) -> None:
                await asyncio.sleep(0)
                self.charged += 1

        bank = crash.world(Bank())

        async def workload(home: Path) -> None:
            await bank.charge()
            (home / "charged").touch()

        async def main() -> Disk:
            return await crash.akill(workload, at=crash.after(bank.charge))

        disk = asyncio.run(main())
        assert disk.effects == ["charge()"]
        assert bank.charged == 1
        assert names(disk.home) == []

    def test_a_point_that_is_not_reached_is_told(self, crash: Crash) -> None:
        with pytest.raises(NeverReached, match="the workload ended without coming to before write"):
            asyncio.run(crash.akill(lambda _: None, at=crash.before("write")))


class TestPoints:
    def test_are_listed(self, crash: Crash) -> None:
        mails = crash.world([])

        def workload(home: Path) -> None:
            os.mkdir(home / "folder")
            save(home / "folder", "text")
            mails.append("x")
            crash.ack("told")

        said = [line.partition(" (")[0] for line in crash.points(workload)]
        assert said == [
            "mkdir folder",
            "create folder/note.tmp",
            "write of 4 bytes at 0 to folder/note.tmp",
            "fsync of folder/note.tmp",
            "rename folder/note.tmp to folder/note",
            "fsync of the folder folder",
            "effect append('x')",
            "ack of 'told'",
        ]

    def test_name_the_lines(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            (home / "note").touch()

        line = f"{os.path.relpath(__file__)}:{workload.__code__.co_firstlineno + 1}"
        assert crash.points(workload) == [f"create note ({line})"]

    def test_are_listed_after_a_setup(self, crash: Crash) -> None:
        said = crash.points(lambda home: (home / "note").unlink(), setup=lambda home: save(home, "text"))
        assert [line.partition(" (")[0] for line in said] == ["unlink note"]

    def test_of_a_long_run_are_listed_in_no_time(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "log", os.O_WRONLY | os.O_CREAT)
            for _ in range(2000):
                os.write(fd, b"x" * 500)
            os.close(fd)

        assert len(crash.points(workload)) == 2001
