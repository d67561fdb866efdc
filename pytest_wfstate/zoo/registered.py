"""The known-bad stores of this package, and those that other packages register for contracts of their own."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_wfstate import zoo
from pytest_wfstate.suites.registry import load, registered_zoos
from pytest_wfstate.zoo.base import KnownBadStore


def known_bad_stores(contracts: Sequence[str]) -> list[KnownBadStore]:
    """Return all known-bad stores, once the modules that are registered for some contracts have added theirs.

    Raises:
        UnusableContract: a module cannot be imported.
    """
    for module in registered_zoos(contracts):
        load(module)
    return list(zoo.KNOWN_BAD_STORES)
