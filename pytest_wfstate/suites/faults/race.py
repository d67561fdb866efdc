"""Race clauses: for each two methods that change something, and for each that reads, what happens concurrently."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.faults.race.storm import Storm
from pytest_wfstate.labs.storm import StormResult
from pytest_wfstate.oracle.judge import Judge
from pytest_wfstate.suites.clauses import NOT_APPLICABLE, Test, clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.race_run import RaceCase, RaceRole, RaceRun, race_cases, two_processes
from pytest_wfstate.suites.faults.rehearsal import inject

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True

PREEMPTIONS = {"quick": 1, "default": 2, "thorough": 2}
_ROUNDS = {"quick": 3, "default": 10, "thorough": 200}
_WORKERS = 4
_CALLS = {"quick": 400, "default": 1_000, "thorough": 20_000}  # in a storm
_PREEMPTIONS_WITH_DEATH = {"quick": 0, "default": 0, "thorough": 1}  # each death takes a new process


def clauses_for(suite: Any) -> dict[str, Test]:
    """Make the clauses of a suite's race roles."""
    roles: Mapping[str, RaceRole] = vars(suite).get("race_roles", {})
    if not roles:
        return {}
    changing = [name for name, role in roles.items() if _changes(suite.contract, name, role)]
    tests = {
        f"test_race_{name}_{other}": _pair(name, other)
        for name, other in itertools.combinations_with_replacement(changing, 2)
    }
    for name in roles:
        if name not in changing:
            promise = f"Concurrent with a change, {_verb(name)} sees the state before it or after it."
            tests[f"test_race_{name}"] = _against_each(name, changing, promise)
        elif suite.kills_racers:
            promise = f"A worker killed during {_verb(name)} does not harm what another one does."
            tests[f"test_race_killed_{name}"] = _against_each(name, changing, promise, crash=True)
    storm = {"test_race_storm": _storm} if suite.storms else {}
    return {**tests, "test_race_first_use": _first_use, **storm}


def _changes(contract: Contract, name: str, role: RaceRole) -> bool:
    named = [operation.mutates for operation in contract.operations if operation.name == name]
    return any(named or [contract[call.name].mutates for call in role.calls("a", 1)])


def _verb(name: str) -> str:
    return name.replace("_", " ")


def _pair(name: str, other: str) -> Test:
    @clause("safe", f"Concurrent {_verb(name)} and {_verb(other)} behave as if one ran after the other.", "race")
    def test(self: Suite) -> None:
        _race(self.context, race_cases(self.race_roles[name], self.race_roles[other]))

    return test


def _against_each(name: str, changing: Sequence[str], promise: str, *, crash: bool = False) -> Test:
    @clause("safe", promise, "race")
    def test(self: Suite) -> None:
        roles = self.race_roles
        _race(self.context, [race_cases(roles[name], roles[other])[0] for other in changing], crash=crash)

    return test


@clause("safe", "Two processes can use a new store for the first time at once.", "race", needs="first-use")
def _first_use(self: Suite) -> None:
    if self.medium == "memory":
        pytest.skip(f"{NOT_APPLICABLE} to medium 'memory': its processes share nothing")
    write = self.contract.write
    _race(self.context, [RaceCase((), ((write("a", 1),), (write("b", 2),)), prepares=True)])


@clause(
    "safe", "Calls of several workers at once, some of which are killed, behave as if one ran after another.", "race"
)
def _storm(self: Suite) -> None:
    context = self.context
    home = context.home()
    context.race_lab.run_storm(
        lambda: context.handles(home),
        self.contract,
        StormResult(_WORKERS, seed=0),
        _CALLS[context.profile],
        medium=context.medium,
        kills=True,
        timeout=context.timeout,
        model=context.new_model(),
        accepts=context.accepts,
    )


def _race(context: ClauseContext, cases: Sequence[RaceCase], *, crash: bool = False) -> None:
    lab = context.race_lab
    taken = context.taken(cases, lambda case: [*case.before, *itertools.chain(*case.workers)])
    chosen = taken[:1] if context.medium == "memory" and context.profile == "quick" else taken
    judge = Judge(context.model)
    runs = [RaceRun(context, judge, case, lab.ack) for case in chosen]
    lab.divide(len(runs))
    with contextlib.ExitStack() as stack:

        @functools.cache
        def processes() -> Storm:
            return stack.enter_context(contextlib.closing(two_processes(context)))

        def race(run: RaceRun) -> None:
            if context.medium == "memory":
                _race_in_memory(context, run, crash=crash)
            elif context.medium == "server" or _has_unseen_writes(context, run):
                _race_for_real(context, run, processes, crash=crash)
            else:
                preemptions = (_PREEMPTIONS_WITH_DEATH if crash else PREEMPTIONS)[context.profile]
                lab.explore(run.setup, run.clients, run.check, preemptions=preemptions, crash=crash)

        inject(context, runs, race)


def _race_in_memory(context: ClauseContext, run: RaceRun, *, crash: bool) -> None:
    if crash:
        pytest.skip(f"{NOT_APPLICABLE} to medium 'memory': it does not survive its process")
    lab = context.race_lab
    lab.explore(run.setup_in_memory, run.clients, run.check, by="opcode", preemptions=1)
    if context.profile == "thorough":  # one preemption by line is one by opcode
        lab.explore(run.setup_in_memory, run.clients, run.check, by="line", preemptions=2)


def _race_for_real(context: ClauseContext, run: RaceRun, processes: Callable[[], Storm], *, crash: bool) -> None:
    """Race two processes where nothing can be interleaved, which finds races only by chance; the report says so."""
    if crash:
        pytest.skip("this backend cannot be paused at exact operations: kill workers at random with race.storm instead")
    context.report("raced", ["by real processes, which find by chance what schedules would find for certain"])
    run.run_rounds(_ROUNDS[context.profile], processes())


def _has_unseen_writes(context: ClauseContext, run: RaceRun) -> bool:
    """Whether a store writes in ways that cannot be interleaved, such as SQLite. One run of a suite finds out."""
    facts = context.facts
    if facts.has_unseen_writes is None:
        facts.has_unseen_writes = bool(context.race_lab.unseen(run.setup, run.clients))
    return facts.has_unseen_writes
