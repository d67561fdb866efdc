"""Reports of violations: long lines are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from tests.unit.faults.disk.notes import read, save_without_file_fsync


class TestLongLines:
    @staticmethod
    def report(crash: Crash, value: object, message: str) -> list[str]:
        """The report of a check that fails with `message`, once `value` was acknowledged."""

        def workload(home: Path) -> None:
            crash.ack(value)
            save_without_file_fsync(home, "text")

        def check(disk: Disk) -> None:
            if read(disk.home) == "":
                raise ValueError(message)

        with pytest.raises(CrashBug) as caught:
            crash.explore(workload, check)
        return str(caught.value).splitlines()

    def test_of_the_check_are_cut(self, crash: Crash) -> None:
        lines = self.report(crash, "x", f"first {'y' * 1000}\nsecond {'z' * 3000}")
        (first,) = (number for number, line in enumerate(lines) if "the check said" in line)
        assert lines[first].startswith(f"  the check said  ValueError: first {'y' * 182}... (818 more characters)   ")
        assert lines[first + 1] == f"{' ' * 18}second {'z' * 193}... (2,807 more characters)"

    def test_of_what_was_acknowledged_are_cut_and_those_that_fit_are_not(self, crash: Crash) -> None:
        message = "z" * (200 - len("ValueError: "))
        lines = self.report(crash, "y" * 1000, message)
        assert [
            line for line in lines if line.startswith(f"  acknowledged    '{'y' * 199}... (802 more characters)   ")
        ]
        assert [line for line in lines if line.startswith(f"  the check said  ValueError: {message}   ")]
