"""The ways in which Python code changes files. Each function uses one, and returns the ops that it is."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Way = Callable[[Path], str]
WAYS: list[Way] = []


def way(function: Way) -> Way:
    WAYS.append(function)
    return function


@way
def text_file(home: Path) -> str:
    with open(home / "a", "w") as file:
        file.write("hé")
        file.write("llo")
    return "create a; write a 0 b'h\\xc3\\xa9llo'"


@way
def flush_in_between(home: Path) -> str:
    with open(home / "a", "w") as file:
        file.write("one")
        file.flush()
        file.write("two")
        os.fsync(file)
    return "create a; write a 0 b'one'; fsync a; write a 3 b'two'"


@way
def line_buffered(home: Path) -> str:
    with open(home / "a", "w", buffering=1) as file:
        file.write("1\n")
        file.write("2\n")
    return "create a; write a 0 b'1\\n'; write a 2 b'2\\n'"


@way
def unbuffered(home: Path) -> str:
    with open(home / "a", "wb", buffering=0) as file:
        file.write(b"12")
        file.write(bytearray(b"34"))
    return "create a; write a 0 b'12'; write a 2 b'34'"


@way
def small_buffer(home: Path) -> str:
    with open(home / "a", "wb", buffering=4) as file:
        file.write(b"123")
        file.write(b"456")
    return "create a; write a 0 b'123'; write a 3 b'456'"


@way
def empty_file(home: Path) -> str:
    open(home / "a", "w").close()
    return "create a"


@way
def truncating_mode(home: Path) -> str:
    with open(home / "old", "w") as file:
        file.write("x")
    return "truncate old 0; write old 0 b'x'"


@way
def truncating_mode_of_empty_file(home: Path) -> str:
    open(home / "old", "w").close()
    open(home / "old", "w").close()
    return "truncate old 0"


@way
def appending_mode(home: Path) -> str:
    with open(home / "old", "a") as file:
        file.write("6")
        file.flush()
        file.write("7")
    with open(home / "a", "ab") as file:
        file.write(b"1")
    return "write old 5 b'6'; write old 6 b'7'; create a; write a 0 b'1'"


@way
def exclusive_mode(home: Path) -> str:
    with open(home / "a", "x") as file:
        file.write("1")
    with pytest.raises(FileExistsError):
        open(home / "a", "x")
    return "create a; write a 0 b'1'"


@way
def updating_mode(home: Path) -> str:
    with open(home / "old", "r+b") as file:
        assert file.read(2) == b"12"
        file.write(b"X")
        file.seek(1)
        file.write(b"Y")
        file.seek(0)
        assert file.read() == b"1YX45"
    return "write old 1 b'YX'"


@way
def updating_text(home: Path) -> str:
    with open(home / "old", "r+") as file:
        file.read(1)
        file.seek(3)
        file.write("X")
    with open(home / "a", "w+") as file:
        file.write("1")
        file.seek(0)
        assert file.read() == "1"
    return "write old 3 b'X'; create a; write a 0 b'1'"


@way
def truncate_of_a_file_object(home: Path) -> str:
    with open(home / "old", "r+b") as file:
        file.truncate(2)
        file.seek(4)
        file.truncate()
    return "truncate old 2; truncate old 4"


@way
def gap(home: Path) -> str:
    with open(home / "a", "wb") as file:
        file.seek(3)
        file.write(b"x")
    return "create a; write a 3 b'x'"


@way
def raw_file(home: Path) -> str:
    with io.FileIO(home / "a", "w") as file:
        file.write(b"1")
        assert isinstance(file, io.FileIO)
    with io.BufferedWriter(io.FileIO(str(home / "b"), "xb")) as buffered:
        buffered.write(b"2")
    return "create a; write a 0 b'1'; create b; write b 0 b'2'"


@way
def relative_paths(home: Path) -> str:
    with contextlib.chdir(home):
        Path("a").write_bytes(b"1")
        os.mkdir("b/")
        os.rename("b/../a", b"b/c")
        os.rename("b/../b", "d")
        os.rmdir("folder/../folder")
    return "create a; write a 0 b'1'; mkdir b; rename a b/c; rename b d; rmdir folder"


@way
def descriptor(home: Path) -> str:
    fd = os.open(home / "a", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"123")
    os.pwrite(fd, b"X", 1)
    os.writev(fd, [b"4", bytearray(b"5")])
    os.pwritev(fd, [b"Y"], 0)
    os.lseek(fd, 1, os.SEEK_SET)
    os.write(fd, memoryview(b"Z"))
    os.write(fd, b"")
    os.ftruncate(fd, 4)
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    return (
        "create a; write a 0 b'123'; write a 1 b'X'; write a 3 b'45'; write a 0 b'Y'; write a 1 b'Z'; "
        "truncate a 4; fsync a; fdatasync a"
    )


@way
def flags_of_open(home: Path) -> str:
    for flags in (os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_CREAT):
        os.close(os.open(home / "old", os.O_WRONLY | flags))
    for flags in (os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_EXCL):
        with contextlib.suppress(OSError):
            os.close(os.open(home / "a", os.O_WRONLY | flags))
    return "truncate old 0; create a"


@way
def append_flag(home: Path) -> str:
    fd = os.open(home / "old", os.O_RDWR | os.O_APPEND)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"6")
    os.pwrite(fd, b"7", 0)
    os.close(fd)
    return "write old 5 b'6'; write old 6 b'7'"


@way
def synchronous_flags(home: Path) -> str:
    for name, flag in (("a", os.O_SYNC), ("b", os.O_DSYNC)):
        fd = os.open(home / name, os.O_WRONLY | os.O_CREAT | flag)
        os.write(fd, b"1")
        os.close(fd)
    return "create a; write a 0 b'1'; fsync a 0-1; create b; write b 0 b'1'; fdatasync b 0-1"


@way
def synchronous_file_object(home: Path) -> str:
    with open(home / "a", "w", opener=lambda path, flags: os.open(path, flags | os.O_SYNC)) as file:
        file.write("1")
    return "create a; write a 0 b'1'; fsync a 0-1"


@way
def synchronous_pwritev(home: Path) -> str:
    fd = os.open(home / "old", os.O_WRONLY)
    os.pwritev(fd, [b"1"], 0, os.RWF_SYNC)
    os.pwritev(fd, [b"2"], 0, os.RWF_DSYNC)
    os.pwritev(fd, [b"3"], 0, os.RWF_APPEND)
    os.pwritev(fd, [b"4", b"5"], 0, os.RWF_APPEND | os.RWF_DSYNC)
    os.close(fd)
    return (
        "write old 0 b'1'; fsync old 0-1; write old 0 b'2'; fdatasync old 0-1; write old 5 b'3'; "
        "write old 6 b'45'; fdatasync old 6-8"
    )


@way
def duplicated_descriptors(home: Path) -> str:
    fd = os.open(home / "a", os.O_WRONLY | os.O_CREAT)
    other = os.dup(fd)
    os.write(fd, b"1")
    os.write(other, b"2")
    os.close(fd)
    with os.fdopen(other, "wb") as file:
        file.write(b"3")
    return "create a; write a 0 b'1'; write a 1 b'2'; write a 2 b'3'"


@way
def open_of_a_descriptor(home: Path) -> str:
    fd = os.open(home / "old", os.O_RDWR)
    with open(fd, "r+b", closefd=False) as file:
        file.write(b"X")
    with open(fd, "ab") as file:
        file.write(b"6")
    return "write old 0 b'X'; write old 5 b'6'"


@way
def folder_descriptors(home: Path) -> str:
    fd = os.open(home / "folder", os.O_RDONLY)
    top = os.open(home, os.O_RDONLY)
    os.close(os.open("a", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.mkdir("b", dir_fd=fd)
    os.rename("a", "c", src_dir_fd=fd, dst_dir_fd=top)
    os.replace("c", "a", src_dir_fd=top, dst_dir_fd=fd)
    os.link("a", "d", src_dir_fd=fd, dst_dir_fd=top)
    os.symlink("d", "e", dir_fd=fd)
    os.unlink("a", dir_fd=fd)
    os.rmdir("b", dir_fd=fd)
    os.fsync(fd)
    os.fsync(top)
    os.close(fd)
    os.close(top)
    return (
        "create folder/a; mkdir folder/b; rename folder/a c; rename c folder/a; link folder/a d; "
        "symlink folder/e d; unlink folder/a; rmdir folder/b; fsync folder; fsync ."
    )


@way
def rename_over(home: Path) -> str:
    (home / "a").write_bytes(b"1")
    os.replace(home / "a", home / "old")
    os.rename(home / "old", home / "b")
    (home / "b").rename(home / "c")
    return "create a; write a 0 b'1'; rename a old over; rename old b; rename b c"


@way
def failures(home: Path) -> str:
    for call in (
        lambda: os.rename(home / "no", home / "a"),
        lambda: os.unlink(home / "no"),
        lambda: os.unlink(home / "folder"),
        lambda: os.rmdir(home),
        lambda: os.mkdir(home / "folder"),
        lambda: open(home / "no" / "a", "w"),
        lambda: open(home / "folder", "w"),
        lambda: os.open(home / "no", os.O_WRONLY),
        lambda: os.link(home / "no", home / "a"),
        lambda: os.symlink("a", home / "old"),
        lambda: os.truncate(home / "no", 1),
    ):
        with pytest.raises(OSError):
            call()
    (home / "folder").mkdir(exist_ok=True)
    return ""


@way
def makedirs(home: Path) -> str:
    os.makedirs(home / "a" / "b")
    os.renames(home / "a" / "b", home / "c")
    os.removedirs(home / "c")
    return "mkdir a; mkdir a/b; rename a/b c; rmdir a; rmdir c"


@way
def folder_rename(home: Path) -> str:
    with open(home / "folder" / "a", "wb") as file:
        os.rename(home / "folder", home / "other")
        file.write(b"1")
        file.flush()
        (home / "other" / "a").unlink()
        file.write(b"2")
    return "create folder/a; rename folder other; write other/a 0 b'1'; unlink other/a; write other/a 1 b'2'"


@way
def hard_links(home: Path) -> str:
    os.link(home / "old", home / "a")
    os.rename(home / "a", home / "old")  # two names of one file: nothing happens
    with open(home / "a", "ab") as file:
        file.write(b"6")
    os.unlink(home / "old")
    return "link old a; write old 5 b'6'; unlink old"


@way
def symlinks(home: Path) -> str:
    os.symlink("old", home / "a")
    (home / "b").symlink_to("new")
    (home / "c").symlink_to(home / "folder", target_is_directory=True)
    with open(home / "a", "w") as file:
        file.write("1")
    with open(home / "b", "w") as file:
        file.write("2")
    (home / "c" / "d").touch()
    os.truncate(home / "a", 3)
    os.rename(home / "a", home / "e")
    os.unlink(home / "e")
    return (
        f"symlink a old; symlink b new; symlink c {home / 'folder'}; truncate old 0; write old 0 b'1'; "
        "create new; write new 0 b'2'; create folder/d; truncate old 3; rename a e; unlink e"
    )


@way
def truncates(home: Path) -> str:
    os.truncate(home / "old", 3)
    fd = os.open(home / "old", os.O_RDWR)
    os.truncate(fd, 2)
    os.posix_fallocate(fd, 1, 9)
    os.close(fd)
    os.sync()
    return "truncate old 3; truncate old 2; allocate old 10; sync"


@way
def copies_by_the_kernel(home: Path) -> str:
    source = os.open(home / "old", os.O_RDONLY)
    target = os.open(home / "a", os.O_WRONLY | os.O_CREAT)
    os.sendfile(target, source, 0, 3)
    os.copy_file_range(source, target, 2, 3)
    os.copy_file_range(source, target, 2, 0, 1)
    os.lseek(source, 1, os.SEEK_SET)
    os.copy_file_range(source, target, 2)
    os.sendfile(target, source, None, 1)
    out, into = os.pipe()
    os.write(into, b"pipe")
    os.splice(out, target, 4)
    os.write(into, b"more")
    os.splice(out, target, 9)
    for fd in (source, target, out, into):
        os.close(fd)
    return (
        "create a; write a 0 b'123'; write a 3 b'45'; write a 1 b'12'; write a 5 b'23'; write a 7 b'4'; "
        "write a 8 b'pipe'; write a 12 b'more'"
    )
