"""Visibility: whether what a store returns shows that calls were made on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.results import Results
from pytest_wfstate.engine.script import Step, ViaHandle
from pytest_wfstate.faults.bounds import NotMeasured
from pytest_wfstate.oracle.history import Entry, Outcome, Returned
from pytest_wfstate.oracle.judge import Judge, Timeline
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.render import call_in_words

__tracebackhide__ = True


def need_visible(
    own: ReferenceModel, model: ReferenceModel, before: Sequence[Step], calls: Sequence[Call], reads: Sequence[Call]
) -> None:
    """Raise if reads always show the same in own runs, although the model of the contract says that they do not.

    If there are reads that every store has, those have to show something, and else any.

    Raises:
        NotMeasured: they do not.
    """
    telling, own_telling = _telling(model, before, calls, reads), _telling(own, before, calls, reads)
    required = {name for name in telling if model.contract[name].required}
    blind = required - own_telling if required else telling if telling.isdisjoint(own_telling) else set()
    if blind:
        names = " and ".join(f"{name}()" for name in sorted(blind))
        made = ", ".join(map(call_in_words, calls))
        raise NotMeasured(f"nothing could be seen, as {names} returned the same with {made} and without")


def is_shown(model: ReferenceModel, before: Sequence[Step], calls: Sequence[Call], reads: Sequence[Call]) -> bool:
    """Whether reads show that calls were made, or how often."""
    first, last = (_shown(model, before, made, reads) for made in ((), calls))
    return any(not model.is_alike(one, other, read.name) for one, other, read in zip(first, last, reads, strict=True))


def _telling(model: ReferenceModel, before: Sequence[Step], calls: Sequence[Call], reads: Sequence[Call]) -> set[str]:
    """Return the methods that do not always show the same: on an empty store, before the calls and after them."""
    empty, first, last = (_shown(model, *made, reads) for made in (((), ()), (before, ()), (before, calls)))

    def differ(one: Outcome, other: Outcome, read: Call) -> bool:
        return not model.is_alike(one, other, read.name)

    rows = zip(reads, empty, first, last, strict=True)
    return {read.name for read, *row in rows if differ(row[0], row[1], read) or differ(row[1], row[2], read)}


def _shown(
    model: ReferenceModel, before: Iterable[Step], calls: Iterable[Call], reads: Iterable[Call]
) -> list[Outcome]:
    """Return what reads show by a model after a restart that follows calls."""
    timeline, results = Judge(model).begin(), Results()
    for step in before:
        if not isinstance(step, str):
            via = step if isinstance(step, ViaHandle) else ViaHandle(FIRST, step)
            _made(timeline, results, via.handle, via.call)
    timeline.restart()
    for call in calls:
        _made(timeline, results, FIRST, call)
    timeline.restart()
    return [_made(timeline, results, FIRST, read) for read in reads]


def _made(timeline: Timeline, results: Results, client: str, unresolved: Call) -> Outcome:
    call = results.resolve(unresolved)
    entry = Entry(client, call.name, call.args, 0, 0, Returned(None))
    outcome = timeline.model.expected(timeline.states[0], entry)
    results.add(call, outcome)
    timeline.call(client, call, outcome)
    return outcome
