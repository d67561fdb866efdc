"""What the author of a store sees: one subclass, and pytest tells which promises the store breaks."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree

import pytest

from tests.plugin.conftest import Items, Run

SUITE = """
import pytest
from pytest_wfstate import FilePausedStore, MemoryPausedStore, PausedWorkflow
from pytest_wfstate.suites import PausedSuite

class TestStore(PausedSuite):
    def open(self, home):
        return FilePausedStore(home)
"""
CORE = "wfstate(level='core')"


def store(pytester: pytest.Pytester, body: str = "", base: str = "FilePausedStore", suite: str = "") -> None:
    """Write a suite for a store that is like a shipped one but for its body."""
    pytester.path.joinpath("test_store.py").write_text(
        SUITE.replace("class TestStore", f"class Store({base}):\n    pass\n{body}\n\nclass TestStore").replace(
            "return FilePausedStore(home)", f"return Store(home)\n{suite}"
        )
    )


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return result.parseoutcomes()


# Selection


def test_a_suite_gives_an_item_per_clause(pytester: pytest.Pytester, items: Items) -> None:
    store(pytester)
    found = items()
    assert len(found) > 40
    assert "TestStore::test_claim_one_winner" in found


def test_a_clause_is_chosen_by_its_id(pytester: pytest.Pytester, items: Items) -> None:
    store(pytester)
    assert items("-k", "paused.claim.one-winner") == ["TestStore::test_claim_one_winner"]


def test_a_topic_is_chosen_by_its_name(pytester: pytest.Pytester, items: Items) -> None:
    store(pytester)
    found = items("-k", "paused.list.")
    assert len(found) > 1
    assert all(name.startswith("TestStore::test_list_") for name in found)


@pytest.mark.parametrize("fault", ["kill", "power", "errors"])
def test_clauses_are_chosen_by_their_fault(pytester: pytest.Pytester, items: Items, fault: str) -> None:
    store(pytester)
    found = items("-m", f"wfstate(fault='{fault}')")
    assert len(found) > 3
    assert all(name.startswith(f"TestStore::test_{fault}_") for name in found)


@pytest.mark.parametrize("mark", ["wfstate(contract='paused')", CORE, "wfstate(level='safe', fault='input')"])
def test_clauses_are_chosen_by_their_mark(pytester: pytest.Pytester, items: Items, mark: str) -> None:
    store(pytester)
    assert 3 < len(items("-m", mark)) <= len(items())


def test_the_mark_is_registered(run: Run) -> None:
    run("--markers").stdout.fnmatch_lines(["@pytest.mark.wfstate(contract, level, fault):*"])


# Levels


@pytest.mark.parametrize("level", ["core", "safe"])
def test_clauses_above_the_level_are_not_asked(pytester: pytest.Pytester, items: Items, level: str) -> None:
    store(pytester, suite=f"    level = {level!r}")
    some, every = items(), items("-m", "wfstate(level='core') or not wfstate(level='core')")
    assert some == every
    store(pytester)
    assert len(some) < len(items())


def test_what_is_not_asked_is_counted(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, suite="    level = 'core'")
    result = run()
    number = outcomes(result)["deselected"]
    assert number > 40
    result.stdout.fnmatch_lines([f"wfstate: TestStore: core */*; {number} not asked"])


def test_a_known_failure_above_the_level_is_asked(pytester: pytest.Pytester, items: Items) -> None:
    store(pytester, suite="    level = 'core'\n    known_failures = {'paused.kill.save': 'later'}")
    assert "TestStore::test_kill_save" in items()


# Known failures

UNSORTED = "    def list(self): return super().list()[::-1]"


def test_a_known_failure_is_an_expected_one(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, UNSORTED, suite="    known_failures = {'paused.list.sorted': 'see #12'}")
    result = run("-k", "paused.list.sorted", "-rx")
    assert outcomes(result)["xfailed"] == 1
    result.stdout.fnmatch_lines(["wfstate: TestStore: core 0/1; 1 known to fail", "XFAIL *test_list_sorted - see #12"])


def test_a_known_failure_that_passes_fails(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, suite="    known_failures = {'paused.list.sorted': 'see #12'}")
    result = run("-k", "paused.list.sorted")
    assert outcomes(result)["failed"] == 1
    told = (
        "paused.list.sorted passes, but known_failures of TestStore says that it fails: 'see #12'. Take the entry out *"
    )
    result.stdout.fnmatch_lines([told])


def test_a_known_failure_that_is_not_measured_fails(pytester: pytest.Pytester, run: Run) -> None:
    """What was not seen to fail may not be taken for a failure that is known."""
    store(pytester, "    def load(self, run_id): return 1", suite="    known_failures = {'paused.kill.save': 'later'}")
    result = run("-k", "paused.kill.save")
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines(["*NOT_MEASURED*", "wfstate: TestStore: safe 0/1; 1 not measured"])


def test_a_known_failure_of_no_clause_fails(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, suite="    known_failures = {'paused.list.sortde': 'see #12'}")
    result = run("-k", "whole")
    assert outcomes(result)["failed"] == 1
    told = "known_failures of TestStore names 'paused.list.sortde', which is no clause of the paused contract. *"
    result.stdout.fnmatch_lines([told])


# test_suite_is_whole


@pytest.mark.parametrize(
    "change",
    ["def test_list_sorted(self): pass", "test_list_sorted = None", "test_list_sorted = PausedSuite.test_save_load"],
)
def test_a_clause_that_is_overridden_or_removed_fails_one_item(
    pytester: pytest.Pytester, run: Run, change: str
) -> None:
    store(pytester, suite=f"    {change}")
    result = run("-k", "whole or list_sorted")
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines(["TestStore overrides or removes clauses of PausedSuite: paused.list.sorted. *"])


def test_tests_of_ones_own_may_be_added(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, suite="    def test_mine(self, tmp_path): assert self.open(tmp_path).list() == []")
    assert outcomes(run("-k", "whole or mine"))["passed"] == 2


# Adapters

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
NORMALISE = '    def normalise(self, record):\n        return record.model_copy(update={"prompt": ""})\n'


def test_a_store_may_have_records_of_its_own(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ADAPTED.replace("FORGET", ""))
    assert set(outcomes(run("-m", CORE))) == {"passed", "skipped", "deselected"}


def test_a_field_that_is_forgotten_is_told(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ADAPTED.replace("FORGET", FORGET))
    result = run("-k", "paused.save.load")
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines(['    prompt is "forgotten", not *'])


def test_a_field_may_be_forgotten_on_purpose_and_is_named(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ADAPTED.replace("FORGET", FORGET) + NORMALISE)
    result = run("-k", "paused.save.load or whole")
    assert outcomes(result)["passed"] == 2
    result.stdout.fnmatch_lines(["wfstate: TestRows: core 1/1; not compared: prompt"])


@pytest.mark.parametrize("name", ["encode", "decode"])
def test_an_adapter_that_raises_is_not_taken_for_a_refusal(pytester: pytest.Pytester, run: Run, name: str) -> None:
    store(pytester, suite=f"    def {name}(self, record): return {{}}['nothing']")
    result = run("-k", "paused.save.load")
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines([f"E*AdapterError: {name}() of the suite raises KeyError: 'nothing'. It was given *"])


# What a store does not offer


@pytest.mark.parametrize(
    ("body", "clause", "reason"),
    [
        ("    recover_orphaned = None", "paused.recover.rearms", "Store has no method recover_orphaned"),
        (
            "    def recover_orphaned(self): return super().recover_orphaned()",
            "paused.recover.older-than-limit",
            "Store.recover_orphaned takes no argument older_than",
        ),
        (
            "    claim = None\n    def claim_next(self): return self.claim(self.list()[0])",
            "paused.claim.one-winner",
            "Store has no method claim",
        ),
        (
            "    def claim(self): return super().claim(self.list()[0])",
            "paused.claim.one-winner",
            "Store.claim() takes other arguments than claim('a')",
        ),
        (
            "    def remove(self, run_id): raise NotImplementedError",
            "paused.remove.paused",
            "Store.remove raises NotImplementedError",
        ),
        ("    list = None", "paused.list.sorted", "Store has no method list"),
        ("    list = None", "paused.list.only-paused", "Store has no method list"),
    ],
)
def test_a_clause_of_a_method_that_is_not_offered_is_skipped(
    pytester: pytest.Pytester, run: Run, body: str, clause: str, reason: str
) -> None:
    store(pytester, body)
    result = run("-k", clause, "-rs")
    assert outcomes(result)["skipped"] >= 1
    result.stdout.fnmatch_lines(
        ["wfstate: TestStore: * 0/*; * not offered", f"SKIPPED * test_store.py:*: not offered: {reason}"]
    )


def test_what_only_looks_is_left_out_if_it_is_not_offered(pytester: pytest.Pytester, run: Run) -> None:
    """A store without `list` is still asked whether what was saved can be loaded."""
    store(pytester, "    list = None")
    assert outcomes(run("-k", "paused.save.load or paused.claim.takes or paused.kill.save"))["passed"] == 3


def test_a_scenario_that_needs_what_is_not_offered_is_left_out(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, "    claim = None")
    assert outcomes(run("-k", "paused.kill.save or paused.kill.claim")) == {
        "passed": 1,
        "skipped": 1,
        "deselected": 102 - 1,
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    load = None", "Store has no method load."),
        ("    def load(self, run_id): raise NotImplementedError", "Store.load raises NotImplementedError."),
        ("    def load(self): pass", "Store.load() takes other arguments than load('a')."),
    ],
)
def test_a_store_must_offer_save_and_load(pytester: pytest.Pytester, run: Run, body: str, reason: str) -> None:
    store(pytester, body)
    result = run("-k", "paused.save.load")
    assert outcomes(result)["failed"] == 1
    result.stdout.fnmatch_lines([f"{reason} A store is at least asked for save and load. If yours has other names *"])


# Errors


def test_a_refusal_that_is_none_is_told_with_its_line(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, "    def load(self, run_id): return dict(found=None)['found']['prompt']")
    result = run("-k", "paused.load.missing")
    result.stdout.fnmatch_lines(
        [
            "paused.load.missing: A record that was never saved is not there.",
            "store.load('a') refused: TypeError",
            "    expected: None",
            "    it said: TypeError: 'NoneType' object is not subscriptable   test_store.py:*",
        ]
    )


def test_an_error_is_shown_at_its_line_and_after_which_calls(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, "    def complete(self, run_id): raise OSError(5, 'no disk')")
    result = run("-k", "paused.complete.ends")
    result.stdout.fnmatch_lines(
        [
            ">*raise OSError(5, 'no disk')*",
            "E   OSError: [[]Errno 5[]] no disk",
            "E   paused.complete.ends: A completed run is gone; recovery does not bring it back.",
            "E   store.save(samples.paused('a'))",
            "E   store.claim('a') -> *",
            "E   store.complete('a') raised OSError",
            "test_store.py:*: OSError",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_wfstate/suites*")


HANG = """
    def claim(self, run_id):
        import time
        while True:
            try:
                time.sleep(60)
            except OSError:
                pass
