"""A fake disk: full, read-only or case-insensitive on demand, without root."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from pyfakefs import fake_filesystem, helpers
from pyfakefs.fake_filesystem_unittest import Patcher

__all__ = ["FakeDisk"]


class FakeDisk:
    """An in-memory file system that everything in this process sees instead of the real one.

    It has no locks: use real folders to test two workers.
    """

    def __init__(self, fs: fake_filesystem.FakeFilesystem) -> None:
        self.fs = fs
        """The file system of pyfakefs, for everything else."""
        self.home = Path("/wfstate")
        """An empty folder for a store."""
        self.home.mkdir()
        self.free_up()  # pyfakefs tracks used space only once the disk has a size

    def fill(self, *, free: int = 0) -> None:
        """Leave only `free` bytes; `free_up` undoes it."""
        _, used, _ = self.fs.get_disk_usage()
        self.fs.set_disk_usage(used + free)

    def free_up(self) -> None:
        """Free the space that `fill` took."""
        self.fs.set_disk_usage(2**40)

    def read_only(self, folder: str | os.PathLike[str]) -> None:
        """Forbid changes in `folder`."""
        os.chmod(folder, 0o555)

    def writable(self, folder: str | os.PathLike[str]) -> None:
        """Allow changes in `folder` again."""
        os.chmod(folder, 0o755)

    def ignore_case(self) -> None:
        """Treat names that differ only in case as the same, as macOS and Windows do."""
        self.fs.is_case_sensitive = False


@contextlib.contextmanager
def fake_disk(folders: Iterable[Path] = ()) -> Iterator[FakeDisk]:
    """Replace the real disk by a fake one. It has `folders`, empty."""
    helpers.set_uid(1)  # an ordinary user from the first file on: root may write to a read-only folder
    try:
        with Patcher(additional_skip_names=_pytest_modules()) as patcher:
            assert patcher.fs is not None
            for folder in folders:
                os.makedirs(folder, exist_ok=True)
            yield FakeDisk(patcher.fs)
    finally:
        helpers.reset_ids()


def _pytest_modules() -> list[str | ModuleType]:
    """Return the modules that must keep using the real disk: pytest captures output in files."""
    return [name for name in sys.modules if name.partition(".")[0] in ("pytest", "_pytest", "xdist", "execnet")]
