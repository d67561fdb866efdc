"""Checking: a disk is built as the crash left it, whatever is on it, and knows what the outside knows."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from tests.unit.faults.conftest import Tried, accept
from tests.unit.faults.disk.notes import append, save, write


class TestDisk:
    def test_knows_what_was_acknowledged_before_the_crash(self, crash: Crash) -> None:
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
            orders = ["one"]
            save(home, "1")
            crash.ack(orders)
            orders.append("two")

        def check(disk: Disk) -> None:
            assert disk.acked in ([], [["one"]])
            for orders in disk.acked:
                orders.append("changed by a check")

        assert crash.explore(workload, check).tried > 2

    def test_names_the_point_of_death(self, crash: Crash) -> None:
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

    def test_shows_its_path(self, crash: Crash) -> None:
        shown: set[bool] = set()
        crash.explore(lambda home: (home / "note").touch(), lambda disk: shown.add(repr(disk) == f"<Disk {disk.home}>"))
        assert shown == {True}


class TestOddFiles:
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
    def test_names_of_any_characters(self, crash: Crash, name: str) -> None:
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
            entries.update(
                (path.name, os.readlink(path).removeprefix(f"{disk.home}/") if path.is_symlink() else "")
                for path in disk.home.rglob("*")
            )

        entries: set[tuple[str, str]] = set()
        assert crash.explore(workload, check).verdict == "CLEAN"
        assert entries == {("folder", ""), ("empty", ""), ("link", "folder"), ("broken", "nothing")}

    def test_a_check_may_leave_folders_that_cannot_be_entered(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            (disk.home / "closed" / "inner").mkdir(parents=True)
            (disk.home / "closed" / "inner" / "file").touch()
            (disk.home / "closed" / "inner").chmod(0)
            (disk.home / "closed").chmod(stat.S_IRUSR)

        assert crash.explore(lambda home: save(home, "text"), check).verdict == "CLEAN"

    def test_a_check_may_replace_home_by_a_symlink(self, crash: Crash, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("mine")

        def check(disk: Disk) -> None:
            for path in disk.home.iterdir():
                path.unlink()
            disk.home.rmdir()
            disk.home.symlink_to(tmp_path)

        assert crash.explore(lambda home: save(home, "text"), check).verdict == "CLEAN"
        assert (tmp_path / "precious").read_text() == "mine"
