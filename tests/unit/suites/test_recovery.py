"""A suite that crashes the recovery as well finds a store that loses records only then."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pytest_wfstate import FileResumeStore
from pytest_wfstate.suites import ResumeSuite
from tests.unit.suites.only import only


class RewritesInPlace(FileResumeStore):
    """After a crash that left a temporary file, writes each record again, over itself."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        if list(home.glob("*.tmp")):
            for path in home.glob("*.json"):
                path.write_bytes(path.read_bytes())


@only("test_kill_save")
class TestOneCrash(ResumeSuite):
    def open(self, home: Path) -> RewritesInPlace:
        return RewritesInPlace(home)


class TestTwoCrashes(TestOneCrash):
    crashes_recovery = True
    known_failures: ClassVar = {"resume.kill.save": "a crash while it writes a record again leaves it empty"}
