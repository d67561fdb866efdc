"""Contracts and known-bad stores of other packages are known by name, and a broken package says what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_wfstate.cli.main import main
from pytest_wfstate.suites import SUITES
from pytest_wfstate.suites.registry import UnusableContract, contract_names, suite_named
from pytest_wfstate.zoo import KNOWN_BAD_STORES

SHELVES = """
import json
from hypothesis import strategies as st
from pytest_wfstate.suites import Contract, Operation, Suite

def keys(ids):
    return st.tuples(st.sampled_from(ids))

PUT = Operation("put", lambda ids: st.tuples(st.sampled_from(ids), st.just("hat")), mutates=True, positional=2)
GET = Operation("get", keys)
CLEAR = Operation("clear", keys, mutates=True)

class Shelf:
    def __init__(self):
        self.things = {}
    def put(self, key, thing):
        self.things[key] = thing
    def get(self, key):
        return self.things.get(key)
    def clear(self, key):
        self.things.pop(key, None)

class ShelfSuite(Suite):
    contract = Contract("shelf", [PUT, GET, CLEAR], reference=lambda _: Shelf(), remove=CLEAR,
        write=lambda key, number: PUT(key, f"thing {number}"), reads=lambda ids: [GET(key) for key in ids])

class FileShelf:
    def __init__(self, home):
        self.path = home / "shelf.json"
    def things(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}
    def put(self, key, thing):
        self.path.write_text(json.dumps(self.things() | {key: thing}))
    def get(self, key):
        return self.things().get(key)
    def clear(self, key):
        self.path.write_text(json.dumps({other: thing for other, thing in self.things().items() if other != key}))
"""
BAD_SHELVES = """
from shelves import FileShelf
from pytest_wfstate.zoo import known_bad

@known_bad("shelf", "remove.forgets remove.write-again")
class Keeps(FileShelf):
    \"\"\"What was cleared is still there, as clear was never written, and nothing can be put there again.\"\"\"
    def put(self, key, thing):
        if key not in self.things() or self.get("cleared " + key) is None:
            super().put(key, thing)
    def clear(self, key):
        super().put("cleared " + key, True)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package, with entry points by group."""
    before = list(KNOWN_BAD_STORES)
    (tmp_path / "shelves.py").write_text(SHELVES)
    (tmp_path / "bad_shelves.py").write_text(BAD_SHELVES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def install(package: str, **entries: str) -> None:
        info = tmp_path / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        groups = [f"[pytest_wfstate.{group}]\n{entry}\n" for group, entry in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(groups))

    yield install
    KNOWN_BAD_STORES[:] = before
    for module in ("shelves", "bad_shelves"):
        sys.modules.pop(module, None)


SHELF = "shelf = shelves:ShelfSuite"


def test_without_other_packages_the_contracts_are_those_of_this_one() -> None:
    assert contract_names() == [*SUITES]
    assert [suite_named(name) for name in SUITES] == [*SUITES.values()]


def test_clauses_of_a_registered_contract_are_listed(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("shelves", contracts=SHELF)
    assert main(["clauses", "shelf"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("shelf.") for line in lines)
    assert main(["clauses"]) == 0
    listed = capsys.readouterr().out
    assert "shelf.remove.forgets" in listed
    assert "paused.claim.one-winner" in listed


def test_a_factory_is_checked_against_a_registered_contract(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("shelves", contracts=SHELF)
    arguments = ["shelves:FileShelf", "--contract", "shelf", "-k", "shelf.remove or shelf.save.load"]
    assert main(["check", *arguments]) == 0
    assert "shelves:FileShelf" in capsys.readouterr().out


def test_known_bad_stores_of_a_registered_contract_are_shown(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("shelves", contracts=SHELF, zoo="shelf = bad_shelves")
    assert main(["zoo", "shelf."]) == 0
    out = capsys.readouterr().out
    assert out.startswith("shelf.keeps\n  What was cleared is still there")
    assert "caught by shelf.remove.forgets, shelf.remove.write-again" in out
    assert out.endswith("1 of 1 known-bad stores were caught by every clause that should catch them.\n")


BROKEN = {
    "it cannot be imported": (
        "shelf = no_shelves:ShelfSuite",
        "cannot be loaded: ModuleNotFoundError: No module named 'no_shelves'. Looked at the entry points of the group ",
    ),
    "it is not a suite": (
        "shelf = shelves:Shelf",
        "what broken (shelf = shelves:Shelf) registers is <class 'shelves.Shelf'>, which is not a suite. Looked at ",
    ),
    "it has another name": (
        "shelf = pytest_wfstate.suites:PausedSuite",
        "registers is the suite of the contract 'paused'. Looked at the entry points of the group pytest_wfstate.co",
    ),
    "it has no contract": ("shelf = pytest_wfstate.suites:Suite", "registers has no contract. Looked at the entry "),
}


@pytest.mark.parametrize(("entry", "message"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(
    "command", [["clauses", "shelf"], ["check", "shelves:FileShelf", "--contract", "shelf"], ["zoo", "shelf."]]
)
def test_a_broken_entry_point_says_what_is_wrong(
    install: Install, capsys: pytest.CaptureFixture[str], entry: str, message: str, command: list[str]
) -> None:
    install("broken", contracts=entry, zoo="shelf = bad_shelves")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"wfstate {command[0]}: what broken (")
    assert message in error
    assert error.endswith(", or uninstall it.\n")
    assert main(["clauses", "paused"]) == 0, "other contracts can be used"


@pytest.mark.parametrize("name", ["shelf", "paused"])
def test_a_name_that_is_taken_is_an_error(install: Install, name: str) -> None:
    install("one", contracts=f"{name} = shelves:ShelfSuite")
    install("two", contracts=f"{name} = more_shelves:ShelfSuite")
    with pytest.raises(UnusableContract, match=f"^more than one contract is called '{name}'") as taken:
        suite_named(name)
    packages = ["one (", "two (", *(["pytest-wfstate"] if name == "paused" else [])]
    assert all(package in str(taken.value) for package in packages)
    assert str(taken.value).endswith("Uninstall all but one, or rename its contract.")


@pytest.mark.parametrize(
    "command", [["clauses", "shelv"], ["check", "--contract", "shelv"], ["zoo", "--contract", "shelv"]]
)
def test_an_unknown_name_is_an_error(install: Install, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    install("shelves", contracts=SHELF)
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"wfstate {command[0]}: there is no contract 'shelv'. Looked at those of this package and at the entry points "
        f"of the group pytest_wfstate.contracts: {', '.join(SUITES)}, shelf. Use one of these, or install the package "
        "that registers 'shelv' where wfstate runs.\n"
    )


def test_a_registered_contract_has_no_store_of_this_package(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("shelves", contracts=SHELF)
    assert main(["check", "--contract", "shelf"]) == 2
    assert "Give your own: package.module:factory --contract shelf." in capsys.readouterr().err


def test_known_bad_stores_of_no_contract_are_an_error(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("shelves", zoo="shelf = bad_shelves")
    assert main(["zoo", "resume.takes-any-id"]) == 2
    assert "what shelves (shelf = bad_shelves) registers is for a contract that is not registered." in (
        capsys.readouterr().err
    )
