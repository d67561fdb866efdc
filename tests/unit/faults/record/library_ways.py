"""Ways to change files through libraries, and through references to real calls that were taken early."""

from __future__ import annotations

import asyncio
import codecs
import concurrent.futures
import functools
import io
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from os import replace as replace_bound_at_import
from pathlib import Path
from typing import Any

import aiofiles
import aiofiles.os

from tests.unit.faults.record.ways import way

open_bound_at_import = open
write_bound_at_import = functools.partial(os.write)


def bound_as_default(old: Any, new: Any, rename: Any = os.rename, *, sync: Any = os.sync) -> None:
    rename(old, new)
    sync()


def bound_in_closure(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: call(*args)


rename_in_closure = bound_in_closure(os.rename)
rename_in_two_closures = bound_in_closure(bound_in_closure(os.rename))


class Bound:
    open = open
    rename = staticmethod(os.rename)


@way
def other_names_of_open(home: Path) -> str:
    import _io

    for name, call in (("a", io.open), ("b", _io.open), ("c", open_bound_at_import), ("d", Bound.open)):
        with call(home / name, "wb") as file:
            file.write(b"1")
    with codecs.open(str(home / "e"), "w", "utf-8") if sys.version_info < (3, 14) else open(home / "e", "w") as text:
        text.write("1")
    return "; ".join(words for name in "abcde" for words in (f"create {name}", f"write {name} 0 b'1'"))


@way
def shutil_copies(home: Path) -> str:
    shutil.copyfile(home / "old", home / "a")
    shutil.copytree(home / "folder", home / "tree")
    shutil.move(home / "a", home / "tree")
    shutil.rmtree(home / "tree")
    return "create a; write a 0 b'12345'; mkdir tree; rename a tree/a; unlink tree/a; rmdir tree"


@way
def pathlib_calls(home: Path) -> str:
    (home / "a").write_text("1")
    (home / "b").touch()
    (home / "b").replace(home / "a")
    (home / "c" / "d").mkdir(parents=True)
    (home / "c" / "d").rmdir()
    (home / "e").hardlink_to(home / "a")
    (home / "a").unlink()
    return "create a; write a 0 b'1'; create b; rename b a over; mkdir c; mkdir c/d; rmdir c/d; link a e; unlink a"


@way
def tempfiles(home: Path) -> str:
    with tempfile.NamedTemporaryFile(dir=home, prefix="a") as file:
        file.write(b"1")
        name = Path(file.name).name
    with tempfile.TemporaryDirectory(dir=home) as folder:
        other = Path(folder).name
    fd, path = tempfile.mkstemp(dir=home)
    os.close(fd)
    last = Path(path).name
    return f"create {name}; write {name} 0 b'1'; unlink {name}; mkdir {other}; rmdir {other}; create {last}"


@way
def libraries(home: Path) -> str:
    with open(home / "a", "w") as file:
        json.dump([1], file)
    handler = logging.FileHandler(home / "b")
    handler.emit(logging.makeLogRecord({"msg": "hello"}))
    handler.close()
    return "create a; write a 0 b'[1]'; create b; write b 0 b'hello\\n'"


@way
def bound_before(home: Path) -> str:
    open(home / "a", "w").close()
    replace_bound_at_import(home / "a", home / "b")
    rename_in_closure(home / "b", home / "c")
    rename_in_two_closures(home / "c", home / "d")
    bound_as_default(home / "d", home / "e")
    Bound.rename(home / "e", home / "f")
    with open(home / "f", "wb") as file:
        write_bound_at_import(file.fileno(), b"1")
    return "create a; rename a b; rename b c; rename c d; rename d e; sync; rename e f; write f 0 b'1'"


@way
def bound_while_recording(home: Path) -> str:
    from os import rename

    class Local:
        move: Any = rename

    (home / "a").touch()
    Local().move(home / "a", home / "b")
    return "create a; rename a b"


@way
def moved_in(home: Path) -> str:
    outside = home.parent
    (outside / "before").write_bytes(b"1")
    (outside / "made").mkdir()
    (outside / "made" / "a").write_bytes(b"2")
    (outside / "made").rename(home / "a")
    os.rename(outside / "before", home / "b")
    return (
        "create (outside)/before; write (outside) 0 b'1'; mkdir (outside)/made; create (outside)/a; "
        "write (outside) 0 b'2'; rename (outside)/made a; rename (outside)/before b"
    )


@way
def moved_out(home: Path) -> str:
    outside = home.parent
    os.rename(home / "old", outside / "old")
    os.rename(home / "folder", outside / "folder")
    (outside / "elsewhere").write_bytes(b"x")
    return "rename old (outside)/old; rename folder (outside)/folder"


@way
def from_threads(home: Path) -> str:
    thread = threading.Thread(target=(home / "a").write_bytes, args=(b"1",))
    thread.start()
    thread.join()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(os.unlink, home / "a").result()
    asyncio.run(asyncio.to_thread((home / "b").touch))
    return "create a; write a 0 b'1'; unlink a; create b"


@way
def by_aiofiles(home: Path) -> str:
    async def main() -> None:
        async with aiofiles.open(home / "a", "w") as file:
            await file.write("1")
            await file.flush()
            os.fsync(file.fileno())
        await aiofiles.os.replace(home / "a", home / "b")
        await aiofiles.os.mkdir(home / "c")
        await aiofiles.os.makedirs(home / "c" / "d")
        await aiofiles.os.unlink(home / "b")
        async with aiofiles.open(home / "e", "wb", buffering=0) as raw:
            await raw.write(b"2")

    asyncio.run(main())
    return "create a; write a 0 b'1'; fsync a; rename a b; mkdir c; mkdir c/d; unlink b; create e; write e 0 b'2'"
