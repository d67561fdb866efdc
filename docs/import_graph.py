"""Print which room of the package imports which, and keep the graph in docs/architecture.md up to date.

    python docs/import_graph.py            print the graph
    python docs/import_graph.py --write    write it between the markers in docs/architecture.md

Imports are read with `ast`, not by importing: those inside functions, for type checkers and by name count as well.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_wfstate"
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- import graph: written by docs/import_graph.py --write -->\n"
END = "<!-- end of the import graph -->"


class Import(NamedTuple):
    """One import of a module of this package."""

    module: str
    is_lazy: bool
    """Whether it runs inside a function, or only for type checkers."""


Graph = Mapping[str, Mapping[str, bool]]
"""For each room what it imports, and whether only lazily."""


def imports(file: Path, package: Path = PACKAGE) -> Iterator[Import]:
    """Yield the modules of `package` that a file imports: at the top, in functions, for types, and by name."""
    tree = ast.parse(file.read_text())
    lazy = {id(inner) for node in ast.walk(tree) if _defers(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        for module in _modules(node, package):
            if module.split(".")[0] == package.name:
                yield Import(module, id(node) in lazy)


def _modules(node: ast.AST, package: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise ValueError("A relative import does not say which room it reaches. Write the full name.")
        if node.module == package.name:  # its rooms, or public names of its __init__
            rooms = {path.stem for path in package.iterdir()}
            yield from (f"{package.name}.{alias.name}" if alias.name in rooms else package.name for alias in node.names)
        else:
            yield str(node.module)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))


def _defers(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def room_of(module: str, below: str = PACKAGE.name) -> str:
    """Return the room that a module is in: a folder or file of the package. Files of a sub-package are one room."""
    name = [*module.removeprefix(below).removeprefix(".").split("."), ""][0]
    if below == PACKAGE.name:
        return name or "__init__"
    return name if name and (ROOT / below.replace(".", "/") / name).is_dir() else "root"


def module_of(file: Path) -> str:
    """Return the dotted name of a file of the package."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def graph(below: str = PACKAGE.name) -> Graph:
    """Return the import graph of the rooms of a package."""
    edges: dict[str, dict[str, bool]] = {}
    for file in sorted((ROOT / below.replace(".", "/")).rglob("*.py")):
        room = room_of(module_of(file), below)
        imported = edges.setdefault(room, {})
        for module, is_lazy in imports(file):
            other = room_of(module, below)
            if f"{module}.".startswith(f"{below}.") and other != room:
                imported[other] = imported.get(other, True) and is_lazy
    return edges


def layers(edges: Graph) -> list[list[str]]:
    """Sort the rooms into layers: each imports only from layers before its own."""
    placed: list[list[str]] = []
    while left := set(edges) - {room for layer in placed for room in layer}:
        ready = sorted(room for room in left if not left & set(edges[room]))
        if not ready:
            raise ValueError(f"These rooms import each other in a circle: {', '.join(sorted(left))}.")
        placed.append(ready)
    return placed


def render(edges: Graph) -> str:
    """Format a graph as text: a line a room, from the bottom up; parentheses mark what is only imported lazily."""
    width = max(map(len, edges))
    order = [room for layer in layers(edges) for room in layer]
    lines = []
    for room in order:
        names = [f"({other})" if edges[room][other] else other for other in order if other in edges[room]]
        lines.append(f"{room:{width}}  {' '.join(names) or '-'}")
    return "\n".join(lines)


def section() -> str:
    """Return what stands between the markers in the document."""
    rooms, faults = render(graph()), render(graph(f"{PACKAGE.name}.faults"))
    return f"```text\n{rooms}\n```\n\nInside `faults/`, where `root` is its own files:\n\n```text\n{faults}\n```\n"


def written(document: str) -> str:
    """Return the document with the graph of today between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{DOCUMENT.name} has lost its markers. It needs these two lines:\n{BEGIN}{END}")
    return f"{before}{begin}{section()}{end}{after}"


def main() -> None:
    """Print the graph, or write it into the document."""
    parser = argparse.ArgumentParser(description="Print which room of the package imports which.")
    parser.add_argument("--write", action="store_true", help="write the graph into docs/architecture.md")
    if parser.parse_args().write:
        DOCUMENT.write_text(written(DOCUMENT.read_text()))
    else:
        sys.stdout.write(section())


if __name__ == "__main__":
    main()
