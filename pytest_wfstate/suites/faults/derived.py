"""Races of a contract that names no race roles: each of its methods is a role, with arguments that it can have."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.suites.faults.race_run import RaceRole, sized

__tracebackhide__ = True

_CHOICES = 4


class DerivedRoles(dict[str, RaceRole]):
    """A role for each method of a contract. A suite that has them also kills racers, and has a storm."""


def race_roles_of(contract: Contract, /, **refined: RaceRole) -> DerivedRoles:
    """Return a role for each method of a contract: the one given, or one that makes a change to a record that exists.

    Raises:
        InvalidSetting: the contract has no method of the name of a given role.
    """
    names = [operation.name for operation in contract.operations]
    unknown = [name for name in refined if name not in names]
    if unknown:
        raise InvalidSetting(
            f"The {contract.name} contract has no method {unknown[0]!r}, which was given a race role. Its methods are: "
            f"{', '.join(names)}."
        )
    return DerivedRoles({name: refined.get(name) or _role(contract, contract[name]) for name in names})


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
