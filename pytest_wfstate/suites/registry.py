"""Suites by the name of their contract: those of this package, and those that installed packages register.

A package registers a suite as an entry point of the group `pytest_wfstate.contracts`, and a module of known-bad stores
as one of the group `pytest_wfstate.zoo`, both by the name of the contract.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.suites import SUITES, Suite

CONTRACTS = "pytest_wfstate.contracts"
ZOO = "pytest_wfstate.zoo"


class UnusableContract(WfstateError, LookupError, public=False):
    """No contract has this name, or the package that registers it is broken."""


def contract_names() -> list[str]:
    """Return the names of all contracts: those of this package first."""
    return list(dict.fromkeys([*SUITES, *sorted(entry.name for entry in _entries(CONTRACTS))]))


def suite_named(contract: str) -> type[Suite]:
    """Return the suite of a contract.

    Raises:
        UnusableContract: there is none of this name, or more than one, or it cannot be loaded.
    """
    entries = _entries(CONTRACTS, contract)
    if contract in SUITES and not entries:
        return SUITES[contract]
    if not entries:
        raise UnusableContract(
            f"there is no contract {contract!r}. Looked at those of this package and at the entry points of the group "
            f"{CONTRACTS}: {', '.join(contract_names())}. Use one of these, or install the package that registers "
            f"{contract!r} where wfstate runs."
        )
    if contract in SUITES or len(entries) > 1:
        places = ["pytest-wfstate"] * (contract in SUITES) + [_place(entry) for entry in entries]
        raise UnusableContract(
            f"more than one contract is called {contract!r}. Looked at the entry points of the group {CONTRACTS}: it "
            f"is one of {' and of '.join(places)}. Uninstall all but one, or rename its contract."
        )
    suite = load(entries[0])
    if not (isinstance(suite, type) and issubclass(suite, Suite)):
        raise _unusable(entries[0], f"is {suite!r}, which is not a suite", "Name a subclass of Suite")
    own = getattr(getattr(suite, "contract", None), "name", None)
    if own != contract:
        what = "has no contract" if own is None else f"is the suite of the contract {own!r}"
        raise _unusable(entries[0], what, "Register a suite by the name of its contract")
    return suite


def registered_zoos(contracts: Sequence[str]) -> list[EntryPoint]:
    """Return the modules of known-bad stores that packages register for some contracts.

    Raises:
        UnusableContract: one is registered for a contract that there is not.
    """
    entries, names = _entries(ZOO), contract_names()
    for entry in entries:
        if entry.name not in names:
            raise _unusable(entry, "is for a contract that is not registered", f"Register it in the group {CONTRACTS}")
    return [entry for entry in entries if entry.name in contracts]


def load(entry: EntryPoint) -> Any:
    """Return what an entry point names.

    Raises:
        UnusableContract: that cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:
        raise _unusable(entry, f"cannot be loaded: {type(error).__name__}: {error}", "Fix the package") from error


def _entries(group: str, name: str | None = None) -> list[EntryPoint]:
    entries = importlib.metadata.entry_points(group=group)
    return [entry for entry in entries if name in (None, entry.name)]


def _place(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist else "an unknown package"
    return f"{package} ({entry.name} = {entry.value})"


def _unusable(entry: EntryPoint, what: str, advice: str) -> UnusableContract:
    return UnusableContract(
        f"what {_place(entry)} registers {what}. Looked at the entry points of the group {entry.group}. {advice}, or "
        "uninstall it."
    )
