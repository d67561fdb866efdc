"""Contracts of users: their references and stores may keep and return values of any type."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Run

CONTRACT = """
import collections, dataclasses, datetime, decimal, json, os
import pytest
from hypothesis import strategies as st
from pytest_wfstate.suites import Contract, Operation, Scenario, Suite

@dataclasses.dataclass(frozen=True)
class Bill:
    amount: decimal.Decimal
    due: datetime.date

class Bills:
    def __init__(self):
        self.bills = collections.deque()
    def add(self, name, day):
        self.bills.append((name, Bill(decimal.Decimal(day) / 4, datetime.date(2026, 1, day))))
    def of(self, name):
        return [{bill} for key, bill in self.bills if key == name]

class BillStore:
    def __init__(self, home):
        self.home, self.path = home, home / "bills.json"
    def _rows(self):
        return json.loads(self.path.read_text()) if self.path.exists() else []
    def add(self, name, day):
        rows = [*self._rows(), [name, str(decimal.Decimal(day) / 4), f"2026-01-{day:02}"]]
        with open(self.home / "new", "w") as file:
            json.dump(rows, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, self.path)
        folder = os.open(self.home, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    def of(self, name):
        rows = [row for row in self._rows() if row[0] == name]
        return [{Bill(decimal.Decimal(amount), datetime.date.fromisoformat(due))} for _, amount, due in rows]

def adds(ids):
    return st.tuples(st.sampled_from(ids), st.integers(1, 3))

ADD = Operation("add", adds, mutates=True, positional=2, required=True)
OF = Operation("of", lambda ids: st.tuples(st.sampled_from(ids)), required=True)

class TestBills(Suite):
    contract = Contract(
        "bills",
        [ADD, OF],
        reference=lambda generated: Bills(),
        write=lambda name, number: ADD(name, number),
        reads=lambda ids: [OF(name) for name in ids],
    )
    scenarios = {"add": [Scenario([ADD("a", 1), ADD("a", 2)], before=[ADD("a", 3)])]}

    def open(self, home):
        return BillStore(home)
"""
CRASHES = "bills.kill.add or bills.power.add or bills.errors.add"


def test_values_of_any_type_are_compared(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(CONTRACT)
    result = run("--wfstate-profile=quick", "-k", f"{CRASHES} or bills.save or bills.random or bills.load")
    assert set(result.parseoutcomes()) == {"passed", "deselected"}


@pytest.mark.parametrize("wrong", ["decimal.Decimal(amount) + 1", "float(amount)"])
def test_a_result_that_differs_is_named(pytester: pytest.Pytester, run: Run, wrong: str) -> None:
    pytester.makepyfile(CONTRACT.replace("{Bill(decimal.Decimal(amount),", f"{{Bill({wrong},"))
    result = run("-k", "bills.save.load")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["store.of('a') -> *Bill(amount=*", "    expected: *Bill(amount=Decimal('0.25'), *"])


def test_a_result_that_cannot_be_compared_is_an_error_in_every_clause(pytester: pytest.Pytester, run: Run) -> None:
    """It is not blamed on the store, and not taken for a refusal."""
    returns = "[{Bill(decimal.Decimal(amount), datetime.date.fromisoformat(due))} for _, amount, due in rows]"
    assert returns in CONTRACT
    pytester.makepyfile(CONTRACT.replace(returns, "memoryview(b'1')"))
    result = run("-v", "-k", "bills.save.load or bills.kill.add")  # else the second is a line that names the first
    result.assert_outcomes(failed=2)
    text = "of('a') returned what cannot be compared: it is of type builtins.memoryview: cannot pickle"
    assert result.stdout.str().count(f"CannotCompare: {text}") >= 2
    result.stdout.no_fnmatch_line("*violates its contract*")


WRAPS_ERRORS = """
class BillError(ValueError):
    pass

class WrapsErrors(BillStore):
    def add(self, name, day):
        try:
            super().add(name, day)
        except OSError as error:
            raise BillError("cannot add") from error

class TestWrapped(TestBills):
    def open(self, home):
        return WrapsErrors(home)
"""


def test_an_unexpected_refusal_counts_as_an_error(pytester: pytest.Pytester, run: Run) -> None:
    """A store may raise a ValueError when the disk is full: the call may have taken effect, and it can be retried."""
    pytester.makepyfile(CONTRACT + WRAPS_ERRORS)
    result = run("--wfstate-profile=quick", "-k", "TestWrapped and bills.errors.add")
    assert set(result.parseoutcomes()) == {"passed", "deselected"}


NOTES = """
import json
from hypothesis import strategies as st
from pydantic import BaseModel
from pytest_wfstate.suites import Contract, Operation, Suite

class Note(BaseModel):
    name: str
    number: float
    tags: set[str] = set()

class Notes:
    def __init__(self):
        self.notes = {}
    def save(self, note):
        self.notes[note.name.encode()] = note.model_copy(deep=True)
    def load(self, name):
        note = self.notes.get(name.encode())
        return note and note.model_copy(deep=True)

class FileNotes:
    def __init__(self, home):
        self.home = home
    def _path(self, name):
        return self.home / name.encode().hex()[:200]
    def save(self, note):
        self._path(note.name).write_text(note.model_dump_json(exclude={"tags"}))
    def load(self, name):
        path = self._path(name)
        return Note.model_validate_json(path.read_text()) if path.exists() else None

def note(name, number):
    return Note(name=name, number=number, tags={"a", "b"})

SAVE = Operation("save", lambda ids: st.builds(lambda name: (note(name, 1),), st.sampled_from(ids)), mutates=True)
LOAD = Operation("load", lambda ids: st.tuples(st.sampled_from(ids)))

class TestNotes(Suite):
    contract = Contract(
        "notes",
        [SAVE, LOAD],
        reference=lambda generated: Notes(),
        write=lambda name, number: SAVE(note(name, number)),
        reads=lambda ids: [LOAD(name) for name in ids],
    )
    def open(self, home):
        return FileNotes(home)
"""
NORMALISE = "    def normalise(self, record):\n        return record.model_copy(update={'tags': set()})\n"


def test_a_field_of_ones_own_model_that_is_lost_is_named(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(NOTES)
    result = run("-k", "notes.save.load")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["    expected: Note(name='a', *", "    tags is set(), not {'*', '*'}"], consecutive=True
    )


def test_a_field_of_ones_own_model_may_be_dropped_on_purpose(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(NOTES + NORMALISE)
    result = run("--wfstate-profile=quick", "-k", "notes.save or notes.random or whole")
    assert set(result.parseoutcomes()) == {"passed", "deselected"}
    result.stdout.fnmatch_lines(["wfstate: TestNotes: *; not compared: tags; *"])


TWINS = """
from pytest_wfstate.suites import Contract, Operation, Suite
from hypothesis import strategies as st

def keys(ids):
    return st.tuples(st.sampled_from(ids))

PUT = Operation("put", lambda ids: st.tuples(st.sampled_from(ids), st.just((1, 2))), mutates=True, positional=2,
    required=True, async_name="aput")
GET = Operation("get", keys, required=True, async_name="aget")

class Reference:
    def __init__(self):
        self.things = {}
    def put(self, key, thing):
        self.things[key] = thing
    def get(self, key):
        return self.things.get(key)

class OnlyAsync:
    def __init__(self):
        self.things = {}
    async def aput(self, key, thing):
        self.things[key] = thing
    async def aget(self, key):
        return self.things.get(key)

class Both(Reference, OnlyAsync):
    pass

class WrongTwin(Both):
    async def aget(self, key):
        return (2, 1) if key == "a" else None

class TwinSuite(Suite):
    contract = Contract("twins", [PUT, GET], reference=lambda _: Reference(),
        write=lambda key, number: PUT(key, (number, number)), reads=lambda ids: [GET(key) for key in ids], show=SHOW)
    medium = "memory"
    stores = {}
    def open(self, home):
        return self.stores.setdefault(home, self.store())

class TestTwins(TwinSuite):
    store = STORE
"""
FEW = "twins.save.load or twins.random or twins.race.storm"
SHOWN = '(lambda value: "x".join(map(str, value)) if isinstance(value, (tuple, list)) else None)'


def twins(store: str, show: str = "None") -> str:
    return TWINS.replace("STORE", store).replace("SHOW", show)


@pytest.mark.parametrize(
    ("store", "outcomes"),
    [
        ("Both", {"passed": 6}),
        ("Reference", {"passed": 3, "skipped": 3}),
        ("OnlyAsync", {"passed": 3, "skipped": 3}),
    ],
)
def test_a_method_is_called_by_both_its_names(
    pytester: pytest.Pytester, run: Run, store: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(twins(store))
    result = run("--wfstate-profile=quick", "-k", FEW, "-rs")
    result.assert_outcomes(**outcomes, deselected=result.parseoutcomes()["deselected"])
    if "skipped" in outcomes:
        names = "async names" if store == "Reference" else "names"
        result.stdout.fnmatch_lines([f"*not applicable: {store} has no methods by their {names}"])


def test_a_twin_that_is_wrong_fails_alone(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(twins("WrongTwin", SHOWN))
    result = run("-k", "twins.save.load", "-v")
    result.assert_outcomes(passed=1, failed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*test_save_load?by-name? PASSED*", "*test_save_load?by-async-name? FAILED*"])
    # And the values are shown as the contract says.
    result.stdout.fnmatch_lines(["twins.save.load: A loaded * (methods called by their async names)"])
    result.stdout.fnmatch_lines(["store.put('a', 1x1)", "store.get('a') -> 2x1", "    expected: 1x1"], consecutive=True)


def test_a_store_with_none_of_the_names_fails(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(twins("object"))
    result = run("-k", "twins.save.load")
    result.assert_outcomes(failed=2, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*object has no method put. Every store must offer put and get. *"])


def test_an_error_in_show_is_not_blamed_on_the_store(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(twins("WrongTwin", "lambda value: value.text"))
    result = run("-k", "twins.save.load")
    result.stdout.fnmatch_lines(["*AdapterError: show= of the contract raises AttributeError: *"])
