"""The file calls of `os`: which of their arguments name files, and what each call does to them."""

from __future__ import annotations

import enum
import genericpath
import os
import pathlib
import posixpath
import types
from typing import Any, NamedTuple


class Effect(enum.Enum):
    """What an operation does to a file that it names."""

    PROBE = enum.auto()
    """Reads whether it is there, and whether it is a file or a folder."""
    LOOK = enum.auto()
    """Reads what a file holds, or who may."""
    STAT = enum.auto()
    """Reads its status; that of a folder changes with the names in it."""
    LIST = enum.auto()
    """Reads the names in a folder."""
    MEASURE = enum.auto()
    """Reads how much space is left."""
    CHANGE = enum.auto()
    """Changes what it holds, or its status."""
    ADD = enum.auto()
    """Adds its name, or fails if it is there."""
    REMOVE = enum.auto()
    """Removes its name, or fails if it is not there."""
    REPLACE = enum.auto()
    """Adds its name, whether it is there or not."""
    CREATE = enum.auto()
    """Adds its name, unless it is there."""
    EMPTY = enum.auto()
    """Adds its name, or removes what it holds."""

    @property
    def may_change(self) -> bool:
        """Whether it can change anything."""
        return self in _ADDING | _CHANGING

    def changes_entry(self, *, exists: bool) -> bool:
        """Whether it changes the entry of a file that exists, or does not."""
        return self is Effect.REPLACE or self in (_REMOVING if exists else _ADDING)

    def changes_file(self, *, exists: bool) -> bool:
        """Whether it changes the file itself."""
        return exists and self in _CHANGING


LISTING = {Effect.STAT, Effect.LIST, Effect.REMOVE, Effect.REPLACE}
"""Effects on a folder that depend on the names in it: one that is removed or replaced must be empty."""
_ADDING = {Effect.ADD, Effect.CREATE, Effect.EMPTY}
_REMOVING = {Effect.REMOVE}
_CHANGING = {Effect.CHANGE, Effect.REMOVE, Effect.REPLACE, Effect.EMPTY}


class Target(NamedTuple):
    """A file that an operation names, and what the operation does to it."""

    file: Any
    """A path or a descriptor."""
    effect: Effect
    dir_fd: int | None = None
    follow: bool = True
    """Whether a symlink stands for the file that it points to."""


class _Argument(NamedTuple):
    """An argument that names a file."""

    position: int
    names: tuple[str, ...]
    effect: Effect
    dir_fd: str = "dir_fd"
    follow: bool = True


_LOOK, _LIST, _CHANGE = Effect.LOOK, Effect.LIST, Effect.CHANGE
_FILE = ("path", "fd")


def _first(effect: Effect, *, follow: bool = True) -> tuple[_Argument, ...]:
    return (_Argument(0, _FILE, effect, follow=follow),)


def _pair(
    first: Effect, second: Effect, names: tuple[str, str] = ("src", "dst"), *, follow: bool = False
) -> tuple[_Argument, ...]:
    return (
        _Argument(0, (names[0],), first, "src_dir_fd", follow),
        _Argument(1, (names[1],), second, "dst_dir_fd", follow=False),
    )


_ARGUMENTS: dict[str, tuple[_Argument, ...]] = {
    **dict.fromkeys(("access", "chdir", "getxattr", "listxattr", "getcwd", "getcwdb"), _first(_LOOK)),
    **dict.fromkeys(("read", "readinto", "pread", "readv", "preadv", "fchdir", "lseek"), _first(_LOOK)),
    **dict.fromkeys(("stat", "fstat"), _first(Effect.STAT)),
    "lstat": _first(Effect.STAT, follow=False),
    "readlink": _first(_LOOK, follow=False),
    **dict.fromkeys(("listdir", "scandir"), _first(_LIST)),
    **dict.fromkeys(("statvfs", "fstatvfs"), _first(Effect.MEASURE)),
    **dict.fromkeys(("truncate", "chmod", "chown", "utime", "setxattr", "removexattr"), _first(_CHANGE)),
    **dict.fromkeys(("write", "pwrite", "writev", "pwritev", "ftruncate", "posix_fallocate"), _first(_CHANGE)),
    **dict.fromkeys(("fchmod", "fchown"), _first(_CHANGE)),
    "lchown": _first(_CHANGE, follow=False),
    **dict.fromkeys(("mkdir", "mknod", "mkfifo"), _first(Effect.ADD, follow=False)),
    **dict.fromkeys(("rmdir", "unlink", "remove"), _first(Effect.REMOVE, follow=False)),
    **dict.fromkeys(("rename", "replace"), _pair(Effect.REMOVE, Effect.REPLACE)),
    "link": _pair(_CHANGE, Effect.ADD, follow=True),
    "symlink": (_Argument(1, ("dst",), Effect.ADD, follow=False),),
    "sendfile": (_Argument(1, ("in_fd",), _LOOK), _Argument(0, ("out_fd",), _CHANGE)),
    **dict.fromkeys(("copy_file_range", "splice"), _pair(_LOOK, _CHANGE)),
}
_SPECIAL = {"open", "close", "closerange", "dup2", "lockf"}
STEPS = _ARGUMENTS.keys() | _SPECIAL
"""The names of the calls that are steps."""


_PROBES = {
    function.__code__
    for owner in (genericpath, posixpath, pathlib.Path)
    for name in (
        *("exists", "lexists", "isfile", "isdir", "islink", "is_file", "is_dir", "is_symlink"),
        *("is_fifo", "is_socket", "is_block_device", "is_char_device"),
    )
    if isinstance(function := getattr(owner, name, None), types.FunctionType)
}
_WRAPPERS = {pathlib.Path.stat.__code__, pathlib.Path.lstat.__code__}


def is_probe(frame: types.FrameType | None) -> bool:
    """Whether a status is asked for by a function that returns only whether a file is there, and of which kind."""
    if frame is not None and frame.f_code in _WRAPPERS:
        frame = frame.f_back
    return frame is not None and frame.f_code in _PROBES


def targets_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Target]:
    """Return the files that a call names. A call that does not look at them, or will fail, names none."""
    if name == "open":
        return _opened(args, kwargs)
    if name == "lseek" and (len(args) < 3 or args[2] in (os.SEEK_SET, os.SEEK_CUR)):
        return []
    return [_target(argument, args, kwargs) for argument in _ARGUMENTS[name]]


def _opened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Target]:
    path = args[0] if args else kwargs.get("path")
    flags = args[1] if len(args) > 1 else kwargs.get("flags", 0)
    return [opening(path, flags, kwargs.get("dir_fd"))] if isinstance(flags, int) else []


def opening(path: Any, flags: int, dir_fd: int | None = None) -> Target:
    """Return the file that opening a path names."""
    effect = _LOOK
    if flags & os.O_CREAT:
        effect = Effect.ADD if flags & os.O_EXCL else Effect.EMPTY if flags & os.O_TRUNC else Effect.CREATE
    elif flags & os.O_TRUNC:
        effect = _CHANGE
    return Target(path, effect, dir_fd, follow=not flags & (os.O_NOFOLLOW | os.O_EXCL))


def _target(argument: _Argument, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Target:
    file = args[argument.position] if len(args) > argument.position else None
    for name in argument.names:
        file = kwargs.get(name, file)
    follow = argument.follow and kwargs.get("follow_symlinks", True)
    return Target(file, argument.effect, kwargs.get(argument.dir_fd), follow)
