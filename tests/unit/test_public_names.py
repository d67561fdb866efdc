"""Every public name can be imported from `pytest_wfstate`, and is loaded only when it is asked for."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_wfstate
from pytest_wfstate import CorruptRecord, CrashBug

HOMES = pytest_wfstate._MODULES
HOME_NAMES = [(home, name) for home in HOMES for name in importlib.import_module(f"pytest_wfstate.{home}").__all__]


def python(code: str) -> str:
    """Run `code` in a new interpreter."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Exception)


@pytest.mark.parametrize(("home", "name"), HOME_NAMES)
def test_a_public_name_of_a_part_is_exported(home: str, name: str) -> None:
    assert name in pytest_wfstate.__all__
    assert getattr(pytest_wfstate, name) is getattr(importlib.import_module(f"pytest_wfstate.{home}"), name)


def test_contracts_stores_and_errors_are_among_the_parts() -> None:
    assert {"errors", "contracts", "stores.memory", "stores.file", "stores.sql", "stores.adapt"} <= set(HOMES)


def test_nothing_else_is_exported() -> None:
    assert set(pytest_wfstate.__all__) == {name for _, name in HOME_NAMES} | {"samples"}


def test_names_are_sorted_and_listed_once() -> None:
    assert pytest_wfstate.__all__ == sorted(set(pytest_wfstate.__all__))


def test_no_name_has_two_homes() -> None:
    names = [name for _, name in HOME_NAMES]
    assert len(names) == len(set(names))


def test_samples_is_the_module() -> None:
    assert pytest_wfstate.samples is importlib.import_module("pytest_wfstate.samples")


def test_a_type_checker_sees_the_same_modules() -> None:
    tree = ast.parse(Path(pytest_wfstate.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    assert sorted(map(ast.unparse, block.body)) == [
        "from pytest_wfstate import samples",
        *sorted(f"from pytest_wfstate.{home} import *" for home in HOMES),
    ]


ERRORS = [found for _, name in HOME_NAMES if is_error(found := getattr(pytest_wfstate, name))]


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_says_that_it_is_of_the_package(error: type[Exception]) -> None:
    """A traceback, and pytest's short summary, have room for little more than the name."""
    assert f"{error.__module__}.{error.__qualname__}" == f"pytest_wfstate.{error.__name__}"


@pytest.mark.parametrize("error", [error for error in ERRORS if error is not CorruptRecord])
def test_an_error_can_be_pickled(error: type[Exception]) -> None:
    raised = error("what it says")
    raised.add_note("more")
    again = pickle.loads(pickle.dumps(raised))
    assert (type(again), str(again), vars(again)) == (error, "what it says", vars(raised))


def test_an_error_can_be_unpickled_where_nothing_was_loaded_yet() -> None:
    dumped = pickle.dumps(CrashBug("what it says", "posix-0-0-00000000"))
    code = f"import pickle; error = pickle.loads({dumped!r}); print(type(error).__name__, error.replay_id)"
    assert python(code) == "CrashBug posix-0-0-00000000"


@pytest.mark.parametrize("contract", ["Effect", "Paused", "Resume", "Snapshot", "Run"])
@pytest.mark.parametrize("backend", ["Memory", "File", "Sql", "Redis"])
def test_every_contract_has_a_store_of_every_backend(contract: str, backend: str) -> None:
    protocol = getattr(pytest_wfstate, f"{contract}Store")
    assert issubclass(getattr(pytest_wfstate, f"{backend}{contract}Store"), protocol)


def test_stores_of_several_contracts_can_be_imported_together() -> None:
    names = "FilePausedStore, MemoryEffectStore, FileSnapshotStore, FileRunStore, FileResumeStore"
    assert python(f"from pytest_wfstate import {names}; print({names.partition(',')[0]}.__name__)") == "FilePausedStore"


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = (
        "import sys, pytest_wfstate; print([m for m in sys.modules if m.startswith(('pydantic', 'pytest_wfstate.'))])"
    )
    assert python(code) == "[]"


def test_sqlalchemy_is_loaded_only_for_sql_stores() -> None:
    code = (
        "import sys; from pytest_wfstate import FilePausedStore, FakeDisk; import pytest_wfstate.stores.sql;"
        "before = 'sqlalchemy' in sys.modules; from pytest_wfstate import SqlPausedStore;"
        "print(before, 'sqlalchemy' in sys.modules, 'psycopg' in sys.modules)"
    )
    assert python(code) == "False True False"


def test_a_sql_store_without_its_extra_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from pytest_wfstate import MissingExtra, FilePausedStore\n"
        "try: from pytest_wfstate import SqlPausedStore\n"
        "except MissingExtra as error: print(isinstance(error, ImportError), error)"
    )
    assert python(code) == (
        "True SqlPausedStore needs SQLAlchemy, which is not installed: Python found no package of that name. "
        "Install it with: pip install 'pytest-wfstate[sql]'"
    )


def test_importing_samples_loads_neither_stores_nor_faults() -> None:
    code = "import sys; from pytest_wfstate import samples; print([m for m in sys.modules if m.startswith({})])"
    assert python(code.format("('pytest_wfstate.stores', 'pytest_wfstate.faults')")) == "[]"


def test_an_error_can_be_imported_without_pydantic() -> None:
    code = "import sys; from pytest_wfstate import InvalidId; print('pydantic' in sys.modules)"
    assert python(code) == "False"


@pytest.mark.parametrize("name", ["FilePausedStores", "_HOME", "pausedstore"])
def test_an_unknown_name_is_an_error_that_repeats_it(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'pytest_wfstate' has no attribute '{name}'$"):
        getattr(pytest_wfstate, name)


def test_an_unknown_name_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="cannot import name 'FilePausedStores' from 'pytest_wfstate'"):
        exec("from pytest_wfstate import FilePausedStores")


def test_dir_lists_the_public_names() -> None:
    assert set(pytest_wfstate.__all__) <= set(dir(pytest_wfstate))


def test_a_star_import_brings_every_name() -> None:
    seen: dict[str, object] = {}
    exec("from pytest_wfstate import *", seen)
    assert set(pytest_wfstate.__all__) <= set(seen)
