"""An animal: a store that is known to be bad, and in what way."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pytest_wfstate.zoo._json import STORES

S = TypeVar("S", bound=type)


@dataclasses.dataclass(frozen=True, slots=True)
class Animal:
    """A store with a bug, its story, and the clauses that it breaks."""

    name: str
    contract: str
    story: str
    breaks: tuple[str, ...]
    """All clauses that it breaks, by id."""
    open: Callable[[Path], Any]


ANIMALS: list[Animal] = []


def animal(contract: str, *breaks: str) -> Callable[[S], S]:
    """Take a store class into the zoo: its docstring is its story, and it is opened with its home.

    `breaks` names the clauses without the contract, one or several in a string: `"claim.one-winner claim.takes"`.
    """

    def take(store: S) -> S:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", store.__name__).lower()
        story = " ".join((store.__doc__ or "").split())
        ANIMALS.append(Animal(f"{contract}.{name}", contract, story, _ids(contract, breaks), store))
        return store

    return take


def trait(**breaks: str) -> Callable[[S], S]:
    """Take a bug into the zoo that stores of several contracts can have: each contract that is named gets an animal.

    The class is mixed into the store of the contract; its docstring is the story of them all.
    """

    def take(bug: S) -> S:
        for contract, some in breaks.items():
            animal(contract, some)(type(bug.__name__, (bug, STORES[contract]), {"__doc__": bug.__doc__}))
        return bug

    return take


def _ids(contract: str, breaks: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{contract}.{one}" for some in breaks for one in some.split())
