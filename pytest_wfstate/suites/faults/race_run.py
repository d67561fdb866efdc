"""Race runs: calls of two workers in every interleaving, judged by the reference.

Each worker has a handle of its own. Their results, and what a store shows that is opened afterwards, must be possible
in memory, in some order of the calls that agrees with which call returned before which began. In place of memory there
can be the store's own serial runs.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import Handles
from pytest_wfstate.engine.own_runs import OwnRuns, learning, own_problem
from pytest_wfstate.engine.results import Results
from pytest_wfstate.engine.script import RESTART, ScriptRun
from pytest_wfstate.engine.visibility import need_visible
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.race.explorer import ClientDied
from pytest_wfstate.faults.race.explorer import Outcome as Ended
from pytest_wfstate.faults.race.schedule import steps_taken
from pytest_wfstate.faults.race.storm import Storm, TimedCall, WorkerLost
from pytest_wfstate.oracle.history import Entry, Errored, Forgotten, NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.judge import Judge
from pytest_wfstate.oracle.render import call_in_words, result_in_words
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True

Calls = Callable[[str, int], Sequence[Call]]
"""Calls about an id; those of different numbers differ, in size too, where that is possible: see `sized`."""

BEFORE, WORKER, AFTER = "before", "worker", "afterwards"


@dataclasses.dataclass(frozen=True, slots=True)
class RaceRole:
    """What a worker does in a race with another, and what must exist for it to have any effect."""

    calls: Calls
    before: Calls = lambda _id, _number: ()


def sized(number: int) -> int:
    """Return a value for the record of a worker: stored as text or binary, those of different numbers differ in size.

    Two records of the same size hide a writer that overwrites a file in place: whoever writes last replaces it all.
    """
    return int(100**number)


@dataclasses.dataclass(frozen=True, slots=True)
class RaceCase:
    """Calls that were made before, and those of the workers."""

    before: tuple[Call, ...]
    workers: tuple[tuple[Call, ...], ...]
    prepares: bool = False
    """Whether each worker prepares the home, as if it were the first."""


def race_cases(role: RaceRole, other: RaceRole) -> list[RaceCase]:
    """Return the races of two roles: about the same id, from each state that suits one of them, and about two ids."""
    own, others = tuple(role.before("a", 3)), tuple(other.before("a", 4))
    same_id = (tuple(role.calls("a", 1)), tuple(other.calls("a", 2)))
    two_ids = (tuple(role.calls("a", 1)), tuple(other.calls("b", 2)))
    starts = [own] if role is other else [own + others, others + own] if own and others else [own + others]
    return [*(RaceCase(start, same_id) for start in starts), RaceCase(own + tuple(other.before("b", 4)), two_ids)]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class MadeCall:
    """A call that a worker made: its outcome, and the steps of the worker that it took, from one to before another."""

    call: Call
    outcome: Outcome
    begin: int
    end: int

    def __repr__(self) -> str:
        return f"{call_in_words(self.call)} {result_in_words(self.outcome)}"


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker is to do: a call on the store at a home, which it may have to prepare first."""

    home: Path
    call: Call
    prepares: bool
    errors: tuple[type[Exception], ...]
    """Errors that are outcomes like others."""


class MadeCalls(list[MadeCall]):
    """The calls of a worker."""

    def __repr__(self) -> str:
        return "; ".join(map(repr, self))


