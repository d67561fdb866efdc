"""State kept in memory, and changes to a world that bypass its stand-in, never count as a pass."""

from __future__ import annotations

import http.server
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import Crash, CrashBug, Disk, NotMeasured


class Cached:
    """A store that is opened once per folder and process."""

    _opened: ClassVar[dict[Path, Cached]] = {}

    def __init__(self, home: Path) -> None:
        self._path = home / "values.json"
        self.values: dict[str, int] = json.loads(self._path.read_text()) if self._path.exists() else {}

    @classmethod
    def at(cls, home: Path) -> Cached:
        if home not in cls._opened:
            cls._opened[home] = cls(home)
        return cls._opened[home]

    def put(self, key: str) -> None:
        self.values[key] = 1
        self._path.write_text(json.dumps(self.values))


def test_a_store_cached_in_memory_is_not_measured(crash: Crash) -> None:
    def workload(home: Path) -> None:
        for key in "abc":
            Cached.at(home).put(key)
            crash.ack(key)

    def check(disk: Disk) -> None:
        assert set(disk.acked) <= set(Cached.at(disk.home).values)

    with pytest.raises(NotMeasured, match="relies on something in memory"):
        crash.explore(workload, check)


class Refunds:
    def __init__(self) -> None:
        self.made: list[str] = []

    def create(self, order: str) -> None:
        self.made.append(order)


class Client:
    """An interface such as many services have: the methods are one level down."""

    def __init__(self) -> None:
        self.refunds = Refunds()


def durable(path: Path) -> None:
    path.touch()
    for synced in (path, path.parent):
        fd = os.open(synced, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def test_a_world_changed_without_its_stand_in_is_not_measured(crash: Crash) -> None:
    client = crash.world(Client())

    def agent(home: Path) -> None:
        if not (home / "done").exists():
            client.refunds.create("order-1")
            durable(home / "done")

    def check(disk: Disk) -> None:
        agent(disk.home)
        assert len(client.refunds.made) <= 1

    with pytest.raises(NotMeasured, match=r"was changed without its stand-in.*crash\.world\(client\.refunds\)"):
        crash.explore(agent, check)


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        bank: ClassVar[Any] = None

        def do_POST(self) -> None:
            Handler.bank.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_server_in_a_thread_may_keep_the_world(
    crash: Crash, server: http.server.ThreadingHTTPServer, asks_first: bool
) -> None:
    bank: Any = crash.world([])
    server.RequestHandlerClass.bank = bank  # type: ignore[attr-defined]

    def agent(home: Path) -> None:
        if not (home / "done").exists():
            if not asks_first or "/refund" not in bank:
                url = f"http://127.0.0.1:{server.server_port}/refund"
                urllib.request.urlopen(urllib.request.Request(url, method="POST")).read()
            durable(home / "done")

    def after_restart(disk: Disk) -> None:
        agent(disk.home)
        assert bank == ["/refund"]

    if asks_first:
        assert crash.explore(agent, after_restart).verdict == "CLEAN"
    else:
        with pytest.raises(CrashBug, match=r"append\('/refund'\)"):
            crash.explore(agent, after_restart)
