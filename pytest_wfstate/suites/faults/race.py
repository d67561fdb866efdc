"""Races: calls of two workers in every order in which they can take turns, judged by the reference.

Each worker has a handle of its own. Whatever they come to, and what a store shows that is opened afterwards, must be
what the same calls come to in memory, in some order that agrees with who was done before whom.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract
from pytest_wfstate.engine.handles import Handles
from pytest_wfstate.engine.render import call_in_words, outcome_in_words, unexplained_in_words
from pytest_wfstate.engine.script import RESTART, ScriptRun
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.race.schedule import turns_taken
from pytest_wfstate.faults.race.schedules import ClientDied
from pytest_wfstate.faults.race.schedules import Outcome as Ended
from pytest_wfstate.faults.race.storm import Storm, TimedCall
from pytest_wfstate.oracle.history import Entry, Forgotten, NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.linearize import check
from pytest_wfstate.oracle.model import ReferenceModel

__tracebackhide__ = True

Calls = Callable[[str, int], Sequence[Call]]
"""Calls about an id; those of different numbers differ, where that can be."""

BEFORE, WORKER, AFTER = "before", "worker", "afterwards"


@dataclasses.dataclass(frozen=True, slots=True)
class RaceRole:
    """What a worker does in a race with another, and what must be there for it to have any effect."""

    calls: Calls
    before: Calls = lambda _id, _number: ()


@dataclasses.dataclass(frozen=True, slots=True)
class RaceCase:
    """Calls that were made before, and those of the workers."""

    before: tuple[Call, ...]
    workers: tuple[tuple[Call, ...], ...]


def race_cases(one: RaceRole, other: RaceRole) -> list[RaceCase]:
    """Give the contests of two racers: about the same id, from each state that suits one of them, and about two."""
    mine, theirs = tuple(one.before("a", 3)), tuple(other.before("a", 4))
    same = (tuple(one.calls("a", 1)), tuple(other.calls("a", 2)))
    apart = (tuple(one.calls("a", 1)), tuple(other.calls("b", 2)))
    starts = [mine] if one is other else [mine + theirs, theirs + mine] if mine and theirs else [mine + theirs]
    return [*(RaceCase(start, same) for start in starts), RaceCase(mine + tuple(other.before("b", 4)), apart)]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class MadeCall:
    """A call that a worker made: what came of it, and the turns that it took, from one to before another."""

    call: Call
    outcome: Outcome
    begin: int
    end: int

    def __repr__(self) -> str:
        sign = "-> " if isinstance(self.outcome, Returned) else ""
        return f"{call_in_words(self.call)} {sign}{outcome_in_words(self.outcome)}"


class Results(list[MadeCall]):
    """What a worker's calls came to."""

    def __repr__(self) -> str:
        return "; ".join(map(repr, self))


