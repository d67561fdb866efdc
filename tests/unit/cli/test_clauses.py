"""`wfstate clauses`, and the documents that show what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_wfstate.cli.clauses import all_clauses, clause_document
from pytest_wfstate.cli.main import main
from pytest_wfstate.report.scorecard import Item, Row, scorecard
from pytest_wfstate.suites import SUITES
from pytest_wfstate.suites.clauses import Clause
from tests.unit.cli.conftest import cells

ROOT = Path(__file__).parents[3]


def test_the_document_lists_every_clause() -> None:
    written = (ROOT / "docs" / "clauses.md").read_text()
    assert written == clause_document(all_clauses()) + "\n", "run: wfstate clauses --markdown > docs/clauses.md"


def is_applicable(store: str, clause: Clause) -> bool:
    """Whether a clause asks anything of a file store: it has no server, its lists are plain, and some have to block."""
    blocks = store not in ("effects.file", "snapshots.file", "runs.file")
    return (
        clause.fault != "server" and not clause.id.endswith(".half-read") and not (blocks and clause.fault == "cancel")
    )


def test_the_scorecard_in_the_readme_counts_every_clause() -> None:
    stores = {f"{name}.file": all_clauses(name) for name in SUITES}
    rows = [
        Row(name, [Item(name, clause.id, clause.level, "passed") for clause in clauses if is_applicable(name, clause)])
        for name, clauses in stores.items()
    ]
    assert f"```text\n{scorecard(rows)}\n```" in (ROOT / "README.md").read_text()


def test_a_clause_has_an_id_of_its_own_and_a_sentence() -> None:
    clauses = all_clauses()
    assert len({clause.id for clause in clauses}) == len(clauses)
    assert all(clause.promise[0].isupper() and clause.promise.endswith(".") for clause in clauses)


@pytest.mark.parametrize("contract", [*SUITES, None])
def test_clauses_are_listed_with_level_fault_and_promise(
    capsys: pytest.CaptureFixture[str], contract: str | None
) -> None:
    assert main(["clauses", *([contract] if contract else [])]) == 0
    expected = [[clause.id, clause.level, clause.fault, clause.promise] for clause in all_clauses(contract)]
    assert [cells(line) for line in capsys.readouterr().out.splitlines()] == expected
