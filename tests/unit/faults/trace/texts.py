"""Ops as text, so that a test can state each one it expects in a line."""

from __future__ import annotations

from pytest_wfstate.faults.trace.ops import (
    HOME,
    Allocate,
    Create,
    Fsync,
    Item,
    Link,
    Node,
    Rename,
    Sync,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
)


def in_words(trace: Trace) -> list[str]:
    """Return the items of a trace, with a path for each node: `write a 0 b'hello'`."""
    tree = trace.start.copy()
    paths: dict[Node, str] = {HOME: "."}
    words = []
    for item in trace.items:
        paths.update((node, path) for path, node in tree.walk())
        words.append(_words(item, tree, paths))
        tree.apply(item)
    return words


def _words(item: Item, tree: Tree, paths: dict[Node, str]) -> str:
    def place(folder: Node, name: str) -> str:
        return name if folder == HOME else f"{paths.get(folder, '(outside)')}/{name.split('/')[-1]}"

    def path(node: Node) -> str:
        return paths.get(node, "(outside)")

    match item:
        case Create():
            kind = {"file": "create", "folder": "mkdir", "symlink": "symlink"}[item.kind]
            return f"{kind} {place(item.folder, item.name)} {item.target}".rstrip()
        case Link():
            return f"link {path(item.node)} {place(item.folder, item.name)}"
        case Unlink():
            kind = "rmdir" if tree.kinds[item.node] == "folder" else "unlink"
            return f"{kind} {place(item.folder, item.name)}"
        case Rename():
            over = "" if item.replaced is None else " over"
            return f"rename {place(item.folder, item.name)} {place(item.new_folder, item.new_name)}{over}"
        case Write():
            return f"write {path(item.node)} {item.offset} {item.data!r}"
        case Truncate():
            return f"truncate {path(item.node)} {item.size}"
        case Allocate():
            return f"allocate {path(item.node)} {item.size}"
        case Fsync():
            span = " {}-{}".format(*item.span) if item.span else ""
            failed = " failed" if item.failed else ""
            return f"{'fdatasync' if item.data_only else 'fsync'} {path(item.node)}{span}{failed}"
        case Sync():
            return "sync"
        case _:
            return type(item).__name__.lower()
