"""`wfstate check`: finds the stores that were named, checks them against their contracts, and prints a scorecard."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import pkgutil
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.cli.collected import SuiteSource
from pytest_wfstate.cli.sessions import Session
from pytest_wfstate.cli.sessions import run as run_sessions
from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.faults.replay_id import NoReplayId, ReplayId
from pytest_wfstate.report.progress import ProgressTable
from pytest_wfstate.report.scorecard import scorecard, violations
from pytest_wfstate.stores.backends import BACKENDS, GENERIC
from pytest_wfstate.stores.passwords import hide_passwords
from pytest_wfstate.suites import SUITES, Suite
from pytest_wfstate.suites.clauses import LEVELS, MEDIA, clauses
from pytest_wfstate.suites.registry import contract_names, suite_named


class Unusable(WfstateError, ValueError, public=False):
    """The arguments on the command line do not make sense."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help=f"a shipped store such as paused.file (contracts: {', '.join(SUITES)}; backends: {', '.join(BACKENDS)}), "
        "or package.module:name of a factory(home) or a suite. A store on a server may have a URL: "
        "paused.redis:redis://localhost. Default: all file stores.",
    )
    parser.add_argument("--contract", help="the contract of a factory's stores, of this package or a registered one")
    parser.add_argument("--medium", choices=MEDIA, help="where a factory's stores keep their state (default: disk)")
    parser.add_argument("--level", choices=LEVELS, help="the highest level to check (default: hardened)")
    parser.add_argument("--profile", choices=PROFILES, default="default", help="how much to try")
    parser.add_argument("-k", metavar="EXPRESSION", dest="keyword", help="only these clauses, as in pytest -k")
    parser.add_argument("--replay", metavar="ID", help="replay only the violation with this id, from its report")
    parser.add_argument("--jobs", type=int, metavar="N", help="stores to check at once (default: one per processor)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Return 0 if every store keeps its promises, and 1 if not."""
    attributes = {key: value for key in ("level", "medium") if (value := getattr(arguments, key)) is not None}
    sources = targets(arguments.targets, arguments.contract, attributes, arguments.profile)
    names = {source.name: hide_passwords(target) for target, source in sources.items()}
    options = [f"--wfstate-profile={arguments.profile}", "--wfstate-servers=required"]
    options += ["-k", arguments.keyword] if arguments.keyword else []
    options += [f"--wfstate-replay={_replay_id(arguments.replay)}"] if arguments.replay else []
    sessions = [_session(source, arguments.keyword) for source in sources.values()]
    progress = ProgressTable(names, sys.stdout)
    try:
        rows = run_sessions(sessions, options, progress.show, arguments.jobs)
    finally:
        progress.clear()
    if not rows:
        raise Unusable(
            f"-k {arguments.keyword!r} selects no clause. It was matched against those of {', '.join(names.values())}. "
            "`wfstate clauses` lists them."
        )
    if arguments.replay and not any(item.is_replay for row in rows for item in row.items):
        raise Unusable(
            f"nothing was replayed. No clause that ran reached the exploration of --replay={arguments.replay}. Run the "
            "command at the end of the violation's report: it names the store and the clause."
        )
    rows = [dataclasses.replace(row, name=names[row.name]) for row in rows]
    is_clean = all(row.is_clean for row in rows)
    sys.stdout.write(f"{scorecard(rows)}\n" + ("" if is_clean else f"\n{violations(rows)}\n"))
    return 0 if is_clean else 1


def targets(
    names: Sequence[str], contract: str | None, attributes: Mapping[str, str], profile: str = "default"
) -> dict[str, SuiteSource]:
    """Return what each named store's suite is made from: all shipped file stores, if none is named.

    Raises:
        Unusable: there is no such store.
        UnusableContract: there is no such contract, or it cannot be loaded.
    """
    if contract is not None and suite_named(contract) and not names and contract not in SUITES:
        raise Unusable(
            f"there is nothing to check. Looked for stores of the {contract} contract in this package, which has none. "
            f"Give your own: package.module:factory --contract {contract}."
        )
    chosen = names or [f"{each}.file" for each in SUITES if contract in (None, each)]
    given = {"contract": contract, **attributes, "profile": None if profile == "default" else profile}
    options = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    return {
        target: dataclasses.replace(
            _source(target, f"TestStore{number}", contract),
            attributes=attributes,
            command=f"wfstate check {shlex.quote(hide_passwords(target))}{options}",
        )
        for number, target in enumerate(dict.fromkeys(chosen))
    }


def _session(source: SuiteSource, keyword: str | None) -> Session:
    """Return a session of a suite: of one clause if the keyword is its id, and not of others whose ids contain it."""
    tests = [clause.test for clause in clauses(source.build()) if clause.id == keyword] if keyword else []
    return Session((source,), tuple(f"{source.name}::{test}" for test in tests) or None)


def _replay_id(text: str) -> ReplayId:
    try:
        return ReplayId.read(text)
    except NoReplayId as error:
        raise Unusable(f"--replay: {error}") from None


def shipped() -> list[str]:
    """Return the names of the stores of this package."""
    return [
        f"{contract}.{name}"
        for name, backend in BACKENDS.items()
        for contract in SUITES
        if backend.keeps_all or contract not in GENERIC
    ]


def _source(target: str, suite: str, contract: str | None) -> SuiteSource:
    name, _, url = target.partition(":")
    if url and name not in shipped():
        return _own(target, suite, contract)
    if name not in shipped():
        raise Unusable(
            f"there is no store {name!r}. A name is CONTRACT.BACKEND, such as paused.file (contracts: "
            f"{', '.join(SUITES)}; backends: {', '.join(BACKENDS)}, and of {', '.join(GENERIC)} only "
            f"{', '.join(name for name, backend in BACKENDS.items() if backend.keeps_all)}). "
            "For a store of your own, give package.module:factory --contract CONTRACT."
        )
    own, backend = name.split(".")
    if contract not in (None, own):
        raise Unusable(f"--contract is {contract}, but {name} is a store of the {own} contract. Omit one of them.")
    if url and url.partition(":")[0] not in BACKENDS[backend].schemes:
        raise Unusable(
            f"{name} cannot be checked at {hide_passwords(url)!r}. Only a server has a URL: "
            f"{own}.postgres:postgresql://user@host/database or {own}.redis:redis://host. "
            "Other stores are checked in new folders: omit the URL."
        )
    return SuiteSource(suite, "shipped", backend, own, url)


def _own(target: str, suite: str, contract: str | None) -> SuiteSource:
    value = _resolved(target)
    if isinstance(value, type) and issubclass(value, Suite):
        return SuiteSource(suite, "suite", target)
    if not callable(value):
        raise Unusable(f"{target} is {value!r}, which is not callable. Give a function that opens a store: f(home).")
    if contract is None:
        raise Unusable(f"the contract of {target} is not known. Add --contract, one of: {', '.join(contract_names())}.")
    return SuiteSource(suite, "factory", target, contract)


def _resolved(target: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module, _, name = target.partition(":")
    try:
        importlib.import_module(module)
    except Exception as error:
        raise Unusable(
            f"{module} cannot be imported: {type(error).__name__}: {error}. Looked in {Path.cwd()} and on Python's "
            "path. Run the command in your project's folder, with its packages installed."
        ) from error
    try:
        return pkgutil.resolve_name(target)
    except (AttributeError, ValueError):
        public = [each for each in vars(sys.modules[module]) if not each.startswith("_")]
        raise Unusable(
            f"{module} has no {name!r}. It has: {', '.join(public) or 'nothing'}. Give package.module:factory."
        ) from None
