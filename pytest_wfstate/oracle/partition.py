"""Histories in parts: calls that have nothing to do with each other are explained apart, for that is cheaper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Any

from pytest_wfstate.contracts.base import Contract, Operation
from pytest_wfstate.oracle.history import Entry, Forgotten, Returned
from pytest_wfstate.oracle.linearize import Unexplained, check
from pytest_wfstate.oracle.model import ReferenceModel


def explain(
    entries: Iterable[Entry], contract: Contract, normalise: Callable[[Any], Any] = lambda record: record
) -> Unexplained | None:
    """Look for an order in which the contract's reference gives every result; give what has none, or None."""
    found = (check(part, ReferenceModel(contract, normalise)) for part in parts(list(entries), contract))
    return next((unexplained for unexplained in found if unexplained is not None), None)


def parts(entries: Sequence[Entry], contract: Contract) -> list[list[Entry]]:
    """Split a history into parts that share no id. One call that depends on all of them keeps it whole."""
    if any(contract[entry.name].keys is None for entry in entries):
        return [list(entries)]
    return [part for _, part in _groups(entries, contract)]


def shares(entries: Sequence[Entry], contract: Contract) -> list[list[Entry]]:
    """Split a history into parts that share no id, each with its share of the calls that depend on all.

    It is for histories too long to be judged whole: a list may have seen one id sooner than another, and a recovery
    may have come to them one by one.
    """
    if any(contract[entry.name].keys is None and contract[entry.name].project is None for entry in entries):
        return [list(entries)]
    of_all = [entry for entry in entries if contract[entry.name].keys is None]
    others = [entry for entry in entries if contract[entry.name].keys is not None]
    return [
        [*part, *(_share(entry, contract[entry.name], ids) for entry in of_all)]
        for ids, part in _groups(others, contract)
    ]


def _groups(entries: Sequence[Entry], contract: Contract) -> list[tuple[set[Hashable], list[Entry]]]:
    """Give the ids that calls connect with each other, and those calls."""
    groups: dict[Hashable, tuple[set[Hashable], list[Entry]]] = {}
    for entry in entries:
        ids = set(_keys(entry, contract)) or {None}
        joined = [groups[one] for one in ids if one in groups]
        whole = (ids.union(*(some for some, _ in joined)), _in_one(part for _, part in joined))
        whole[1].append(entry)
        groups |= dict.fromkeys(whole[0], whole)
    return list({id(group): group for group in groups.values()}.values())


def _in_one(some: Iterable[list[Entry]]) -> list[Entry]:
    """Join lists, each once, into the first of them."""
    first, *others = {id(part): part for part in some}.values() or [[]]
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
    made = [entry.outcome.value] if operation.generates_id and isinstance(entry.outcome, Returned) else []
    return [*operation.keys(*entry.args), *made]
