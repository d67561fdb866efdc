"""Clauses: the promises of a contract, each with an id, a level, a sentence, and the test that checks it.

Reports, `-k`, the documentation and `known_failures` use the id. It follows from the name of the test:
`test_claim_one_winner` of the paused contract is `paused.claim.one-winner`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from pytest_wfstate.contracts.base import is_refusal
from pytest_wfstate.engine import driver
from pytest_wfstate.engine.script import Later, Step, Tick
from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.labs.storm import Medium

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True

Level = Literal["core", "safe", "hardened"]
ClockSource = Literal["process", "foreign"]
"""Where a store reads the time: in its process, where it can be frozen, or elsewhere, as from a server or a file."""
Fault = Literal["none", "input", "kill", "power", "errors", "race", "server", "cancel"]

LEVELS: tuple[Level, ...] = get_args(Level)
MEDIA: tuple[Medium, ...] = get_args(Medium)
CLOCKS: tuple[ClockSource, ...] = get_args(ClockSource)

FEATURES = {
    "replace": "saving a record again replaces it",
    "order": "lists are in the order that the contract promises",
    "recover": "a run whose worker died can be recovered",
    "first-use": "two processes can use a new store for the first time at once",
}
"""What a store may not support by design, and say so in `unsupported`."""

NOT_APPLICABLE = "not applicable"
"""How the reason begins for skipping a clause that means nothing for a medium."""
NOT_SUPPORTED = driver.NOT_SUPPORTED

NO_CLAUSE: Any = None
"""Takes the place of a clause of all suites in the suite of a contract for which it means nothing."""

F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[["Suite"], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Clause:
    """One promise."""

    id: str
    level: Level
    fault: Fault
    promise: str
    test: str
    """The name of the method that tests it."""
    needs: str = ""
    """The feature that it is about, of `FEATURES`."""

    @property
    def title(self) -> str:
        """The first line of a report about it."""
        return f"{self.id}: {self.promise}"


def clause(level: Level, promise: str, fault: Fault = "none", *, needs: str = "") -> Callable[[F], F]:
    """Mark a test method of a suite as a clause."""

    def mark(test: F) -> F:
        test.__dict__["wfstate_clause"] = functools.partial(
            Clause, level=level, fault=fault, promise=promise, needs=needs
        )
        test.__doc__ = promise
        return test

    return mark


def script(level: Level, promise: str, *steps: Step | Later, fault: Fault = "none", needs: str = "") -> Test:
    """Make a clause of calls: every store must return what the reference returns."""

    @clause(level, promise, fault, needs=needs)
    def test(self: Suite) -> None:
        self.context.play(steps)

    return test


def timed(level: Level, promise: str, *steps: Step | Later | Tick) -> Test:
    """Make a clause of calls while the clock is frozen. It is not applicable to a store with a foreign clock."""

    @clause(level, promise)
    def test(self: Suite) -> None:
        self.context.play_in_time(steps)

    return test


def clauses(suite: type) -> Iterator[Clause]:
    """Yield the clauses of a suite, core first, in the order in which they are written.

    One that is `NO_CLAUSE` in the suite of a contract is none of that contract.
    """
    tests = {name: test for base in reversed(suite.__mro__) for name, test in vars(base).items()}
    unsorted = filter(None, (clause_of(suite, test, name) for name, test in tests.items()))
    yield from sorted(unsorted, key=lambda clause: LEVELS.index(clause.level))


def clause_of(suite: Any, test: Any, name: str) -> Clause | None:
    """Return the clause that a method of a suite tests, if it tests one."""
    if not _is_clause(test):
        return None
    topic, *rest = name.removeprefix("test_").split("_")
    clause: Clause = test.wfstate_clause(id=f"{suite.contract.name}.{topic}.{'-'.join(rest)}", test=name)
    return clause


def check_settings(suite: Any) -> None:
    """Check the class attributes of a suite when its class is made: a bad one would fail every test, or none.

    Raises:
        InvalidSetting: an attribute has a value that means nothing.
    """
    known: Sequence[str]
    for name, known in (("medium", MEDIA), ("level", LEVELS), ("clock", CLOCKS)):
        value = getattr(suite, name)
        if value not in known:
            raise InvalidSetting(f"{name} of {suite.__name__} is {value!r}. Choose one of: {', '.join(known)}.")
    entries = suite.known_failures
    unknown = [name for name in suite.unsupported if name not in FEATURES]
    if unknown:
        raise InvalidSetting(
            f"unsupported of {suite.__name__} names {unknown[0]!r}. A store may leave out: "
            f"{', '.join(f'{name!r} ({what})' for name, what in FEATURES.items())}. If it lacks a method, leave that "
            "out of the class: its clauses are skipped."
        )
    if not all(map(is_refusal, suite.refusals)):
        raise InvalidSetting(
            f"refusals of {suite.__name__} is {suite.refusals!r}. It must be a tuple of classes by which the store "
            "refuses a call, such as (MyStoreError,): neither Exception nor OSError, which other problems raise, too."
        )
    if not isinstance(entries, Mapping) or not all(isinstance(text, str) for pair in entries.items() for text in pair):
        raise InvalidSetting(
            f"known_failures of {suite.__name__} is {entries!r}. It must map clause ids to reasons. "
            'Write known_failures = {"CLAUSE": "why it fails"}.'
        )


def _is_clause(test: Any) -> bool:
    return isinstance(getattr(test, "wfstate_clause", None), functools.partial)
