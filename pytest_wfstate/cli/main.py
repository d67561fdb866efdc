"""The `wfstate` command: checks stores, lists clauses, shows the zoo. It only reads what was asked for and prints."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from pytest_wfstate.cli.check import Unusable, all_clauses, animals, shipped, targets
from pytest_wfstate.cli.clauses import clause_document, clause_list
from pytest_wfstate.cli.sessions import Session, run
from pytest_wfstate.cli.zoo import KEY, Tour, count, differences, matrix, without_animal
from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.report.progress import Progress
from pytest_wfstate.report.scorecard import scorecard, violations
from pytest_wfstate.suites import SUITES
from pytest_wfstate.suites.clauses import LEVELS, MEDIA
from pytest_wfstate.zoo import KNOWN_BAD_STORES, KnownBadStore
from pytest_wfstate.zoo.suites import suite_of

CLEAN, VIOLATED, UNUSABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. It gives 0 if all is well, 1 if a store breaks a promise, 2 if the command makes no sense."""
    asked = _parser().parse_args(arguments)
    try:
        return int(asked.run(asked))
    except Unusable as error:
        sys.stderr.write(f"wfstate {asked.command}: {error}\n")
        return UNUSABLE
    except KeyboardInterrupt:
        sys.stderr.write("wfstate: interrupted\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wfstate", description="Proves what stores of durable agents promise.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="hold stores to their contracts, and print a scorecard")
    check.set_defaults(run=_check)
    check.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help=f"a store ({', '.join(shipped())}), or package.module:name of a factory(home) or a suite. One on a "
        "server may have its URL: paused.redis:redis://localhost. "
        "None: all stores on files.",
    )
    check.add_argument("--contract", choices=SUITES, help="what a factory's stores are stores of")
    check.add_argument("--medium", choices=MEDIA, help="where a factory's stores keep their state (disk)")
    check.add_argument("--level", choices=LEVELS, help="the highest level to ask for (hardened)")
    check.add_argument("--profile", choices=PROFILES, default="default", help="how much to try (default)")
    check.add_argument("-k", metavar="EXPRESSION", dest="keyword", help="only these clauses, as in pytest -k")
    check.add_argument("--jobs", type=int, metavar="N", help="how many stores to check at once (one per processor)")
    listed = commands.add_parser("clauses", help="list the promises of the contracts")
    listed.set_defaults(run=_clauses)
    listed.add_argument("contract", nargs="?", choices=SUITES)
    listed.add_argument("--markdown", action="store_true", help="as a document")
    zoo = commands.add_parser("zoo", help="show stores that are known to be bad, and what catches them")
    zoo.set_defaults(run=_zoo)
    zoo.add_argument("names", nargs="*", metavar="NAME", help="only animals whose names begin so, such as paused")
    zoo.add_argument("--contract", choices=SUITES, help="only animals of this contract")
    zoo.add_argument("--full", action="store_true", help="try every clause, and print the matrix")
    zoo.add_argument("--jobs", type=int, metavar="N", help="how many processes to run at once (one per processor)")
    return parser


def _check(asked: argparse.Namespace) -> int:
    found = targets(asked.targets, asked.contract, level=asked.level, medium=asked.medium)
    names = {target.suite: target.name for target in found}
    options = [
        f"--wfstate-profile={asked.profile}",
        "--wfstate-servers=required",
        *(["-k", asked.keyword] if asked.keyword else []),
    ]
    progress = Progress(names, sys.stdout)
    try:
        rows = run([target.session for target in found], options, progress.heard, asked.jobs)
    finally:
        progress.clear()
    rows = [dataclasses.replace(row, name=names[row.name]) for row in rows]
    if not rows:
        raise Unusable(
            f"-k {asked.keyword!r} chooses no clause. It was looked for in those of {', '.join(names.values())}. "
            "`wfstate clauses` lists them."
        )
    _say(scorecard(rows))
    if all(row.is_clean for row in rows):
        return CLEAN
    _say(f"\n{violations(rows)}")
    return VIOLATED


def _clauses(asked: argparse.Namespace) -> int:
    found = all_clauses(asked.contract)
    _say(clause_document(found) if asked.markdown else clause_list(found))
    return CLEAN


def _zoo(asked: argparse.Namespace) -> int:
    own = [animal for animal in KNOWN_BAD_STORES if asked.contract in (None, animal.contract)]
    some = [animal for animal in own if not asked.names or animal.name.startswith(tuple(asked.names))]
    if not some:
        raise Unusable(
            f"no animal's name begins with {' or '.join(asked.names)}. There are {len(own)}, of the contracts "
            f"{asked.contract or ', '.join(SUITES)}. `wfstate zoo` shows them all."
        )
    names = {suite_of(animal, SUITES).__name__: animal.name for animal in some}
    progress = Progress(dict.fromkeys(names, "zoo"), sys.stdout)
    tour = Tour(some, names, lambda text: None if asked.full else progress.say(text))

    def heard(what: str, value: Any) -> None:
        progress.heard(what, value)
        tour.heard(what, value)

    try:
        run(_sessions(some, full=asked.full), ["--wfstate-profile=quick"], heard, asked.jobs)
    finally:
        progress.clear()
    if asked.full:
        return _matrix(some, tour.results, is_whole=not asked.names)
    tour.end()
    told, is_clean = count(some, tour.results)
    _say(told)
    return CLEAN if is_clean else VIOLATED


def _matrix(some: Sequence[KnownBadStore], found: dict[str, dict[str, str]], *, is_whole: bool) -> int:
    """Show what became of every clause; `is_whole` says that no animal of these contracts was left out."""
    contracts = [contract for contract in SUITES if any(animal.contract == contract for animal in some)]
    wrong = differences(some, found)
    for contract in contracts:
        own, its_clauses = [animal for animal in some if animal.contract == contract], all_clauses(contract)
        _say(f"{contract}\n{matrix(own, its_clauses, found)}\n")
        wrong += without_animal(own, its_clauses) if is_whole else []
    _say(KEY)
    _say("\n".join(["", *wrong]) if wrong else f"{len(some)} animals break exactly what they are said to break.")
    return VIOLATED if wrong else CLEAN


def _sessions(some: Sequence[KnownBadStore], *, full: bool) -> list[Session]:
    """Share the animals out: if each takes long, a few to a session, so that all processes have work to the end."""
    number = math.ceil(len(some) / _FEW) if full else min(len(some), os.cpu_count() or 1)
    return [animals(some[first::number], full=full) for first in range(number)]


_FEW = 4
"""Animals that share a session: to start one for each would take a second each time."""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
