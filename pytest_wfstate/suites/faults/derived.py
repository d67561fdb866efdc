"""Races of a contract that names no race roles: each of its methods is a role, with arguments that it can have."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.suites.faults.race_run import RaceRole, sized

__tracebackhide__ = True

_CHOICES = 4


def race_roles_of(contract: Contract) -> dict[str, RaceRole]:
    """Return a role for each method of a contract: what makes a change does so to a record that exists."""
    return {operation.name: _role(contract, operation) for operation in contract.operations}


def _role(contract: Contract, operation: Operation) -> RaceRole:
    def write(id_: str, number: int) -> Sequence[Call]:
        return [contract.write(id_, sized(number))]

    if operation.name == contract.write("a", 1).name:
        return RaceRole(write)

    @functools.cache
    def calls(id_: str, number: int) -> Sequence[Call]:
        from pytest_wfstate.engine.random_calls import chosen_calls  # and hypothesis, which is slow

        chosen = chosen_calls([operation], [id_], _CHOICES, seed=number)
        # A worker that only looks does so twice, to see whether it goes back in time.
        return chosen[-1:] if operation.mutates else chosen[-1:] * 2

    return RaceRole(calls, write if operation.mutates else lambda _id, _number: ())
