"""The part of SQLite's C interface that a VFS needs: the loaded library, its tables of functions, its codes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from ctypes import c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

OK = 0
FULL = 13
CANTOPEN = 14
IOERR_READ = 10 | 1 << 8
IOERR_WRITE = 10 | 3 << 8
IOERR_FSYNC = 10 | 4 << 8
IOERR_DIR_FSYNC = 10 | 5 << 8
IOERR_TRUNCATE = 10 | 6 << 8
IOERR_DELETE = 10 | 10 << 8

OPEN_CREATE = 0x4
OPEN_DELETEONCLOSE = 0x8
OPEN_JOURNALS = 0x800 | 0x4000 | 0x80000  # rollback journal, super-journal, WAL

FCNTL_SIZE_HINT = 5
FCNTL_BEGIN_ATOMIC_WRITE = 31

NEWEST = 3
"""The newest version of both tables known here. A copy must not claim a newer one: it would be too short."""

Function = Callable[..., int]

# Names are untyped pointers: SQLite keeps them, and stores the parameters of a URI after the terminating zero.
OpenFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
DeleteFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
CloseFunction = ctypes.CFUNCTYPE(c_int, c_void_p)
ReadFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
WriteFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
TruncateFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64)
SyncFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_int)
SizeFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
ControlFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)


class VfsTable(ctypes.Structure):
    """sqlite3_vfs."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
        ("others", c_void_p * 14),
    )


class FileTable(ctypes.Structure):
    """sqlite3_io_methods."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
        ("truncate", c_void_p),
        ("sync", c_void_p),
        ("size", c_void_p),
        ("locks", c_void_p * 3),
        ("control", c_void_p),
        ("others", c_void_p * 8),
    )


def libraries() -> Iterator[Any]:
    """Yield every loaded library that has SQLite's functions."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return
    paths = dict.fromkeys(fields[5] for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6)
    for path in sorted(paths, key=lambda path: "libsqlite" not in path):
        if path.startswith("/"):
            with contextlib.suppress(OSError, AttributeError):  # not a library, or one without SQLite
                yield _declared(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))


def _declared(library: Any) -> Any:
    library.sqlite3_vfs_find.argtypes = [c_char_p]
    library.sqlite3_vfs_find.restype = c_void_p
    library.sqlite3_vfs_register.argtypes = [c_void_p, c_int]
    library.sqlite3_vfs_unregister.argtypes = [c_void_p]
    library.sqlite3_compileoption_used.argtypes = [c_char_p]
    return library


def calls(library: Any, name: bytes) -> bool:
    """Whether a library calls a function of another one, judged by its table of names."""
    return b"\0" + name + b"\0" in Path(library._name).read_bytes()


def pointer_to(callback: Any) -> int | None:
    """Return the address of a callback, for C."""
    return ctypes.cast(callback, c_void_p).value


def text(name: int) -> str:
    """Return the path at an address that SQLite passed."""
    return os.fsdecode(ctypes.string_at(name))
