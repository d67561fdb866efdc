"""The document that lists the clauses is what the command prints."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate.cli.check import all_clauses
from pytest_wfstate.cli.clauses import clause_document
from pytest_wfstate.report.scorecard import Item, Row, scorecard
from pytest_wfstate.suites import SUITES

ROOT = Path(__file__).parents[3]


def test_the_document_lists_every_clause() -> None:
    written = (ROOT / "docs" / "clauses.md").read_text()
    assert written == clause_document(all_clauses()) + "\n", "run: wfstate clauses --markdown > docs/clauses.md"


def test_the_scorecard_in_the_readme_counts_every_clause() -> None:
    stores = {f"{name}.file": all_clauses(name) for name in SUITES}
    rows = [
        Row(name, [Item(name, one.id, one.level, "passed") for one in found if one.fault != "server"])
        for name, found in stores.items()
    ]
    assert f"```text\n{scorecard(rows)}\n```" in (ROOT / "README.md").read_text()


def test_a_clause_has_an_id_of_its_own_and_a_sentence() -> None:
    found = all_clauses()
    assert len({clause.id for clause in found}) == len(found)
    assert all(clause.promise[0].isupper() and clause.promise.endswith(".") for clause in found)
