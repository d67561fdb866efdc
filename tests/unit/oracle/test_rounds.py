"""Rounds: judged one after the other, each from what those before can have left; together as exact as at once."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import Violation, samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.oracle import Entry, NeverReturned, Outcome, ReferenceModel, Returned, Rounds, TooManyOrders, check
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.specs.paused import CLAIM, LOAD, PAUSED, RECOVER, save

DONE = Returned(None)


class Queues:
    """Queues by name. A move takes an item from one to another."""

    def __init__(self) -> None:
        self.items: dict[str, list[Any]] = collections.defaultdict(list)

    def put(self, name: str, item: Any) -> None:
        self.items[name].append(item)

    def pop(self, name: str) -> Any:
        return self.items[name].pop(0) if self.items[name] else None

    def move(self, name: str, other: str) -> None:
        self.put(other, self.pop(name))

    def clear(self) -> None:
        self.items.clear()


def operation(name: str, keys: Callable[..., Iterable[str]] | None, **settings: Any) -> Operation:
    return Operation(name, lambda _: st.just(()), mutates=True, keys=keys, **settings)


PUT = operation("put", lambda name, _: [name])
POP = operation("pop", lambda name: [name])
MOVE = operation("move", lambda *names: names)
CLEAR = operation("clear", None, project=lambda *_: ...)
QUEUES = Contract("queues", [PUT, POP, MOVE], lambda _: Queues(), lambda name, item: PUT(name, item), lambda _: [])
CLEARED = Contract("cleared", [*QUEUES.operations, CLEAR], QUEUES.reference, QUEUES.write, QUEUES.reads)
WHOLE = Contract(
    "whole", [operation("put", None), operation("pop", None)], QUEUES.reference, QUEUES.write, QUEUES.reads
)
ANY = pytest.mark.parametrize("contract", [QUEUES, CLEARED, WHOLE], ids=lambda contract: contract.name)


def entry(call: Call, begin: float, end: float, outcome: Outcome = DONE, client: str = "one") -> Entry:
    return Entry(client, call.name, call.args, begin, end, outcome)


def rounds(contract: Contract) -> Rounds:
    return Rounds(ReferenceModel(contract))


AT_ONCE = [entry(PUT("q", "x"), 0, 2, client="one"), entry(PUT("q", "y"), 1, 3, client="two")]


@ANY
@pytest.mark.parametrize("order", ["xy", "yx"])
def test_a_round_starts_from_any_state_that_explains_the_one_before(contract: Contract, order: str) -> None:
    judged = rounds(contract)
    judged.add(AT_ONCE)
    judged.add([entry(PUT("q", "z"), 4, 5)])
    judged.add([entry(POP("q"), time, time, Returned(item)) for time, item in enumerate(order, 6)])
    with pytest.raises(Violation, match=r"one: pop\('q'\) -> None\nafter no change: pop \(one\), expected: 'z'"):
        judged.add([entry(POP("q"), 9, 10, Returned(None))])


@ANY
def test_what_a_round_has_shown_holds_in_the_next(contract: Contract) -> None:
    judged = rounds(contract)
    judged.add(AT_ONCE)
    judged.add([entry(POP("q"), 4, 5, Returned("y"))])
    with pytest.raises(Violation, match="expected: 'x'"):
        judged.add([entry(POP("q"), 6, 7, Returned("y"))])


@ANY
def test_a_call_that_died_in_a_round_took_effect_in_it_or_never(contract: Contract) -> None:
    judged = rounds(contract)
    judged.add([entry(PUT("q", "x"), 0, 1, NeverReturned()), entry(PUT("q", "y"), 2, 3)])
    judged.add([entry(POP("q"), 4, 5, Returned("y"))])
    with pytest.raises(Violation):
        judged.add([entry(POP("q"), 6, 7, Returned("x"))])


def test_a_call_joins_what_was_judged_apart() -> None:
    judged = rounds(QUEUES)
    judged.add([*AT_ONCE, entry(PUT("other", "z"), 0, 1)])
    judged.add([entry(MOVE("q", "other"), 4, 5)])
    judged.add([entry(POP("other"), 6, 7, Returned("z")), entry(POP("other"), 8, 9, Returned("y"))])
    with pytest.raises(Violation):
        judged.add([entry(POP("q"), 10, 11, Returned("y"))])


def test_a_change_of_all_ids_reaches_those_of_earlier_rounds() -> None:
    judged = rounds(CLEARED)
    judged.add([entry(PUT("r0", "x"), 0, 1)], own=["r0"])
    judged.add([entry(CLEAR(), 2, 3)], own=["r1"])
    with pytest.raises(Violation):
        judged.add([entry(POP("r0"), 4, 5, Returned("x"))])


def test_what_belongs_to_one_round_is_not_kept() -> None:
    judged = rounds(QUEUES)
    judged.add([entry(PUT("r0", "x"), 0, 1)], own=["r0"])
    assert not judged.continues
    judged.add([entry(PUT("all", "x"), 0, 1)], own=["r1"])
    assert judged.continues


@pytest.mark.parametrize(("clients", "is_released"), [({"one"}, False), ((), True)])
def test_a_client_that_has_ended_has_no_handle(clients: set[str], is_released: bool) -> None:
    """A claim belongs to the handle that made it: one that has replaced it cannot be completed with the older one."""
    record = plain(samples.paused("a", iterations=1))
    judged = rounds(PAUSED)
    judged.add([entry(save("a"), 0, 1), entry(CLAIM("a"), 2, 3, Returned(record))], clients=clients)
    again = [entry(RECOVER(), 4, 5, Returned(1), "two"), entry(CLAIM("a"), 6, 7, Returned(record), "two")]
    late = [entry(PAUSED["complete"]("a"), 8, 9), entry(RECOVER(), 10, 11, Returned(0 if is_released else 1), "two")]
    judged.add([*again, *late, entry(LOAD("a"), 12, 13, Returned(None if is_released else record), "two")])


def test_too_many_states_are_not_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_wfstate.oracle.rounds.MOST_STATES", 1)
    judged = rounds(QUEUES)
    judged.add(AT_ONCE)
    with pytest.raises(TooManyOrders, match="more than 1 states explain the calls before it"):
        judged.add([entry(POP("q"), 4, 5, Returned("z"))])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_rounds_are_judged_as_the_whole_history_is(seed: int, is_wrong: bool) -> None:
    chance = random.Random(seed)
    cut = [list(calls) for calls in queue_history(chance, rounds_=4)]
    if is_wrong:
        calls = chance.choice(cut)
        number = chance.randrange(len(calls))
        calls[number] = entry(POP("q"), calls[number].begin, calls[number].end, Returned("a"), calls[number].client)
    model = ReferenceModel(QUEUES)
    is_explained = check([call for calls in cut for call in calls], model) is None
    assert passes(Rounds(model), cut) == is_explained


def passes(judged: Rounds, cut: Iterable[list[Entry]]) -> bool:
    try:
        for calls in cut:
            judged.add(calls)
    except Violation:
        return False
    return True


def queue_history(chance: random.Random, rounds_: int) -> Iterable[list[Entry]]:
    """Let clients call one queue, each call somewhere in its interval; between two rounds none is in progress."""
    queue, clock = Queues(), 0.0
    for _ in range(rounds_):
        calls = []
        for moment in range(chance.randrange(1, 6)):
            call = PUT("q", chance.choice("ab")) if chance.random() < 0.6 else POP("q")
            result = getattr(queue, call.name)(*call.args)
            begin, end = clock + moment - chance.random() * 2, clock + moment + chance.random() * 2
            calls.append(entry(call, begin, end, Returned(result), f"client {moment}"))
        clock += 20
        yield calls
