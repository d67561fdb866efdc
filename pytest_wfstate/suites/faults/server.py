"""Server clauses: what a lost connection, a dead client or a dead server may leave of a store on a server.

The connection is cut, or the client killed, at each message. A store that is opened afterwards must show what the
reference shows after the calls that returned, with or without the one that did not; and it must keep working.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing.connection as connection
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.report_text import error_lines, failure_lines
from pytest_wfstate.faults.servers.proxy import Proxy, When
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.labs.race import StormResult
from pytest_wfstate.suites.clauses import Test, clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.crash_run import Acknowledged, CrashRun, Remains, scenarios_of
from pytest_wfstate.suites.faults.rehearsal import inject

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True

_WORKERS = 4
_CALLS = {"quick": 600, "default": 1_000, "thorough": 20_000}

_MOMENTS: dict[When, str] = {
    "before": "before message {} of the client reached the server",
    "after": "after the server answered message {}, before the client had the answer",
}

Attack = Callable[[Path, When, int], None]
"""Runs a scenario at a home, and strikes before or after the n-th message."""

Ready = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Gets ready, and yields a function that does the work."""


def clauses_for(suite: type) -> dict[str, Test]:
    """Make the clauses of a suite's scenarios."""
    scenarios = vars(suite).get("scenarios", {})
    killed = {"test_server_killed": _server_killed()} if scenarios else {}
    return {f"test_cut_{name}": _cut(name) for name in scenarios} | killed


def _cut(name: str) -> Test:
    verb = name.replace("_", " ")

    @clause("safe", f"If the connection is lost during {verb}, {verb} is all or nothing and can be retried.", "server")
    def test(self: Suite) -> None:
        cut_each_message(self.context, name, ServerLink.cut)

    return test


def _server_killed() -> Test:
    @clause("hardened", "If the server is killed and restarted, every acknowledged call survives.", "server")
    def test(self: Suite) -> None:
        context = self.context
        server = context.need_server()
        if not hasattr(server, "kill"):
            pytest.skip(f"{self.server} cannot be killed: these tests did not start it")
        home = context.home()
        context.report("limit", ["a killed server shows the death of a process, not a power cut"])
        context.race_lab.run_storm(
            lambda: context.handles(home),
            self.contract,
            StormResult(_WORKERS, seed=0),
            _CALLS[context.profile],
            medium="server",
            kills=True,
            timeout=context.timeout,
            server=server,
            model=context.new_model(),
            accepts=context.accepts,
        )

    return test


def cut_each_message(context: ClauseContext, name: str, strike: Callable[[ServerLink], int]) -> None:
    """Strike at each message of a method's scenarios.

    Raises:
        Violation: the store does not survive.
        NotMeasured: there was no message.
    """
    context.need_server()
    assert context.proxy is not None
    acks = Acks()
    runs = [CrashRun(context, scenario, acks.ack) for scenario in scenarios_of(context, name, "server")]
    proxy = context.proxy

    def at_each_message(run: CrashRun) -> None:
        if not strike(ServerLink(proxy, run, acks, context.unprepared_home)):
            raise NotMeasured("NOT_MEASURED. No traffic reached the proxy. `open()` must connect to `self.url`.")

    inject(context, runs, at_each_message)


class Acks(list[Any]):
    """What a workload acknowledges: in this process, or in a child, which sends it here."""

    send: Callable[[Any], None] | None = None

    def ack(self, value: Any) -> None:
        """Acknowledge something."""
        self.append(value)
        if self.send:
            self.send(value)


