"""The judge: decides whether the reference explains what a store did.

Scripts, crashes and schedules conclude here, and storms in `rounds`, in one way: a history is right if some order of
its calls, on the reference, returns every result that the store returned. Sequential calls are judged one by one, a
crash as calls that never returned, concurrent calls all together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.errors import Violation, blamed
from pytest_wfstate.oracle.history import Entry, Errored, NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.linearize import check
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState, Transition
from pytest_wfstate.oracle.render import (
    call_in_words,
    deviation,
    expectation,
    few,
    impossible_results,
    later_in_words,
    result_in_words,
)
from pytest_wfstate.oracle.values import frozen, memo_key

__tracebackhide__ = True

States = tuple[ReferenceState, ...]


class Judge:
    """Judges stores by one reference.

    One that `remembers` judges the same calls on many disks: it asks the reference about each of them once. Schedules
    make the same calls, too, and are always remembered.
    """

    def __init__(self, model: ReferenceModel, *, remembers: bool = False) -> None:
        self.model = model
        self._remembers = remembers
        self._transitions: dict[Hashable, list[Transition]] = {}
        self._calls: dict[int, Call] = {}
        """Calls that are remembered by their id, so that no other one gets it."""
        self._restarted: dict[ReferenceState, ReferenceState] = {}
        self._verdicts: dict[Hashable, Violation | None] = {}

    def close(self) -> None:
        """Close what the model has opened to try calls."""
        self.model.close()

    def begin(self, states: States = ()) -> Timeline:
        """Begin a timeline of sequential calls, on an empty store or on one that is in one of these states."""
        return Timeline(self, states or (self.model.start(),))

    def step(self, state: ReferenceState, entry: Entry, call: Call) -> Iterable[ReferenceState]:
        """Return every state that a call can lead to with its outcome."""
        if not self._remembers:
            return self.model.step(state, entry)
        self._calls[id(call)] = call
        return self._remembered(state, entry, id(call))

    def _remembered(self, state: ReferenceState, entry: Entry, call: Hashable) -> Iterable[ReferenceState]:
        """Ask the reference once about a call in a state."""
        key = (state, entry.client, call, entry.must_have_happened, entry.token)
        if key not in self._transitions:
            self._transitions[key] = list(self.model.transitions(state, entry))
        return self.model.explained(self._transitions[key], entry)

    def restart(self, state: ReferenceState) -> ReferenceState:
        """Return the state after every process has ended."""
        if not self._remembers:
            return self.model.restart(state)
        if state not in self._restarted:
            self._restarted[state] = self.model.restart(state)
        return self._restarted[state]

    def schedule(self, entries: Sequence[Entry]) -> None:
        """Judge concurrent calls of few clients. Of their times, only which ended before which began matters.

        Raises:
            Violation: the results are impossible in any order of the calls.
        """
        order = tuple(tuple(entry.end < other.begin for other in entries) for entry in entries)
        args = {id(entry.args): memo_key(entry.args) for entry in entries}
        key = (order, *((entry.client, entry.name, args[id(entry.args)], _key(entry.outcome)) for entry in entries))
        if key not in self._verdicts:
            reference = _Remembering(
                self.model.start,
                lambda state, entry: self._remembered(state, entry, (entry.name, args[id(entry.args)])),
            )
            unexplained = (check(part, reference) for part in self.model.parts(entries))
            contradiction = next(filter(None, unexplained), None)
            self._verdicts[key] = impossible_results(contradiction, self.model) if contradiction else None
        violation = self._verdicts[key]
        if violation is not None:
            raise blamed(Violation(str(violation)), violation.cause)


class Timeline:
    """Calls made one after the other, and every state of the reference that explains their results so far."""

    def __init__(self, judge: Judge, states: States) -> None:
        self._judge = judge
        self.model = judge.model
        self.states = states
        self.lines: list[str] = []
        """What happened so far, as a violation shows it: calls that changed something, restarts, and time."""
        self.generated_ids: list[str] = []
        self._pending: tuple[Entry, Call] | None = None
        self._unaffected: States = ()
        """Those of the states in which the pending call has not taken effect."""

    def call(self, client: str, call: Call, outcome: Outcome, detail: Callable[[], str] = str) -> None:
        """Add a call with its outcome. `detail` returns what else a violation says of it, such as an error message.

        Raises:
            Violation: the reference does not allow this outcome.
        """
        entry = Entry(client, call.name, call.args, 0, 0, outcome)
        states = self._after(self.states, entry, call)
        if self._pending is not None:
            self._unaffected = self._after(self._unaffected, entry, call)
            states = _distinct([*states, *self._after(self._unaffected, *self._pending)])
        if not states:
            expected = expectation([self.model.expected(state, entry) for state in self.states], entry, self.model)
            details = [f"    {text}" for text in (*expected, detail()) if text]
            line = f"{client}.{call_in_words(call)} {result_in_words(outcome)}"
            cause = self.named(call) + deviation(outcome, self.model.expected(self.states[0], entry))
            raise blamed(Violation("\n".join([*few(self.lines), line, *details])), cause)
        if self.model.mutates(call):  # a read that saw the right thing would only lengthen the report
            returned_nothing = isinstance(outcome, Returned) and outcome.value is None
            result = "" if returned_nothing else f" {result_in_words(outcome)}"
            self.lines.append(f"{client}.{call_in_words(call)}{result}")
        self.states = states
        if isinstance(outcome, Returned) and self.model.generates_id(call):
            self.generated_ids.append(outcome.value)

    def cancel(self, client: str, call: Call, how: str) -> None:
        """Add a call that was cancelled: it takes effect at any moment from now on until it is `settled`, or never."""
        self._pending = (Entry(client, call.name, call.args, 0, 0, NeverReturned()), call)
        self._unaffected = self.states
        self.states = self._after(self.states, *self._pending)
        self.lines.append(f"{client}.{call_in_words(call)} {how}")

    def settled(self) -> None:
        """Add that the cancelled call has taken effect by now, or never will."""
        self._pending, self._unaffected = None, ()

    def crash(self, client: str, calls: Sequence[Call], outcomes: Sequence[Outcome]) -> None:
        """Add a process that made calls with these outcomes, retried each that failed, and died in or before the next.

        Raises:
            Violation: the reference does not allow one of the outcomes.
        """
        waiting = list(calls)
        for outcome in outcomes:
            self.call(client, waiting[0], outcome)
            if not isinstance(outcome, Errored):
                waiting.pop(0)
        if waiting:
            self.call(client, waiting[0], NeverReturned())
        self.restart()
        self.lines.clear()  # a crash report lists what was acknowledged

    def restart(self) -> None:
        """Add a restart of every process: new handles on what is stored."""
        self.lines.append("-- restart --")
        self.states = _distinct([self._judge.restart(state) for state in self.states])

    def wait(self, seconds: float) -> None:
        """Add that the clock was moved."""
        self.lines.append(later_in_words(seconds))

    def _after(self, states: States, entry: Entry, call: Call) -> States:
        """Return every state that a call leads to with its outcome."""
        unchanged = () if entry.must_have_happened else states
        after = (next_state for state in states for next_state in self._judge.step(state, entry, call))
        return _distinct([*unchanged, *after])

    def would_replace(self, call: Call) -> bool:
        """Whether a call replaces a record, which the store does not support."""
        entry = Entry("", call.name, call.args, 0, 0, Returned(None))
        return any(self.model.would_replace(state, entry) for state in self.states)

    def named(self, call: Call) -> str:
        """Return the method of a call, as the cause of a failure names it."""
        has_record = self.model.has_record(self.states[0], Entry("", call.name, call.args, 0, 0, Returned(None)))
        return f"{call.name}(){' of an existing id' if has_record else ''} "

    def shows(self, read: Call) -> bool:
        """Whether a read returns anything, in the first of the states."""
        expected = self.model.expected(self.states[0], Entry("", read.name, read.args, 0, 0, Returned(None)))
        return isinstance(expected, Returned) and expected.value is not None and frozen(expected.value) != frozen([])


@dataclasses.dataclass(frozen=True, slots=True)
class _Remembering:
    """The reference, as a search for an order sees it."""

    start: Callable[[], ReferenceState]
    step: Callable[[ReferenceState, Entry], Iterable[ReferenceState]]


def _key(outcome: Outcome) -> Hashable:
    return (Returned, memo_key(outcome.value)) if isinstance(outcome, Returned) else outcome


def _distinct(states: Sequence[ReferenceState]) -> States:
    return tuple(dict.fromkeys(states) if len(states) > 1 else states)  # to hash a state takes longer than many a step
