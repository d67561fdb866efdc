"""Clauses, listed: for a terminal, and as the document that the repository holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pytest_wfstate.suites.clauses import Clause


def clause_list(clauses: Sequence[Clause]) -> str:
    """List clauses, a line each."""
    width = max(len(clause.id) for clause in clauses)
    return "\n".join(f"{one.id:{width}}  {one.level:8}  {one.fault:6}  {one.promise}" for one in clauses)


def clause_document(clauses: Sequence[Clause]) -> str:
    """Give a document with a table for each contract."""
    return "\n".join(["# Clauses", "", "What `wfstate clauses --markdown` prints.", *_tables(clauses)])


def _tables(clauses: Sequence[Clause]) -> Iterator[str]:
    for contract, some in itertools.groupby(clauses, lambda clause: clause.id.split(".")[0]):
        yield from ["", f"## {contract.capitalize()}", "", "| clause | level | fault | promise |", "|---|---|---|---|"]
        yield from (f"| `{one.id}` | {one.level} | {one.fault} | {one.promise} |" for one in some)
