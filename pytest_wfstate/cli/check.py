"""What `wfstate check` and `wfstate zoo` run: targets on the command line and animals of the zoo, made into suites."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.cli.sessions import Session
from pytest_wfstate.errors import WfstateError
from pytest_wfstate.suites import SUITES, Suite
from pytest_wfstate.suites.clauses import Clause, clauses
from pytest_wfstate.zoo import KnownBadStore
from pytest_wfstate.zoo.suites import suite_of

_FILE = """
from pytest_wfstate.stores.file import {store}
from pytest_wfstate.suites import {suite}

class {name}({suite}):
    def open(self, home):
        return {store}(home)
"""
_MEMORY = """
from pytest_wfstate.stores.memory import {store}
from pytest_wfstate.suites import {suite}

stores = {{}}

class {name}({suite}):
    medium = "memory"
    def open(self, home):
        return stores.setdefault(home, {store}()).handle()
"""
_SQLITE = """
from pytest_wfstate.stores.sql import {store}
from pytest_wfstate.suites import {suite}

class {name}({suite}):
    def open(self, home):
        return {store}(f"sqlite:///{{home}}/state.db")
"""
_SERVER = """
from pytest_wfstate.stores.{module} import {store}
from pytest_wfstate.suites import {suite}

class {name}({suite}):
    medium = "server"
    server = "{server}"

    def open(self, home):
        return {store}(self.url, prefix=home.name)
"""
_GIVEN = """
import pytest
from pytest_wfstate.faults.servers import GivenServer, leftovers
from pytest_wfstate.stores.{module} import {store}
from pytest_wfstate.suites import {suite}

class {name}({suite}):
    medium = "server"
    server = "given_server"

    def open(self, home):
        self.used.add(home.name)
        return {store}(self.url, prefix=home.name)

    @pytest.fixture
    def given_server(self):
        self.used = set()
        yield GivenServer({url!r}, "the command line")
        leftovers.remove({url!r}, self.used)
"""
_FACTORY = """
import pkgutil
from pytest_wfstate.suites import {suite}

factory = pkgutil.resolve_name({target!r})

class {name}({suite}):
    def open(self, home):
        return factory(home)
"""
_SUITE = """
import pkgutil

class {name}(pkgutil.resolve_name({target!r})):
    pass
"""
_ZOO = """
from pytest_wfstate.suites import SUITES
from pytest_wfstate.zoo.suites import suite_of
from pytest_wfstate.zoo import KNOWN_BAD_STORES

for animal in KNOWN_BAD_STORES:
    if animal.name in {names!r}:
        suite = suite_of(animal, SUITES)
        suite.known_failures = suite.known_failures if {knows} else {{}}
        suite.random_shrinks = False  # that they fail is all there is to know
        globals()[suite.__name__] = suite
del suite
"""

_PASSWORD = re.compile(r"(://[^:/@]*:)[^/@]*@")


class Unusable(WfstateError, ValueError):
    """What was asked for on the command line makes no sense."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Backend:
    """Where this package has stores: what a suite of one looks like, and how it is called."""

    source: str
    prefix: str
    """What the names of its stores begin with."""
    module: str = ""
    server: str = ""
    """The fixture that starts a server for it, if it needs one."""
    schemes: tuple[str, ...] = ()
    """How the URL of a server may begin."""


