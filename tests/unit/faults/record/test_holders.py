"""Whatever holds a real call, wherever it is kept, calls through it are recorded, or the trace is not trusted."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import itertools
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_wfstate.faults.crash.failing_gate import FailingGate
from pytest_wfstate.faults.record.rebind import FoundReferences
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.record.recording import record

Sync = Any

SYNCED = ["create a", "write a 0 b'1'", "fsync a"]


def saving(home: Path, sync: Sync, name: str = "a") -> None:
    fd = os.open(home / name, os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"1")
    sync(fd)
    os.close(fd)


class Store:
    def __init__(self) -> None:
        self.sync = os.fsync


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenStore:
    sync: Sync


class Calls(NamedTuple):
    sync: Sync


class Registry(dict[str, Any]):
    """A dictionary with an attribute."""


def in_a_registry() -> Sync:
    registry = Registry()
    registry.sync = os.fsync  # type: ignore[attr-defined]
    return lambda fd: registry.sync(fd)  # type: ignore[attr-defined]


class Files:
    sync = staticmethod(os.fsync)


def with_default(fd: int, sync: Sync = os.fsync) -> None:
    sync(fd)


def with_keyword(fd: int, *, sync: Sync = os.fsync) -> None:
    sync(fd)


def in_a_local_class() -> Sync:
    class Local:
        sync = os.fsync

    return lambda fd: Local.sync(fd)


def in_a_materialized_instance() -> Sync:
    store = Store()
    vars(store)["more"] = 1
    return lambda fd: store.sync(fd)


def in_a_thread_local() -> Sync:
    local = threading.local()
    local.sync = os.fsync
    return lambda fd: local.sync(fd)


def as_a_key() -> Sync:
    table: dict[Any, str] = {os.fsync: "fsync"}
    return lambda fd: next(iter(table))(fd)


def in_a_closure_of_a_closure() -> Sync:
    sync = os.fsync

    def inner(fd: int) -> None:
        sync(fd)

    return lambda fd: inner(fd)


def from_an_iterable(values: Any) -> Sync:
    return lambda fd: next(iter(values))(fd)


def of_a_mapping(values: Any, key: Any = "sync") -> Sync:
    return lambda fd: values[key](fd)


def as_an_attribute(owner: Any) -> Sync:
    return lambda fd: owner.sync(fd)


HOLDERS: dict[str, Callable[[], Sync]] = {
    "dict": lambda: of_a_mapping({"sync": os.fsync}),
    "key of a dict": as_a_key,
    "ordered dict": lambda: of_a_mapping(collections.OrderedDict(sync=os.fsync)),
    "user dict": lambda: of_a_mapping(collections.UserDict(sync=os.fsync)),
    "mapping proxy": lambda: of_a_mapping(types.MappingProxyType({"sync": os.fsync})),
    "chain map": lambda: of_a_mapping(collections.ChainMap({}, {"sync": os.fsync})),
    "attribute of a dict": in_a_registry,
    "dict in a dict": lambda: of_a_mapping(collections.UserDict(sync={"sync": os.fsync}["sync"])),
    "list": lambda: of_a_mapping([1, os.fsync], 1),
    "deque": lambda: of_a_mapping(collections.deque([os.fsync]), 0),
    "set": lambda: from_an_iterable({os.fsync}),
    "frozenset": lambda: from_an_iterable(frozenset({os.fsync})),
    "tuple": lambda: of_a_mapping((1, os.fsync), 1),
    "tuple in a tuple": lambda: (lambda calls: lambda fd: calls[0][0](fd))(((os.fsync,),)),
    "named tuple": lambda: as_an_attribute(Calls(os.fsync)),
    "attribute": lambda: as_an_attribute(Store()),
    "attribute of an object with a dict": in_a_materialized_instance,
    "slot": lambda: as_an_attribute(FrozenStore(os.fsync)),
    "namespace": lambda: as_an_attribute(types.SimpleNamespace(sync=os.fsync)),
    "thread-local": in_a_thread_local,
    "local class": in_a_local_class,
    "static method": lambda: lambda fd: Files.sync(fd),
    "closure of a closure": in_a_closure_of_a_closure,
    "default": lambda: with_default,
    "keyword default": lambda: with_keyword,
    "default of a lambda": lambda: lambda fd, sync=os.fsync: sync(fd),
    "partial": lambda: functools.partial(os.fsync),
    "argument of a partial": lambda: functools.partial(lambda sync, fd: sync(fd), os.fsync),
    "keyword of a partial": lambda: functools.partial(lambda fd, sync: sync(fd), sync=os.fsync),
    "partial in a dict": lambda: of_a_mapping({"sync": functools.partial(os.fsync)}),
    "method of a function": lambda: lambda fd: types.MethodType(os.fsync, fd)(),
    "weak dictionary": lambda: of_a_mapping(weakref.WeakKeyDictionary({Store: os.fsync}), Store),
}


def test_calls_that_something_holds_are_recorded_and_left_as_they_were(home: Path) -> None:
    held = {name: make() for name, make in HOLDERS.items()}

    def save_all(home: Path) -> None:
        for name, sync in held.items():
            saving(home, sync, name)

    counts: list[int] = []
    gc.collect()  # what other tests left must not go in between
    for number in range(2):
        (home / str(number)).mkdir()
        ops = record(save_all, home / str(number))
        assert ops == [op for name in held for op in (f"create {name}", f"write {name} 0 b'1'", f"fsync {name}")]
        counts.append(sys.getrefcount(os.fsync))
    assert counts[0] == counts[1]
    assert type(os.fsync) is types.BuiltinFunctionType


def test_an_object_made_between_two_recordings_is_found(home: Path) -> None:
    for _ in range(3):
        store = Store()
        assert record(lambda home, store=store: saving(home, store.sync), home)[-1] == "fsync a"  # type: ignore[misc]


def test_a_reference_that_replaces_another_is_found(home: Path) -> None:
    """Their number alone shows no difference."""
    table: dict[str, Sync] = {}
    sync = of_a_mapping(table)
    table["sync"] = os.fsync
    record(lambda home: saving(home, sync), home)
    del table["sync"]
    other = {"sync": os.fsync}
    assert record(lambda home: saving(home, of_a_mapping(other)), home)[-1] == "fsync a"


def test_a_function_of_two_modules_hides_no_other_reference(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = in_a_closure_of_a_closure()
    for name in ("first_with_it", "second_with_it"):
        module = types.ModuleType(name)
        vars(module)["shared"] = shared
        monkeypatch.setitem(sys.modules, name, module)
    record(lambda home: saving(home, shared), home)
    table = {"sync": os.fsync}
    assert record(lambda home: saving(home, of_a_mapping(table)), home)[-1] == "fsync a"


def test_an_object_is_not_kept_alive(home: Path) -> None:
    store = Store()
    alive = weakref.ref(store)
    record(lambda home: saving(home, alive().sync), home)  # type: ignore[union-attr]
    del store
    gc.collect()
    assert alive() is None


def test_a_copy_of_an_object_made_while_recording_has_the_same_call(home: Path) -> None:
    store = Store()
    with Recorder(home):
        twin = copy.deepcopy(store)
        assert twin.sync == store.sync == os.fsync


def test_an_enum_of_calls_is_found(home: Path) -> None:
    class Level(enum.Enum):
        SAFE = enum.member(functools.partial(os.fsync))

    assert record(lambda home: saving(home, lambda fd: Level.SAFE.value(fd)), home) == SYNCED


def in_a_suspended_function() -> Any:
    def syncing() -> Iterator[None]:
        sync: Any = os.fsync
        yield
        sync(0)

    suspended = syncing()
    next(suspended)
    return suspended


def test_garbage_that_holds_a_call_is_not_a_reason(home: Path) -> None:
    garbage = Store()
    garbage.sync, vars(garbage)["itself"] = in_a_suspended_function(), garbage
    gc.disable()
    try:
        del garbage
        with Recorder(home) as recorder:
            (home / "a").touch()
    finally:
        gc.enable()
    assert recorder.unmeasured == []


STUCK: dict[str, tuple[Callable[[], Any], str]] = {
    "iterator": (lambda: itertools.repeat(os.fsync), "an object of type itertools.repeat"),
    "cache": (lambda: functools.lru_cache(os.fsync), "an object of type functools._lru_cache_wrapper"),
    "call of the call": (
        lambda: getattr(os.fsync, "__call__"),  # noqa: B004, B009
        "an object of type method-wrapper",
    ),
    "generator": (in_a_suspended_function, "in_a_suspended_function.<locals>.syncing, which is suspended at "),
}


def test_calls_held_where_they_cannot_be_replaced_are_reasons(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "kept", [make() for make, _ in STUCK.values()])
    known = FoundReferences()
    for _ in range(2):
        with Recorder(home, known=known) as recorder:
            (home / "a").touch()
        assert len(recorder.unmeasured) == len(STUCK)
        for _, where in STUCK.values():
            (reason,) = (each for each in recorder.unmeasured if each.startswith(f"os.fsync is held by {where}"))
            assert f"in {__name__}, where it cannot be replaced: calls through it cannot be seen." in reason
            assert reason.endswith("Hold it in an attribute, a dict or a list, or call it by its name, os.fsync.")


def test_reads_and_closes_held_where_they_cannot_be_replaced_are_reasons_if_errors_are_injected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"os.read", "os.pread", "os.readv", "os.preadv", "os.close"}
    monkeypatch.setitem(globals(), "kept", [itertools.repeat(getattr(os, name[3:])) for name in names])
    found: list[list[str]] = []
    for gate in (None, FailingGate(None)):
        with Recorder(home, gate) as recorder:
            (home / "a").touch()
        found.append([reason.split()[0] for reason in recorder.unmeasured])
    assert (found[0], set(found[1])) == ([], names)


def test_a_thread_that_holds_a_call_in_a_variable_is_a_reason(home: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def flush() -> None:
        sync: Any = os.fsync
        begun.set()
        end.wait()
        assert sync

    thread = threading.Thread(target=flush, name="flusher")
    thread.start()
    begun.wait()
    with Recorder(home) as recorder:
        (home / "a").touch()
    end.set()
    thread.join()
    (reason,) = recorder.unmeasured
    assert "a variable of " in reason
    assert "flush, which the thread 'flusher' is running" in reason


def test_a_variable_of_the_test_is_not_a_reason(home: Path) -> None:
    sync = os.fsync
    with Recorder(home) as recorder:
        (home / "a").touch()
    assert recorder.unmeasured == []
    assert sync is os.fsync


def test_what_only_the_test_s_tools_hold_is_not_a_reason(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with Recorder(home) as recorder:
        (home / "a").touch()
    assert recorder.unmeasured == []


@pytest.fixture
def suspended() -> Iterator[None]:
    """A fixture that keeps a call in a variable until the test has ended."""
    sync = os.fsync
    yield
    assert sync is os.fsync


@pytest.mark.usefixtures("suspended")
def test_a_fixture_that_waits_for_the_test_to_end_is_not_a_reason(home: Path) -> None:
    with Recorder(home) as recorder:
        (home / "a").touch()
    assert recorder.unmeasured == []


def run_alone(program: str, *args: str) -> str:
    """Run a program in a process of its own, whatever other tests have loaded or left; return what it prints."""
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_usual_libraries_hold_no_call_where_it_cannot_be_replaced(home: Path) -> None:
    program = """
