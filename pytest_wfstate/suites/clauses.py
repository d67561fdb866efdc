"""Clauses: the promises of a contract, each with an id, a level, a sentence, and the test that holds a store to it.

The id is what reports, `-k`, the documentation and `known_failures` go by. It follows from the name of the test:
`test_claim_one_winner` of the paused contract is `paused.claim.one-winner`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

Level = Literal["core", "safe", "hardened"]
Fault = Literal["none", "input", "kill", "power", "errors", "race", "server"]
Medium = Literal["disk", "server", "memory"]

LEVELS: tuple[Level, ...] = ("core", "safe", "hardened")
MEDIA: tuple[Medium, ...] = ("disk", "server", "memory")

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True)
class Clause:
    """One promise."""

    id: str
    level: Level
    fault: Fault
    promise: str
    test: str
    """The name of the method that tests it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _ClauseMark:
    level: Level
    fault: Fault
    text: str


def clause(level: Level, promise: str, fault: Fault = "none") -> Callable[[F], F]:
    """Make a test method of a suite a clause."""

    def mark(test: F) -> F:
        test.__dict__["wfstate_promise"] = _ClauseMark(level, fault, promise)
        test.__doc__ = promise
        return test

    return mark


def clauses(suite: type) -> Iterator[Clause]:
    """Give the clauses of a suite, core first, in the order in which they are written."""
    found = {name: test for base in reversed(suite.__mro__) for name, test in vars(base).items() if _promise(test)}
    made = [clause_of(suite, test, name) for name, test in found.items()]
    yield from sorted((one for one in made if one), key=lambda one: LEVELS.index(one.level))


def clause_of(suite: Any, test: Any, name: str) -> Clause | None:
    """Give the clause that a method of a suite tests, if it tests one."""
    promise = _promise(test)
    if promise is None:
        return None
    topic, *rest = name.removeprefix("test_").split("_")
    return Clause(f"{suite.contract.name}.{topic}.{'-'.join(rest)}", promise.level, promise.fault, promise.text, name)


def _promise(test: Any) -> _ClauseMark | None:
    found = getattr(test, "wfstate_promise", None)
    return found if isinstance(found, _ClauseMark) else None
