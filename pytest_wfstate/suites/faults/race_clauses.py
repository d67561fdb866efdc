"""Race clauses: for each two methods that change something, and for each that looks, what they come to at once."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.race.storm import Storm
from pytest_wfstate.labs.race import Race
from pytest_wfstate.suites.clauses import clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.race import RaceCase, RaceRole, RaceRun, race_cases, two_processes
from pytest_wfstate.suites.faults.rehearsal import rehearsed

__tracebackhide__ = True

Test = Callable[[ClauseContext], None]

PREEMPTIONS = {"quick": 1, "default": 2, "thorough": 2}
_ROUNDS = {"quick": 3, "default": 10, "thorough": 200}
_PREEMPTIONS_OF_DYING = {"quick": 0, "default": 0, "thorough": 1}  # each death takes a new process


def race_clauses(suite: Any) -> dict[str, Test]:
    """Make the clauses of a suite's racers."""
    racers: Mapping[str, RaceRole] = vars(suite).get("racers", {})
    changing = [name for name, racer in racers.items() if _changes(suite.contract, racer)]
    tests = {
        f"test_race_{one}_{other}": _pair(one, other)
        for one, other in itertools.combinations_with_replacement(changing, 2)
    }
    tests |= {f"test_race_{name}": _look(name, changing) for name in racers if name not in changing}
    if vars(suite).get("killed_racers"):
        tests |= {f"test_race_killed_{name}": _killed(name, changing) for name in changing}
    return tests


def _changes(contract: Contract, racer: RaceRole) -> bool:
    return any(contract[call.name].mutates for call in racer.calls("a", 1))


def _pair(one: str, other: str) -> Test:
    @clause(
        "safe",
        f"Two workers that {_verb(one)} and {_verb(other)} at once come to what one after the other does.",
        "race",
    )
    def test(self: ClauseContext) -> None:
        _race(self, race_cases(self.racers[one], self.racers[other]))

    return test


def _look(name: str, changing: Sequence[str]) -> Test:
    @clause(
        "safe", f"A worker that calls {_verb(name)} while another changes something sees it before or after.", "race"
    )
    def test(self: ClauseContext) -> None:
        racers = self.racers
        _race(self, [race_cases(racers[name], racers[other])[0] for other in changing])

    return test


def _killed(name: str, changing: Sequence[str]) -> Test:
    @clause(
        "safe",
        f"A worker that is killed in {_verb(name)} while another is at work does not harm what that does.",
        "race",
    )
    def test(self: ClauseContext) -> None:
        racers = self.racers
        _race(self, [race_cases(racers[name], racers[other])[0] for other in changing], crash=True)

    return test


def _verb(name: str) -> str:
    return name.replace("_", " ")


def _race(suite: ClauseContext, some: Sequence[RaceCase], *, crash: bool = False) -> None:
    lab: Race = suite._request.getfixturevalue("_wfstate_race")
    chosen = some[:1] if suite.medium == "memory" and suite._profile == "quick" else some
    matches = [RaceRun(suite._handles, suite.contract, suite._model, one, lab.ack) for one in chosen]
    lab.divide(len(matches))
    with contextlib.ExitStack() as stack:

        @functools.cache
        def processes() -> Storm:
            return stack.enter_context(contextlib.closing(two_processes(suite._handles, suite._timeout)))

        for match in rehearsed(suite, matches):
            if suite.medium == "memory":
                _race_in_memory(suite, lab, match, crash=crash)
            elif suite.medium == "server" or _is_unseen(suite, lab, match):
                _race_for_real(suite, match, processes, crash=crash)
            else:
                preemptions = (_PREEMPTIONS_OF_DYING if crash else PREEMPTIONS)[suite._profile]
                lab.explore(match.setup, match.clients, match.check, preemptions=preemptions, crash=crash)


def _race_in_memory(suite: ClauseContext, lab: Race, match: RaceRun, *, crash: bool) -> None:
    if crash:
        pytest.skip("does not apply to medium 'memory': who is killed takes it along")
    begin = functools.partial(match.setup_in_memory, suite._home)
    lab.explore(begin, match.clients, match.check, by="opcode", preemptions=1)
    if suite._profile == "thorough":  # one preemption by line is one by opcode
        lab.explore(begin, match.clients, match.check, by="line", preemptions=2)


def _race_for_real(suite: ClauseContext, match: RaceRun, processes: Callable[[], Storm], *, crash: bool) -> None:
    """Race two processes where no turns can be taken: with luck, which the report says."""
    if crash:
        pytest.skip(
            "no turns can be taken at what the store is kept in, so nobody can die at a certain one. See storms"
        )
    suite._tell("raced", ["by real processes, which find with luck what schedules would find for certain"])
    try:
        match.rounds(_ROUNDS[suite._profile], suite._home, processes())
    except Violation as violation:
        raise Violation(f"{suite._title}\n\n{violation}") from None


def _is_unseen(suite: ClauseContext, lab: Race, match: RaceRun) -> bool:
    """Tell whether a store writes by other means than those at which turns can be taken. It is asked once."""
    kind = type(suite)
    if _UNSEEN not in vars(kind):
        setattr(kind, _UNSEEN, bool(lab.unseen(match.setup, match.clients)))
    return bool(vars(kind)[_UNSEEN])


_UNSEEN = "_wfstate_unseen"
