"""Own runs: what a store does when nothing interrupts it, as the reference of what it does when something does.

A store that deviates from its contract can still be crashed and raced: what a crash leaves must be what one of the
store's own uninterrupted runs shows, and the results of a race must be those of one of its own serial runs. A state is
the calls that led to it, and a transition makes one more of them, on a store of its own. Each is made once.

Times are not compared, and ids and tokens that the store generates stand for those of another run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract
from pytest_wfstate.engine.handles import Handles
from pytest_wfstate.engine.script import RESTART
from pytest_wfstate.engine.varying import renamed, timeless
from pytest_wfstate.faults.bounds import NotMeasured
from pytest_wfstate.faults.record.active import active
from pytest_wfstate.oracle.history import Entry, Outcome, Refused, Returned, token_of
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState, Transition
from pytest_wfstate.oracle.render import call_in_words, result_in_words
from pytest_wfstate.oracle.values import memo_key

__tracebackhide__ = True

_NOTHING = Returned(None)
_MOST_RUNS = 6  # that are open at once


@dataclasses.dataclass(eq=False, slots=True)
class Moment:
    """A moment in own runs: the step that led to it from the moment before."""

    before: Moment | None = None
    client: str = ""
    call: Call | None = None
    """None if the step is a restart."""
    outcome: Outcome = _NOTHING
    generated: str | None = None
    """What stands for the id or token that the call returned, if the store generated it."""
    later: dict[Hashable, Moment] = dataclasses.field(default_factory=dict)

    def path(self) -> list[Moment]:
        """Return all moments up to this one, without the start."""
        return [*self.before.path(), self] if self.before else []


class OwnState(ReferenceState):
    """A moment, and what the generated texts are called in the history that is judged."""

    def __init__(self, moment: Moment, names: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__({})
        self.moment = moment
        self.names = names
        """Pairs of a text in the history and what stands for it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnState) and self.moment is other.moment and self.names == other.names

    def __hash__(self) -> int:
        return hash((id(self.moment), self.names))


class _Run:
    """A run of the store, at the moment that it has come to."""

    def __init__(self, handles: Handles, start: Moment) -> None:
        self.handles = handles
        self.moment = start
        self.client = ""
        self.texts: dict[Moment, str] = {}
        """The ids and tokens that calls returned, if those are texts."""

    def generated(self) -> dict[str, str]:
        """Return the texts that the store has generated, by what stands for each."""
        return {moment.generated: text for moment, text in self.texts.items() if moment.generated}


