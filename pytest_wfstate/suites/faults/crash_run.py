"""Crash runs: a scenario in the crash lab, judged by the reference.

The calls of a scenario are acknowledged one by one. After a crash the reopened store must show what the reference
shows after the acknowledged calls, with or without the one that was in flight; then it must keep working. In place of
the reference there can be the store's own uninterrupted runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.own_runs import OwnRuns, learning, own_problem
from pytest_wfstate.engine.results import Results
from pytest_wfstate.engine.script import RESTART, ScriptRun, Step, ViaHandle
from pytest_wfstate.engine.visibility import is_shown, need_visible
from pytest_wfstate.errors import blamed
from pytest_wfstate.faults.crash.failing_gate import Reaction
from pytest_wfstate.labs.crash import Disk
from pytest_wfstate.oracle.history import Errored, Outcome, Refused, Returned
from pytest_wfstate.oracle.judge import Judge, States
from pytest_wfstate.oracle.render import call_in_words
from pytest_wfstate.oracle.values import memo_key
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True

IDS = ("a", "b")
REOPENED = "reopened"


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """Calls to crash, and what was done before."""

    calls: Sequence[Call]
    before: Sequence[Step] = ()
    faults: Sequence[str] = ("kill", "power", "errors", "server", "cancel")
    """What is done to it. A long scenario may be spared the errors and lost connections that a short one gets."""
    then: Sequence[Call] | None = None
    """What the next process does instead of retrying the call that was in flight."""
    first: Sequence[Call] = ()
    """What the next process does before it reads anything. To see everything it has to recover, which ends claims."""


def scenarios_of(context: ClauseContext, name: str, fault: str) -> list[Scenario]:
    """Return the scenarios of a method that a fault is injected into.

    Where the method saves, and the store does not replace records, there is one in which nothing is replaced.
    """
    of_fault = [scenario for scenario in context.suite.scenarios[name] if fault in scenario.faults]
    scenarios = context.taken(of_fault, lambda scenario: [*scenario.calls, *scenario.before])
    saves = any(context.model.may_refuse(call) for scenario in scenarios for call in scenario.calls)
    write = context.contract.write
    return [*scenarios, *([Scenario([write("a", 1)], before=[write("b", 1)])] if saves else [])]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Acknowledged:
    """A call that returned, with its outcome."""

    call: Call
    outcome: Outcome
    generated_id: str | None = None
    """The id that the store generated, if the call returns one."""

    def __repr__(self) -> str:
        text = call_in_words(self.call)
        return f"{text} {self.outcome}" if isinstance(self.outcome, Errored) else text


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Restarted:
    """Stands between what one process acknowledged and what the next one did."""

    def __repr__(self) -> str:
        return "-- restart --"


@dataclasses.dataclass(frozen=True, slots=True)
class Remains:
    """What a cut connection or a dead client leaves: where the store is, and what was acknowledged."""

    home: Path
    acked: list[Any]


class CrashRun:
    """A scenario on a store: `setup`, `workload` and `check` are for the crash lab, `ack` is the lab's."""

    def __init__(self, context: ClauseContext, scenario: Scenario, ack: Callable[[Any], None]) -> None:
        self.title = _title(scenario)
        self._context = context
        self._contract = context.contract
        # Other clauses check the order of lists.
        model = context.new_model(in_order=False)
        self._judge = Judge(model, remembers=True)
        self._scenario = scenario
        self._calls = list(scenario.calls)
        self._reads: list[Call] = []
        self._afterwards = list(context.suite.afterwards)
        self._ack = ack
        self._refusals: list[Refused | None] = []
        """How each call was refused in the rehearsal, if it was."""
        self._partial = ""
        self._start: States = ()
        self._reads_of_generated: dict[str, list[Call]] = {}
        self._resolved_calls: dict[Hashable, Call] = {}

    @property
    def cannot_tell(self) -> str:
        """Why the last check says nothing, if it is judged by own runs."""
        return own_problem(self._judge.model, self._partial)

    @property
    def may_write_nothing(self) -> bool:
        """Whether the calls need not change anything: the store refuses them all, or nothing shows them afterwards."""
        if isinstance(self._judge.model, OwnRuns):
            return all(self._refusals[: len(self._calls)])
        scenario, model = self._scenario, self._context.new_model(in_order=False)
        return not is_shown(model, scenario.before, self._calls, [*scenario.first, *self._contract.observe(IDS)])

    def rehearse_alone(self) -> None:
        """Make all calls without a crash, twice, and from now on judge by what the store does then.

        Raises:
            Violation: it does not do the same twice.
        """
        self._judge = self._context.own_judge()
        self._calls, self._afterwards = list(self._scenario.calls), list(self._context.suite.afterwards)
        self._refusals.clear()
        with learning(self._judge.model):
            self.rehearse()
        scenario, reference = self._scenario, self._context.new_model(in_order=False)
        with contextlib.closing(self._judge):
            reads = [*scenario.first, *self._reads]
            need_visible(self._judge.model, reference, scenario.before, self._calls, reads)

    def rehearse(self) -> None:
        """Make all calls without a crash, and learn which of them the store offers.

        Raises:
            Violation: the store does not do what the reference does.
        """
        for number, done in self._rehearsals():
            with contextlib.closing(self._judge), self._handles(self._context.home()) as handles:
                script = ScriptRun(self._judge.begin())
                script.run(handles, [*self._scenario.before, RESTART])
                self._start = script.timeline.states
                for unresolved in self._calls[:number]:
                    if not self._changes(unresolved) and not script.offers(handles, unresolved):
                        self._calls.remove(unresolved)
                        continue
                    call = script.results.resolve(unresolved)
                    outcome = _outcome(script, handles, FIRST, call)
                    self._refusals += [outcome if isinstance(outcome, Refused) else None]
                    script.judge(handles, FIRST, call, outcome)
                if script.could_not_replace:
                    pytest.skip(self._context.not_supported("replace"))
                script.run(handles, [RESTART, *self._scenario.first])
                self._reads = [call for call in self._contract.observe(IDS) if script.offers(handles, call)]
                script.run(handles, self._next_calls(done))
                self._afterwards = [call for call in self._afterwards if script.offers(handles, call)]
                generated = self._reads_of(script.timeline.generated_ids)
                script.run(handles, [RESTART, *self._reads, *generated])

    def setup(self, home: Path) -> None:
        """Do what was done before."""
        self._context.prepare(home)
        with self._handles(home) as handles:
            for step in self._scenario.before:
                if isinstance(step, str):
                    handles.restart()
                else:
                    via = step if isinstance(step, ViaHandle) else ViaHandle(FIRST, step)
                    handles.outcome(via.handle, via.call)

    def workload(self, home: Path) -> None:
        """Make the calls, and acknowledge each."""
        with self._handles(home) as handles:
            self._work(handles)

    def retrying_workload(self, home: Path) -> Reaction | None:
        """Make the calls, and retry each that fails, once, through the same handle. Return what a report says of it."""
        reaction = None
        results = Results()
        with self._handles(home) as handles:
            for number, unresolved in enumerate(self._calls):
                call = results.resolve(unresolved)
                try:
                    outcome = self._made(handles, number, call)
                except Exception as error:
                    name = type(error).__name__
                    self._promise(call, Errored(name))
                    outcome = self._made(handles, number, call, retries=True)
                    reaction = Reaction(f"the store raised {name}; the suite retried the call and it succeeded")
                self._promise(call, outcome)
                results.add(call, outcome)
        return reaction

    @contextlib.contextmanager
    def ready_to_work(self, home: Path) -> Iterator[Callable[[], None]]:
        """Yield a function that makes the calls, through a handle that has been used if the store has records.

        The client has then already exchanged with the server what precedes its first call.
        """
        with self._handles(home) as handles:
            if self._scenario.before:
                handles.outcome(FIRST, self._reads[0])
            yield lambda: self._work(handles)

    def check(self, disk: Disk | Remains) -> None:
        """Read everything and continue, restart, and read again. Each change is acknowledged: the check is crashed too.

        Raises:
            Violation: the reference does not explain what the store returned.
        """
        self._partial = ""
        first, *later = _by_process(disk.acked)
        plan = self._plan(first)
        script = ScriptRun(self._judge.begin(self._start))
        self._replay(script, FIRST, self._calls, first)
        for calls, acks in zip(itertools.cycle([plan, self._reads]), later, strict=False):
            self._replay(script, REOPENED, [call for call in calls if self._changes(call)], acks)
        generated = self._reads_of(ack.generated_id for ack in disk.acked if isinstance(ack, Acknowledged))
        with contextlib.closing(self._judge), self._handles(disk.home) as handles:
            for calls in ([*generated, *plan], [*self._reads, *generated]):
                self._ack(Restarted())
                for unresolved in calls:
                    call = self._resolved(unresolved, script.results)
                    outcome = _outcome(script, handles, REOPENED, call)
                    script.judge(handles, REOPENED, call, outcome)
                    if self._changes(call):
                        self._promise(call, outcome)
                script.run(handles, [RESTART])

    def _work(self, handles: Handles) -> None:
        results = Results()
        for number, unresolved in enumerate(self._calls):
            call = results.resolve(unresolved)
            outcome = self._made(handles, number, call)
            self._promise(call, outcome)
            results.add(call, outcome)

    def _replay(self, script: ScriptRun, client: str, calls: Sequence[Call], acks: Sequence[Acknowledged]) -> None:
        """Have a script continue after a process that acknowledged these calls and died in or before the next."""
        made = []
        waiting = iter(acks)
        for call in calls:
            made.append(self._resolved(call, script.results))
            returned = next((ack for ack in waiting if not isinstance(ack.outcome, Errored)), None)
            if returned is None:
                self._partial = call.name if self._contract[call.name].partial_effects else self._partial
                break
            script.results.add(returned.call, returned.outcome)
        script.timeline.crash(client, made, [ack.outcome for ack in acks])

    def _resolved(self, call: Call, results: Results) -> Call:
        """Return the call to make: the same object each time, for the judge remembers it."""
        resolved = results.resolve(call)
        if resolved is call:
            return call
        return self._resolved_calls.setdefault((id(call), memo_key(list(resolved.args))), resolved)

    def _made(self, handles: Handles, number: int, call: Call, *, retries: bool = False) -> Outcome:
        """Make a call. A refusal that the rehearsal did not have is an error: the call may have taken effect."""
        outcome = handles.outcome(FIRST, call)
        refusal = handles.driver.refusal
        is_expected = self._refusals[number] == outcome or (retries and self._judge.model.may_refuse(call))
        if isinstance(outcome, Refused) and not is_expected and refusal is not None:
            raise refusal
        return outcome

    def _handles(self, home: Path) -> Handles:
        return self._context.handles(home, self._judge.model.errors)

    def _changes(self, call: Call) -> bool:
        return self._contract[call.name].mutates

    def _promise(self, call: Call, outcome: Outcome) -> None:
        generates_id = self._contract[call.name].generates_id
        id_ = outcome.value if isinstance(outcome, Returned) and generates_id else None
        self._ack(Acknowledged(call, outcome, id_))

    def _reads_of(self, ids: Iterable[str | None]) -> list[Call]:
        """Return the reads of ids that the store generated: the same calls each time, for the judge remembers them."""
        offered = {call.name for call in self._reads}
        reads: list[Call] = []
        for id_ in ids:
            if id_ is not None:
                own = [call for call in self._contract.reads([id_]) if call.name in offered]
                reads += self._reads_of_generated.setdefault(id_, own)
        return reads

    def _plan(self, acks: Sequence[Acknowledged]) -> list[Call]:
        """Return what a process does that starts after a crash: read, retry what was in flight, and continue."""
        done = sum(not isinstance(ack.outcome, Errored) for ack in acks)
        return [*self._scenario.first, *self._reads, *self._next_calls(done), *self._afterwards]

    def _rehearsals(self) -> list[tuple[int, int]]:
        """Return how many calls to make, and with how many of them acknowledged the next process continues."""
        number = len(self._calls)
        made = [(count, done) for count in range(number, -1, -1) for done in (count, count - 1) if done >= 0]
        continued = {(count, tuple(map(id, self._next_calls(done)))): (count, done) for count, done in reversed(made)}
        return list(reversed(continued.values()))

    def _next_calls(self, done: int) -> Sequence[Call]:
        """Return what the next process does if this many calls were acknowledged; the rehearsal does the same."""
        calls, then = self._calls, self._scenario.then
        return [calls[min(done, len(calls) - 1)]] if then is None else then


def _outcome(script: ScriptRun, handles: Handles, client: str, call: Call) -> Outcome:
    try:
        return handles.outcome(client, call)
    except Exception as error:
        blamed(error, f"{script.timeline.named(call)}raises {type(error).__name__}")
        raise


def _title(scenario: Scenario) -> str:
    steps = [step.call if isinstance(step, ViaHandle) else step for step in scenario.before]
    before = ", ".join(call_in_words(step) for step in steps if isinstance(step, Call))
    calls = ", ".join(map(call_in_words, scenario.calls))
    return f"{calls} after {before}" if before else calls


def _by_process(acked: Sequence[Any]) -> list[list[Acknowledged]]:
    """Sort what was acknowledged by the process that did."""
    processes: list[list[Acknowledged]] = [[]]
    for ack in acked:
        if isinstance(ack, Restarted):
            processes.append([])
        else:
            processes[-1].append(ack)
    return processes