"""
ASYNC_HANG = "    async def claim(self, run_id):\n        import asyncio\n        await asyncio.Event().wait()"


@pytest.mark.parametrize("body", [HANG, ASYNC_HANG], ids=["sync", "async"])
def test_a_hang_fails_its_clause_and_no_other(pytester: pytest.Pytester, run: Run, body: str) -> None:
    store(pytester, body)
    began = time.monotonic()
    result = run("-k", "paused.claim.missing or paused.save.load or paused.list.sorted", "--wfstate-timeout=0.5")
    assert time.monotonic() - began < 10
    assert outcomes(result) == {"passed": 2, "failed": 1, "deselected": outcomes(result)["deselected"]}
    result.stdout.fnmatch_lines(["E *StoreTimeout: claim did not come back in 0.5 s. It may wait for a lock *"])


@pytest.mark.parametrize("clause", ["paused.random.calls", "paused.kill.claim"])
def test_a_hang_is_not_waited_for_again_and_again(pytester: pytest.Pytester, run: Run, clause: str) -> None:
    store(pytester, HANG)
    began = time.monotonic()
    assert outcomes(run("-k", clause, "--wfstate-timeout=0.5"))["failed"] == 1
    assert time.monotonic() - began < 10


def test_open_that_raises_is_shown_in_full_once(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, "    def __init__(self, home): raise ConnectionRefusedError('no server')")
    result = run("-m", CORE)
    number = outcomes(result)["failed"]
    assert number > 5
    assert result.stdout.str().count("E   ConnectionRefusedError: no server") == 1
    told = "open() raises ConnectionRefusedError, as the first failure of this class shows"
    assert result.outlines.count(told) == number - 1


def test_a_suite_without_open_says_so(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("from pytest_wfstate.suites import PausedSuite\nclass TestStore(PausedSuite): pass")
    run("-k", "paused.save.load").stdout.fnmatch_lines(["E*TestStore has no method open(self, home). Write one*"])


# Colours, handles and homes

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
    result = run("-m", f"{CORE} or wfstate(fault='kill') or not wfstate")
    assert set(outcomes(result)) == {"passed", "deselected"}


@pytest.mark.parametrize("plugin", ["asyncio", "anyio"])
def test_a_plugin_for_async_tests_is_not_disturbed(pytester: pytest.Pytester, plugin: str) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function" if plugin == "asyncio" else "[pytest]")
    mark = "@pytest.mark.asyncio" if plugin == "asyncio" else "@pytest.mark.anyio"
    pytester.makepyfile(ASYNC + f"\nimport pytest\n{mark}\nasync def test_async(): pass\n")
    other = "anyio" if plugin == "asyncio" else "asyncio"
    result = pytester.runpytest_inprocess("-p", f"no:{other}", "-p", "no:xdist", "-m", f"{CORE} or {plugin}")
    assert "failed" not in outcomes(result)
    assert "errors" not in outcomes(result)


def test_every_handle_is_closed(pytester: pytest.Pytester, run: Run) -> None:
    counted = (
        "    opened = 0\n    def __init__(self, home):\n        super().__init__(home)\n        Store.opened += 1\n"
        "    def close(self):\n        Store.opened -= 1"
    )
    store(pytester, counted)
    pytester.path.joinpath("test_then.py").write_text(
        "from test_store import Store\ndef test_then(): assert Store.opened == 0"
    )
    assert set(outcomes(run("-m", f"{CORE} or not wfstate"))) == {"passed", "deselected"}


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
NAMES = """
    def open(self, home):
        import re
        assert re.fullmatch("[a-z][a-z0-9]{15}", home.name)
        return Store(home)
