"""What is asked of animals if nothing is said: faults take their time, and many animals are caught by the same ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from pytest_wfstate.cli.check import all_clauses
from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.suites import SUITES
from pytest_wfstate.zoo import ANIMALS, Animal

_SLOW = {"kill", "power", "errors", "race", "server"}


@pytest.fixture(scope="session", autouse=True)
def _time_enough() -> Iterator[None]:
    """Bound what is tried by number alone, so that a slow machine catches as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "quick", dataclasses.replace(PROFILES["quick"], seconds=60))
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Try each slow clause on one animal, each animal on one slow clause and one that it keeps.

    A --wfstate-profile on the command line asks for all.
    """
    if config.getoption("--wfstate-profile") is not None:
        return
    left_out = (_slow() - _chosen()) | _kept()
    away = {item for item in items if "unit/zoo/" in item.nodeid and _pair(item) in left_out}
    if away:
        config.hook.pytest_deselected(items=list(away))
        items[:] = [item for item in items if item not in away]


def _slow() -> set[tuple[str, str]]:
    """Give animals and the slow clauses that each breaks."""
    slow = {clause.id for clause in all_clauses() if clause.fault in _SLOW}
    return {(animal.story, clause) for animal in ANIMALS for clause in animal.breaks if clause in slow}


def _chosen() -> set[tuple[str, str]]:
    """Choose for each clause the animal that breaks the fewest others, and for each animal its first clause."""
    by_care = sorted(ANIMALS, key=lambda animal: len(animal.breaks), reverse=True)
    of_clause: dict[str, Animal] = {clause: animal for animal in by_care for clause in animal.breaks}
    return {(animal.story, clause) for clause, animal in of_clause.items()} | {
        (animal.story, animal.breaks[0]) for animal in ANIMALS
    }


def _kept() -> set[tuple[str, str]]:
    """Give animals and the clauses of the core that each keeps, but for the first: that it does work is enough."""
    core = {contract: [one.id for one in all_clauses(contract) if one.level == "core"] for contract in SUITES}
    kept = {animal: [one for one in core[animal.contract] if one not in animal.breaks] for animal in ANIMALS}
    return {(animal.story, clause) for animal, clauses in kept.items() for clause in clauses[1:]}


def _pair(item: pytest.Item) -> tuple[str, str]:
    suite = getattr(item, "cls", None)
    return str(suite.__doc__) if suite else "", str(dict(item.user_properties).get("wfstate_clause"))
