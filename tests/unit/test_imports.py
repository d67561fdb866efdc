"""Imports point one way, lazy ones included. docs/architecture.md shows the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import import_graph
from docs.import_graph import PACKAGE, module_of, room_of

FILES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]

# What each room, a folder or a file of the package, may import besides itself. A new room needs a line here.
BASE = {"errors", "contracts", "samples"}
MAY_IMPORT = {
    "errors": set[str](),
    "contracts": {"errors"},
    "samples": {"errors", "contracts"},
    "stores": {"errors", "contracts"},
    "specs": BASE | {"stores"},
    "oracle": BASE,
    "faults": {"errors"},
    "engine": BASE | {"specs", "oracle", "faults"},
    "labs": BASE | {"stores", "specs", "oracle", "faults", "engine"},
    "suites": BASE | {"stores", "specs", "oracle", "faults", "engine", "labs"},
    "zoo": BASE | {"stores", "suites"},
    "report": {"faults", "labs", "suites"},
    "__init__": BASE | {"stores", "faults", "labs"},
    "plugin": {"samples", "stores", "faults", "labs", "suites", "report"},
    "cli": {"errors", "stores", "faults", "labs", "suites", "zoo", "report"},
    "__main__": {"cli"},
}

# The same for the sub-packages of faults. Its own files are one room, and import no sub-package.
FAULTS_MAY_IMPORT = {
    "root": set[str](),
    "trace": {"root"},
    "record": {"root", "trace"},
    "disk": {"root", "trace"},
    "world": {"root", "trace"},
    "crash": {"root", "trace", "record", "disk", "world"},
    "race": {"root", "trace", "record", "disk"},
    "servers": {"root"},
}


def imports(file: Path) -> Iterator[str]:
    return (module for module, _ in import_graph.imports(PACKAGE / file))


RULES = [
    pytest.param(below, rules, file, id=f"{below}-{file}")
    for below, rules in [("pytest_wfstate", MAY_IMPORT), ("pytest_wfstate.faults", FAULTS_MAY_IMPORT)]
    for file in FILES
    if module_of(PACKAGE / file).startswith(below)
]


@pytest.mark.parametrize(("below", "rules", "file"), RULES)
def test_imports_point_one_way(below: str, rules: dict[str, set[str]], file: Path) -> None:
    own = room_of(module_of(PACKAGE / file), below)
    assert own in rules, "add a line to the rules"
    assert {room_of(module, below) for module in imports(file) if module.startswith(below)} <= rules[own] | {own}


@pytest.mark.parametrize("rules", [MAY_IMPORT, FAULTS_MAY_IMPORT], ids=["package", "faults"])
def test_the_rules_have_no_circle(rules: dict[str, set[str]]) -> None:
    placed: set[str] = set()
    while ready := {name for name, allowed in rules.items() if allowed <= placed} - placed:
        placed |= ready
    assert placed == set(rules)


@pytest.mark.parametrize("file", [file for file in FILES if file.parts[0] == "stores" and len(file.parts) > 2], ids=str)
def test_a_backend_knows_no_other_backend(file: Path) -> None:
    own = f"pytest_wfstate.stores.{file.parts[1]}"
    backends = {f"pytest_wfstate.stores.{path.name}" for path in (PACKAGE / "stores").iterdir() if path.is_dir()}
    others = {module for module in imports(file) if ".".join(module.split(".")[:3]) in backends - {own}}
    assert others == set()


def test_no_file_is_private() -> None:
    assert [str(file) for file in FILES if file.stem.startswith("_") and not file.stem.startswith("__")] == []


def test_the_graph_in_the_document_is_up_to_date() -> None:
    document = import_graph.DOCUMENT.read_text()
    assert document == import_graph.written(document), "run: python docs/import_graph.py --write"


def test_the_graph_finds_every_kind_of_import(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "samples.py").touch()
    file = tmp_path / "package" / "every.py"
    file.write_text(
        "import os, package.errors\n"
        "from package import samples, InvalidId\n"
        "from package.stores.file import FileRunStore\n"
        "if TYPE_CHECKING:\n"
        "    from package.labs import Crash\n"
        "def later():\n"
        "    import package.plugin\n"
        "    importlib.import_module(f'package.contracts.{name}')\n"
    )
    assert sorted(import_graph.imports(file, tmp_path / "package")) == [
        ("package", False),
        ("package.contracts.", True),
        ("package.errors", False),
        ("package.labs", True),
        ("package.plugin", True),
        ("package.samples", False),
        ("package.stores.file", False),
    ]


def test_the_graph_shows_what_is_imported_lazily_and_sorts_rooms_from_the_bottom_up() -> None:
    edges = {"top": {"bottom": False, "middle": True}, "middle": {"bottom": False}, "bottom": {}}
    assert import_graph.render(edges) == "bottom  -\nmiddle  bottom\ntop     bottom (middle)"


def test_a_circle_of_imports_has_no_graph() -> None:
    with pytest.raises(ValueError, match="circle: a, b"):
        import_graph.render({"a": {"b": False}, "b": {"a": True}, "c": {}})
