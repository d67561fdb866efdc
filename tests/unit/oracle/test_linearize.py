"""The checker: right on small cases, and equal to trying every order."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate.oracle import Entry, Errored, Forgotten, NeverReturned, Outcome, Refused, Returned, check
from pytest_wfstate.oracle.linearize import DeadEnd, Explanation


class Register:
    """One value that can be written, read, and compared and set; 9 is refused."""

    def start(self) -> int:
        return 0

    def step(self, state: Any, entry: Entry) -> Iterable[int]:
        new, outcome = self._call(state, entry)
        if not entry.has_result or outcome == entry.outcome:
            yield new

    def _call(self, state: int, entry: Entry) -> tuple[int, Outcome]:
        if entry.name == "read":
            return state, Returned(state)
        if 9 in entry.args:
            return state, Refused(ValueError)
        if entry.name == "write":
            return entry.args[0], Returned(None)
        old, new = entry.args
        return (new, Returned(True)) if state == old else (state, Returned(False))


def make_entry(client: str, name: str, *args: int, begin: float, end: float, outcome: Outcome) -> Entry:
    return Entry(client, name, args, begin, end, outcome)


def read(value: int, begin: float, end: float, client: str = "r") -> Entry:
    return make_entry(client, "read", begin=begin, end=end, outcome=Returned(value))


def write(value: int, begin: float, end: float, client: str = "w", outcome: Outcome = Returned(None)) -> Entry:  # noqa: B008
    return make_entry(client, "write", value, begin=begin, end=end, outcome=outcome)


DIED = write(1, 0, 1, outcome=NeverReturned())
FAILED = write(1, 0, 1, outcome=Errored("lost connection"))


@pytest.mark.parametrize(
    ("is_explained", "entries"),
    [
        (True, []),
        # A read sees what was written before it.
        (True, [write(1, 0, 1), read(1, 2, 3)]),
        (False, [write(1, 0, 1), read(0, 2, 3)]),
        # A read during a write sees the old or the new.
        (True, [write(1, 0, 3), read(0, 1, 2)]),
        (True, [write(1, 0, 3), read(1, 1, 2)]),
        (False, [write(1, 0, 3), read(2, 1, 2)]),
        # Two reads during a write do not go backwards.
        (True, [write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)]),
        (False, [write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)]),
        # A refusal has no effect, and is compared by class.
        (True, [write(9, 0, 1, outcome=Refused(ValueError)), read(0, 2, 3)]),
        (False, [write(9, 0, 1, outcome=Refused(KeyError))]),
        (False, [write(1, 0, 1, outcome=Refused(ValueError))]),
        # A call that died took effect or not, but not after the death.
        (True, [DIED, read(0, 2, 3)]),
        (True, [DIED, read(1, 2, 3)]),
        (False, [DIED, read(0, 2, 3), read(1, 4, 5)]),
        # A call that failed may take effect later, but not before it began.
        (True, [FAILED, read(0, 2, 3), read(1, 4, 5)]),
        (False, [FAILED, read(1, 2, 3), read(0, 4, 5)]),
        (False, [read(1, 0, 1), write(1, 2, 3, outcome=NeverReturned())]),
    ],
)
def test_explains_what_some_order_explains(is_explained: bool, entries: list[Entry]) -> None:
    assert (check(entries, Register()) is None) == is_explained


class TestExplanation:
    def test_names_only_the_calls_that_contradict_each_other(self) -> None:
        noise = [write(0, at, at + 1, client="n") for at in range(-10, 0, 2)]
        unexplained = check([*noise, write(1, 0, 1), read(0, 2, 3), read(1, 4, 5)], Register())
        assert unexplained is not None
        assert unexplained.entries == (read(0, 2, 3),)

    def test_has_the_orders_that_were_tried(self) -> None:
        unexplained = check([write(1, 0, 1), read(0, 2, 3)], Register())
        assert unexplained is not None
        assert unexplained.dead_ends == (DeadEnd(0, (write(1, 0, 1, outcome=Forgotten()),), read(0, 2, 3)),)

    def test_the_calls_it_names_are_unexplained_whatever_the_others_returned(self) -> None:
        entries = [write(1, 0, 1), read(1, 2, 3), read(2, 4, 5)]
        unexplained = check(entries, Register())
        assert unexplained is not None
        assert read(2, 4, 5) in unexplained.entries
        assert read(1, 2, 3) not in unexplained.entries


def orders_by_brute_force(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Return every possible order of every choice of the calls that need not have happened."""
    must = [entry for entry in entries if entry.must_have_happened]
    may = [entry for entry in entries if not entry.must_have_happened]
    return [
        order
        for count in range(len(may) + 1)
        for chosen in itertools.combinations(may, count)
        for order in itertools.permutations([*must, *chosen])
        if not any(later.until < entry.begin for entry, later in itertools.combinations(order, 2))
    ]


