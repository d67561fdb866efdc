"""The state of a world is restored before each check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, Disk, NotMeasured
from pytest_wfstate.faults.world.state import CannotCopy
from tests.unit.faults.disk.notes import read, save
from tests.unit.faults.world.bank import Bank


class Client:
    """The client of a service, with its methods one level down."""

    def __init__(self) -> None:
        self.refunds: list[str] = []


class TestState:
    def test_is_restored_in_place(self, crash: Crash) -> None:
        real = Bank()
        bank, charges = crash.world(real), real.charges
        seen = []

        def workload(home: Path) -> None:
            bank.charge("a")
            save(home, "text")

        def check(_: Disk) -> None:
            seen.append((list(real.charges), list(charges)))
            bank.charge("by the check")

        crash.explore(workload, check)
        assert {tuple(charges) for pair in seen for charges in pair} == {(), ("a",)}
        assert all(by_object == by_list for by_object, by_list in seen)

    def test_is_the_same_through_the_object_itself(self, crash: Crash) -> None:
        """Also in the clean process in which checks are repeated, and in a child that is to be killed."""
        real = Bank()
        bank = crash.world(real)

        def workload(home: Path) -> None:
            bank.charge("a")
            save(home, str(real.charges))

        def check(_: Disk) -> None:
            assert real.charges == bank.charges
            if not real.charges:
                bank.charge("a")
            assert real.charges == ["a"]

        crash.explore(workload, check)
        assert read(crash.kill(workload, at=crash.after("rename")).home) == "['a']"

    def test_later_attributes_are_removed(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            bank.new = 1

        seen = set()
        crash.explore(workload, lambda disk: seen.add((len(disk.effects), hasattr(bank, "new"))))
        assert seen == {(0, False), (1, True)}

    def test_may_be_saved_and_loaded(self, crash: Crash, tmp_path: Path) -> None:
        """The state of a world may be elsewhere, here in a file."""
        ledger = tmp_path / "ledger"
        ledger.write_text("")

        class Ledger:
            def add(self, line: str) -> None:
                ledger.write_text(ledger.read_text() + line)

        def load(text: str) -> None:
            ledger.write_text(text)

        world = crash.world(Ledger(), save=ledger.read_text, load=load)
        seen = set()

        def workload(home: Path) -> None:
            world.add("1")
            save(home, "text")
            world.add("2")

        def check(_: Disk) -> None:
            seen.add(ledger.read_text())
            world.add("x")

        crash.explore(workload, check)
        assert seen == {"", "1", "12"}
        assert ledger.read_text() == ""

    @pytest.mark.parametrize("only", ["save", "load"])
    def test_saving_needs_loading(self, crash: Crash, only: str) -> None:
        with pytest.raises(TypeError, match="got only one of save= and load="):
            crash.world([], **{only: lambda *_: None})

    def test_that_cannot_be_copied_is_an_error_at_once(self, crash: Crash) -> None:
        bank = Bank()
        vars(bank)["script"] = (number for number in range(3))
        with pytest.raises(CannotCopy, match=r"cannot be copied: .*generator.*save=\.\.\., load=\.\.\."):
            crash.world(bank)

    def test_of_an_object_without_a_dict_is_an_error_at_once(self, crash: Crash) -> None:
        class Slots:
            __slots__ = ("x",)

        with pytest.raises(CannotCopy, match="save="):
            crash.world(Slots())

    def test_of_a_world_created_by_a_check_is_its_own(self, crash: Crash) -> None:
        def check(_: Disk) -> None:
            ledger = crash.world([])
            ledger.append("x")
            assert ledger == ["x"]

        crash.world([])
        assert crash.explore(lambda home: save(home, "text"), check, depth=2).verdict == "CLEAN"

    def test_of_a_world_created_by_the_workload_is_not_restored(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            crash.world([]).append("x")

        seen = []
        crash.explore(workload, lambda disk: seen.append(tuple(disk.effects)), depth=2)
        assert set(seen) == {(), ("append('x')",)}

    def test_that_was_changed_without_the_stand_in_is_not_measured(self, crash: Crash) -> None:
        client = crash.world(Client())

        def workload(home: Path) -> None:
            client.refunds.append("a")
            save(home, "text")

        with pytest.raises(NotMeasured, match=r"was changed without its stand-in.*crash\.world\(client\.refunds\)"):
            crash.explore(workload, lambda _: None)
