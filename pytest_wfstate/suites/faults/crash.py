"""Crashes: a scenario in the crash lab, judged by the reference.

The calls of a scenario are acknowledged one by one. After a crash the reopened store must show what the reference
shows after the acknowledged calls, with or without the one that was in flight; then it must go on working.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from pytest_wfstate.contracts.base import Call, Contract
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.render import call_in_words
from pytest_wfstate.engine.script import RESTART, Memory, ScriptRun, Step
from pytest_wfstate.labs.crash import Crash
from pytest_wfstate.oracle.history import Entry, Errored, NeverReturned, Outcome, Refused, Returned
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState

__tracebackhide__ = True

IDS = ("a", "b")
REOPENED = "reopened"


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """Calls that a crash comes between, and what was done before."""

    calls: Sequence[Call]
    before: Sequence[Step] = ()
    faults: Sequence[str] = ("kill", "power", "errors", "server")
    """What is done to it. A long one may be spared the errors, and lost connections, where a short one meets them."""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Acknowledged:
    """A call that came back, and what it came to."""

    call: str
    outcome: Outcome
    made: str | None = None
    """The id that the store has made up, if it was such a call."""

    def __repr__(self) -> str:
        return f"{self.call} {self.outcome}" if isinstance(self.outcome, Errored) else self.call


class Acked(Protocol):
    """What a fault has left."""

    @property
    def home(self) -> Path:
        """Where the store is."""

    @property
    def acked(self) -> Sequence[Any]:
        """What was acknowledged before."""


class CrashRun:
    """A scenario on a store: `setup`, `workload` and `check` are for the crash lab."""

    def __init__(
        self,
        handles: Callable[[Path], Handles],
        contract: Contract,
        normalise: Callable[[Any], Any],
        scenario: Scenario,
        afterwards: Sequence[Call],
        ack: Callable[[Any], None],
    ) -> None:
        self._handles = handles
        self._contract = contract
        self._model = ReferenceModel(contract, normalise, in_order=False)  # order is a matter of other clauses
        self._scenario = scenario
        self._looks: list[Call] = []
        self._afterwards = list(afterwards)
        self._ack = ack
        self._memory: Memory = {}
        self._refusals: list[bool] = []
        self._start: tuple[ReferenceState, ...] = ()
        self._looks_at_made: dict[str, list[Call]] = {}

    def rehearse(self, new_home: Callable[[], Path]) -> None:
        """Do it all without a crash: what goes wrong here is no matter of crashes. Learn what the store offers.

        Raises:
            Violation: the store does not do what the reference does.
        """
        for calls in (self._scenario.calls, ()):
            with self._handles(new_home()) as handles:
                play = ScriptRun(self._model, [self._model.start()])
                play.all(handles, [*self._scenario.before, RESTART])
                self._start = play.worlds
                for call in calls:
                    outcome = handles.outcome(FIRST, call)
                    self._refusals.append(isinstance(outcome, Refused))
                    play.judge(FIRST, call, outcome)
                play.all(handles, [RESTART])
                self._looks = [call for call in self._contract.observe(IDS) if play.offers(handles, call)]
                play.all(handles, [self._scenario.calls[-1 if calls else 0]])
                self._afterwards = [call for call in self._afterwards if play.offers(handles, call)]
                play.all(handles, [RESTART, *self._looks, *self._looks_at(play.made)])

    def setup(self, home: Path) -> None:
        """Do what was done before."""
        with self._handles(home) as handles:
            for line in self._scenario.before:
                if isinstance(line, str):
                    handles.restart()
                elif isinstance(line, Call):
                    handles.outcome(FIRST, line)
                else:
                    handles.outcome(line.handle, line.call)

    def workload(self, home: Path) -> None:
        """Make the calls, and acknowledge each."""
        with self._handles(home) as handles:
            self._work(handles)

    @contextlib.contextmanager
    def at_work(self, home: Path) -> Iterator[Callable[[], None]]:
        """Give what makes the calls, through a handle that has been used before, if anything was done before.

        What a client says to a server to get to know it is then said already.
        """
        with self._handles(home) as handles:
            if self._scenario.before:
                handles.outcome(FIRST, self._looks[0])
            yield lambda: self._work(handles)

    def _work(self, handles: Handles) -> None:
        for number, call in enumerate(self._scenario.calls):
            self._promise(call, self._checked(number, handles.outcome(FIRST, call)))

    def stubborn_workload(self, home: Path) -> None:
        """Make the calls, and make one that fails once more, through the same handle."""
        with self._handles(home) as handles:
            for number, call in enumerate(self._scenario.calls):
                try:
                    outcome = self._checked(number, handles.outcome(FIRST, call))
                except Exception as error:
                    self._promise(call, Errored(type(error).__name__))
                    outcome = self._checked(number, handles.outcome(FIRST, call))
                self._promise(call, outcome)

    def check(self, disk: Acked) -> None:
        """Look at what is there, go on, and look again. All of it is acknowledged: a check may be crashed as well."""
        play = ScriptRun(self._model, self._worlds(disk.acked), memory=self._memory)
        made = self._looks_at(one.made for one in disk.acked if isinstance(one, Acknowledged) and one.made is not None)
        plan = [*made, *self._plan(disk.acked)]
        self._ack(RESTART)
        with self._handles(disk.home) as handles:
            for call in plan:
                outcome = handles.outcome(REOPENED, call)
                play.judge(REOPENED, call, outcome, handles.driver.refusal)
                if self._contract[call.name].mutates:
                    self._promise(call, outcome)
            play.all(handles, [RESTART, *self._looks, *made])

    def _looks_at(self, made: Iterable[str]) -> list[Call]:
        """Tell how to look at ids that the store has made up: with the same calls each time, see Memory."""
        offered = {call.name for call in self._looks}
        looks: list[Call] = []
        for one in made:
            shown = [call for call in self._contract.reads([one]) if call.name in offered]
            looks += self._looks_at_made.setdefault(one, shown)
        return looks

    def _plan(self, acked: Sequence[Any]) -> list[Call]:
        """Tell what a process does that starts after a crash: look, do what was in flight once more, and go on."""
        done = sum(not isinstance(one, Errored) for one in _lives(acked)[0])
        calls = self._scenario.calls
        return [*self._looks, calls[min(done, len(calls) - 1)], *self._afterwards]

    def _worlds(self, acked: Sequence[Any]) -> tuple[ReferenceState, ...]:
        """Give every world that the calls can have led to."""
        worlds = self._start
        for number, outcomes in enumerate(_lives(acked)):
            plan = self._scenario.calls if number == 0 else self._plan(acked)
            changes = [call for call in plan if self._contract[call.name].mutates] if number else list(plan)
            worlds = self._lived(worlds, changes, outcomes)
        return worlds

    def _lived(
        self, worlds: tuple[ReferenceState, ...], calls: Sequence[Call], outcomes: Sequence[Outcome]
    ) -> tuple[ReferenceState, ...]:
        """Let a process make calls with these outcomes; it dies in the next one, or before it.

        Raises:
            Violation: one of them cannot be.
        """
        waiting = list(calls)
        for outcome in outcomes:
            after = self._stepped(worlds, waiting[0], outcome)
            if not after:
                ScriptRun(self._model, worlds).judge(FIRST, waiting[0], outcome)  # which says what is wrong with it
            worlds = after
            if not isinstance(outcome, Errored):
                waiting.pop(0)
        if waiting:
            worlds = self._stepped(worlds, waiting[0], NeverReturned())
        return tuple(dict.fromkeys(self._model.restart(world) for world in worlds))

    def _stepped(self, worlds: tuple[ReferenceState, ...], call: Call, outcome: Outcome) -> tuple[ReferenceState, ...]:
        key = (worlds, id(call), repr(outcome))
        if key not in self._memory:
            entry = Entry(FIRST, call.name, call.args, 0, 0, outcome)
            after = (next_ for world in worlds for next_ in self._model.step(world, entry))
            maybe = () if entry.must_have_happened else worlds
            self._memory[key] = tuple(dict.fromkeys([*maybe, *after]))
        return self._memory[key]

    def _promise(self, call: Call, outcome: Outcome) -> None:
        made = outcome.value if isinstance(outcome, Returned) and self._contract[call.name].generates_id else None
        self._ack(Acknowledged(call_in_words(call), outcome, made))

    def _checked(self, number: int, outcome: Outcome) -> Outcome:
        """Take a refusal where there was none without the fault as an error: it is left open what came of the call."""
        if isinstance(outcome, Refused) and not self._refusals[number]:
            raise OSError(f"the store said {outcome}")
        return outcome


def explorations(fault: str) -> int:
    """Tell how many explorations `crashed` makes of one scenario."""
    return 2 if fault == "errors" else 1


def crashed(trial: CrashRun, lab: Crash, fault: str) -> None:
    """Take a scenario that was rehearsed through everything that one kind of fault can do to it.

    Raises:
        CrashBug, ErrorBug: the store does not survive.
    """
    if fault == "errors":
        lab.errors(trial.workload, trial.check, setup=trial.setup)
        lab.errors(trial.stubborn_workload, trial.check, setup=trial.setup)
    else:
        lab.explore(trial.workload, trial.check, setup=trial.setup, model="kill" if fault == "kill" else None)


def _lives(acked: Sequence[Any]) -> list[list[Outcome]]:
    """Sort what was acknowledged by the process that did."""
    lives: list[list[Outcome]] = [[]]
    for one in acked:
        if one == RESTART:
            lives.append([])
        else:
            lives[-1].append(one.outcome)
    return lives