import contextlib, sys
for name in sys.argv[2:]:
    with contextlib.suppress(ImportError):
        __import__(name)
from pathlib import Path
from pytest_wfstate.faults.crash.failing_gate import FailingGate
from pytest_wfstate.faults.race.file_stand_ins import find_calls
from pytest_wfstate.faults.record.recorder import Recorder
home = Path(sys.argv[1])
with Recorder(home, FailingGate(None)) as recorder:
    (home / "a").touch()
print(recorder.unmeasured, find_calls().unseen)
"""
    tools = ["pytest", "hypothesis", "freezegun", "pyfakefs.fake_filesystem_unittest", "coverage", "xdist", "execnet"]
    stores = ["aiofiles", "anyio", "trio", "aiosqlite", "sqlalchemy", "asyncio", "multiprocessing.pool", "logging"]
    assert run_alone(program, str(home), *tools, *stores) == "[] []\n"


def test_a_search_is_made_only_if_something_new_holds_a_call(home: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from pytest_wfstate.faults.record import rebind
from pytest_wfstate.faults.record.recorder import Recorder

def searches(times):
    before = len(made)
    for _ in range(times):
        with Recorder(Path(sys.argv[1])):
            pass
    return len(made) - before

class CountedSearch(rebind.HeapSearch):
    def __init__(self, *args):
        made.append(1)
        super().__init__(*args)

class Store:
    def __init__(self):
        self.sync = os.fsync

made = []
rebind.HeapSearch = CountedSearch
searches(2)
counts = [searches(5)]
store = Store()
counts.append(searches(5))
table = {}
counts.append(searches(5))
table["sync"] = os.fsync
counts.append(searches(5))
print(counts)
"""
    assert run_alone(program, str(home)) == "[0, 1, 0, 1]\n"


