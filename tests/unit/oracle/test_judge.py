"""The judge: what it accepts of scripts, crashes and concurrent calls, and how it says what it does not."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import pathlib
import random
import uuid
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import strategies as st

from pytest_wfstate import CannotCompare, MemoryPausedStore, Violation, samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.oracle import Entry, Errored, Judge, Outcome, ReferenceModel, Refused, Returned, Rounds, Timeline
from pytest_wfstate.oracle.partition import parts
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.specs.paused import CLAIM, COMPLETE, LIST, LOAD, PAUSED, RECOVER, REMOVE, SAVE, save

DONE = Returned(None)
A = Returned(plain(samples.paused("a", iterations=1)))
A2 = Returned(plain(samples.paused("a", iterations=2)))


@pytest.fixture(params=[False, True], ids=["forgetful", "remembering"])
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return Judge(ReferenceModel(PAUSED), remembers=request.param).begin()


class TestScripts:
    def test_a_wrong_result_is_shown_after_the_changes_before_it(self, timeline: Timeline) -> None:
        timeline.call("store", save("a"), DONE)
        timeline.call("store", LOAD("a"), A)
        timeline.restart()
        with pytest.raises(Violation) as caught:
            timeline.call("second", LOAD("a"), A2)
        first, restart, wrong, expected, difference = str(caught.value).splitlines()
        assert [first, restart] == ["store.save(samples.paused('a'))", "-- restart --"]
        assert wrong.startswith("second.load('a') -> {")
        assert expected.startswith("    expected: {")
        assert difference == "    iterations is 2, not 1"

    def test_a_wrong_refusal_is_shown_with_its_message(self, timeline: Timeline) -> None:
        with pytest.raises(Violation) as caught:
            timeline.call("store", LOAD("a"), Refused(TypeError), lambda: "the store said: no")
        assert str(caught.value) == "store.load('a') refused: TypeError\n    expected: None\n    the store said: no"


class TestCrashes:
    @pytest.mark.parametrize("seen", [A, A2])
    def test_the_call_in_flight_took_effect_or_not(self, timeline: Timeline, seen: Outcome) -> None:
        timeline.crash("store", [save("a", 1), save("a", 2)], [DONE])
        timeline.call("reopened", LOAD("a"), seen)
        with pytest.raises(Violation):
            timeline.call("reopened", LOAD("a"), A if seen == A2 else A2)

    @pytest.mark.parametrize("number", [2, 20])
    def test_an_acknowledged_call_survives(self, timeline: Timeline, number: int) -> None:
        timeline.crash("store", [save("a", 1), save("a", number)], [DONE])
        expected = rf"expected: \{{.* or the same, but iter.* is {number}, not 1$"
        with pytest.raises(Violation, match=rf"^reopened.load\('a'\) -> None\n    {expected}"):
            timeline.call("reopened", LOAD("a"), DONE)

    def test_a_call_that_failed_is_retried(self, timeline: Timeline) -> None:
        timeline.crash("store", [save("a", 1)], [Errored("OSError"), DONE])
        timeline.call("reopened", LOAD("a"), A)

    def test_a_restart_leaves_no_handle(self, timeline: Timeline) -> None:
        timeline.call("store", save("a"), DONE)
        timeline.restart()
        assert [list(state.handles) for state in timeline.states] == [[""]]

    def test_a_recovery_that_crashed_did_part_of_its_work(self, timeline: Timeline) -> None:
        b = Returned(plain(samples.paused("b", iterations=1)))
        timeline.crash("store", [save("a"), save("b"), CLAIM("a"), CLAIM("b")], [DONE, DONE, A, b])
        timeline.crash("recovery", [RECOVER()], [])
        timeline.call("reopened", LIST(), Returned(["b"]))
        timeline.call("reopened", RECOVER(), Returned(1))


class TestCancelledCalls:
    def test_a_call_takes_effect_late_or_never(self, timeline: Timeline) -> None:
        timeline.cancel("store", save("a"), "was cancelled")
        timeline.call("store", LOAD("a"), DONE)
        timeline.call("second", LOAD("a"), A)
        timeline.call("store", LOAD("a"), A)

    def test_a_call_takes_effect_once(self, timeline: Timeline) -> None:
        timeline.call("store", save("a"), DONE)
        timeline.cancel("store", REMOVE("a"), "was cancelled")
        timeline.call("second", LOAD("a"), DONE)
        timeline.call("second", save("a"), DONE)
        with pytest.raises(Violation, match=r"store\.remove\('a'\) was cancelled\n.*\nsecond\.load\('a'\) -> None"):
            timeline.call("second", LOAD("a"), DONE)

    def test_a_call_takes_effect_before_the_store_is_closed(self, timeline: Timeline) -> None:
        timeline.cancel("store", save("a"), "was cancelled")
        timeline.settled()
        timeline.restart()
        timeline.call("store", LOAD("a"), DONE)
        with pytest.raises(Violation, match="expected: None"):
            timeline.call("store", LOAD("a"), A)


def history(seed: int, length: int, *, whole: bool) -> list[Entry]:
    """Let four clients call one memory store, one call at a time, each call somewhere in its interval."""
    chance, store = random.Random(seed), MemoryPausedStore()
    clients = {name: store.handle() for name in ("one", "two", "three", "four")}
    kinds = [SAVE, LOAD, CLAIM, COMPLETE, REMOVE, *([LIST, RECOVER] if whole else [])]
    entries = []
    for moment in range(length):
        client, operation = chance.choice(list(clients)), chance.choice(kinds)
        run_id = f"run-{chance.randrange(8)}"
        args: tuple[Any, ...] = () if operation in (LIST, RECOVER) else (run_id,)
        args = (samples.paused(run_id, iterations=chance.randrange(3)),) if operation is SAVE else args
        value = plain(getattr(clients[client], operation.name)(*args))
        begin, end = moment - chance.random() * 3, moment + chance.random() * 3
        name = f"{client}-{moment}" if operation is LOAD else client
        entries.append(Entry(name, operation.name, args, begin, end, Returned(value)))
    return entries


def entry(client: str, call: Call, begin: float, end: float, outcome: Outcome) -> Entry:
    return Entry(client, call.name, call.args, begin, end, outcome)


TWO_WINNERS = [
    entry("one", save("a"), 0, 1, DONE),
    entry("one", CLAIM("a"), 2, 5, A),
    entry("two", CLAIM("a"), 3, 4, A),
    entry("two", save("b"), 6, 7, DONE),
]


class TestConcurrentCalls:
    @pytest.mark.parametrize("whole", [False, True])
    def test_a_history_of_the_reference_is_explained(self, whole: bool) -> None:
        Judge(ReferenceModel(PAUSED)).schedule(history(7, 200, whole=whole))
        Rounds(ReferenceModel(PAUSED)).add(history(7, 200, whole=whole))

    def test_a_claim_with_two_winners_is_not(self) -> None:
        judge = Judge(ReferenceModel(PAUSED))
        judge.schedule(TWO_WINNERS[:2])
        for _ in range(2):  # the second time it remembers
            with pytest.raises(Violation) as caught:
                judge.schedule(TWO_WINNERS)
            first, *claims, after_one, after_two = str(caught.value).splitlines()
            assert first == "These results are impossible in any order of the calls."
            assert [line.partition(" -> ")[0] for line in claims] == ["  one: claim('a')", "  two: claim('a')"]
            assert {after_one, after_two} == {
                "after save (one), claim (one): claim (two), expected: None",
                "after save (one), claim (two): claim (one), expected: None",
            }

    def test_a_verdict_is_remembered_for_the_same_results_in_the_same_order(self) -> None:
        judge = Judge(ReferenceModel(PAUSED))
        judge.schedule([entry("one", save("a"), 0, 3, DONE), entry("two", LOAD("a"), 1, 2, DONE)])
        with pytest.raises(Violation):
            judge.schedule([entry("one", save("a"), 0, 1, DONE), entry("two", LOAD("a"), 2, 3, DONE)])
        judge.schedule([entry("one", save("a"), 0, 1, DONE), entry("two", LOAD("a"), 2, 3, A)])

    def test_the_reference_is_asked_once_for_all_schedules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = ReferenceModel(PAUSED)
        judge, asked = Judge(model), Mock(side_effect=model.transitions)
        monkeypatch.setattr(model, "transitions", asked)
        judge.schedule([entry("one", save("a"), 0, 3, DONE), entry("two", LOAD("a"), 1, 2, A)])
        assert asked.call_count == 3
        judge.schedule([entry("one", save("a"), 0, 1, DONE), entry("two", LOAD("a"), 2, 3, A)])
        assert asked.call_count == 3
        with pytest.raises(Violation):
            judge.schedule([entry("one", save("a", 2), 0, 1, DONE), entry("two", LOAD("a"), 2, 3, A)])

    def test_a_storm_shows_the_calls_around(self) -> None:
        with pytest.raises(Violation) as caught:
            Rounds(ReferenceModel(PAUSED)).add(TWO_WINNERS)
        _, around = str(caught.value).split("The calls around them, with begin and end in milliseconds:\n")
        assert around.startswith("      0.0 -  1000.0  one: save(samples.paused('a')) -> None\n")
        assert "samples.paused('b'" not in around


class TestParts:
    def test_a_history_is_split_by_run(self) -> None:
        entries = history(3, 40, whole=False)
        split = parts(entries, PAUSED)
        assert len(split) == 8
        assert sorted(map(str, entries)) == sorted(str(entry) for part in split for entry in part)

    def test_a_call_that_depends_on_all_runs_keeps_it_whole(self) -> None:
        assert len(parts(history(3, 40, whole=True), PAUSED)) == 1


class Register:
    """Keeps one value of any type, and returns it."""

    def __init__(self) -> None:
        self.value: Any = None

    def put(self, value: Any) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value


PUT = Operation("put", lambda _: st.just(()), mutates=True)
GET = Operation("get", lambda _: st.just(()), positional=0)
REGISTER = Contract("register", [PUT, GET], lambda _: Register(), lambda _, number: PUT(number), lambda _: [GET()])


class Slots:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


MAKERS: dict[str, Any] = {
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "float": float,
    "complex": complex,
    "range": range,
    "date": datetime.date.fromordinal,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "UUID": lambda number: uuid.UUID(int=number),
    "Path": lambda number: pathlib.Path(str(number)),
    "slots": Slots,
    "deque": lambda number: collections.deque([number]),
    "array": lambda number: array.array("i", [number]),
    "bytearray": bytearray,
    "set": lambda number: {number},
    "frozenset": lambda number: frozenset([number]),
    "Counter": lambda number: collections.Counter([number]),
    "exception": ValueError,
}


class TestValuesOfAnyType:
    """A reference may keep anything, and a store may return it."""

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_two_of_its_values_are_two_states(self, make: Any) -> None:
        for after_crash in (1, 2):
            timeline = Judge(ReferenceModel(REGISTER, in_order=False), remembers=True).begin()
            timeline.crash("store", [PUT(make(1)), PUT(make(2))], [DONE])
            timeline.call("reopened", GET(), Returned(plain(make(after_crash))))
            with pytest.raises(Violation):
                timeline.call("reopened", GET(), Returned(plain(make(3))))

    def test_a_list_of_sets_may_be_in_any_order_after_a_crash(self) -> None:
        timeline = Judge(ReferenceModel(REGISTER, in_order=False), remembers=True).begin()
        timeline.crash("store", [PUT([{1}, {2}])], [DONE])
        timeline.call("reopened", GET(), Returned([{2}, {1}]))

    def test_results_with_the_same_repr_are_told_apart(self) -> None:
        class Silent:
            def __init__(self, number: int) -> None:
                self.number = number

            def __repr__(self) -> str:
                return "Silent"

        judge = Judge(ReferenceModel(REGISTER))
        judge.schedule([entry("one", PUT(Silent(1)), 0, 1, DONE), entry("one", GET(), 2, 3, Returned(Silent(1)))])
        with pytest.raises(Violation, match="number is 2, not 1"):
            judge.schedule([entry("one", PUT(Silent(1)), 0, 1, DONE), entry("one", GET(), 2, 3, Returned(Silent(2)))])

    def test_a_type_that_hides_what_it_holds_is_refused(self) -> None:
        timeline = Judge(ReferenceModel(REGISTER), remembers=True).begin()
        with pytest.raises(
            CannotCompare, match=r"^The reference Register keeps .*: \.value is of type builtins\.generator"
        ):
            timeline.crash("store", [PUT(number for number in [1])], [])