"""


def test_a_home_is_empty_and_has_a_name_of_its_own(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, suite=HOMES)
    assert set(outcomes(run("-k", "paused.save or names"))) == {"passed", "deselected"}


def test_a_home_in_the_crash_lab_has_such_a_name_too(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester, suite=NAMES)
    assert set(outcomes(run("-k", "paused.kill.save or paused.errors.remove"))) == {"passed", "deselected"}


def test_variants_of_a_store_come_from_a_fixture(pytester: pytest.Pytester, run: Run) -> None:
    variants = """
    @pytest.fixture(autouse=True, params=["power", "process"])
    def durability(self, request):
        self.chosen = request.param
    def open(self, home):
        return FilePausedStore(home, durability=self.chosen)
"""
    store(pytester, suite=variants)
    result = run("-k", "paused.save.load or paused.power.save", "-v")
    result.stdout.fnmatch_lines(
        [
            "*::test_save_load[[]power[]] PASSED*",
            "*::test_save_load[[]process[]] PASSED*",
            "*::test_power_save[[]power[]] PASSED*",
            "*::test_power_save[[]process[]] FAILED*",
        ]
    )


def test_a_store_in_memory_is_not_asked_for_its_files(pytester: pytest.Pytester, run: Run) -> None:
    in_memory = "    medium = 'memory'\n    stores = {}\n    def open(self, home):\n"
    store(pytester, suite=in_memory + "        return self.stores.setdefault(home, MemoryPausedStore()).handle()")
    result = run("-m", "not wfstate(fault='input') and not wfstate(fault='race')")
    assert "failed" not in outcomes(result)
    result.stdout.fnmatch_lines(["wfstate: TestStore: core */*, safe */*, hardened */*; * not applicable"])


# Reports


def properties(path: str) -> dict[str, dict[str, str]]:
    cases = ElementTree.parse(path).iter("testcase")
    return {
        case.attrib["name"]: {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
        for case in cases
    }


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_junit_has_clause_level_and_result(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    store(pytester, UNSORTED + "\n    remove = None", suite="    level = 'safe'")
    chosen = "paused.list.sorted or paused.save.load or paused.remove.claimed or paused.kill.save or paused.power.save"
    options = ("-p", "no:asyncio", "-p", "no:anyio", "-o", "junit_family=xunit1", "--junitxml=report.xml", "-k", chosen)
    result = pytester.runpytest_subprocess(*options, *workers)
    found = properties(str(pytester.path / "report.xml"))
    told = {
        name: tuple(one.get(f"wfstate_{key}") for key in ("clause", "level", "result")) for name, one in found.items()
    }
    assert told == {
        "test_list_sorted": ("paused.list.sorted", "core", "failed"),
        "test_save_load": ("paused.save.load", "core", "passed"),
        "test_remove_claimed": ("paused.remove.claimed", "safe", "not offered"),
        "test_kill_save": ("paused.kill.save", "safe", "passed"),
    }
    assert found["test_kill_save"]["wfstate_verdict"] == "CLEAN"
    result.stdout.fnmatch_lines(["wfstate: TestStore: core 1/2, safe 1/2; 1 failed, 1 not offered, 1 not asked"])


ALL = """
from pytest_wfstate.stores import file
from pytest_wfstate.suites import SUITES

