"""An effect that a server's thread makes shows the line of the agent that waits for it."""

from __future__ import annotations

import asyncio
import http.server
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_wfstate import Crash
from tests.unit.faults.conftest import Lab


@pytest.fixture
def crash(lab: Lab) -> Crash:
    return lab()


@pytest.fixture(params=[http.server.HTTPServer, http.server.ThreadingHTTPServer])
def port(request: pytest.FixtureRequest, crash: Crash) -> Iterator[int]:
    """A server whose handler is an effect."""
    ledger = crash.world([])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            ledger.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with request.param(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.001,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def effects(lines: list[str]) -> list[str]:
    """The lines of code that made the effects, from what `points` lists."""
    numbers = [int(line.rpartition(":")[2].rstrip(")")) for line in lines if "append" in line]
    source = Path(__file__).read_text().splitlines()
    return [source[number - 1].rpartition("# ")[2] for number in numbers]


def test_a_sync_agent_waits(crash: Crash, port: int) -> None:
    def workload(home: Path) -> None:
        for path in ("pay", "mail"):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", method="POST")
            urllib.request.urlopen(request).close()  # here
        (home / "done").touch()

    assert effects(crash.points(workload)) == ["here", "here"]


def test_an_async_agent_waits(crash: Crash, port: int) -> None:
    async def workload(home: Path) -> None:
        (home / "begun").touch()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        _ = (writer.write(b"POST /pay HTTP/1.0\r\n\r\n"), await reader.read())  # type: ignore[func-returns-value]  # here
        writer.close()

    assert effects(crash.points(workload)) == ["here"]


def test_a_thread_of_the_agent_waits(crash: Crash, port: int) -> None:
    def pay() -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/pay", method="POST")
        urllib.request.urlopen(request).close()  # here

    def workload(home: Path) -> None:
        thread = threading.Thread(target=pay)
        thread.start()
        thread.join()
        (home / "done").touch()

    assert effects(crash.points(workload)) == ["here"]
