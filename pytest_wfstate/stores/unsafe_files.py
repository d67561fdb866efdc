"""Links of both kinds, pipes, devices and folders at the names of a store's files: somebody may have planted them."""

from __future__ import annotations

import errno
import os
import stat

from pytest_wfstate.errors import UnsafeFile


def unsafe_file(path: os.PathLike[str] | str, mode: int) -> UnsafeFile:
    """Return the error for what is not a regular file, but has the name of one of a store's files."""
    kinds = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "pipe", stat.S_IFDIR: "folder", stat.S_IFSOCK: "socket"}
    kind = kinds.get(stat.S_IFMT(mode), "device")
    return UnsafeFile(
        errno.EINVAL,
        f"there is a {kind} where the store keeps a regular file. A store does not follow or open it, since what it "
        "leads to may belong to others. Find out who put it there, and remove it",
        str(path),
    )


def hard_link(path: os.PathLike[str] | str, names: int) -> UnsafeFile:
    """Return the error for a file that a store would write into, and that has other names too."""
    return UnsafeFile(
        errno.EINVAL,
        f"the file has {names} names (hard links). A store that writes into it would change what the other names lead "
        "to, which may belong to others. Find out who put it there, and remove it, or put a copy in its place",
        str(path),
    )
