"""`wfstate clauses`: the clauses as a list for a terminal, or as the document docs/clauses.md."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence

from pytest_wfstate.suites.clauses import Clause, clauses
from pytest_wfstate.suites.registry import contract_names, suite_named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("contract", nargs="?", help="only those of this contract, such as paused")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown document")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    chosen = all_clauses(arguments.contract)
    sys.stdout.write(f"{clause_document(chosen) if arguments.markdown else clause_list(chosen)}\n")
    return 0


def all_clauses(contract: str | None = None) -> list[Clause]:
    """Return the clauses of one contract, or of all.

    Raises:
        UnusableContract: there is no such contract, or it cannot be loaded.
    """
    names = contract_names() if contract is None else [contract]
    return [clause for name in names for clause in clauses(suite_named(name))]


def clause_list(chosen: Sequence[Clause]) -> str:
    """Format clauses, a line each."""
    width = max(len(clause.id) for clause in chosen)
    return "\n".join(f"{each.id:{width}}  {each.level:8}  {each.fault:6}  {each.promise}" for each in chosen)


def clause_document(chosen: Sequence[Clause]) -> str:
    """Format clauses as a document with a table for each contract."""
    return "\n".join(["# Clauses", "", "What `wfstate clauses --markdown` prints.", *_tables(chosen)])


def _tables(chosen: Sequence[Clause]) -> Iterator[str]:
    for contract, group in itertools.groupby(chosen, lambda clause: clause.id.split(".")[0]):
        yield from ["", f"## {contract.capitalize()}", "", "| clause | level | fault | promise |", "|---|---|---|---|"]
        yield from (f"| `{each.id}` | {each.level} | {each.fault} | {each.promise} |" for each in group)
