"""What the author of a store may do: adapt records, leave methods out, write async code, parametrize."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Run
from tests.plugin.suite_module import CORE, write_suite

ADAPTED = """
import dataclasses, json
from pytest_wfstate import PausedWorkflow
from pytest_wfstate.suites import PausedSuite

@dataclasses.dataclass
class Row:
    id: str
    data: dict

class RowStore:
    def __init__(self, home):
        self.home = home
    def _path(self, run_id):
        return self.home / f"{run_id.encode().hex()}.json"
    def save(self, row):
        assert type(row) is Row
        self._path(row.id).write_text(json.dumps(row.data))
    def load(self, run_id):
        path = self._path(run_id)
        return Row(run_id, json.loads(path.read_text())) if path.exists() else None
    def list(self):
        return sorted(bytes.fromhex(path.stem).decode() for path in self.home.glob("*.json"))

class TestRows(PausedSuite):
    def open(self, home):
        return RowStore(home)
    def encode(self, record):
        data = record.model_dump(mode="json", exclude_none=True)
        FORGET
        return Row(data.pop("run_id"), data)
    def decode(self, row):
        return PausedWorkflow(run_id=row.id, **{"prompt": "forgotten", **row.data})
"""
FORGET = 'data.pop("prompt")'
QUICK = ("--wfstate-profile=quick",)
NORMALISE = '    def normalise(self, record):\n        return record.model_copy(update={"prompt": ""})\n'


def test_a_store_may_have_records_of_its_own(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ADAPTED.replace("FORGET", ""))
    assert set(run("-m", CORE).parseoutcomes()) == {"passed", "skipped", "deselected"}


def test_a_forgotten_field_is_named(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ADAPTED.replace("FORGET", FORGET))
    result = run("-k", "paused.save.load")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(['    prompt is "forgotten", not *'])


def test_a_field_may_be_dropped_on_purpose_and_is_named(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ADAPTED.replace("FORGET", FORGET) + NORMALISE)
    result = run("-k", "paused.save.load or whole")
    assert result.parseoutcomes()["passed"] == 2
    result.stdout.fnmatch_lines(["wfstate: TestRows: core 1/1; not compared: prompt"])


@pytest.mark.parametrize("name", ["encode", "decode"])
def test_an_adapter_that_raises_is_not_taken_for_a_refusal(pytester: pytest.Pytester, run: Run, name: str) -> None:
    write_suite(pytester, suite=f"    def {name}(self, record): return {{}}['nothing']")
    result = run("-k", "paused.save.load")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        [f"E*AdapterError: {name}() of the suite raises KeyError: 'nothing'. It was called with *"]
    )


@pytest.mark.parametrize(
    ("body", "clause", "reason"),
    [
        ("recover_orphaned = None", "recover.rearms", "Store has no method recover_orphaned"),
        (
            "def recover_orphaned(self): return super().recover_orphaned()",
            "recover.older-than-limit",
            "Store.recover_orphaned has no argument older_than",
        ),
        ("claim = None", "claim.one-winner", "Store has no method claim"),
        ("def claim(self): return None", "claim.one-winner", "Store.claim() cannot be called as claim('a')"),
        ("def remove(self, id): raise NotImplementedError", "remove.paused", "Store.remove raises NotImplementedError"),
        ("list = None", "list.sorted", "Store has no method list"),
        ("list = None", "list.only-paused", "Store has no method list"),
    ],
)
def test_a_clause_of_a_method_that_is_not_offered_is_skipped(
    pytester: pytest.Pytester, run: Run, body: str, clause: str, reason: str
) -> None:
    write_suite(pytester, f"    {body}")
    result = run("-k", f"paused.{clause}", "-rs")
    assert result.parseoutcomes()["skipped"] >= 1
    result.stdout.fnmatch_lines(
        ["wfstate: TestStore: * 0/*; * not offered", f"SKIPPED * test_store.py:*: not offered: {reason}"]
    )


def test_a_read_that_is_not_offered_is_left_out_of_scripts(pytester: pytest.Pytester, run: Run) -> None:
    """A store without `list` is still asked whether what was saved can be loaded."""
    write_suite(pytester, "    list = None")
    assert (
        run(*QUICK, "-k", "paused.save.load or paused.claim.takes or paused.kill.save").parseoutcomes()["passed"] == 3
    )


def test_a_scenario_that_needs_what_is_not_offered_is_left_out(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, "    claim = None")
    assert run(*QUICK, "-k", "paused.kill.save or paused.kill.claim").parseoutcomes() == {
        "passed": 1,
        "skipped": 1,
        "deselected": 148,
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    load = None", "Store has no method load."),
        ("    def load(self): pass", "Store.load() cannot be called as load('a')."),
    ],
)
def test_a_store_must_offer_save_and_load(pytester: pytest.Pytester, run: Run, body: str, reason: str) -> None:
    write_suite(pytester, body)
    result = run("-k", "paused.save.load")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"{reason} Every store must offer save and load. If yours names them differently, *"])


def test_a_required_method_that_raises_not_implemented_is_one_statement(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, "    def load(self, run_id): raise NotImplementedError('there is only claim')")
    result = run(*QUICK, "-rs", "-m", "wfstate(fault='none')")
    counts = result.parseoutcomes()
    assert "failed" not in counts
    assert counts["passed"] > 10  # what needs no load: lists, completions, removals
    (line,) = [line for line in result.outlines if "not supported: Store.load raises NotImplementedError" in line]
    assert line.startswith("SKIPPED [")


ASYNC = """
from pytest_wfstate import FilePausedStore
from pytest_wfstate.suites import PausedSuite

