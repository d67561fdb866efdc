"""Partition: splits a history into parts that share no id, each of which is judged alone, which costs much less."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Hashable, Iterable, Sequence
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.oracle.history import Entry, Forgotten, Returned


def parts(entries: Sequence[Entry], contract: Contract) -> list[list[Entry]]:
    """Split a history into parts that share no id. A single call that depends on every id keeps it whole."""
    if any(_is_of_all(entry, contract) for entry in entries):
        return [list(entries)]
    return [part for _, part in _groups(entries, contract)]


def is_divisible(contract: Contract, calls: Iterable[Call] = ()) -> bool:
    """Whether `shares` can divide its histories, made of calls such as these.

    Each call has ids, or its result can be divided by id. None may change all ids, except for a recovery: once that was
    called, calling it again changes nothing that an earlier round has left.
    """
    without_ids = [operation for operation in contract.operations if operation.keys is None]
    return all(_has_shares(operation, contract) for operation in without_ids) and all(
        has_shares(call, contract) for call in calls
    )


def has_shares(call: Call, contract: Contract) -> bool:
    """Whether a call has ids, or can be divided by id."""
    operation = contract[call.name]
    return operation.keys_of(call.args) is not None or _has_shares(operation, contract)


def _has_shares(operation: Operation, contract: Contract) -> bool:
    is_recovery = contract.recovery is not None and operation.name == contract.recovery.name
    return operation.project is not None and (not operation.mutates or is_recovery)


def shares(entries: Sequence[Entry], contract: Contract) -> list[tuple[set[Hashable], list[Entry]]]:
    """Split a history into parts that share no id, each with its share of the calls that depend on every id.

    This is for histories too long to be judged whole, of a contract that `is_divisible`. It is weaker: a list may have
    seen one id earlier than another, and a recovery may have reached them one by one.
    """
    of_all = [entry for entry in entries if _is_of_all(entry, contract)]
    others = [entry for entry in entries if not _is_of_all(entry, contract)]
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


def _is_of_all(entry: Entry, contract: Contract) -> bool:
    return contract[entry.name].keys_of(entry.args) is None


def _share(entry: Entry, operation: Operation, ids: Container[Any]) -> Entry:
    if operation.project is None or not isinstance(entry.outcome, Returned):
        return entry
    if operation.unspecified is not None:  # a part of the state does not show whether it is
        return dataclasses.replace(entry, outcome=Forgotten())
    share = operation.project(entry.outcome.value, ids)
    return dataclasses.replace(entry, outcome=Forgotten() if share is ... else Returned(share))


def _keys(entry: Entry, contract: Contract) -> list[Hashable]:
    operation = contract[entry.name]
    generated = [entry.outcome.value] if operation.generates_id and isinstance(entry.outcome, Returned) else []
    return [*(operation.keys_of(entry.args) or ()), *generated]