class RaceRun:
    """A race on a store: `setup`, `clients` and `check` are for the race lab, `ack` is the lab's."""

    def __init__(self, context: ClauseContext, judge: Judge, case: RaceCase, ack: Callable[[MadeCall], None]) -> None:
        self.title = " | ".join(", ".join(map(call_in_words, calls)) for calls in case.workers)
        self._ack = ack
        self._context = context
        self._contract = context.contract
        self._judge = judge
        self._case = case
        self._reads: list[Call] = []
        self._partial = ""
        self._own_judge: Judge | None = None
        self.clients = [self._client(calls) for calls in case.workers]

    @property
    def cannot_tell(self) -> str:
        """Why the last check says nothing, if it is judged by own runs."""
        return own_problem(self._judge.model, self._partial)

    @property
    def may_write_nothing(self) -> bool:
        """Return False: a race in which nothing is written says nothing."""
        return False

    def rehearse_alone(self) -> None:
        """Make all calls, one worker after the other, twice, and from now on judge by what the store does then.

        Raises:
            Violation: it does not do the same twice.
        """
        self._judge = self._new_own_judge()
        with learning(self._judge.model):
            self.rehearse()
        calls = [call for calls in self._case.workers for call in calls]
        with contextlib.closing(self._judge):
            need_visible(self._judge.model, self._context.model, self._case.before, calls, self._reads)

    def rehearse(self) -> None:
        """Make all calls, one worker after the other in each order, and learn which of them the store offers.

        Raises:
            Violation: the store does not do what the reference does.
        """
        in_turn, reversed_ = self._case.workers, self._case.workers[::-1]
        for workers in [in_turn] if self._context.medium == "server" else [in_turn, reversed_]:  # a new home takes time
            with contextlib.closing(self._judge), self._handles(self._context.home()) as handles:
                script = ScriptRun(self._judge.begin())
                script.run(handles, [*self._case.before, RESTART])
                if script.could_not_replace:
                    pytest.skip(self._context.not_supported("replace"))
                for calls in workers:
                    script.run(handles, [*calls, RESTART])
                self._reads = [call for call in self._contract.observe(["a", "b"]) if script.offers(handles, call)]
                script.run(handles, self._reads_of(script.timeline.generated_ids))

    def setup(self, home: Path) -> None:
        """Do what was done before."""
        if self._case.prepares:
            return
        self._context.prepare(home)
        with self._handles(home) as handles:
            for call in self._case.before:
                handles.outcome(BEFORE, call)

    def setup_in_memory(self) -> tuple[Path, Any]:
        """Do what was done before, on a new store; return its home, and the store, whose code is interleaved."""
        home = self._context.unprepared_home()
        self.setup(home)
        with self._handles(home) as handles:
            return home, handles[BEFORE]

    def run_rounds(self, number: int, processes: Storm) -> None:
        """Have `two_processes` race each other this often, where nothing can be interleaved.

        Raises:
            Violation: the results are impossible in any order of the calls.
        """
        for _ in range(number):
            home = self._context.unprepared_home()
            self.setup(home)
            prepares, errors = self._case.prepares, self._judge.model.errors
            orders = [[WorkerOrder(home, call, prepares, errors) for call in calls] for calls in self._case.workers]
            try:
                timed_calls = processes.round(orders)
            except WorkerLost as lost:
                raise Violation(f"Two processes raced each other, and {lost}") from lost
            self._conclude(home, [*self._before(), *_entries_of_timed_calls(timed_calls)])

    def check(self, ended: Ended) -> None:
        """Judge the outcome of one schedule.

        Raises:
            Violation: the results are impossible in any order of the calls.
        """
        home = ended.shared[0] if ended.shared else ended.home
        self._conclude(home, [*self._before(), *self._of_workers(ended)])

    def _client(self, calls: Sequence[Call]) -> Callable[[Any], MadeCalls]:
        def client(shared: Path | tuple[Path, Any]) -> MadeCalls:
            home = shared if isinstance(shared, Path) else shared[0]
            made, results = MadeCalls(), Results()
            if self._case.prepares:
                self._context.prepare(home)
            with self._handles(home) as handles:
                for unresolved in calls:
                    call = results.resolve(unresolved)
                    begin = steps_taken()
                    outcome = handles.outcome(WORKER, call)
                    results.add(call, outcome)
                    made.append(MadeCall(call, outcome, begin, steps_taken()))
                    self._ack(made[-1])
            return made

        return client

    def _conclude(self, home: Path, entries: Sequence[Entry]) -> None:
        """Read what is there now, and judge it all."""
        generated = [
            entry.outcome.value
            for entry in entries
            if isinstance(entry.outcome, Returned) and self._contract[entry.name].generates_id
        ]
        end = max(entry.end for entry in entries)
        reads = [*self._reads, *self._reads_of(generated)]
        self._partial = next((entry.name for entry in entries if self._is_partial(entry)), "")
        with contextlib.closing(self._judge), self._handles(home) as handles:
            after = [
                _instant(AFTER, call, handles.outcome(AFTER, call), moment)
                for moment, call in enumerate(reads, math.ceil(end) + 1)
            ]
            self._judge_all([*entries, *after])

    def _judge_all(self, entries: Sequence[Entry]) -> None:
        try:
            self._judge.schedule(entries)
        except Violation as violation:
            if isinstance(self._judge.model, OwnRuns) or not self._context.deviates:
                raise
            # The rehearsal has not tried each order: a store that deviates may do the same without a race.
            self._own_judge = self._own_judge or self._new_own_judge()
            with contextlib.closing(self._own_judge):
                try:
                    self._own_judge.schedule(entries)
                except Exception:
                    raise violation from None
            self._context.judges_by_own_runs(violation.cause)

    def _new_own_judge(self) -> Judge:
        return self._context.own_judge(alone=(BEFORE, AFTER))

    def _is_partial(self, entry: Entry) -> bool:
        return not entry.must_have_happened and self._contract[entry.name].partial_effects is not None

    def _handles(self, home: Path) -> Handles:
        return self._context.handles(home, self._judge.model.errors)

    def _before(self) -> list[Entry]:
        calls = self._case.before
        return [_instant(BEFORE, call, Forgotten(), number - len(calls)) for number, call in enumerate(calls)]

    def _of_workers(self, ended: Ended) -> list[Entry]:
        entries = []
        for number, (calls, acked) in enumerate(zip(self._case.workers, ended.acked, strict=True)):
            result = ended.results[number]
            results = Results((made.call, made.outcome) for made in acked)
            steps = [index for index, step in enumerate(ended.steps) if step.client == number]
            entries += [_entry(f"client {number + 1}", made, steps) for made in acked]
            last = acked[-1].end if acked else 0
            outcome: Outcome = NeverReturned()
            if isinstance(result, BaseException) and not isinstance(result, ClientDied):
                # A call may give up waiting for a worker that is stalled.
                if len(acked) == len(calls) or not any(ended.steps[index].outlasts for index in steps[last:]):
                    raise result
                outcome = Errored(type(result).__name__)
            if len(acked) < len(calls):
                failed = MadeCall(results.resolve(calls[len(acked)]), outcome, last, len(steps))
                entries.append(_entry(f"client {number + 1}", failed, steps))
        return entries

    def _reads_of(self, generated_ids: Sequence[str]) -> list[Call]:
        offered = {call.name for call in self._reads}
        return [call for call in self._contract.reads(generated_ids) if call.name in offered]


