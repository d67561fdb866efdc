"""A pytest plugin that collects suites from a list of JSON objects instead of a test module.

`wfstate check` and `wfstate zoo` write the list; it is loaded by name, and only in the sessions they start.
"""

from __future__ import annotations

import dataclasses
import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from pytest_wfstate.labs.options import COMMAND
from pytest_wfstate.stores.backends import BACKENDS, Backend
from pytest_wfstate.suites import SUITES, Suite
from pytest_wfstate.suites.registry import suite_named

FILE = "suites.json"


@dataclasses.dataclass(frozen=True, slots=True)
class SuiteSource:
    """What a suite is made from."""

    name: str
    """The name of its class."""
    kind: Literal["shipped", "factory", "suite", "zoo"]
    target: str
    """The backend, the `package.module:name` of a factory or a suite, or the name of a known-bad store."""
    contract: str = ""
    url: str = ""
    """Where the server is, if it was given."""
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Attributes to set on the class."""
    command: str = ""
    """The command that runs the suite."""

    def build(self) -> type[Suite]:
        """Make the class."""
        base, attributes = _BUILDERS[self.kind](self)
        return type(self.name, (base,), {**attributes, **self.attributes})


def write(folder: Path, sources: Iterable[SuiteSource]) -> Path:
    """Write a file that pytest collects with this plugin."""
    file = folder / FILE
    file.write_text(json.dumps([dataclasses.asdict(source) for source in sources]))
    return file


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect the file that `write` wrote."""
    return SuiteFile.from_parent(parent, path=file_path) if file_path.name == FILE else None


@pytest.hookimpl(trylast=True)  # when the item has the properties of its clause
def pytest_itemcollected(item: pytest.Item) -> None:
    """Have the report of a violation name the command that was used, not pytest."""
    file, clause = item.getparent(SuiteFile), dict(item.user_properties).get("wfstate_clause")
    source = file.sources.get(item.nodeid.split("::")[1]) if file else None
    if source is not None and source.command and clause is not None:
        item.stash[COMMAND] = f"{source.command} -k {clause}"


class SuiteFile(pytest.Module):
    """A test module whose classes are built from data."""

    sources: Mapping[str, SuiteSource] = {}
    """By the name of the class."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Collect the tests of the suites."""
        sources = [SuiteSource(**source) for source in json.loads(self.path.read_text())]
        self.sources = {source.name: source for source in sources}
        suites = [source.build() for source in sources]
        self.obj = ModuleType(self.path.stem)
        vars(self.obj).update({suite.__name__: suite for suite in suites})
        return super().collect()


_Made = tuple[type[Suite], dict[str, Any]]
"""The class to derive a suite from, and the attributes to add."""


def _shipped(source: SuiteSource) -> _Made:
    base, backend = SUITES[source.contract], BACKENDS[source.target]
    kind = base.__name__.removesuffix("Suite")
    if source.url:
        return base, {"medium": "server", "server": "given_server", **_on_given_server(source.url, kind, backend)}
    if backend.schemes:
        server = {"medium": "server", "server": f"{source.target}_server"}
        return base, {**server, "open": lambda self, home: backend.open(kind, home, self.url)}
    if backend.has_folder:
        return base, {"open": lambda _, home: backend.open(kind, home)}
    stores: dict[Path, Any] = {}

    def open_handle(_: Suite, home: Path) -> Any:
        return stores.setdefault(home, backend.open(kind, home)).handle()

    return base, {"medium": "memory", "open": open_handle}


def _on_given_server(url: str, kind: str, backend: Backend) -> dict[str, Any]:
    """Return methods that remove what the stores of a test leave on a server that outlives it."""
    from pytest_wfstate.faults.servers import GivenServer, leftovers

    prefixes: set[str] = set()

    def open_store(self: Suite, home: Path) -> Any:
        prefixes.add(home.name)
        return backend.open(kind, home, self.url)

    @pytest.fixture
    def given_server(self: Suite) -> Iterator[GivenServer]:  # noqa: ARG001 - a method of the suite
        yield GivenServer(url, "the command line")
        leftovers.remove(url, prefixes)
        prefixes.clear()

    return {"open": open_store, "given_server": given_server}


def _factory(source: SuiteSource) -> _Made:
    factory = pkgutil.resolve_name(source.target)
    return suite_named(source.contract), {"open": lambda _, home: factory(home)}


def _suite(source: SuiteSource) -> _Made:
    return pkgutil.resolve_name(source.target), {}


def _zoo(source: SuiteSource) -> _Made:
    from pytest_wfstate.zoo.registered import known_bad_stores
    from pytest_wfstate.zoo.suites import suite_of

    (store,) = [store for store in known_bad_stores([source.contract]) if store.name == source.target]
    return suite_of(store, {store.contract: suite_named(store.contract)}), {}


_BUILDERS = {"shipped": _shipped, "factory": _factory, "suite": _suite, "zoo": _zoo}
