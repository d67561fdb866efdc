"""Remembered failures: the replay ids of a test's violations, kept between runs and tried first in the next.

A replay id is all there is to a shrunk disk or schedule, so one small text file for each test is enough. A folder of
them can be shared, between CI and a laptop for instance.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path

from pytest_wfstate.faults.replay_id import NoReplayId, ReplayId

_MOST_IDS = 16  # of one test; the oldest are dropped
_MOST_FILES = 1_000
_MOST_CHARACTERS = 100  # of the test's name, in that of its file


@dataclasses.dataclass(frozen=True, slots=True)
class Remembered:
    """The failures of one test. Without a folder, nothing is remembered.

    An id is dropped when the test no longer does what it did, so that the disk or schedule does not exist. One that
    passes is kept: it failed once, and may again.
    """

    test: str = ""
    folder: Path | None = None
    make_folder: Callable[[], object] = lambda: None
    """Makes the folder before the first file is written."""

    def ids(self) -> list[ReplayId]:
        """Return what failed, the last first. Lines that are not replay ids are ignored."""
        ids = []
        for line in self._lines():
            with contextlib.suppress(NoReplayId):
                ids.append(ReplayId.read(line))
        return ids

    def add(self, replay: str) -> None:
        """Remember a failure."""
        lines = self._lines()
        if lines[:1] != [replay]:
            self._write([replay, *(line for line in lines if line != replay)])

    def drop(self, replay: ReplayId) -> None:
        """Forget a failure."""
        self._write([line for line in self._lines() if line != str(replay)])

    def _lines(self) -> list[str]:
        if self.folder is None:
            return []
        try:
            text = self._file(self.folder).read_text()
        except (OSError, UnicodeDecodeError):
            return []
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    def _write(self, lines: list[str]) -> None:
        if self.folder is None:
            return
        with contextlib.suppress(OSError):  # such as a checkout that cannot be written to: nothing is remembered there
            self.make_folder()
            file = self._file(self.folder)
            if not lines:
                file.unlink(missing_ok=True)
                return
            if not file.exists():
                _make_room(self.folder)
            # Another process may read it, or write its own.
            new = file.with_suffix(f".{uuid.uuid4().hex[:8]}.tmp")
            heading = f"# What failed in {self.test}, the last first. pytest-wfstate tries it before anything else."
            new.write_text("\n".join([heading, *lines[:_MOST_IDS], ""]))
            os.replace(new, file)

    def _file(self, folder: Path) -> Path:
        readable = re.sub(r"[^\w.-]+", "-", self.test)[-_MOST_CHARACTERS:]
        return folder / f"{readable}-{hashlib.sha256(self.test.encode()).hexdigest()[:8]}.txt"


NOTHING = Remembered()
"""Where nothing is remembered."""


def _make_room(folder: Path) -> None:
    """Remove the oldest files, so that there is room for one more."""
    files = sorted(folder.glob("*.txt"), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - _MOST_FILES + 1)]:
        file.unlink(missing_ok=True)