_BACKENDS = {
    "file": _Backend(_FILE, "File"),
    "memory": _Backend(_MEMORY, "Memory"),
    "sqlite": _Backend(_SQLITE, "Sql"),
    "postgres": _Backend(_SERVER, "Sql", "sql", "postgres_server", ("postgresql", "postgresql+psycopg")),
    "redis": _Backend(_SERVER, "Redis", "redis", "redis_server", ("redis", "rediss", "unix")),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A store to be checked."""

    name: str
    suite: str
    """The name of the class that checks it."""
    session: Session


def targets(names: Sequence[str], contract: str | None, **settings: str | None) -> list[Target]:
    """Find the stores that are meant: all shipped ones on files, if none is named.

    Raises:
        Unusable: there is no such store.
    """
    chosen = names or [f"{one}.file" for one in SUITES if contract in (None, one)]
    return [_target(name, number, contract, settings) for number, name in enumerate(dict.fromkeys(chosen))]


def shipped() -> list[str]:
    """Name the stores of this package."""
    return [f"{contract}.{backend}" for backend in _BACKENDS for contract in SUITES]


def animals(some: Sequence[KnownBadStore], *, full: bool) -> Session:
    """Make a session of animals: on the clauses that each is said to break, or on all."""
    suites = {animal: suite_of(animal, SUITES) for animal in some}
    tests = tuple(
        f"{suite.__name__}::{clause.test}"
        for animal, suite in suites.items()
        for clause in all_clauses(animal.contract)
        if full or clause.id in animal.breaks
    )
    source = _ZOO.format(names={animal.name for animal in some}, knows=not full)
    return Session(source, tuple(suite.__name__ for suite in suites.values()), tests)


def all_clauses(contract: str | None = None) -> list[Clause]:
    """Give the clauses of a contract, or of all."""
    return [one for name, suite in SUITES.items() if contract in (None, name) for one in clauses(suite)]


def _target(name: str, number: int, contract: str | None, settings: dict[str, str | None]) -> Target:
    suite = f"TestStore{number}"
    shipped_name, _, url = name.partition(":")
    if url and shipped_name not in shipped():
        source = _own(name, suite, contract)
    else:
        source = _shipped(shipped_name, url, suite, contract)
    given = [f"{suite}.{key} = {value!r}" for key, value in settings.items() if value is not None]
    return Target(_shown(name), suite, Session("\n".join([source, *given, ""]), (suite,)))


def _shipped(name: str, url: str, suite: str, contract: str | None) -> str:
    if name not in shipped():
        raise Unusable(
            f"there is no store {name!r}. This package has: {', '.join(shipped())}. "
            "For a store of your own give package.module:factory --contract CONTRACT."
        )
    own, backend = name.split(".")
    if contract not in (None, own):
        raise Unusable(f"--contract is {contract}, and {name} is a store of the {own} contract. Leave one of them out.")
    if url:
        _check_url(name, url, _BACKENDS[backend])
    kind, found = SUITES[own].__name__.removesuffix("Suite"), _BACKENDS[backend]
    return (_GIVEN if url else found.source).format(
        name=suite,
        suite=f"{kind}Suite",
        store=f"{found.prefix}{kind}Store",
        module=found.module,
        server=found.server,
        url=url,
    )


def _check_url(name: str, url: str, backend: _Backend) -> None:
    if url.partition(":")[0] not in backend.schemes:
        own = name.partition(".")[0]
        raise Unusable(
            f"{name} cannot be checked at {_shown(url)!r}. A URL is that of a server: {own}.postgres:postgresql://"
            f"user@host/database or {own}.redis:redis://host. Stores in files are checked in folders of their own: "
            "leave it out."
        )


def _shown(name: str) -> str:
    """Give a name, or a URL, without the password in it."""
    return _PASSWORD.sub(r"\1***@", name)


def _own(target: str, suite: str, contract: str | None) -> str:
    found = _resolved(target)
    if isinstance(found, type) and issubclass(found, Suite):
        return _SUITE.format(name=suite, target=target)
    if not callable(found):
        raise Unusable(f"{target} is {found!r}, which cannot be called. Give what opens a store: factory(home).")
    if contract is None:
        raise Unusable(f"{target} does not say what it is a store of. Give --contract, one of: {', '.join(SUITES)}.")
    return _FACTORY.format(name=suite, suite=SUITES[contract].__name__, target=target)


def _resolved(target: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module, _, name = target.partition(":")
    try:
        importlib.import_module(module)
    except Exception as error:
        raise Unusable(
            f"{module} cannot be imported: {type(error).__name__}: {error}. It was looked for in {Path.cwd()}, and "
            "where Python looks. Run the command in the folder of your project, with its packages installed."
        ) from error
    try:
        return pkgutil.resolve_name(target)
    except (AttributeError, ValueError):
        public = [one for one in vars(sys.modules[module]) if not one.startswith("_")]
        raise Unusable(
            f"{module} has no {name or 'name of nothing'}. It has: {', '.join(public) or 'nothing'}. "
            "Give package.module:factory."
        ) from None