class OwnRuns(ReferenceModel):
    """The model of a store's own behaviour.

    `open_new` opens handles on a new home. Each client that is `alone` works while no other has the store open.
    """

    def __init__(
        self, contract: Contract, open_new: Callable[[], Handles], *, alone: Container[str] = (), replaces: bool = True
    ) -> None:
        super().__init__(contract, in_order=False, replaces=replaces)  # other clauses check the order of lists
        self._open_new = open_new
        self._alone = alone
        self._start = Moment()
        self._runs: list[_Run] = []
        self._learns = False
        self._generating: dict[str, bool] = {}
        """Of methods that return text, whether that differs from run to run."""
        self._errors: set[type[Exception]] = set()
        self.problem = ""
        """Why nothing can be compared with own runs, if two of them differ."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The errors that the store has raised in its own runs; while it learns, all."""
        return (Exception,) if self._learns else tuple(self._errors)

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """Let any error be an outcome in a block; later on those that own runs have shown are."""
        self._learns = True
        try:
            yield
        finally:
            self._learns = False

    def close(self) -> None:
        """Close the runs that are open. What they have shown is remembered."""
        while self._runs:
            with contextlib.suppress(Exception):  # the store was judged by what it showed
                self._runs.pop().handles.restart()

    def start(self) -> OwnState:
        """Return the state of a new store."""
        return OwnState(self._start)

    def restart(self, state: ReferenceState) -> ReferenceState:
        """Return the state after every handle was closed."""
        assert isinstance(state, OwnState)
        moment = state.moment
        if moment.call is None:
            return state
        return OwnState(moment.later.setdefault(RESTART, Moment(moment)), state.names)

    def parts(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        """Return the whole history: only of the reference is it known that ids do not depend on each other."""
        return [list(entries)]

    def transitions(self, state: ReferenceState, entry: Entry) -> Iterator[Transition]:
        """Yield what a call does in an own run."""
        assert isinstance(state, OwnState)
        call = self.contract[entry.name](*renamed(entry.args, dict(state.names)))
        moment = self._after(state.moment, entry.client, call)
        shown = {name: text for text, name in state.names}
        names = state.names
        if moment.generated is not None:
            seen, own = _text(entry.outcome), _text(moment.outcome)
            is_new = seen is not None and all(seen != text for text, _ in names)
            name = seen if seen is not None and is_new else moment.generated
            names = (*names, (name, moment.generated))
            if own is not None:
                shown[own] = name
        yield _with_value(moment.outcome, lambda value: renamed(value, shown)), OwnState(moment, names)

    def expected(self, state: ReferenceState, entry: Entry) -> Outcome:
        """Return the outcome that a call has in an own run."""
        return next(outcome for outcome, _ in self.transitions(state, entry))

    def has_record(self, state: ReferenceState, entry: Entry) -> bool:  # noqa: ARG002
        """Return False: what the store does about a record that exists, its own runs show."""
        return False

    def _after(self, moment: Moment, client: str, call: Call) -> Moment:
        key = (client, call.name, memo_key(call.args))
        if key not in moment.later:
            new = Moment(moment, client, call)
            with active.paused():
                run = self._run_at(moment)
                new.outcome = self._made(run, new)
                if self._may_generate(new) and self._is_generating(new):
                    self._generated.use(None)
                    new.generated = self._generated.id()
            moment.later[key] = new
        return moment.later[key]

    def _may_generate(self, moment: Moment) -> bool:
        """Whether a call that changes something returned an id or a token, and not one that was generated before."""
        text = _text(moment.outcome)
        is_known = self._generated.is_unseen(text)
        return text is not None and not is_known and moment.call is not None and self.mutates(moment.call)

    def _is_generating(self, moment: Moment) -> bool:
        """Whether a method returns texts that the store generates: another run of the same calls shows it."""
        assert moment.call is not None
        assert moment.before is not None
        name = moment.call.name
        if name not in self._generating:
            again = self._made(self._run_at(moment.before), moment)
            self._generating[name] = self.contract[name].generates_id or again != moment.outcome
        return self._generating[name]

    def _run_at(self, moment: Moment) -> _Run:
        """Return a run that has come to this moment: the one that is nearest to it, or a new one.

        Raises:
            NotMeasured: it does what an earlier run did not.
        """
        path = [self._start, *moment.path()]
        depths = {id(each): depth for depth, each in enumerate(path)}
        near = [run for run in self._runs if id(run.moment) in depths]
        run = max(near, key=lambda run: depths[id(run.moment)], default=None) or self._new_run()
        for later in path[depths[id(run.moment)] + 1 :]:
            outcome = self._made(run, later)
            expected = later.outcome
            if later.call and not later.generated and not self.is_alike(expected, outcome, later.call.name):
                shown = call_in_words(later.call)
                self.problem = (
                    f"two of the store's own uninterrupted runs differ: {shown} {result_in_words(expected)} in one, "
                    f"{result_in_words(outcome)} in the other"
                )
                raise NotMeasured(self.problem)
        return run

    def _new_run(self) -> _Run:
        if len(self._runs) == _MOST_RUNS:
            self._runs.pop(0).handles.restart()
        self._runs.append(_Run(self._open_new(), self._start))
        return self._runs[-1]

    def _made(self, run: _Run, moment: Moment) -> Outcome:
        """Make the step that leads to a moment, and return its outcome, as it is the same in each run."""
        outcome: Outcome = Returned(None)
        client, call = moment.client, moment.call
        if call is None or (run.client != client and (client in self._alone or run.client in self._alone)):
            run.handles.restart()
        if call is not None:
            texts = run.generated()
            outcome = run.handles.outcome(client, dataclasses.replace(call, args=renamed(call.args, texts)))
            if isinstance(outcome, Refused) and issubclass(outcome.error, Exception):
                self._errors.add(outcome.error)
            text = _text(outcome)
            if text is not None:
                run.texts[moment] = text
            names = {text: name for name, text in texts.items()}
            outcome = _with_value(outcome, lambda value: renamed(timeless(value), names))
        run.moment, run.client = moment, client
        return outcome


def learning(model: ReferenceModel) -> AbstractContextManager[None]:
    """Let any error of a store be an outcome in a block, in which nothing but the store makes any."""
    assert isinstance(model, OwnRuns)
    return model.learning()


def own_problem(model: ReferenceModel, partial: str) -> str:
    """Return why a difference to own runs says nothing, or "".

    `partial` names a call that died and that the contract allows to take effect in part, which no own run shows.
    """
    if not isinstance(model, OwnRuns):
        return ""
    in_part = f"{partial}() may take effect in part if it is interrupted, which no uninterrupted run of the store shows"
    return model.problem or (in_part if partial else "")


def _text(outcome: Outcome) -> str | None:
    """Return the id or token in an outcome, if it is text. Numbers count up, so they are the same in each run."""
    token = token_of(outcome)
    return token if isinstance(token, str) else None


def _with_value(outcome: Outcome, change: Callable[[Any], Any]) -> Outcome:
    return Returned(change(outcome.value)) if isinstance(outcome, Returned) else outcome
