"""`wfstate zoo`: each known-bad store with its story and the clauses that caught it, or the matrix of all."""

from __future__ import annotations

import argparse
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_wfstate.cli import sessions
from pytest_wfstate.cli.check import Unusable
from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.cli.collected import SuiteSource
from pytest_wfstate.cli.sessions import Session
from pytest_wfstate.cli.stream import Event
from pytest_wfstate.report.progress import ProgressTable
from pytest_wfstate.suites.clauses import Clause
from pytest_wfstate.suites.registry import contract_names, suite_named

if TYPE_CHECKING:
    from pytest_wfstate.zoo import KnownBadStore

Results = Mapping[str, Mapping[str, str]]
"""The result of each clause on each known-bad store."""

BY_CHANCE = (".random.calls", ".server.killed", ".values.any")
"""How the ids of clauses end that find a bug by chance."""

_PER_SESSION = 4
"""Known-bad stores that share a process when each takes long: starting one takes a second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="only known-bad stores whose name starts with NAME")
    parser.add_argument("--contract", help="only known-bad stores of this contract")
    parser.add_argument("--full", action="store_true", help="run every clause on each, and print the matrix")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes to run at once (default: one per processor)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Return 0 if every store was caught by the clauses that it names, and 1 if not."""
    stores = _chosen(arguments.names, arguments.contract)
    names = {_source(store, is_full=arguments.full).name: store.name for store in stores}
    progress = ProgressTable(dict.fromkeys(names, "zoo"), sys.stdout)
    tour = Tour(stores, names, (lambda _: None) if arguments.full else progress.write_above)

    def listener(event: Event) -> None:
        progress.show(event)
        tour.listen(event)

    try:
        sessions.run(_sessions(stores, is_full=arguments.full), ["--wfstate-profile=quick"], listener, arguments.jobs)
    finally:
        progress.clear()
    if arguments.full:
        text, is_clean = _matrices(stores, tour.results, is_whole=not arguments.names)
    else:
        tour.end()
        text, is_clean = count(stores, tour.results)
    sys.stdout.write(f"{text}\n")
    return 0 if is_clean else 1


def _chosen(prefixes: Sequence[str], contract: str | None) -> list[KnownBadStore]:
    from pytest_wfstate.zoo.registered import known_bad_stores  # which other commands need not wait for

    names = contract_names() if contract is None else [contract] if suite_named(contract) else []
    asked = [name for name in names if not prefixes or any(_may_name(prefix, name) for prefix in prefixes)]
    of_contract = [store for store in known_bad_stores(asked) if store.contract in names]
    stores = [store for store in of_contract if not prefixes or store.name.startswith(tuple(prefixes))]
    if not stores:
        raise Unusable(
            f"no known-bad store's name starts with {' or '.join(prefixes)}. Looked at the {len(of_contract)} of "
            f"{', '.join(names)}. `wfstate zoo` shows them all."
        )
    return stores


def _may_name(prefix: str, contract: str) -> bool:
    """Whether the names of a contract's stores can begin so."""
    return contract.startswith(prefix) or prefix.startswith(f"{contract}.")


def _sessions(stores: Sequence[KnownBadStore], *, is_full: bool) -> list[Session]:
    """Divide the stores among processes so that all of them have work until the end."""
    number = math.ceil(len(stores) / _PER_SESSION) if is_full else min(len(stores), os.cpu_count() or 1)
    return [_session(stores[first::number], is_full=is_full) for first in range(number)]


def _session(stores: Sequence[KnownBadStore], *, is_full: bool) -> Session:
    """Run each store on the clauses that it names, or on all."""
    sources = {store: _source(store, is_full=is_full) for store in stores}
    tests = tuple(
        f"{source.name}::{clause.test}"
        for store, source in sources.items()
        for clause in all_clauses(store.contract)
        if is_full or clause.id in store.breaks
    )
    return Session(tuple(sources.values()), tests)


def _source(store: KnownBadStore, *, is_full: bool) -> SuiteSource:
    from pytest_wfstate.zoo.suites import suite_of

    attributes: dict[str, Any] = {"explains": False}  # that they fail is all there is to know
    if is_full:
        attributes["known_failures"] = {}
    name = suite_of(store, {store.contract: suite_named(store.contract)}).__name__
    return SuiteSource(name, "zoo", store.name, store.contract, attributes=attributes)


class Tour:
    """Writes about each store as soon as every clause that should catch it has run."""

    def __init__(self, stores: Sequence[KnownBadStore], names: Mapping[str, str], write: Callable[[str], None]) -> None:
        """Write with `write`; `names` maps suites to stores."""
        self._waiting = {store.name: store for store in stores}
        self._names = names
        self._write = write
        self.results: dict[str, dict[str, str]] = {store.name: {} for store in stores}

    def listen(self, event: Event) -> None:
        """Take in an event of a session."""
        kind, item = event
        if kind == "item" and item.level:
            name = self._names[item.suite]
            self.results[name][item.clause] = item.result
            if name in self._waiting and self.results[name].keys() >= set(self._waiting[name].breaks):
                self._write(caught(self._waiting.pop(name), self.results[name]) + "\n")

    def end(self) -> None:
        """Write about the stores that some clauses did not run on."""
        for name, store in self._waiting.items():
            self._write(caught(store, self.results[name]) + "\n")