def suite_of(suite):
    kind = suite.__name__.removesuffix("Suite")
    return type(f"Test{kind}", (suite,), {"open": lambda self, home: getattr(file, f"File{kind}Store")(home)})

globals().update({f"Test{contract.capitalize()}": suite_of(suite) for contract, suite in SUITES.items()})
"""


KILLED = "wfstate(contract='snapshots', fault='kill')"


def test_all_suites_pass_in_two_processes_without_a_plugin_for_async_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ALL)
    options = ("-n", "2", "-p", "no:asyncio", "-p", "no:anyio", "-m", f"{CORE} or {KILLED}")
    result = pytester.runpytest_subprocess(*options)
    assert set(outcomes(result)) == {"passed"}
    result.stdout.fnmatch_lines(["wfstate: TestSnapshots: core 9/9, safe */*"])


def test_many_suites_are_summed_up_in_a_line(pytester: pytest.Pytester, run: Run) -> None:
    store(pytester)
    with pytester.path.joinpath("test_store.py").open("a") as file:
        file.writelines(f"\nclass Test{number}(TestStore): pass" for number in range(9))
    result = run("-k", "paused.load.missing")
    result.stdout.fnmatch_lines(["wfstate: 10 suites: core 10/10"])


# Settings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("medium = 'disc'", "medium of TestStore is 'disc', which is unknown. Choose among: disk, server, memory"),
        ("level = 'high'", "level of TestStore is 'high', which is unknown. Choose among: core, safe, hardened"),
        ("known_failures = ['a']", "known_failures of TestStore is ['a']. It maps ids of clauses to reasons. *"),
        (
            "known_failures = {'a': None}",
            "known_failures of TestStore is {'a': None}. It maps ids of clauses to reasons. *",
        ),
    ],
)
def test_a_setting_that_means_nothing_is_told_at_once(
    pytester: pytest.Pytester, run: Run, setting: str, message: str
) -> None:
    store(pytester, suite=f"    {setting}")
    result = run()
    assert outcomes(result) == {"errors": 1}
    result.stdout.fnmatch_lines([f"E*InvalidSetting: {message}".replace("[", "[[]")])


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", ""])
def test_a_timeout_is_a_number_of_seconds(pytester: pytest.Pytester, run: Run, value: str) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = run(f"--wfstate-timeout={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.str().startswith(
        f"ERROR: --wfstate-timeout is {value!r}, which is not a positive number of seconds."
    )


# From nothing to a scorecard

NEW = """
import os
from pytest_wfstate import PausedWorkflow

