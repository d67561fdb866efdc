"""Clauses about removing a record, for contracts that name the call that does so."""

from __future__ import annotations

from typing import Any

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.engine.script import RESTART, Step, second_handle
from pytest_wfstate.suites.clauses import Test, script

__tracebackhide__ = True


def clauses_for(suite: Any) -> dict[str, Test]:
    """Make the clauses of a suite whose contract has a call that removes a record."""
    contract: Contract | None = vars(suite).get("contract")
    if contract is None or contract.remove is None:
        return {}
    write, remove, reads = contract.write, contract.remove, contract.reads
    a, b, removed = write("a", 1), write("b", 1), remove("a")
    look: list[Step] = [*reads(["a", "b"])]
    seen: list[Step] = [second_handle(read) for read in reads(["a", "b"])]
    near = ["a", "aa", "a-b", "b"]
    others: list[Step] = [*map(write, near, [1] * 4), removed, *reads(near), RESTART, *reads(near)]
    return {
        "test_remove_forgets": script("core", "A removed record is gone.", a, b, removed, *look, RESTART, *look),
        "test_remove_missing": script(
            "core",
            "Removing a record that is missing changes nothing.",
            *(removed, *look, b, removed, *look, a, removed, removed, *look, RESTART, *look),
        ),
        "test_remove_write_again": script(
            "safe",
            "A removed record can be saved again.",
            *(a, removed, *look, write("a", 2), *look, RESTART, *look),
        ),
        "test_remove_seen_at_once": script(
            "safe",
            "A record removed through one handle is gone for every other.",
            *(a, b, *seen, removed, *seen, second_handle(write("a", 2)), *look, second_handle(removed), *look),
        ),
        "test_remove_others": script("safe", "Removing a record affects no other.", *others),
    }
