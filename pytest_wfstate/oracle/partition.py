"""Partition: splits a history into parts that share no id, each of which is judged alone, which costs much less."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Hashable, Iterable, Sequence
from typing import Any

from pytest_wfstate.contracts.base import Contract, Operation
from pytest_wfstate.oracle.history import Entry, Forgotten, Returned


def parts(entries: Sequence[Entry], contract: Contract) -> list[list[Entry]]:
    """Split a history into parts that share no id. A single call that depends on every id keeps it whole."""
    if any(contract[entry.name].keys is None for entry in entries):
        return [list(entries)]
    return [part for _, part in _groups(entries, contract)]


def is_divisible(contract: Contract) -> bool:
    """Whether `shares` can divide its histories.

    Each operation has ids, or its result can be divided by id. None may change all ids, except for a recovery: once
    that was called, calling it again changes nothing that an earlier round has left.
    """
    recovery = contract.recovery.name if contract.recovery else None
    return all(
        operation.keys is not None
        or (operation.project is not None and (not operation.mutates or operation.name == recovery))
        for operation in contract.operations
    )


def shares(entries: Sequence[Entry], contract: Contract) -> list[tuple[set[Hashable], list[Entry]]]:
    """Split a history into parts that share no id, each with its share of the calls that depend on every id.

    This is for histories too long to be judged whole, of a contract that `is_divisible`. It is weaker: a list may have
    seen one id earlier than another, and a recovery may have reached them one by one.
    """
    of_all = [entry for entry in entries if contract[entry.name].keys is None]
    others = [entry for entry in entries if contract[entry.name].keys is not None]
    return [
        (ids, [*part, *(_share(entry, contract[entry.name], ids) for entry in of_all)])
        for ids, part in _groups(others, contract)
    ]


def _groups(entries: Sequence[Entry], contract: Contract) -> list[tuple[set[Hashable], list[Entry]]]:
    """Return sets of ids that calls connect with each other, each with those calls."""
    groups: dict[Hashable, tuple[set[Hashable], list[Entry]]] = {}
    for entry in entries:
        ids = set(_keys(entry, contract)) or {None}
        joined = [groups[id_] for id_ in ids if id_ in groups]
        group = (ids.union(*(others for others, _ in joined)), _merged(part for _, part in joined))
        group[1].append(entry)
        groups |= dict.fromkeys(group[0], group)
    return list({id(group): group for group in groups.values()}.values())


def _merged(parts_: Iterable[list[Entry]]) -> list[Entry]:
    """Merge lists, each once, into the first of them."""
    first, *others = {id(part): part for part in parts_}.values() or [[]]
    for part in others:
        first += part
    return first


def _share(entry: Entry, operation: Operation, ids: Container[Any]) -> Entry:
    if operation.project is None or not isinstance(entry.outcome, Returned):
        return entry
    share = operation.project(entry.outcome.value, ids)
    return dataclasses.replace(entry, outcome=Forgotten() if share is ... else Returned(share))


def _keys(entry: Entry, contract: Contract) -> list[Hashable]:
    operation = contract[entry.name]
    assert operation.keys is not None
    generated = [entry.outcome.value] if operation.generates_id and isinstance(entry.outcome, Returned) else []
    return [*operation.keys(*entry.args), *generated]