_MISSED = {
    "failed": "passed",
    "not seen": "passed",
    "not measured": "was not measured",
    "skipped": "was skipped",
    "": "did not run",
}
"""What a clause did that did not catch a store: pytest counts a pass as failed if it is known to fail."""


def caught(store: KnownBadStore, results: Mapping[str, str]) -> str:
    """Format a store's story, and which clauses caught it."""
    by = [clause for clause in store.breaks if results.get(clause) == "known"]
    missed = {clause: results.get(clause, "") for clause in store.breaks if clause not in by}
    story = textwrap.wrap(store.story, 116, initial_indent="  ", subsequent_indent="  ")
    names = (
        textwrap.wrap(f"caught by {', '.join(by)}", 116, initial_indent="  ", subsequent_indent="    ") if by else []
    )
    complaints = [
        f"  MISSED: {clause} {_MISSED.get(result, result)} on this known-bad store."
        for clause, result in missed.items()
    ]
    return "\n".join([store.name, *story, *names, *complaints])


def is_caught(store: KnownBadStore, results: Mapping[str, str]) -> bool:
    """Whether every clause that should catch the store did."""
    return bool(store.breaks) and all(results.get(clause) == "known" for clause in store.breaks)


def count(stores: Sequence[KnownBadStore], results: Results) -> tuple[str, bool]:
    """Return how many stores were caught, as text, and whether none got away."""
    caught_stores = [store for store in stores if is_caught(store, results[store.name])]
    untried = [store for store in stores if _has_no_server(store, results[store.name])]
    text = f"{len(caught_stores)} of {len(stores)} known-bad stores were caught by every clause that should catch them."
    if untried:
        text += f"\n{len(untried)} were not tried: no server. Run pip install 'pytest-wfstate[servers]'."
    return text, len(caught_stores) + len(untried) == len(stores)


def _has_no_server(store: KnownBadStore, results: Mapping[str, str]) -> bool:
    return store.server is not None and all(results.get(clause) == "skipped" for clause in store.breaks)


_KEY = """x broken, as named   . kept   ! broken, not named   o named, not broken
~ found by chance, by random calls or a storm   ? not measured   - skipped
"""


def _matrices(stores: Sequence[KnownBadStore], results: Results, *, is_whole: bool) -> tuple[str, bool]:
    """Return a matrix for each contract, and whether all is as named; `is_whole` if no store was left out."""
    paragraphs, problems = [], differences(stores, results)
    for contract in contract_names():
        own = [store for store in stores if store.contract == contract]
        if own:
            clauses = all_clauses(contract)
            paragraphs.append(f"{contract}\n{matrix(own, clauses, results)}\n")
            problems += without_store(own, clauses) if is_whole else []
    verdict = "\n".join(problems) or f"{len(stores)} known-bad stores break exactly the clauses that they name."
    return "\n".join([*paragraphs, _KEY, verdict]), not problems


def matrix(stores: Sequence[KnownBadStore], clauses: Sequence[Clause], results: Results) -> str:
    """Format stores against clauses, which are numbered: there is no room for their names."""
    width = max(len(store.name) for store in stores)
    legend = [f"{number:>3}  {clause.id}" for number, clause in enumerate(clauses, 1)]
    numbers = [f"{number:>3}" for number in range(1, len(clauses) + 1)]
    head = [f"{'':{width}}  {''.join(number[place] for number in numbers)}".rstrip() for place in range(3)]
    rows = [
        f"{store.name:{width}}  "
        + "".join(_mark(store, clause.id, results[store.name].get(clause.id, "")) for clause in clauses)
        for store in stores
    ]
    return "\n".join([*legend, "", *[line for line in head if line], *rows])


def _mark(store: KnownBadStore, clause: str, result: str) -> str:
    problem = _problem(store, clause, result)
    if problem:
        return problem
    if result == "failed":
        return "x" if clause in store.breaks else "~"
    return {"passed": ".", "not measured": "?"}.get(result, "-")


def _problem(store: KnownBadStore, clause: str, result: str) -> str:
    """Return the mark of a difference between a result and what the store names, or "" if there is none.

    Whether random calls or a storm meet a bug is a matter of luck. So a store names such a clause only if hardly any
    call succeeds on it, and it is not a problem if such a clause catches a store that does not name it.
    """
    if clause in store.breaks:
        is_untried = store.server is not None and result == "skipped"
        return "" if result == "failed" or is_untried else "o"
    return "!" if result == "failed" and not clause.endswith(BY_CHANCE) else ""


_PROBLEMS = {"o": "{} names {}, but does not break it", "!": "{} breaks {}, but does not name it"}


def differences(stores: Sequence[KnownBadStore], results: Results) -> list[str]:
    """Return where stores break other clauses than they name, a line each."""
    return [
        _PROBLEMS[problem].format(store.name, clause)
        for store in stores
        for clause in dict.fromkeys([*store.breaks, *results[store.name]])
        if (problem := _problem(store, clause, results[store.name].get(clause, "")))
    ]


def without_store(stores: Sequence[KnownBadStore], clauses: Sequence[Clause]) -> list[str]:
    """Return the clauses that no store names, a line each."""
    broken = {clause for store in stores for clause in store.breaks}
    return [f"no known-bad store breaks {clause.id}" for clause in clauses if clause.id not in broken]