class RaceRun:
    """A contest on a store: `setup`, `clients` and `check` are for the race lab."""

    def __init__(
        self,
        handles: Callable[[Path], Handles],
        contract: Contract,
        model: ReferenceModel,
        contest: RaceCase,
        ack: Callable[[MadeCall], None],
    ) -> None:
        self._ack = ack
        self._handles = handles
        self._contract = contract
        self._model = model
        self._contest = contest
        self._observed: list[Call] = []
        self._verdicts: dict[str, Violation | None] = {}
        self.clients = [self._client(calls) for calls in contest.workers]

    def rehearse(self, new_home: Callable[[], Path]) -> None:
        """Do it all, one worker after the other: what goes wrong here is no matter of races. Learn what is offered.

        Raises:
            Violation: the store does not do what the reference does.
        """
        with self._handles(new_home()) as handles:
            play = ScriptRun(self._model, [self._model.start()])
            play.all(handles, [*self._contest.before, RESTART])
            for calls in self._contest.workers:
                play.all(handles, [*calls, RESTART])
            self._observed = [call for call in self._contract.observe(["a", "b"]) if play.offers(handles, call)]
            play.all(handles, self._looks_at(play.made))

    def setup(self, home: Path) -> None:
        """Do what was done before."""
        with self._handles(home) as handles:
            for call in self._contest.before:
                handles.outcome(BEFORE, call)

    def setup_in_memory(self, new_home: Callable[[], Path]) -> tuple[Path, Any]:
        """Do what was done before, on a new store; give its home, and the store, whose code takes turns."""
        home = new_home()
        self.setup(home)
        with self._handles(home) as handles:
            return home, handles[BEFORE]

    def rounds(self, number: int, new_home: Callable[[], Path], processes: Storm) -> None:
        """Have `two_processes` race each other, so many times, where no turns can be taken.

        Raises:
            Violation: no order of the calls explains what came of them.
        """
        for _ in range(number):
            home = new_home()
            self.setup(home)
            orders = [[(home, call) for call in calls] for calls in self._contest.workers]
            self._judge(home, [*self._before(), *map(_of_deed, processes.round(orders))])

    def _client(self, calls: Sequence[Call]) -> Callable[[Any], Results]:
        def client(shared: Path | tuple[Path, Any]) -> Results:
            home = shared if isinstance(shared, Path) else shared[0]
            made = Results()
            with self._handles(home) as handles:
                for call in calls:
                    begin = turns_taken()
                    outcome = handles.outcome(WORKER, call)
                    made.append(MadeCall(call, outcome, begin, turns_taken()))
                    self._ack(made[-1])
            return made

        return client

    def check(self, ended: Ended) -> None:
        """Look for an order of the calls that explains what came of them.

        Raises:
            Violation: there is none.
        """
        home = ended.shared[0] if ended.shared else ended.home
        self._judge(home, [*self._before(), *self._of_workers(ended)])

    def _judge(self, home: Path, entries: list[Entry]) -> None:
        entries += self._after(home, max(entry.end for entry in entries), entries)
        key = repr([entry.outcome for entry in entries]) + _order(entries)
        if key not in self._verdicts:
            unexplained = check(entries, self._model)
            self._verdicts[key] = Violation(unexplained_in_words(unexplained, self._model)) if unexplained else None
        verdict = self._verdicts[key]
        if verdict is not None:
            raise verdict

    def _before(self) -> list[Entry]:
        calls = self._contest.before
        return [_in_sequence(BEFORE, call, Forgotten(), at - len(calls)) for at, call in enumerate(calls)]

    def _of_workers(self, ended: Ended) -> list[Entry]:
        entries = []
        for number, (calls, acked) in enumerate(zip(self._contest.workers, ended.acked, strict=True)):
            result = ended.results[number]
            if isinstance(result, BaseException) and not isinstance(result, ClientDied):
                raise result
            turns = [at for at, turn in enumerate(ended.turns) if turn.client == number]
            entries += [_of_call(f"client {number + 1}", made, turns) for made in acked]
            if len(acked) < len(calls):
                last = acked[-1].end if acked else 0
                made = MadeCall(calls[len(acked)], NeverReturned(), last, len(turns))
                entries.append(_of_call(f"client {number + 1}", made, turns))
        return entries

    def _after(self, home: Path, at: float, before: Sequence[Entry]) -> list[Entry]:
        """Look at what is there now."""
        made = [
            entry.outcome.value
            for entry in before
            if isinstance(entry.outcome, Returned) and self._contract[entry.name].generates_id
        ]
        calls = [*self._observed, *self._looks_at(made)]
        with self._handles(home) as handles:
            return [
                _in_sequence(AFTER, call, handles.outcome(AFTER, call), at + number)
                for number, call in enumerate(calls, 1)
            ]

    def _looks_at(self, made: Sequence[str]) -> list[Call]:
        """Tell how to look at ids that the store has made up."""
        offered = {call.name for call in self._observed}
        return [call for call in self._contract.reads(made) if call.name in offered]


def two_processes(handles: Callable[[Path], Handles], timeout: float) -> Storm:
    """Start two processes that can race each other at any home. Whoever asks for them closes them."""

    @contextlib.contextmanager
    def live() -> Iterator[Callable[[tuple[Path, Call]], Outcome]]:
        with contextlib.ExitStack() as stack:
            opened: dict[Path, Handles] = {}

            def do(order: tuple[Path, Call]) -> Outcome:
                home, call = order
                if home not in opened:
                    opened[home] = stack.enter_context(handles(home))
                return opened[home].outcome(WORKER, call)

            yield do

    return Storm(live, 2, random.Random(0), deaths=False, threads=False, timeout=timeout)


def _in_sequence(client: str, call: Call, outcome: Outcome, at: float) -> Entry:
    return Entry(client, call.name, call.args, at, at, outcome)


def _of_call(client: str, made: MadeCall, turns: Sequence[int]) -> Entry:
    """Give a call of a worker its time, counted in turns: it may as well have begun right before its first turn."""
    own = turns[made.begin : made.end]
    before = turns[made.begin - 1] + 0.75 if made.begin else -0.75
    begin, end = (own[0] - 0.5, own[-1] + 0.5) if own else (before, before)
    return Entry(client, made.call.name, made.call.args, begin, end, made.outcome)


def _of_deed(timed_call: TimedCall) -> Entry:
    _, call = timed_call.order
    return Entry(
        f"client {timed_call.worker + 1}", call.name, call.args, timed_call.begin, timed_call.end, timed_call.outcome
    )


def _order(entries: Sequence[Entry]) -> str:
    """Give what of the times of some calls matters: who was done before whom."""
    return repr([[one.end < other.begin for other in entries] for one in entries])
