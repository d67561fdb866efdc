"""Connections: a scenario on a store on a server, whose connection is cut, or whose client dies, at each message.

There is no disk to look at. But whatever happened, a store that is opened afterwards must show what the reference shows
after the calls that came back, with or without the one that did not; and it must go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing.connection as connection
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pytest_wfstate.engine.script import RESTART
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.report_text import said
from pytest_wfstate.faults.servers.proxy import Proxy, When
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.crash import CrashRun
from pytest_wfstate.suites.faults.rehearsal import rehearsed

__tracebackhide__ = True

WHENS: tuple[When, ...] = ("before", "after")
_TOLD = {
    "before": "before message {} from the client came to the server",
    "after": "when the server had answered message {}, and before the client had that answer",
}

Playing = Callable[[Path, When, int], None]
"""Plays a scenario at a home, in which the line is cut before or after the n-th message."""

AtWork = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Gets ready, and gives what does the work."""


class Acks(list[Any]):
    """What a workload acknowledges: in this process, or in another that tells this one."""

    tell: Callable[[Any], None] | None = None

    def ack(self, value: Any) -> None:
        """Acknowledge something."""
        self.append(value)
        if self.tell:
            self.tell(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Left:
    """What is left when a connection was cut or a client has died."""

    home: Path
    acked: list[Any]


class ServerLink:
    """The line between a store and its server, and a scenario that is played over it."""

    def __init__(self, proxy: Proxy, trial: CrashRun, acks: Acks, new_home: Callable[[], Path]) -> None:
        self._proxy = proxy
        self._trial = trial
        self._acks = acks
        self._new_home = new_home

    def cut(self) -> int:
        """Cut the connection at each message; the call that fails is made once more.

        Give how often it was cut at the least: before messages, or after their answers.

        Raises:
            Violation: the store does not survive.
        """
        cuts = []
        for when in WHENS:
            before = self._proxy.cuts
            self._at_each_message("the connection was cut", self._play_and_cut, when)
            cuts.append(self._proxy.cuts - before)
        return min(cuts)

    def kill(self) -> int:
        """Kill the client at each message. Give how often it was killed.

        Before a message the server has done what it had done after the one before that, and the client has promised
        no less. So only after the last there is something else to see.

        Raises:
            Violation: the store does not survive.
        """
        what, play = "the client was killed", self._play_and_kill
        killed = self._at_each_message(what, play, "before")
        before = self._proxy.cuts
        for nth in range(killed, 0, -1):
            self._at_message(what, play, "after", nth)
            if self._proxy.cuts > before:
                break
        return killed

    def _at_each_message(self, what: str, play: Playing, when: When) -> int:
        """Give how many messages there were."""
        return next(nth - 1 for nth in itertools.count(1) if not self._at_message(what, play, when, nth))

    def _at_message(self, what: str, play: Playing, when: When, nth: int) -> bool:
        """Tell whether there was such a message. It need not have been cut: to a farewell there is no answer."""
        home = self._new_home()
        self._trial.setup(home)
        self._acks.clear()
        cuts = self._proxy.cuts
        with self._told(f"{what} {_TOLD[when].format(nth)}."):
            play(home, when, nth)
            came = self._proxy.cut_nothing()
            if self._proxy.cuts > cuts:
                self._trial.check(Left(home, list(self._acks)))
        return came

    def _play_and_cut(self, home: Path, when: When, nth: int) -> None:
        self._proxy.cut(when, nth)
        self._trial.stubborn_workload(home)

    def _play_and_kill(self, home: Path, when: When, nth: int) -> None:
        with _forked(lambda: self._trial.at_work(home), self._acks) as (pid, go):
            self._proxy.cut(when, nth, lambda: os.kill(pid, signal.SIGKILL))
            go()

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Say what was done when it comes to no good."""
        try:
            yield
        except Exception as error:
            acked = "; ".join(map(repr, itertools.takewhile(lambda one: one != RESTART, self._acks))) or "nothing"
            told = [str(error)] if isinstance(error, Violation) else said(error)
            raise Violation("\n".join([what, f"acknowledged: {acked}", *told])) from error


@contextlib.contextmanager
def _forked(at_work: AtWork, acks: Acks) -> Iterator[tuple[int, Callable[[], None]]]:
    """Do something in another process, which begins when it is told to; wait for its end, and for what it acknowledged.

    Raises:
        Violation: it raised something.
    """
    ours, theirs = connection.Pipe()
    pid = fork()
    if pid == 0:
        _serve(theirs, at_work, acks)
    theirs.close()
    with ours:
        first = loads(ours.recv_bytes())  # that it is ready, or what it raised
        yield pid, lambda: ours.send_bytes(b"go")
        told = [first]
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                told.append(loads(ours.recv_bytes()))
        os.waitpid(pid, 0)
    acks += [value for what, value in told if what == "acked"]
    for what, value in told:
        if what == "raised":
            raise Violation(value)


def _serve(pipe: connection.Connection, at_work: AtWork, acks: Acks) -> None:
    """Work, in a process that was forked for it, and end it."""
    acks.tell = lambda value: pipe.send_bytes(dumps(("acked", value)))
    try:
        with at_work() as work:
            pipe.send_bytes(dumps(("ready", None)))
            pipe.recv_bytes()
            work()
    except BaseException as error:
        pipe.send_bytes(dumps(("raised", "\n".join(said(error)))))
    finally:
        os._exit(0)


def cut_each_message(suite: ClauseContext, name: str, do: Callable[[ServerLink], int]) -> None:
    """Do something to each message of a suite's scenarios."""
    suite._need_server()
    acks = Acks()
    scenarios = [one for one in suite.scenarios[name] if "server" in one.faults]
    trials = [suite._trial(scenario, acks.ack) for scenario in scenarios]
    for trial in rehearsed(suite, trials):
        try:
            done = do(ServerLink(suite._proxy, trial, acks, suite._home))
        except Violation as violation:
            raise Violation(f"{suite._title}\n\n{violation}") from violation.__cause__
        if not done:
            raise NotMeasured(
                f"{suite._title}\n\nNOT_MEASURED: nothing went through the proxy before the server, or nothing was "
                "answered. Have open() connect to self.url, which is the proxy's."
            )
