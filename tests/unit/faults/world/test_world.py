"""Effects of the outside world are in the trace, whatever object it is."""

from __future__ import annotations

import asyncio
import copy
import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from tests.unit.faults.disk.notes import read, save, save_without_fsync, write
from tests.unit.faults.world.bank import Bank, Refused


def agent(bank: Any, home: Path) -> None:
    """Charge once, and remember it."""
    if read(home) is None:
        bank.charge("order-1", amount=5)
        save(home, "charged")


class TestEffects:
    def test_happen_in_order_before_the_crash_and_not_after(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            bank.charge("a")
            save(home, "text")
            bank.charge("b", amount=2)

        seen = []
        crash.explore(workload, lambda disk: seen.append((tuple(disk.effects), tuple(bank.charges))))
        assert set(seen) == {
            ((), ()),
            (("charge('a')",), ("a",)),
            (("charge('a')", "charge('b', amount=2)"), ("a", "b")),
        }

    def test_an_agent_without_idempotency_charges_twice(self, crash: Crash, bank: Any) -> None:
        def check(disk: Disk) -> None:
            agent(bank, disk.home)
            assert bank.charges == ["order-1"], disk.effects

        with pytest.raises(CrashBug, match=r"effects         charge\('order-1', amount=5\)"):
            crash.explore(lambda home: agent(bank, home), check, model="kill")

    def test_are_not_barriers(self, crash: Crash, bank: Any) -> None:
        """What was written before an effect and not fsynced may be lost; the effect never is."""

        def workload(home: Path) -> None:
            write(home / "note", b"about to charge")
            bank.charge("a")

        seen = set()

        def check(disk: Disk) -> None:
            seen.add((read(disk.home), *bank.charges))

        crash.explore(workload, check)
        assert (None, "a") in seen
        assert ("about to charge", "a") in seen
        with pytest.raises(CrashBug):
            crash.explore(workload, lambda disk: _assert(not bank.charges or (disk.home / "note").exists()))

    def test_name_the_line_that_caused_them(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save_without_fsync(home, "text")
            bank.charge("a")

        line = f"{os.path.relpath(__file__)}:{workload.__code__.co_firstlineno + 2}"
        with pytest.raises(CrashBug, match=rf"effects         charge\('a'\)   {line}"):
            crash.explore(workload, lambda disk: _assert(not disk.effects or read(disk.home) == "text"))

    def test_that_raise_name_the_exception(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            with pytest.raises(Refused, match="order-1: nothing to charge"):
                bank.charge("order-1", amount=0)

        seen = set()
        crash.explore(workload, lambda disk: seen.update(disk.effects))
        assert seen == {"charge('order-1', amount=0) raised Refused"}

    @pytest.mark.parametrize("method", ["acharge", "indirect"])
    def test_may_be_async(self, crash: Crash, bank: Any, method: str) -> None:
        async def workload(home: Path) -> None:
            save(home, "text")
            assert await getattr(bank, method)("a") == 1

        seen = []
        crash.explore(workload, lambda disk: seen.append((disk.effects, list(bank.charges))))
        assert ([f"{method}('a')"], ["a"]) in seen
        assert all(len(effects) == len(charges) <= 1 for effects, charges in seen)


def _assert(condition: object) -> None:
    assert condition


class TestTargets:
    """What may be a world, and how its effects are formatted."""

    @staticmethod
    def effects(crash: Crash, act: Callable[[], object]) -> list[str]:
        def workload(home: Path) -> None:
            save(home, "text")
            act()

        seen: list[list[str]] = []
        crash.explore(workload, lambda disk: seen.append(disk.effects), model="kill")
        return max(seen, key=len)

    def test_a_list(self, crash: Crash) -> None:
        ledger = crash.world(["old"])

        def act() -> None:
            ledger.append("new")
            ledger[0] = "changed"
            del ledger[1]

        assert self.effects(crash, act) == ["append('new')", "[0] = 'changed'", "del [1]"]
        assert ledger == ["old"]

    def test_a_list_that_is_added_to_stays_a_world(self, crash: Crash) -> None:
        ledger = crash.world([])

        def act() -> None:
            nonlocal ledger
            ledger += ["a"]
            ledger.append("b")

        assert self.effects(crash, act) == ["+= ['a']", "append('b')"]

    @pytest.mark.parametrize(
        ("target", "change", "value"),
        [
            (["a"], operator.imul, 2),
            ({"a", "b"}, operator.isub, {"a"}),
            ({"a", "b"}, operator.iand, {"a"}),
            ({"a", "b"}, operator.ixor, {"a"}),
            ({"a", "b"}, operator.ior, {"c"}),
            ({"a": 1}, operator.ior, {"b": 2}),
            (bytearray(b"a"), operator.iadd, b"b"),
        ],
    )
    @pytest.mark.parametrize("how", ["explore", "kill"])
    def test_what_is_changed_in_place_stays_a_world(
        self, crash: Crash, target: Any, change: Callable[[Any, Any], Any], value: Any, how: str
    ) -> None:
        world = crash.world(copy.copy(target))
        wanted = change(copy.copy(target), value)
        changed = []

        def workload(home: Path) -> None:
            assert change(world, value) is world
            (home / "done").touch()

        effects: list[str] = []

        def check(disk: Disk) -> None:
            effects.extend(disk.effects)
            changed.append(world == wanted)

        if how == "kill":
            check(crash.kill(workload, at=crash.before("create")))
        else:
            crash.explore(workload, check)
        signs = {"imul": "*=", "isub": "-=", "iand": "&=", "ixor": "^=", "ior": "|=", "iadd": "+="}
        assert effects[0] == f"{signs[change.__name__]} {value!r}"
        assert changed[0]

    def test_an_operator_that_would_replace_the_world_is_refused(self, crash: Crash) -> None:
        class Money:
            def __init__(self, amount: int) -> None:
                self.amount = amount

            def __add__(self, other: int) -> Money:
                return Money(self.amount + other)

            def __repr__(self) -> str:
                return f"Money({self.amount})"

        money = crash.world(Money(1))
        with pytest.raises(TypeError, match=r"`\+= 2` would not change the world Money\(1\), but replace its stand-in"):
            money += 2
        assert money.amount == 1

    def test_a_dict(self, crash: Crash) -> None:
        accounts = crash.world({"a": 1})

        def act() -> None:
            accounts["b"] = accounts["a"] + 1
            accounts.pop("a")

        assert self.effects(crash, act) == ["['b'] = 2", "pop('a')"]
        assert accounts == {"a": 1}

    def test_a_set(self, crash: Crash) -> None:
        keys = crash.world(set())
        assert self.effects(crash, lambda: keys.add("a")) == ["add('a')"]
        assert keys == set()

    def test_a_function_with_what_it_closes_over(self, crash: Crash) -> None:
        sent: list[str] = []
        count = 0

        def send(mail: str) -> None:
            nonlocal count
            count += 1
            sent.append(mail)

        world = crash.world(send)
        seen = set()

        def workload(home: Path) -> None:
            world("hello")
            save(home, "text")

        def check(disk: Disk) -> None:
            seen.add((tuple(sent), count, tuple(disk.effects)))
            world("again")

        crash.explore(workload, check)
        assert seen == {((), 0, ()), (("hello",), 1, ("send('hello')",))}
        assert (sent, count) == ([], 0)

    @pytest.mark.parametrize("kind", ["of a list", "of an object"])
    def test_a_bound_method_with_its_object(self, crash: Crash, kind: str) -> None:
        real = Bank()
        charge = crash.world(real.charge if kind == "of an object" else real.charges.append)
        seen = set()

        def workload(home: Path) -> None:
            charge("a")
            save(home, "text")

        def check(_: Disk) -> None:
            seen.add(tuple(real.charges))
            charge("b")

        crash.explore(workload, check)
        assert seen == {(), ("a",)}

    def test_a_callable_object(self, crash: Crash) -> None:
        class Model:
            """A scripted model."""

            def __init__(self) -> None:
                self.answers = ["one", "two"]

            def __call__(self, _: str) -> str:
                return self.answers.pop(0)

        model = crash.world(Model())
        answers = []

        def act() -> None:
            answers.append(model("first?"))
            answers.append(model("second?"))

        assert self.effects(crash, act) == ["Model('first?')", "Model('second?')"]
        assert answers == ["one", "two"]

    def test_attributes_that_are_set(self, crash: Crash, bank: Any) -> None:
        def act() -> None:
            bank.open = False

        assert self.effects(crash, act) == ["open = False"]
        assert bank.open

    def test_a_context_manager_stays_a_world_inside(self, crash: Crash, bank: Any) -> None:
        def act() -> None:
            with bank as inside:
                assert inside is bank
                inside.charge("a")

        assert self.effects(crash, act) == ["__enter__()", "charge('a')", "__exit__(None, None, None)"]


class TestStandIn:
    def test_behaves_like_the_object(self, crash: Crash) -> None:
        ledger = crash.world(["a", "b"])
        assert ledger == ["a", "b"]
        assert ledger != ["a"]
        assert len(ledger) == 2
        assert list(ledger) == ["a", "b"]
        assert list(reversed(ledger)) == ["b", "a"]
        assert "a" in ledger
        assert ledger[-1] == "b"
        assert bool(ledger) is True
        assert not crash.world([])
        assert (str(ledger), repr(ledger)) == ("['a', 'b']", "['a', 'b']")
        assert isinstance(ledger, list)
        assert hash(ledger) == hash(ledger)

    def test_has_the_attributes_of_the_object(self, bank: Any) -> None:
        assert bank.charges == []
        assert bank == bank
        assert isinstance(bank, Bank)
        with pytest.raises(AttributeError, match="'Bank' object has no attribute 'chargs'"):
            bank.chargs  # type: ignore[attr-defined]  # noqa: B018

    def test_reading_is_not_an_effect(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save(home, str(len(bank.charges)))
            assert bank.open
            assert bank != 1

        seen = []
        crash.explore(workload, lambda disk: seen.extend(disk.effects))
        assert seen == []

    def test_outside_of_a_run_it_is_the_object(self, bank: Any) -> None:
        assert bank.charge("a") == 1
        assert asyncio.run(bank.acharge("b")) == 2
        assert bank.charges == ["a", "b"]
