"""Server clauses: what a lost connection, a dead client or a dead server may leave of a store on a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.labs.race import Race, StormResult
from pytest_wfstate.suites.clauses import clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.server import ServerLink, cut_each_message

__tracebackhide__ = True

Test = Callable[[ClauseContext], None]


def server_clauses(suite: Any) -> dict[str, Test]:
    """Make the clauses of a suite's scenarios."""
    scenarios = vars(suite).get("scenarios", {})
    return {f"test_cut_{name}": _cut(name) for name in scenarios} | (
        {"test_server_killed": _killed()} if scenarios else {}
    )


def _cut(name: str) -> Test:
    told = name.replace("_", " ")

    @clause(
        "safe",
        f"A connection that is lost in {told} leaves {told} in full or not at all; what failed can be done again.",
        "server",
    )
    def test(self: ClauseContext) -> None:
        cut_each_message(self, name, ServerLink.cut)

    return test


def _killed() -> Test:
    @clause("hardened", "A server that is killed and started again has kept all that was acknowledged.", "server")
    def test(self: ClauseContext) -> None:
        server = self._need_server()
        if not hasattr(server, "kill"):
            pytest.skip(f"{self.server} cannot be killed: it is not started by these tests")
        lab: Race = self._request.getfixturevalue("_wfstate_race")
        home = self._home()
        self._tell("limit", ["a killed server shows the death of a process, not a power cut"])
        try:
            lab.run_storm(
                lambda: self._handles(home),
                self.contract,
                StormResult(_WORKERS, seed=0),
                _SECONDS[self._profile],
                medium="server",
                kills=True,
                timeout=self._timeout,
                server=server,
                normalise=self.normalise,
            )
        except RaceBug as bug:
            raise Violation(f"{self._title}\n\n{bug}") from None

    return test


_WORKERS = 4
_SECONDS = {"quick": 1.0, "default": 3.0, "thorough": 30.0}