def two_processes(context: ClauseContext) -> Storm:
    """Start two processes that can race each other at any home. The caller closes them."""

    @contextlib.contextmanager
    def work() -> Iterator[Callable[[WorkerOrder], Outcome]]:
        with contextlib.ExitStack() as stack:
            opened: dict[Path, tuple[Handles, Results]] = {}

            def make(order: WorkerOrder) -> Outcome:
                home, unresolved = order.home, order.call
                if home not in opened:
                    if order.prepares:
                        context.prepare(home)
                    opened[home] = stack.enter_context(context.handles(home, order.errors)), Results()
                handles, results = opened[home]
                call = results.resolve(unresolved)
                outcome = handles.outcome(WORKER, call)
                results.add(call, outcome)
                return outcome

            yield make

    return Storm(work, 2, random.Random(0), deaths=False, threads=False, timeout=context.timeout)


def _instant(client: str, call: Call, outcome: Outcome, moment: float) -> Entry:
    return Entry(client, call.name, call.args, moment, moment, outcome)


def _entry(client: str, made: MadeCall, steps: Sequence[int]) -> Entry:
    """Date a call of a worker, in steps of the schedule: it may as well have begun right before its first step."""
    own = steps[made.begin : made.end]
    before = steps[made.begin - 1] + 0.75 if made.begin else -0.75
    begin, end = (own[0] - 0.5, own[-1] + 0.5) if own else (before, before)
    return Entry(client, made.call.name, made.call.args, begin, end, made.outcome)


def _entries_of_timed_calls(timed_calls: Sequence[TimedCall]) -> Iterator[Entry]:
    results: dict[int, Results] = collections.defaultdict(Results)
    for timed in timed_calls:  # those of one worker are in order
        call = results[timed.worker].resolve(timed.call.call)
        results[timed.worker].add(call, timed.outcome)
        yield Entry(f"client {timed.worker + 1}", call.name, call.args, timed.begin, timed.end, timed.outcome)