class MyStore:
    def __init__(self, home):
        self.home = home

    def path(self, run_id, state="json"):
        return self.home / f"{run_id.replace('/', '_')}.{state}"

    def save(self, paused):
        self.path(paused.run_id).write_text(paused.model_dump_json())

    def load(self, run_id):
        path = self.path(run_id)
        return PausedWorkflow.model_validate_json(path.read_text()) if path.exists() else None

    def claim(self, run_id):
        paused = self.load(run_id)
        if paused is not None:
            os.rename(self.path(run_id), self.path(run_id, "inflight"))
        return paused

    def complete(self, run_id):
        self.path(run_id, "inflight").unlink(missing_ok=True)
"""
TESTED = """
from pytest_wfstate.suites import PausedSuite

class TestMyStore(PausedSuite):
    def open(self, home):
        return MyStore(home)
"""
ASYNC_NEW = re.sub(r"    def (?!_|path)", "    async def ", NEW).replace("= self.load", "= await self.load")


QUICK = "not wfstate(fault='race') and not wfstate(fault='errors')"


@pytest.mark.parametrize(("source", "asked"), [(NEW, ""), (ASYNC_NEW, QUICK)], ids=["sync", "async"])
def test_a_new_store_is_told_its_bugs_by_clause(pytester: pytest.Pytester, run: Run, source: str, asked: str) -> None:
    """It lacks half the methods, too: what needs them is skipped, and counted."""
    assert len(NEW.strip().splitlines()) == 25
    pytester.path.joinpath("test_mine.py").write_text(source + TESTED)
    began = time.monotonic()
    result = run("-rs", "--wfstate-profile=quick", "-m", asked)
    assert time.monotonic() - began < 20
    counts = outcomes(result)
    assert sum(counts.values()) > 40
    assert counts["skipped"] > 10
    result.stdout.fnmatch_lines(
        [
            "paused.ids.never-collide: Two ids never share a record, whatever characters they hold.",
            "store.save(samples.paused('a/b'))",
            "store.load('a_b') -> *",
            "    expected: None",
            "paused.kill.save: A process that is killed in save leaves all that was acknowledged, and save in full*",
            "  it died *test_mine.py:13*",
            "  the check said *Violation: reopened.load('a') refused: ValueError",
            " * it said: pydantic_core.*ValidationError: * test_mine.py:17",
            "wfstate: TestMyStore: core */*, safe */*, hardened */*; * failed, * not offered, 6 not applicable",
            "SKIPPED * test_mine.py:*: not offered: MyStore has no method remove",
        ]
    )
