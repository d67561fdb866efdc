"""The outside world: effects in the trace, and put back before each check."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.server
import json
import operator
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.world.state import CannotCopy
from tests.unit.faults.disk.notes import read, save, save_without_fsync, write


class Refused(Exception):
    """An exception that cannot be made anew from what it shows."""

    def __init__(self, order: str, reason: str) -> None:
        super().__init__(f"{order}: {reason}")
        self.order = order


class Bank:
    """A bank that remembers idempotency keys."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.open = True
        self._lock = threading.Lock()

    def charge(self, order: str, *, amount: int = 1) -> int:
        with self._lock:
            if amount <= 0:
                raise Refused(order, "nothing to charge")
            self.charges.append(order)
            return len(self.charges)

    async def acharge(self, order: str) -> int:
        await asyncio.sleep(0)
        return self.charge(order)

    def indirect(self, order: str) -> Any:
        return self.acharge(order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False


def agent(bank: Any, home: Path) -> None:
    """Charge once, and remember it."""
    if read(home) is None:
        bank.charge("order-1", amount=5)
        save(home, "charged")


@pytest.fixture
def bank(crash: Crash) -> Any:
    return crash.world(Bank())


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

    def test_are_no_barrier(self, crash: Crash, bank: Any) -> None:
        """What was written before an effect and not fsynced may be lost; the effect never is."""

        def workload(home: Path) -> None:
            write(home / "note", b"about to charge")
            bank.charge("a")

        found = set()

        def check(disk: Disk) -> None:
            found.add((read(disk.home), *bank.charges))

        crash.explore(workload, check)
        assert (None, "a") in found
        assert ("about to charge", "a") in found
        with pytest.raises(CrashBug):
            crash.explore(workload, lambda disk: _assert(not bank.charges or (disk.home / "note").exists()))

    def test_name_the_line_that_caused_them(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save_without_fsync(home, "text")
            bank.charge("a")

        line = f"{os.path.relpath(__file__)}:{workload.__code__.co_firstlineno + 2}"
        with pytest.raises(CrashBug, match=rf"effects         charge\('a'\)   {line}"):
            crash.explore(workload, lambda disk: _assert(not disk.effects or read(disk.home) == "text"))

    def test_that_raise_are_told_apart(self, crash: Crash, bank: Any) -> None:
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
    """What may be a world, and how what is done to it reads."""

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
        found = []

        def workload(home: Path) -> None:
            assert change(world, value) is world
            (home / "done").touch()

        effects: list[str] = []

        def check(disk: Disk) -> None:
            effects.extend(disk.effects)
            found.append(world == wanted)

        if how == "kill":
            check(crash.kill(workload, at=crash.before("create")))
        else:
            crash.explore(workload, check)
        signs = {"imul": "*=", "isub": "-=", "iand": "&=", "ixor": "^=", "ior": "|=", "iadd": "+="}
        assert effects[0] == f"{signs[change.__name__]} {value!r}"
        assert found[0]

    def test_what_would_be_replaced_instead_is_told(self, crash: Crash) -> None:
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
            """A scripted model: it gives one answer after the other."""

            def __init__(self) -> None:
                self.answers = ["one", "two"]

            def __call__(self, _: str) -> str:
                return self.answers.pop(0)

        model = crash.world(Model())
        said = []

        def act() -> None:
            said.append(model("first?"))
            said.append(model("second?"))

        assert self.effects(crash, act) == ["Model('first?')", "Model('second?')"]
        assert said == ["one", "two"]

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
    def test_shows_what_the_object_shows(self, crash: Crash) -> None:
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

    def test_gives_attributes(self, bank: Any) -> None:
        assert bank.charges == []
        assert bank == bank
        assert isinstance(bank, Bank)
        with pytest.raises(AttributeError, match="'Bank' object has no attribute 'chargs'"):
            bank.chargs  # type: ignore[attr-defined]  # noqa: B018

    def test_looking_is_no_effect(self, crash: Crash, bank: Any) -> None:
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


class TestState:
    def test_is_put_back_in_place(self, crash: Crash) -> None:
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
        assert {tuple(one) for pair in seen for one in pair} == {(), ("a",)}
        assert all(one == other for one, other in seen)

    def test_is_the_same_for_who_holds_the_object_itself(self, crash: Crash) -> None:
        """In the fresh process, too, in which checks are run again, and in a child that is to be killed."""
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

    def test_what_came_later_is_gone(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            bank.new = 1

        seen = set()
        crash.explore(workload, lambda disk: seen.add((len(disk.effects), hasattr(bank, "new"))))
        assert seen == {(0, False), (1, True)}

    def test_may_be_saved_and_loaded(self, crash: Crash, tmp_path: Path) -> None:
        """A world whose state is elsewhere, here in a file."""
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

    def test_that_cannot_be_copied_is_told_at_once(self, crash: Crash) -> None:
        bank = Bank()
        vars(bank)["script"] = (number for number in range(3))
        with pytest.raises(CannotCopy, match=r"cannot be copied: .*generator.*save=\.\.\., load=\.\.\."):
            crash.world(bank)

    def test_of_an_object_without_a_dict_is_told_at_once(self, crash: Crash) -> None:
        class Slots:
            __slots__ = ("x",)

        with pytest.raises(CannotCopy, match="save="):
            crash.world(Slots())

    def test_of_a_world_made_by_a_check_is_its_own(self, crash: Crash) -> None:
        def check(_: Disk) -> None:
            ledger = crash.world([])
            ledger.append("x")
            assert ledger == ["x"]

        crash.world([])
        assert crash.explore(lambda home: save(home, "text"), check, depth=2).verdict == "CLEAN"

    def test_of_a_world_made_by_the_workload_is_left_alone(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            crash.world([]).append("x")

        seen = []
        crash.explore(workload, lambda disk: seen.append(tuple(disk.effects)), depth=2)
        assert set(seen) == {(), ("append('x')",)}


@contextlib.contextmanager
def serving(bank: Any) -> Iterator[str]:
    """A fake bank behind HTTP, in a thread."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = bank.charge(order)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(number).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of a client that was killed
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def charge_by_http(url: str, order: str) -> int:
    with urllib.request.urlopen(url, json.dumps(order).encode(), timeout=10) as answer:
        number: int = json.load(answer)
        return number


class TestServer:
    def test_effects_of_a_server_in_a_thread_are_in_the_trace(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            save_without_fsync(home, "about to charge")
            assert charge_by_http(url, "a") == 1
            crash.ack("charged")

        def check(disk: Disk) -> None:
            seen.add((tuple(bank.charges), tuple(disk.effects), tuple(disk.acked)))

        seen: set[Any] = set()
        with serving(bank) as url:
            crash.explore(workload, check)
        told = ("charge('a')",)
        assert seen == {((), (), ()), (("a",), told, ()), (("a",), told, ("charged",))}

    def test_a_check_may_ask_it_too(self, crash: Crash, bank: Any) -> None:
        def run(home: Path) -> None:
            if read(home) is None:
                charge_by_http(url, "a")
                save(home, "charged")

        def check(disk: Disk) -> None:
            run(disk.home)
            assert bank.charges == ["a"]

        with serving(bank) as url, pytest.raises(CrashBug, match=r"it died         after effect charge\('a'\)"):
            crash.explore(run, check)

    def test_it_lives_on_when_the_process_is_killed(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            charge_by_http(url, "a")
            save(home, "charged")

        with serving(bank) as url:
            disk = crash.kill(workload, at=crash.before("rename"))
        assert disk.effects == ["charge('a')"]
        assert bank.charges == ["a"]

    @pytest.mark.parametrize(("point", "charges"), [("before", []), ("after", ["a"])])
    def test_a_call_of_it_may_be_the_point(self, crash: Crash, bank: Any, point: str, charges: list[str]) -> None:
        def workload(home: Path) -> None:
            write(home / "note", b"about to charge")
            charge_by_http(url, "a")
            save(home, "charged")

        with serving(bank) as url:
            disk = crash.kill(workload, at=getattr(crash, point)(bank.charge))
        assert bank.charges == charges
        assert disk.effects == [f"charge({order!r})" for order in charges]
        assert read(disk.home) == "about to charge"


class TestKill:
    """The world of a child that is killed lives in the process of the test."""

    def test_keeps_what_the_child_did(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            assert bank.charge("a") == 1
            crash.ack("told")
            save(home, "text")
            bank.charge("never")

        disk = crash.kill(workload, at=crash.before("rename"))
        assert bank.charges == ["a"]
        assert (disk.effects, disk.acked) == (["charge('a')"], ["told"])

    def test_the_child_sees_it_as_it_is(self, crash: Crash, bank: Any) -> None:
        ledger, accounts = crash.world(["old"]), crash.world({"a": 1})

        def workload(home: Path) -> None:
            bank.charge("a")
            bank.open = False
            bank.new = 3
            ledger.append("new")
            accounts["b"] = 2
            assert (bank.charges, bank.open, bank.new) == (["a"], False, 3)
            assert ledger == ["old", "new"]
            assert list(reversed(ledger)) == ["new", "old"]
            assert sorted(accounts) == ["a", "b"]
            assert (len(ledger), "new" in ledger, ledger[1], str(ledger)) == (2, True, "new", "['old', 'new']")
            assert not hasattr(bank, "nothing")
            save(home, "all seen")

        disk = crash.kill(workload, at=crash.after("rename"))
        assert read(disk.home) == "all seen"
        assert disk.effects == ["charge('a')", "open = False", "new = 3", "append('new')", "['b'] = 2"]

    def test_async_methods_are_async_there(self, crash: Crash, bank: Any) -> None:
        async def workload(home: Path) -> None:
            assert await bank.acharge("a") == 1
            save(home, "text")

        assert crash.kill(workload, at=crash.before("rename")).effects == ["acharge('a')"]

    def test_exceptions_reach_the_child(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            try:
                bank.charge("a", amount=0)
            except Refused as error:
                save(home, f"{error} ({error.order})")

        disk = crash.kill(workload, at=crash.after("rename"))
        assert read(disk.home) == "a: nothing to charge (a)"
        assert disk.effects == ["charge('a', amount=0) raised Refused"]

    def test_local_classes_cross_over(self, crash: Crash) -> None:
        class Order:
            def __init__(self, name: str) -> None:
                self.name = name

        class Wrong(Exception):
            pass

        class Shop:
            def __init__(self) -> None:
                self.orders: list[Order] = []

            def buy(self, order: Order) -> Order:
                if order.name == "wrong":
                    raise Wrong("no such thing")
                self.orders.append(order)
                return Order(f"receipt of {order.name}")

        shop = crash.world(Shop())

        def workload(home: Path) -> None:
            with contextlib.suppress(Wrong):
                shop.buy(Order("wrong"))
            crash.ack(shop.buy(Order("tea")))
            save(home, "text")

        disk = crash.kill(workload, at=crash.before("create"))
        assert [order.name for order in shop.orders] == ["tea"]
        assert [receipt.name for receipt in disk.acked] == ["receipt of tea"]

    def test_what_cannot_cross_over_is_an_error_there(self, crash: Crash) -> None:
        class Source:
            def numbers(self) -> Iterator[int]:
                return iter(lambda: 1, 2)

        source = crash.world(Source())

        def workload(home: Path) -> None:
            try:
                source.numbers()
            except Exception as error:
                save(home, str(error))

        disk = crash.kill(workload, at=crash.after("rename"))
        assert "does not exist in this process" in str(read(disk.home))

    def test_a_world_gives_itself_there_too(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            with bank as inside:
                inside.charge("a")
                save(home, "text")

        crash.kill(workload, at=crash.before("rename"))
        assert bank.charges == ["a"]
