"""What a contract of a user can say: with each option, a store that is right passes, and one that is wrong is caught.

Strict known failures show what fails: a wrong store, or a right one whose contract does not say what it should.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import strategies as st

from pytest_wfstate import AdapterError, InvalidSetting
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.labs.race import Race
from pytest_wfstate.oracle import Entry, Forgotten, Outcome, Returned
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState
from pytest_wfstate.suites import (
    Contract,
    Ids,
    Operation,
    RaceRole,
    Suite,
    exactly,
    race_roles_of,
    script,
)
from pytest_wfstate.suites.clauses import clauses
from tests.unit.suites.only import only
from tests.unit.suites.shelves import CLEAR, GET, PUT, FileShelf, Shelf, ShelfSuite, contract, of_key

# ids=, remove=

SLUGS = Ids(good=["a-b", "a1"], bad=["A", "a b", ""], pairs=[("a-b", "a-c")])


class SlugShelf(Shelf):
    def put(self, key: str, thing: Any) -> None:
        super().put(slug(key), thing)

    def get(self, key: str) -> Any:
        return super().get(slug(key))


def slug(key: str) -> str:
    if not key.replace("-", "").isalnum() or key != key.lower() or not key.isascii():
        raise ValueError(f"{key!r} is not a slug")
    return key


class FileSlugs(FileShelf):
    def put(self, key: str, thing: Any) -> None:
        super().put(slug(key), thing)

    def get(self, key: str) -> Any:
        return super().get(slug(key))


class AnyCase(FileShelf):
    """Takes capitals."""

    def put(self, key: str, thing: Any) -> None:
        super().put(slug(key.lower()), thing)

    def get(self, key: str) -> Any:
        return super().get(slug(key.lower()))


class MixedUp(FileSlugs):
    """Takes one slug for another."""

    def put(self, key: str, thing: Any) -> None:
        super().put("a-b" if key == "a-c" else key, thing)

    def get(self, key: str) -> Any:
        return super().get("a-b" if key == "a-c" else key)


def slugs(ids: Ids) -> Contract:
    return dataclasses.replace(contract(), reference=lambda _: SlugShelf(), ids=ids)


ID_CLAUSES = ("test_ids_any_text", "test_ids_never_collide", "test_ids_refused")


@only(*ID_CLAUSES)
class TestSlugs(ShelfSuite):
    contract = slugs(SLUGS)
    store = FileSlugs


@only(*ID_CLAUSES)
class TestAnyCase(ShelfSuite):
    contract = slugs(SLUGS)
    store = AnyCase
    known_failures: ClassVar = {"shelf.ids.refused": "it takes capitals"}


@only(*ID_CLAUSES)
class TestMixedUp(ShelfSuite):
    contract = slugs(SLUGS)
    store = MixedUp
    known_failures: ClassVar = {"shelf.ids.never-collide": "a-c is a-b"}


REMOVALS = (
    "test_remove_forgets",
    "test_remove_missing",
    "test_remove_write_again",
    "test_remove_seen_at_once",
    "test_remove_others",
)
CLEARED = contract(CLEAR, remove=CLEAR)


@only(*REMOVALS)
class TestRemoves(ShelfSuite):
    contract = CLEARED
    store = FileShelf


class Keeps(FileShelf):
    def clear(self, key: str) -> None:
        pass


class NeedsOne(FileShelf):
    def clear(self, key: str) -> None:
        self.write({other: thing for other, thing in self.read().items() if other != key and self.read().get(key)})


class LeavesAMark(FileShelf):
    def put(self, key: str, thing: Any) -> None:
        if f"{key} was cleared" not in self.read():
            super().put(key, thing)

    def clear(self, key: str) -> None:
        super().clear(key)
        self.write(self.read() | {f"{key} was cleared": 1})


class Remembers(FileShelf):
    """Keeps what it has read."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.seen: dict[str, Any] = {}

    def put(self, key: str, thing: Any) -> None:
        super().put(key, thing)
        self.seen[key] = thing

    def get(self, key: str) -> Any:
        self.seen[key] = super().get(key) or self.seen.get(key)
        return self.seen[key]

    def clear(self, key: str) -> None:
        super().clear(key)
        self.seen[key] = None


class ClearsPrefix(FileShelf):
    def clear(self, key: str) -> None:
        self.write({other: thing for other, thing in self.read().items() if not other.startswith(key)})


@only("test_remove_forgets")
class TestKeeps(ShelfSuite):
    contract = CLEARED
    store = Keeps
    known_failures: ClassVar = {"shelf.remove.forgets": "it is still there"}


@only("test_remove_missing", "test_remove_forgets")
class TestNeedsOne(ShelfSuite):
    contract = CLEARED
    store = NeedsOne
    known_failures: ClassVar = {"shelf.remove.missing": "it clears all if there is none"}