def test_races_search_once_whatever_recorders_and_tools_keep(home: Path) -> None:
    program = """
import os, sys, time
from pathlib import Path
from pytest_wfstate.faults.race.file_stand_ins import find_calls
from pytest_wfstate.faults.record import rebind
from pytest_wfstate.faults.record.recorder import Recorder

def write(fd, data, call=os.write):  # a recorder keeps a copy of the defaults, with its own stand-in
    call(fd, data)

def frame():
    held = os.rmdir
    return sys._getframe()

class CountedSearch(rebind.HeapSearch):
    def __init__(self, *args):
        made.append(1)
        super().__init__(*args)

made = []
rebind.HeapSearch = CountedSearch
with Recorder(Path(sys.argv[1])):
    pass
find_calls(rebind.FoundReferences())
counts = [len(made)]
ended = frame()
ended.f_locals
find_calls(rebind.FoundReferences())
tool = [("_time", time.time)]
for _ in range(3):
    find_calls(rebind.FoundReferences())
print(len(made) - counts[0])
"""
    assert int(run_alone(program, str(home))) <= 1  # one, where the locals of a frame are a dict


def test_races_search_for_nothing_that_freezegun_remembers() -> None:
    program = """
import freezegun, time
from pytest_wfstate.faults.race.blocking import BlockingPatches
from pytest_wfstate.faults.record import rebind

def searches(times):
    before = len(made)
    for _ in range(times):
        patches = BlockingPatches()
        patches.replace()
        patches.restore()
    return len(made) - before

class CountedSearch(rebind.HeapSearch):
    def __init__(self, *args):
        made.append(1)
        super().__init__(*args)

made = []
rebind.HeapSearch = CountedSearch
with freezegun.freeze_time():
    pass
searches(1)
counts = [searches(3)]
naps = [("sleep", time.sleep)]
counts.append(searches(1))
print(counts)
"""
    assert run_alone(program) == "[0, 1]\n"


def test_the_globals_of_an_exec_are_replaced_though_something_keeps_its_frame(home: Path) -> None:
    names: dict[str, Any] = {}
    exec("import os, sys\nframe = sys._getframe()\nsync = os.fsync\ndef save(fd): sync(fd)", names)
    assert record(lambda home: saving(home, names["save"]), home) == SYNCED


def test_frozen_objects_are_searched(home: Path) -> None:
    table = {"sync": os.fsync}
    with contextlib.ExitStack() as stack:
        stack.callback(gc.unfreeze)
        gc.freeze()
        assert record(lambda home: saving(home, of_a_mapping(table)), home) == SYNCED


def test_what_is_frozen_is_not_searched_if_the_rest_explains_all_references(home: Path) -> None:
    with contextlib.ExitStack() as stack:
        record(lambda home: saving(home, os.fsync), home)  # finds what existed before
        stack.callback(gc.unfreeze)
        gc.freeze()
        table = {"sync": os.fsync}
        assert record(lambda home: saving(home, of_a_mapping(table), "b"), home)[2] == "fsync b"
        assert gc.get_freeze_count()
