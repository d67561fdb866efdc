"""Every call that touches a file is a switch point, and conflicts with whatever changes what it sees."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults import folders
from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race import file_calls
from pytest_wfstate.faults.race.bypasses import audit_hook
from pytest_wfstate.faults.race.lookup import Place
from tests.unit.faults.race.file_racing import Client, explored, results, steps_of

WITHOUT_FILES = {
    *("WCOREDUMP", "WEXITSTATUS", "WIFCONTINUED", "WIFEXITED", "WIFSIGNALED", "WIFSTOPPED", "WSTOPSIG", "WTERMSIG"),
    *("_exit", "abort", "confstr", "cpu_count", "ctermid", "device_encoding", "fspath", "get_blocking"),
    *("get_inheritable", "get_terminal_size", "getegid", "geteuid", "getgid", "getgrouplist", "getgroups"),
    *("getloadavg", "getlogin", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid"),
    *("getresuid", "getsid", "getuid", "initgroups", "isatty", "kill", "killpg", "login_tty", "major", "makedev"),
    *("minor", "nice", "putenv", "register_at_fork", "sched_get_priority_max", "sched_get_priority_min"),
    *("sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity"),
    *("sched_setparam", "sched_setscheduler", "sched_yield", "set_blocking", "set_inheritable", "setegid", "seteuid"),
    *("setgid", "setgroups", "setns", "setpgid", "setpgrp", "setpriority", "setregid", "setresgid", "setresuid"),
    *("setreuid", "setsid", "setuid", "strerror", "sysconf", "tcgetpgrp", "tcsetpgrp", "times", "ttyname", "umask"),
    *("uname", "unsetenv", "unshare", "urandom", "wait", "wait3", "wait4", "waitid", "waitpid"),
    "waitstatus_to_exitcode",
}
"""Calls that name no file."""
WITHOUT_EFFECT = {
    *("fsync", "fdatasync", "sync", "posix_fadvise"),  # other processes see the same before and after
    *("pathconf", "fpathconf"),  # constants of the file system
    "chroot",  # for root only, and home is gone
    *("dup", "eventfd", "eventfd_read", "eventfd_write", "memfd_create", "openpty", "pidfd_open", "pipe", "pipe2"),
    *("grantpt", "posix_openpt", "ptsname", "unlockpt"),
    *("timerfd_create", "timerfd_gettime", "timerfd_gettime_ns", "timerfd_settime", "timerfd_settime_ns"),
}
CHILDREN = {"execv", "execve", "fork", "forkpty", "posix_spawn", "posix_spawnp", "system"}
"""Calls that start another program, which the audit hook notices."""


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "n").write_text("old")
        (home.path / "d").mkdir()
        yield home


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


class TestSwitchPoints:
    def test_every_call_of_os_is_known(self) -> None:
        calls = {name for name in dir(os) if isinstance(getattr(os, name), types.BuiltinFunctionType)}
        assert calls - WITHOUT_FILES - WITHOUT_EFFECT - CHILDREN == calls & file_calls.STEPS

    @pytest.mark.parametrize(
        ("call", "steps"),
        [
            pytest.param(lambda fd: os.listdir(fd), ["listdir d"], id="listdir"),
            pytest.param(lambda fd: os.scandir(fd).close(), ["scandir d"], id="scandir"),
            pytest.param(lambda fd: os.stat("x", dir_fd=fd), ["stat d/x"], id="stat"),
            pytest.param(lambda fd: os.access("x", 0, dir_fd=fd), ["access d/x"], id="access"),
            pytest.param(lambda fd: os.mknod("y", dir_fd=fd), ["mknod d/y"], id="mknod"),
            pytest.param(lambda fd: os.mkfifo("y", dir_fd=fd), ["mkfifo d/y"], id="mkfifo"),
            pytest.param(lambda fd: os.unlink("x", dir_fd=fd), ["unlink d/x"], id="unlink"),
            pytest.param(lambda fd: os.fchmod(fd, 0o755), ["fchmod d"], id="fchmod"),
            pytest.param(lambda fd: os.chown("x", -1, -1, dir_fd=fd), ["chown d/x"], id="chown"),
            pytest.param(lambda fd: os.statvfs(fd), ["statvfs d"], id="statvfs"),
            pytest.param(lambda fd: os.fchdir(fd), ["fchdir d"], id="fchdir"),
            pytest.param(
                lambda fd: os.rename("x", "y", src_dir_fd=fd, dst_dir_fd=fd), ["rename d/x to d/y"], id="rename"
            ),
            pytest.param(lambda fd: os.link("x", "y", src_dir_fd=fd, dst_dir_fd=fd), ["link d/x to d/y"], id="link"),
        ],
    )
    def test_a_call_on_the_descriptor_of_a_folder(
        self, home: Home, call: Callable[[int], Any], steps: list[str]
    ) -> None:
        (home.path / "d/x").touch()

        def client(home: Path) -> None:
            with opened(home / "d") as fd:
                call(fd)

        assert steps_of(home, client) == ["open d", *steps]

    @pytest.mark.parametrize(
        ("call", "step"),
        [
            pytest.param(lambda fd: os.lseek(fd, 0, os.SEEK_END), "lseek n", id="lseek to the end"),
            pytest.param(lambda fd: os.lseek(fd, 0, os.SEEK_DATA), "lseek n", id="lseek to data"),
            pytest.param(lambda fd: os.preadv(fd, [bytearray(1)], 0), "preadv n", id="preadv"),
            pytest.param(lambda fd: os.pwritev(fd, [b"x"], 0), "pwritev n", id="pwritev"),
            pytest.param(lambda fd: os.posix_fallocate(fd, 0, 9), "posix_fallocate n", id="posix_fallocate"),
            pytest.param(lambda fd: os.utime(fd), "utime n", id="utime"),
            pytest.param(lambda fd: os.truncate(fd, 1), "truncate n", id="truncate"),
            pytest.param(lambda fd: os.fstatvfs(fd), "fstatvfs n", id="fstatvfs"),
            pytest.param(lambda fd: os.listxattr(fd), "listxattr n", id="listxattr"),
            pytest.param(lambda fd: os.setxattr(fd, "user.a", b"1"), "setxattr n", id="setxattr"),
        ],
    )
    def test_a_call_on_the_descriptor_of_a_file(self, home: Home, call: Callable[[int], Any], step: str) -> None:
        def client(home: Path) -> None:
            with opened(home / "n", os.O_RDWR) as fd, contextlib.suppress(OSError):
                call(fd)

        assert [text.partition(" (")[0] for text in steps_of(home, client)] == ["open n", step]

    def test_a_seek_that_does_not_look_at_the_file_is_none(self, home: Home) -> None:
        def client(home: Path) -> None:
            with opened(home / "n") as fd:
                os.lseek(fd, 1, os.SEEK_SET)

        assert steps_of(home, client) == ["open n"]

    def test_copies_name_both_files(self, home: Home) -> None:
        def client(home: Path) -> None:
            with opened(home / "n") as source, opened(home / "m", os.O_CREAT | os.O_WRONLY) as target:
                os.sendfile(target, source, 0, 1)
                os.copy_file_range(source, target, 1)
                read_end, write_end = os.pipe()
                os.splice(source, write_end, 1, 0)
                os.splice(read_end, target, 1)

        copies = ["sendfile n to m", "copy_file_range n to m", "splice n", "splice m"]
        assert steps_of(home, client) == ["open n", "open m", *copies]

    def test_seeking_to_the_end_of_a_file_object(self, home: Home) -> None:
        def client(home: Path) -> None:
            with open(home / "n", "rb") as file:
                file.seek(0, os.SEEK_END)

        assert steps_of(home, client) == ["open n", "seek n"]

    def test_opening_code(self, home: Home) -> None:
        def client(home: Path) -> None:
            io.open_code(str(home / "n")).close()

        assert steps_of(home, client) == ["open n"]

    def test_an_entry_of_a_listing_is_looked_at_when_asked(self, home: Home) -> None:
        (home.path / "link").symlink_to("n")

        def client(home: Path) -> None:
            with os.scandir(home) as entries:
                found = {entry.name: entry for entry in entries}
            assert isinstance(found["n"], os.DirEntry)
            assert os.fspath(found["n"]) == found["n"].path == str(home / "n")
            assert found["n"].is_file()  # known from the listing
            assert not found["n"].is_symlink()
            assert found["link"].is_symlink()
            assert found["link"].is_file()
            assert found["n"].stat().st_size == found["n"].stat().st_size == 3  # remembered

        assert steps_of(home, client) == ["scandir .", "stat n", "stat n"]  # the first one through the link


class TestConflicts:
    """With a conflict, there is a schedule in which the one client sees what the other has done half-way."""

    @pytest.mark.parametrize(
        ("look", "seen"),
        [
            pytest.param(lambda fd, _: len(os.listdir(fd)), 2, id="listdir"),
            pytest.param(lambda fd, _: len(list(os.scandir(fd))), 2, id="scandir"),
            pytest.param(lambda _, folder: os.stat(folder).st_mtime_ns > 1, True, id="stat of the folder"),
            pytest.param(lambda fd, _: os.fstat(fd).st_mtime_ns > 1, True, id="fstat of the folder"),
        ],
    )
    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda folder: (folder / "y").touch(), id="create"),
            pytest.param(lambda folder: (folder / "y").mkdir(), id="mkdir"),
            pytest.param(lambda folder: os.link(folder / "x", folder / "y"), id="link"),
        ],
    )
    def test_looking_at_a_folder_and_changing_its_names(
        self, home: Home, look: Callable[[int, Path], Any], seen: Any, change: Callable[[Path], None]
    ) -> None:
        def looking(home: Path) -> tuple[bool, Any, bool]:
            os.utime(home / "d", ns=(1, 1))
            before = (home / "before").exists()
            with opened(home / "d") as fd:
                return before, look(fd, home / "d"), (home / "after").exists()

        def changing(home: Path) -> None:
            (home / "before").touch()
            change(home / "d")
            (home / "after").touch()

        (home.path / "d/x").touch()
        assert (False, seen, False) in {looked for looked, _ in results(home, looking, changing)}

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda folder: os.unlink(folder / "x"), id="unlink"),
            pytest.param(lambda folder: os.rmdir(folder / "empty"), id="rmdir"),
            pytest.param(lambda folder: os.rename(folder / "x", folder / "y"), id="rename"),
            pytest.param(lambda folder: os.rename(folder / "x", folder.parent / "y"), id="rename out of it"),
            pytest.param(lambda folder: os.rename(folder.parent / "n", folder / "n"), id="rename into it"),
            pytest.param(lambda folder: os.symlink("x", folder / "y"), id="symlink"),
            pytest.param(lambda folder: os.mknod(folder / "y"), id="mknod"),
        ],
    )
    def test_a_cached_listing_and_a_change_of_names(self, home: Home, change: Callable[[Path], None]) -> None:
        """A store that lists a folder again only if its time has changed."""
        (home.path / "d/x").touch()
        (home.path / "d/empty").mkdir()

        def looking(home: Path) -> bool:
            os.utime(home / "d", ns=(1, 1))
            return os.stat(home / "d").st_mtime_ns == os.lstat(home / "d").st_mtime_ns

        def changed(home: Path) -> None:
            change(home / "d")

        assert {is_same for is_same, _ in results(home, looking, changed, preemptions=1)} == {True, False}

    @pytest.mark.parametrize("path", ["current/x", "v1/x", "/".join(("..", "home", "v1", "x")), "v1/../current/x"])
    @pytest.mark.parametrize("other", ["current/x", "v1/x"])
    def test_two_paths_to_one_file(self, home: Home, path: str, other: str) -> None:
        (home.path / "v1").mkdir()
        (home.path / "v1/x").write_text("0")
        (home.path / "current").symlink_to("v1")

        def adding(path: str) -> Client:
            def client(home: Path) -> None:
                number = int(Path(f"{home}/{path}").read_text() or 0)
                Path(f"{home}/{path}").write_text(str(number + 1))

            return client

        runs = explored(home, adding(path), adding(other), preemptions=1)
        assert {content["v1/x"] for _, content in runs} == {b"1", b"2"}

    @pytest.mark.parametrize(("path", "other"), [("current/x", "v1/x"), ("v1/x", "current/x")])
    def test_two_paths_to_one_name(self, home: Home, path: str, other: str) -> None:
        (home.path / "v1").mkdir()
        (home.path / "current").symlink_to("v1")

        def looking(home: Path) -> tuple[bool, bool]:
            return (home / path).exists(), (home / path).exists()

        seen = {looked for looked, _ in results(home, looking, lambda home: os.mkdir(home / other))}
        assert seen == {(False, False), (False, True), (True, True)}

    def test_a_symlink_that_is_switched(self, home: Home) -> None:
        for name in "12":
            (home.path / f"v{name}").mkdir()
            (home.path / f"v{name}/a").write_text(name)
            (home.path / f"v{name}/b").write_text(name)
        (home.path / "current").symlink_to("v1")

        def reading(home: Path) -> str:
            return (home / "current/a").read_text() + (home / "current/b").read_text()

        def switching(home: Path) -> None:
            (home / "new").symlink_to("v2")
            os.replace(home / "new", home / "current")

        assert {seen for seen, _ in results(home, reading, switching)} == {"11", "12", "22"}

    def test_a_file_behind_a_symlink(self, home: Home) -> None:
        (home.path / "link").symlink_to("n")

        def reading(home: Path) -> tuple[int, int]:
            return os.stat(home / "link").st_size, os.stat(home / "link").st_size

        assert {seen for seen, _ in results(home, reading, lambda home: os.truncate(home / "n", 1))} == {
            (3, 3),
            (3, 1),
            (1, 1),
        }

    def test_a_new_file_behind_a_symlink(self, home: Home) -> None:
        (home.path / "link").symlink_to("d/x")

        def looking(home: Path) -> tuple[bool, bool]:
            return (home / "d/x").exists(), (home / "d/x").exists()

        seen = {looked for looked, _ in results(home, looking, lambda home: (home / "link").touch())}
        assert (False, True) in seen

    @pytest.mark.parametrize(
        "copy",
        [
            pytest.param(lambda source, target: os.sendfile(target, source, 0, 3), id="sendfile"),
            pytest.param(lambda source, target: os.copy_file_range(source, target, 3), id="copy_file_range"),
        ],
    )
    def test_the_source_of_a_copy(self, home: Home, copy: Callable[[int, int], int]) -> None:
        def copying(home: Path) -> bytes:
            with opened(home / "n") as source, opened(home / "m", os.O_CREAT | os.O_RDWR) as target:
                (home / "asked").touch()
                copy(source, target)
                return os.pread(target, 3, 0)

        def writing(home: Path) -> bool:
            with opened(home / "n", os.O_WRONLY) as fd:
                asked = (home / "asked").exists()
                os.pwrite(fd, b"new", 0)
                return asked

        assert results(home, copying, writing) >= {(b"new", True), (b"old", True)}

    def test_copying_a_file_that_is_rewritten(self, home: Home) -> None:
        (home.path / "n").write_text("old" * 4)

        def copying(home: Path) -> str:
            shutil.copyfile(home / "n", home / "copy")
            return (home / "copy").read_text()

        seen = {copied for copied, _ in results(home, copying, lambda home: (home / "n").write_text("new"))}
        assert "" in seen

    def test_the_free_space_and_a_write(self, home: Home) -> None:
        def looking(home: Path) -> list[bool]:
            shutil.disk_usage(home)
            return [(home / "before").exists(), (home / "after").exists()]

        def writing(home: Path) -> None:
            (home / "before").touch()
            os.truncate(home / "n", 0)
            (home / "after").touch()

        runs = explored(home, looking, writing, preemptions=1)
        order = ["statvfs .", "truncate n"]
        orders = {
            tuple(str(step.access) for step in run.steps if str(step.access) in order)
            for run, _ in runs
            if run.results[0] == [True, False]
        }
        assert orders == {tuple(order), tuple(reversed(order))}


class TestHome:
    def test_home_behind_a_symlink_has_switch_points(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        monkeypatch.setattr(folders, "_MEMORY", str(tmp_path / "missing"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
        with memory_home() as home:
            assert steps_of(home, lambda home: os.mkdir(home / "x")) == ["mkdir x"]

    def test_a_home_that_is_named_by_a_symlink(self, home: Home, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(home.path.parent)
        named = Home(tmp_path / "link/home", tmp_path / "link")
        assert Place.of(named) == Place.of(home)
        place = Place.of(named)
        noted: list[str] = []
        audit_hook(place, noted.append, lambda _: None)("os.mkdir", (str(home.path / "d"), 0o777, -1))
        assert noted == ["d, which was created by native code or by a call that it could not replace"]

    def test_another_path_to_home_has_switch_points(self, home: Home, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(home.path)
        assert steps_of(home, lambda _: os.mkdir(tmp_path / "link/x")) == ["mkdir x"]
