"""Histories in parts: calls that have nothing to do with each other are explained apart, for that is cheaper."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.oracle.history import Entry, Returned
from pytest_wfstate.oracle.linearize import Unexplained, check
from pytest_wfstate.oracle.specification import Specification


def explain(
    entries: Iterable[Entry], contract: Contract, normalise: Callable[[Any], Any] = lambda record: record
) -> Unexplained | None:
    """Look for an order in which the contract's reference gives every result; give what has none, or None."""
    found = (check(part, Specification(contract, normalise)) for part in parts(list(entries), contract))
    return next((unexplained for unexplained in found if unexplained is not None), None)


def parts(entries: Sequence[Entry], contract: Contract) -> list[list[Entry]]:
    """Split a history into parts that share no key. One call that depends on all of them keeps it whole."""
    keys = [_keys(entry, contract) for entry in entries]
    if any(one is None for one in keys):
        return [list(entries)]
    group: dict[Hashable, Hashable] = {}

    def leader(key: Hashable) -> Hashable:
        while group.setdefault(key, key) != key:
            key = group[key]
        return key

    for some in keys:
        first, *others = some or [None]
        for other in others:
            group[leader(other)] = leader(first)
    found: dict[Hashable, list[Entry]] = {}
    for entry, some in zip(entries, keys, strict=True):
        found.setdefault(leader((some or [None])[0]), []).append(entry)
    return list(found.values())


def _keys(entry: Entry, contract: Contract) -> list[Hashable] | None:
    operation = contract[entry.name]
    if operation.keys is None:
        return None
    made = [entry.outcome.value] if operation.invents and isinstance(entry.outcome, Returned) else []
    return [*operation.keys(*entry.args), *made]
