"""A store that takes not all values is asked for all others, and what it does to those is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pytest_wfstate import FileResumeStore, ResumePoint
from pytest_wfstate.suites import ResumeSuite
from tests.unit.suites.only import only


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 1_000


class Columns(FileResumeStore):
    """Refuses a long name, as a VARCHAR column does."""

    def save(self, point: ResumePoint) -> None:
        if _is_long(point.workflow_name):
            raise ValueError("the name is longer than 1,000 characters")
        super().save(point)


class Strips(Columns):
    def save(self, point: ResumePoint) -> None:
        super().save(point.model_copy(update={"workflow_name": point.workflow_name.strip()}))


@only("test_values_any")
class TestColumns(ResumeSuite):
    def accepts_value(self, value: Any) -> bool:
        return not _is_long(value)

    def open(self, home: Path) -> FileResumeStore:
        return Columns(home)


@only("test_values_any")
class TestStrips(TestColumns):
    known_failures: ClassVar = {"resume.values.any": "a name loses its spaces"}

    def open(self, home: Path) -> FileResumeStore:
        return Strips(home)


@only("test_values_any")
class TestUndeclared(ResumeSuite):
    known_failures: ClassVar = {"resume.values.any": "a long name is refused, and accepts_value does not say so"}

    def open(self, home: Path) -> FileResumeStore:
        return Columns(home)
