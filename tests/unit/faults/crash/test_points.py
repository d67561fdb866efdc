"""Points: where to die, named by file operations or by code, and listed by `crash.points`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, NeverReached
from pytest_wfstate.faults.crash.points import Point
from tests.unit.faults.crash.killed import Base, Worker, astep, names, step, work
from tests.unit.faults.disk.notes import read, save, write


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
    def test_an_unknown_operation_is_refused(self, kind: str) -> None:
        with pytest.raises(ValueError, match=rf"^'{kind}' is not a file operation\. Give one of create, .*sync, or a "):
            Crash.before(kind)

    @pytest.mark.parametrize(
        ("at", "instead"),
        [
            ("rename", "crash.before('rename'), crash.after('rename') or crash.between(first, last)"),
            (names, "crash.before(...), crash.after(...) or crash.between(first, last)"),
        ],
    )
    def test_what_is_not_a_point_is_refused(self, crash: Crash, at: Any, instead: str) -> None:
        with pytest.raises(TypeError, match=re.escape(f"Give at={instead}.")) as caught:
            crash.kill(lambda _: None, at=at)
        assert str(caught.value).startswith(f"at is {at!r}, which does not say whether to die before or after it")
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
            pytest.param(Crash.after(Worker(Path()).claim), ["claimed"], id="after a bound method"),
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

    def test_a_function_that_raises_has_not_returned(self, crash: Crash) -> None:
        def fails(_: Path) -> None:
            raise ValueError("no")

        def workload(home: Path) -> None:
            with pytest.raises(ValueError, match="no"):
                fails(home)

        with pytest.raises(NeverReached):
            crash.kill(workload, at=crash.after(fails))

    @pytest.mark.parametrize("what", [os.getpid, json, 7, Worker, print], ids=repr)
    def test_what_is_not_a_python_function_is_refused(self, what: Any) -> None:
        with pytest.raises(TypeError, match="is not a function written in Python, so its calls cannot be watched"):
            Crash.before(what)

    def test_a_generator_function_is_refused(self) -> None:
        def steps() -> Iterator[int]:
            yield 1

        with pytest.raises(TypeError, match="is a generator function: a call returns before anything is done"):
            Crash.after(steps)


class TestPoints:
    def test_are_listed(self, crash: Crash) -> None:
        mails = crash.world([])

        def workload(home: Path) -> None:
            os.mkdir(home / "folder")
            save(home / "folder", "text")
            mails.append("x")
            crash.ack("sent")

        points = [line.partition(" (")[0] for line in crash.points(workload)]
        assert points == [
            "mkdir folder",
            "create folder/note.tmp",
            "write of 4 bytes at 0 to folder/note.tmp",
            "fsync of folder/note.tmp",
            "rename folder/note.tmp to folder/note",
            "fsync of the folder folder",
            "effect append('x')",
            "ack of 'sent'",
        ]

    def test_name_the_lines(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            (home / "note").touch()

        line = f"{os.path.relpath(__file__)}:{workload.__code__.co_firstlineno + 1}"
        assert crash.points(workload) == [f"create note ({line})"]

    def test_are_listed_after_a_setup(self, crash: Crash) -> None:
        points = crash.points(lambda home: (home / "note").unlink(), setup=lambda home: save(home, "text"))
        assert [line.partition(" (")[0] for line in points] == ["unlink note"]

    def test_of_a_long_run_are_all_listed(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "log", os.O_WRONLY | os.O_CREAT)
            for _ in range(2000):
                os.write(fd, b"x" * 500)
            os.close(fd)

        assert len(crash.points(workload)) == 2001