@only("test_remove_write_again", "test_remove_forgets")
class TestLeavesAMark(ShelfSuite):
    contract = CLEARED
    store = LeavesAMark
    known_failures: ClassVar = {"shelf.remove.write-again": "what was cleared stays so"}


@only("test_remove_seen_at_once", "test_remove_forgets")
class TestRemembers(ShelfSuite):
    contract = CLEARED
    store = Remembers
    known_failures: ClassVar = {"shelf.remove.seen-at-once": "the other handle remembers it"}


@only("test_remove_others", "test_remove_forgets")
class TestClearsPrefix(ShelfSuite):
    contract = CLEARED
    store = ClearsPrefix
    known_failures: ClassVar = {"shelf.remove.others": "aa is cleared with a"}


def test_without_a_call_that_removes_there_are_no_clauses_about_it() -> None:
    suite = type("Kept", (Suite,), {"contract": contract(CLEAR)})
    assert [clause.id for clause in clauses(suite) if ".remove." in clause.id] == []


# same=


class Point(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Box:
    sides: tuple[float, ...]
    labels: set[str]


VALUES = {
    "a tuple": (1, (2, 3)),
    "a set": {1, 2, frozenset([3])},
    "NaN": [math.nan, {"ratio": math.nan}],
    "a named tuple": Point(-0.0, math.inf),
    "a dataclass": Box((1.5, math.nan), {"a"}),
    "zeros": [0.0, -0.0, 0, False],
}


class Kept(Shelf):
    """A right store: it keeps what it was given, for as long as its home."""

    homes: ClassVar[dict[Path, dict[str, Any]]] = {}
    changed: ClassVar[Any] = staticmethod(lambda thing: thing)

    def __init__(self, home: Path) -> None:
        self.things = self.homes.setdefault(home, {})

    def put(self, key: str, thing: Any) -> None:
        super().put(key, type(self).changed(thing))


def as_lists(value: Any) -> Any:
    return [as_lists(item) for item in value] if type(value) in (list, tuple) else value


def without_signs(value: Any) -> Any:
    """Lose the sign of zero, as some columns do."""
    if isinstance(value, Point):
        return Point(value.x or 0.0, value.y or 0.0)
    return [item if item or type(item) is not float else 0.0 for item in value] if type(value) is list else value


class AsLists(Kept):
    changed = staticmethod(as_lists)


class WithoutSigns(Kept):
    changed = staticmethod(without_signs)


VALUE = script("core", "Values are kept.", *(call for key in VALUES for call in (PUT(key, VALUES[key]), GET(key))))


class KeptSuite(ShelfSuite):
    contract = contract(same=exactly)
    medium = "memory"
    test_value_kept = VALUE


@only("test_value_kept")
class TestExactValues(KeptSuite):
    store = Kept


@only("test_value_kept")
class TestTuplesAreNotLists(KeptSuite):
    store = AsLists
    known_failures: ClassVar = {"shelf.value.kept": "tuples are lists"}


@only("test_value_kept")
class TestSignsOfZero(KeptSuite):
    store = WithoutSigns
    known_failures: ClassVar = {"shelf.value.kept": "0.0 is not -0.0"}


@pytest.mark.parametrize("store", [AsLists, WithoutSigns])
def test_by_default_tuples_are_lists_and_zeros_are_equal(store: type[Kept], tmp_path: Path) -> None:
    """So that a store of JSON is right, unless its contract says that it is not."""
    put, get = PUT("a", VALUES["zeros"] if store is WithoutSigns else VALUES["a tuple"]), GET("a")
    kept = store(tmp_path)
    kept.put(*put.args)
    for same, is_right in ((None, True), (exactly, False)):
        model = ReferenceModel(contract(same=same))
        with contextlib.closing(Driver(operations=[PUT, GET], keeps_tuples=same is not None)) as driver:
            entries = [Entry("", "put", put.args, 0, 0, driver.outcome(store(tmp_path / "new"), put))]
            (state,) = model.step(model.start(), entries[0])
            seen = Entry("", "get", get.args, 1, 1, driver.outcome(kept, get))
            assert bool(list(model.step(state, seen))) == is_right


def about_equal(expected: Any, seen: Any) -> bool:
    return bool(expected == seen or math.isclose(expected, seen))


@only("test_number_kept")
class TestOwnComparison(KeptSuite):
    contract = contract(same=about_equal)
    store = type("Rounds", (Kept,), {"changed": staticmethod(lambda number: number + 1e-12)})
    test_number_kept = script("core", "A number is kept, nearly.", PUT("a", 0.25), GET("a"))


@only("test_number_kept")
class TestOwnComparisonFails(KeptSuite):
    contract = contract(same=about_equal)
    store = type("RoundsMore", (Kept,), {"changed": staticmethod(lambda number: number + 1e-3)})
    test_number_kept = script("core", "A number is kept, nearly.", PUT("a", 0.25), GET("a"))
    known_failures: ClassVar = {"shelf.number.kept": "by a thousandth"}


def fails(_: Any, seen: Any) -> bool:
    return bool(seen.area)


def step_of(contract: Contract, call: Call, outcome: Outcome) -> list[ReferenceState]:
    model = ReferenceModel(contract)
    return list(model.step(model.start(), Entry("", call.name, call.args, 0, 0, outcome)))


def test_an_error_of_a_comparison_is_not_blamed_on_the_store() -> None:
    with pytest.raises(AdapterError, match=r"^same= of the shelf contract raises AttributeError: .* None and 'hat'\."):
        step_of(contract(same=fails), GET("a"), Returned("hat"))


def test_a_comparison_that_is_never_true_is_not_taken_for_state_shared_with_copies() -> None:
    never = contract(same=lambda *_: False)
    assert step_of(never, GET("a"), Returned(None)) == []
    assert len(step_of(never, PUT("a", math.nan), Forgotten())) == 1


# Race roles and storms


class Counters:
    """The reference: counts, whose sum is of all ids."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, key: str, number: int) -> None:
        self.counts[key] = self.counts.get(key, 0) + number

    def total(self, key: str | None = None) -> int:
        return sum(self.counts.values()) if key is None else self.counts.get(key, 0)


def of_one_or_all(key: str | None = None) -> list[str] | None:
    return None if key is None else [key]


ADD = Operation(
    "add", lambda ids: st.tuples(st.sampled_from(ids), st.integers(1, 3)), mutates=True, positional=2, keys=of_key
)
TOTAL = Operation(
    "total", lambda ids: st.sampled_from([(), *((key,) for key in ids)]), positional=1, keys=of_one_or_all
)
COUNTERS = Contract(
    "counters",
    [ADD, TOTAL],
    reference=lambda _: Counters(),
    write=ADD,
    reads=lambda ids: [TOTAL(), *map(TOTAL, ids)],
)


class MemoryCounters(Counters):
    pass


class ForgetsRounds(Counters):
    """Forgets what earlier rounds have added, for the total of all."""

    def total(self, key: str | None = None) -> int:
        last = max((name.partition("-")[0] for name in self.counts), default="")
        return super().total(key) if key else sum(n for name, n in self.counts.items() if name.startswith(last))


class CounterSuite(Suite):
    contract = COUNTERS
    medium = "memory"
    counters: ClassVar[type[Counters]]

    @pytest.fixture(autouse=True)
    def _shared(self) -> None:
        self.shared = self.counters()

    def open(self, home: Path) -> Counters:  # noqa: ARG002
        return self.shared


@only("test_race_storm")
class TestStormsOfCallsOnAllIds(CounterSuite):
    counters = MemoryCounters


@only("test_race_storm")
class TestStormsCarryStateFromRoundToRound(CounterSuite):
    counters = ForgetsRounds
    known_failures: ClassVar = {"counters.race.storm": "what earlier rounds added is missing"}


class ForgetsOldKeys(Shelf):
    """Keeps the keys of one round, which no later round uses."""

    def put(self, key: str, thing: Any) -> None:
        for other in [*self.things]:
            if other.partition("-")[0] != key.partition("-")[0]:
                self.things.pop(other, None)
        super().put(key, thing)


@only("test_race_storm")
class TestStormsLookAtEarlierRoundsAgain(Suite):
    contract = contract()
    medium = "memory"
    shelf: ClassVar = ForgetsOldKeys()
    known_failures: ClassVar = {"shelf.race.storm": "the keys of the first round are gone at the end"}

    def open(self, home: Path) -> Shelf:  # noqa: ARG002
        return self.shelf


def test_a_storm_whose_ids_the_reference_refuses_is_an_error() -> None:
    """It would prove nothing."""

    class Digits(Counters):
        def add(self, key: str, number: int) -> None:
            super().add(str(int(key)), number)

    digits = dataclasses.replace(COUNTERS, reference=lambda _: Digits())
    with (
        contextlib.closing(Race()) as race,
        pytest.raises(InvalidSetting, match=r"refuses add\('r0-a', 1\), so a storm"),
    ):
        race.storm(lambda _: MemoryCounters(), digits, calls=1, medium="memory")


def test_a_refined_role_replaces_the_derived_one_and_leaves_the_rest() -> None:
    role = RaceRole(lambda key, number: [ADD(key, number), ADD(key, number)])
    refined = type("Refined", (Suite,), {"contract": COUNTERS, "race_roles": race_roles_of(COUNTERS, add=role)})
    derived = type("Derived", (Suite,), {"contract": COUNTERS})
    assert [clause.id for clause in clauses(refined)] == [clause.id for clause in clauses(derived)]
    assert refined.race_roles["add"] is role  # type: ignore[attr-defined]


def test_a_role_of_no_method_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"has no method 'ad', which was given a race role\. Its .*: add, total\."):
        race_roles_of(COUNTERS, ad=RaceRole(lambda *_: []))
