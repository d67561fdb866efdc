"""Imports point one way, lazy ones included. docs/architecture.md shows the graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_wfstate

PACKAGE = Path(pytest_wfstate.__file__).parent
FILES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]

# What each part, a folder or a file of the package, may import beside itself. A new part needs a line here.
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
    "labs": BASE | {"specs", "oracle", "faults", "engine"},
    "suites": BASE | {"stores", "specs", "oracle", "faults", "engine", "labs"},
    "zoo": BASE | {"stores", "suites"},
    "report": BASE | {"faults", "labs", "suites"},
    "__init__": BASE | {"stores", "faults", "labs"},
    "plugin": {"__init__", "samples", "faults", "labs", "suites", "report"},
    "cli": {"errors", "faults", "suites", "zoo", "report"},
    "__main__": {"cli"},
}

# The same for the sub-packages of faults. The modules at its root, one part together, import no sub-package.
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


def part(module: str) -> str:
    """Name the part of the package that `pytest_wfstate.<part>...` belongs to."""
    return [*module.split("."), "__init__"][1]


def own_part(file: Path) -> str:
    return file.parts[0].removesuffix(".py")


def dotted(file: Path) -> str:
    return ".".join(["pytest_wfstate", *file.with_suffix("").parts]).removesuffix(".__init__")


def imports(file: Path) -> Iterator[str]:
    """Find the modules of this package that `file` imports: at the top, in functions, for types, and by name."""
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if part_of_package(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            module = str(node.module)
            if part_of_package(module):  # its modules, or names out of it
                folder = PACKAGE.joinpath(*module.split(".")[1:])
                modules = {path.stem for path in folder.iterdir()} if folder.is_dir() else set()
                yield from (f"{module}.{alias.name}" if alias.name in modules else module for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (value for value in constants(node.args[0]) if part_of_package(value))


def part_of_package(module: str) -> bool:
    return module.split(".")[0] == "pytest_wfstate"


def constants(node: ast.expr) -> list[str]:
    return [str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_point_one_way(file: Path) -> None:
    own = own_part(file)
    assert own in MAY_IMPORT, "add a line to MAY_IMPORT"
    assert {part(module) for module in imports(file)} <= MAY_IMPORT[own] | {own}


def part_of_faults(module: str) -> str:
    name = [*module.split("."), ""][2]
    return name if (PACKAGE / "faults" / name).is_dir() and name else "root"


@pytest.mark.parametrize("file", [file for file in FILES if file.parts[0] == "faults"], ids=str)
def test_imports_inside_faults_point_one_way(file: Path) -> None:
    own = part_of_faults(dotted(file))
    imported = {part_of_faults(module) for module in imports(file) if part(module) == "faults"}
    assert own in FAULTS_MAY_IMPORT, "add a line to FAULTS_MAY_IMPORT"
    assert imported <= FAULTS_MAY_IMPORT[own] | {own}


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


def test_this_file_finds_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_imports.PACKAGE", tmp_path)
    (tmp_path / "samples.py").touch()
    (tmp_path / "faults" / "race").mkdir(parents=True)
    (tmp_path / "every.py").write_text(
        "import os, pytest_wfstate.errors\n"
        "from pytest_wfstate import samples, InvalidId\n"
        "from pytest_wfstate.stores.file import FileRunStore\n"
        "from pytest_wfstate.faults import race\n"
        "def later():\n"
        "    import pytest_wfstate.plugin\n"
        "    importlib.import_module(f'pytest_wfstate.contracts.{name}')\n"
    )
    assert sorted(imports(Path("every.py"))) == [
        "pytest_wfstate",
        "pytest_wfstate.contracts.",
        "pytest_wfstate.errors",
        "pytest_wfstate.faults.race",
        "pytest_wfstate.plugin",
        "pytest_wfstate.samples",
        "pytest_wfstate.stores.file",
    ]
