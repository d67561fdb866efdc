"""The world of a child that is killed, or of a server in a thread, lives in the process of the test."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from tests.unit.faults.disk.notes import read, save, save_without_fsync, write
from tests.unit.faults.world.bank import Refused


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
        effects = ("charge('a')",)
        assert seen == {((), (), ()), (("a",), effects, ()), (("a",), effects, ("charged",))}

    @pytest.mark.parametrize("asks_first", [True, False])
    def test_a_check_may_call_it_too(self, crash: Crash, bank: Any, asks_first: bool) -> None:
        def run(home: Path) -> None:
            if read(home) is None:
                if not (asks_first and bank.charges):
                    charge_by_http(url, "a")
                save(home, "charged")

        def check(disk: Disk) -> None:
            run(disk.home)
            assert bank.charges == ["a"]

        fails = pytest.raises(CrashBug, match=r"it died         after effect charge\('a'\)")
        with serving(bank) as url, contextlib.nullcontext() if asks_first else fails:
            assert crash.explore(run, check).verdict == "CLEAN"

    def test_it_survives_the_killed_process(self, crash: Crash, bank: Any) -> None:
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
            crash.ack("charged")
            save(home, "text")
            bank.charge("never")

        disk = crash.kill(workload, at=crash.before("rename"))
        assert bank.charges == ["a"]
        assert (disk.effects, disk.acked) == (["charge('a')"], ["charged"])

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

    def test_async_methods_are_async_in_the_child(self, crash: Crash, bank: Any) -> None:
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

    def test_local_classes_can_be_passed(self, crash: Crash) -> None:
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

    def test_what_cannot_be_passed_is_an_error_in_the_child(self, crash: Crash) -> None:
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

    def test_a_world_that_returns_itself_is_the_same_world_there(self, crash: Crash, bank: Any) -> None:
        def workload(home: Path) -> None:
            with bank as inside:
                inside.charge("a")
                save(home, "text")

        crash.kill(workload, at=crash.before("rename"))
        assert bank.charges == ["a"]