class ServerLink:
    """The connection between a store and its server, and a scenario that runs over it."""

    def __init__(self, proxy: Proxy, run: CrashRun, acks: Acks, new_home: Callable[[], Path]) -> None:
        self._proxy = proxy
        self._run = run
        self._acks = acks
        self._new_home = new_home

    def cut(self) -> int:
        """Cut the connection at each message, and retry the call that fails.

        Return how often it was cut before a message or after an answer, whichever is less.

        Raises:
            Violation: the store does not survive.
        """
        cuts = []
        for when in _MOMENTS:
            before = self._proxy.cuts
            self._at_each_message("The connection was cut", self._run_and_cut, when)
            cuts.append(self._proxy.cuts - before)
        return min(cuts)

    def kill(self) -> int:
        """Kill the client at each message. Return how often it was killed.

        A kill before a message leaves what a kill after the previous answer would, with no fewer promises. So only
        after the last answer is there anything else to see.

        Raises:
            Violation: the store does not survive.
        """
        what, attack = "The client was killed", self._run_and_kill
        killed = self._at_each_message(what, attack, "before")
        before = self._proxy.cuts
        for nth in range(killed, 0, -1):
            self._at_message(what, attack, "after", nth)
            if self._proxy.cuts > before:
                break
        return killed

    def _at_each_message(self, what: str, attack: Attack, when: When) -> int:
        """Strike at each message in turn, and return how many there were."""
        return next(nth - 1 for nth in itertools.count(1) if not self._at_message(what, attack, when, nth))

    def _at_message(self, what: str, attack: Attack, when: When, nth: int) -> bool:
        """Strike at one message; return whether there was one. It may go uncut: a goodbye has no answer."""
        home = self._new_home()
        self._run.setup(home)
        self._acks.clear()
        cuts = self._proxy.cuts
        with self._reporting(lambda: f"{what} {_MOMENTS[when].format(self._number(nth))}."):
            attack(home, when, nth)
            was_sent = self._proxy.cut_nothing()
            if self._proxy.cuts > cuts:
                self._run.check(Remains(home, list(self._acks)))
        return was_sent

    def _number(self, nth: int) -> str:
        """Return which message it is, and what it asks for."""
        return f"{nth} ({self._proxy.cut_message})" if self._proxy.cut_message else str(nth)

    def _run_and_cut(self, home: Path, when: When, nth: int) -> None:
        self._proxy.cut(when, nth)
        self._run.retrying_workload(home)

    def _run_and_kill(self, home: Path, when: When, nth: int) -> None:
        with _forked(lambda: self._run.ready_to_work(home), self._acks) as (pid, go):
            self._proxy.cut(when, nth, lambda: os.kill(pid, signal.SIGKILL))
            go()

    @contextlib.contextmanager
    def _reporting(self, what: Callable[[], str]) -> Iterator[None]:
        """Turn any error into a violation that says what was done."""
        try:
            yield
        except Exception as error:
            acked = (
                "; ".join(map(repr, itertools.takewhile(lambda ack: isinstance(ack, Acknowledged), self._acks)))
                or "nothing"
            )
            raise Violation("\n".join([what(), f"acknowledged: {acked}", *failure_lines(error)])) from error


@contextlib.contextmanager
def _forked(ready: Ready, acks: Acks) -> Iterator[tuple[int, Callable[[], None]]]:
    """Work in a child process; yield its id and a function that starts it. Then collect what it acknowledged.

    Raises:
        Violation: it raised something.
    """
    ours, theirs = connection.Pipe()
    pid = fork()
    if pid == 0:
        _serve(theirs, ready, acks)
    theirs.close()
    try:
        with ours:
            messages = [loads(ours.recv_bytes())]  # that it is ready, or what it raised
            yield pid, lambda: ours.send_bytes(b"go")
            with contextlib.suppress(EOFError, ConnectionResetError):
                while True:
                    messages.append(loads(ours.recv_bytes()))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    acks += [value for kind, value in messages if kind == "acked"]
    for kind, value in messages:
        if kind == "raised":
            raise Violation(value)


def _serve(pipe: connection.Connection, ready: Ready, acks: Acks) -> None:
    """Work, as a child process, and exit."""
    acks.send = lambda value: pipe.send_bytes(dumps(("acked", value)))
    try:
        with ready() as work:
            pipe.send_bytes(dumps(("ready", None)))
            pipe.recv_bytes()
            work()
    except BaseException as error:
        pipe.send_bytes(dumps(("raised", "\n".join(error_lines(error)))))
    finally:
        os._exit(0)
