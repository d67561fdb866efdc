"""A user's own contract is short: the one in docs/suites.md, which tests/examples runs, has fewer than 40 lines."""

from __future__ import annotations

from pathlib import Path

SUITES = Path(__file__).parents[3] / "docs" / "suites.md"


def test_a_contract_takes_less_than_40_lines() -> None:
    contract = SUITES.read_text().partition("class Reference:")[2].partition("class FileShelf:")[0]
    assert "Contract(" in contract
    assert len(contract.strip().splitlines()) < 40
