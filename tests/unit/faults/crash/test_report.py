"""Reports of violations: effects after the restart are shown, and long lines are cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk, ErrorBug
from tests.unit.faults.disk.notes import read, save_without_file_fsync


def section(text: str, title: str) -> list[str]:
    """Return the lines of a paragraph, without the lines of code at their ends."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"  {title:16}"))
    rest = itertools.takewhile(lambda line: line.startswith(" " * 18), lines[first + 1 :])
    return [line[18:].partition("   ")[0] for line in [lines[first], *rest]]


class TestEffects:
    """What the check does to the outside is shown, since it is often what goes wrong."""

    @staticmethod
    def refund(home: Path, bank: list[str]) -> None:
        if read(home) is None:
            bank.append("order-17")
            save_without_file_fsync(home, "done")

    def report(self, crash: Crash, depth: int = 1) -> str:
        bank = crash.world([])

        def check(disk: Disk) -> None:
            self.refund(disk.home, bank)
            bank.append("checked")
            assert list(bank).count("order-17") <= depth

        with pytest.raises(CrashBug) as caught:
            crash.explore(lambda home: self.refund(home, bank), check, model="kill", depth=depth)
        return str(caught.value)

    def test_after_the_restart_are_shown_and_the_repeated_one_is_named(self, crash: Crash) -> None:
        text = self.report(crash)
        assert section(text, "effects") == ["append('order-17')"]
        assert section(text, "after restart") == [
            "append('order-17')",
            "append('checked')",
            "append('order-17') was done twice: once before the crash and once after the restart.",
        ]
        titles = [line[2:18].strip() for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
        assert titles == ["acknowledged", "effects", "it died", "on the disk", "after restart", "the check said"]

    def test_of_a_recovery_that_crashed_too_stand_between_the_crashes(self, crash: Crash) -> None:
        text = self.report(crash, depth=2)
        assert section(text, "after restart")[-1] == (
            "append('order-17') was done 3 times: once before the first crash, once during recovery and once after the "
            "restart."
        )
        titles = [line[2:18].strip() for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
        assert titles[1:6] == ["effects", "first crash", "effects", "second crash", "on the disk"]

    def test_of_the_check_after_an_error_are_shown(self, crash: Crash) -> None:
        bank = crash.world([])

        def check(disk: Disk) -> None:
            self.refund(disk.home, bank)
            assert bank == ["order-17"]

        with pytest.raises(ErrorBug) as caught:
            crash.errors(lambda home: self.refund(home, bank), check, errors=("EIO",))
        assert section(str(caught.value), "the check did") == [
            "append('order-17')",
            "append('order-17') was done twice: once by the workload and once by the check.",
        ]

    def test_that_the_check_does_not_have_are_not_mentioned(self, crash: Crash) -> None:
        with pytest.raises(CrashBug) as caught:
            crash.explore(lambda home: save_without_file_fsync(home, "x"), text_is_complete)
        assert "after restart" not in str(caught.value)


def text_is_complete(disk: Disk) -> None:
    assert read(disk.home) != ""


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