closed = []

class Store:
    def __init__(self, home):
        self.store = FilePausedStore(home)
    def __getattr__(self, name):
        async def method(*args, **named):
            return getattr(self.store, name)(*args, **named)
        return method
    async def aclose(self):
        closed.append(self)

class TestStore(PausedSuite):
    async def open(self, home):
        return Store(home)

def test_all_were_closed():
    assert len(closed) > 10
"""


def test_a_store_and_its_open_may_be_async(pytester: pytest.Pytester, run: Run) -> None:
    """There is no plugin for async tests in this run."""
    pytester.makepyfile(ASYNC)
    result = run(*QUICK, "-m", f"{CORE} or wfstate(fault='kill') or not wfstate", "-k", "not kill_ or kill_claim")
    assert set(result.parseoutcomes()) == {"passed", "deselected"}


@pytest.mark.parametrize("plugin", ["asyncio", "anyio"])
def test_plugins_for_async_tests_still_work(pytester: pytest.Pytester, plugin: str) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function" if plugin == "asyncio" else "[pytest]")
    mark = "@pytest.mark.asyncio" if plugin == "asyncio" else "@pytest.mark.anyio"
    pytester.makepyfile(ASYNC + f"\nimport pytest\n{mark}\nasync def test_async(): pass\n")
    other = "anyio" if plugin == "asyncio" else "asyncio"
    result = pytester.runpytest_inprocess("-p", f"no:{other}", "-p", "no:xdist", "-m", f"{CORE} or {plugin}")
    assert "failed" not in result.parseoutcomes()
    assert "errors" not in result.parseoutcomes()


def test_every_handle_is_closed(pytester: pytest.Pytester, run: Run) -> None:
    counted = (
        "    opened = 0\n    def __init__(self, home):\n        super().__init__(home)\n        Store.opened += 1\n"
        "    def close(self):\n        Store.opened -= 1"
    )
    write_suite(pytester, counted)
    pytester.path.joinpath("test_then.py").write_text(
        "from test_store import Store\ndef test_then(): assert Store.opened == 0"
    )
    assert set(run("-m", f"{CORE} or not wfstate").parseoutcomes()) == {"passed", "deselected"}


HOMES = """
    homes = {}
    def open(self, home):
        import re
        assert re.fullmatch("[a-z][a-z0-9]{15}", home.name)
        if home not in self.homes:
            assert not list(home.iterdir())
        self.homes[home] = home.name
        return Store(home)
    def test_names(self):
        assert len(set(self.homes.values())) == len(self.homes) > 5
"""


def test_a_home_is_empty_and_has_a_name_of_its_own(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, suite=HOMES)
    assert set(run("-k", "paused.save or names").parseoutcomes()) == {"passed", "deselected"}


def test_a_home_in_the_crash_lab_has_such_a_name_too(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, suite=HOMES.replace("assert not list(home.iterdir())", "pass"))
    assert set(run(*QUICK, "-k", "paused.kill.save or paused.errors.remove").parseoutcomes()) == {
        "passed",
        "deselected",
    }


def test_variants_of_a_store_come_from_a_fixture(pytester: pytest.Pytester, run: Run) -> None:
    variants = """
    @pytest.fixture(autouse=True, params=["power", "process"])
    def durability(self, request):
        self.chosen = request.param
    def open(self, home):
        return FilePausedStore(home, durability=self.chosen)
"""
    write_suite(pytester, suite=variants)
    result = run(*QUICK, "-k", "paused.save.load or paused.power.save", "-v")
    result.stdout.fnmatch_lines(
        [
            "*::test_save_load[[]power[]] PASSED*",
            "*::test_save_load[[]process[]] PASSED*",
            "*::test_power_save[[]power[]] PASSED*",
            "*::test_power_save[[]process[]] FAILED*",
        ]
    )


def test_clauses_about_files_are_not_applicable_to_memory(pytester: pytest.Pytester, run: Run) -> None:
    in_memory = "    medium = 'memory'\n    stores = {}\n    def open(self, home):\n"
    write_suite(pytester, suite=in_memory + "        return self.stores.setdefault(home, MemoryPausedStore()).handle()")
    result = run("-m", "not wfstate(fault='input') and not wfstate(fault='race')", "-k", "not random")
    assert "failed" not in result.parseoutcomes()
    result.stdout.fnmatch_lines(["wfstate: TestStore: core */*, safe */*, hardened */*; * not applicable*"])