def ends_of(order: Iterable[Entry], starts: Iterable[int]) -> set[int]:
    states = set(starts)
    for entry in order:
        states = {after for state in states for after in Register().step(state, entry)}
    return states


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Short histories of three clients, each one call after the other, right and wrong ones."""
    entries = []
    times = draw(st.permutations(range(12)))
    for client, at in zip("abc", range(0, 12, 4), strict=True):
        moments = sorted(times[at : at + 4])
        for begin, end in (
            itertools.batched(moments, 2) if hasattr(itertools, "batched") else [moments[:2], moments[2:]]
        ):
            entries.append(draw(calls(client, begin, end)))
    return entries[: draw(st.integers(1, 6))]


@st.composite
def calls(draw: st.DrawFn, client: str, begin: float, end: float) -> Entry:
    values = st.integers(0, 2)
    name = draw(st.sampled_from(["read", "write", "cas"]))
    args = {"read": (), "write": (draw(values),), "cas": (draw(values), draw(values))}[name]
    results = {"read": values, "write": st.none(), "cas": st.booleans()}[name]
    outcome: Outcome = draw(
        st.one_of(
            results.map(Returned),
            results.map(Returned),
            st.just(NeverReturned()),
            st.just(Errored("lost")),
        )
    )
    return Entry(client, name, args, begin, end, outcome)


@settings(max_examples=300, deadline=None)
@given(histories(), st.sets(st.integers(0, 2)))
def test_finds_every_state_that_some_order_leads_to(entries: list[Entry], starts: set[int]) -> None:
    orders = orders_by_brute_force(entries)
    states = list(Explanation(entries, Register(), starts).states())
    assert len(states) == len(set(states))
    assert set(states) == {end for order in orders for end in ends_of(order, starts)}
    assert (check(entries, Register()) is None) == any(ends_of(order, {0}) for order in orders)


def test_a_search_that_costs_too_much_is_abandoned_and_says_so() -> None:
    explanation = Explanation(concurrent_run(calls=20, clients=4), Register(), [0], most=100)
    assert not explanation.holds
    assert explanation.is_abandoned


def test_a_thousand_calls_of_four_clients_are_explained() -> None:
    """Without memoisation it would never end."""
    assert check(concurrent_run(calls=1000, clients=4), Register()) is None


def test_one_wrong_result_among_a_thousand_is_found() -> None:
    entries = concurrent_run(calls=1000, clients=4)
    index = next(index for index, entry in enumerate(entries) if index > 500 and entry.name == "read")
    entries[index] = dataclasses.replace(entries[index], outcome=Returned(99))

    unexplained = check(entries, Register())

    assert unexplained is not None
    assert unexplained.entries == (entries[index],)


def test_if_few_calls_cost_too_much_to_find_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = concurrent_run(calls=20, clients=4)
    index = next(index for index, entry in enumerate(entries) if index > 10 and entry.name == "read")
    entries[index] = dataclasses.replace(entries[index], outcome=Returned(99))
    monkeypatch.setattr("pytest_wfstate.oracle.linearize._MOST_COST", 0)

    unexplained = check(entries, Register())

    assert unexplained is not None
    assert set(map(id, unexplained.entries)) == set(map(id, entries))


def concurrent_run(calls: int, clients: int) -> list[Entry]:
    """What a correct register does under random clients: each call takes effect at one moment within it."""
    rng = random.Random(7)
    value, entries = 0, []
    clock = [0.0] * clients
    for _ in range(calls):
        client = min(range(clients), key=clock.__getitem__)
        begin = clock[client] + rng.random()
        moment = begin + rng.random()
        end = moment + rng.random() * 3
        clock[client] = end
        entries.append((moment, client, begin, end, rng.choice(["read", "write"]), rng.randrange(5)))
    done = []
    for _, client, begin, end, name, number in sorted(entries):
        if name == "write":
            value = number
            done.append(write(number, begin, end, client=str(client)))
        else:
            done.append(read(value, begin, end, client=str(client)))
    return done
