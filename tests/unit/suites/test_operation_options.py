"""What an operation of a user can say: with each option, a store that is right passes, and one that is wrong is caught.

Strict known failures show what fails: a wrong store, or a right one whose contract does not say what it should.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import AdapterError, InvalidSetting, StoreTimeout
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.suites import Suite, script
from tests.unit.suites.only import only
from tests.unit.suites.shelves import CLEAR, FIRST, GET, PUT, FileShelf, Shelf, ShelfSuite, contract

# result=


class ReturnsRows(FileShelf):
    async def get(self, key: str) -> AsyncIterator[dict[str, Any]]:
        for thing in [super().get(key)]:
            if thing is not None:
                yield {"key": key, "thing": thing}


class ReturnsRowsOfOthers(ReturnsRows):
    async def get(self, key: str) -> AsyncIterator[dict[str, Any]]:
        async for row in super().get("a" if key == "b" else key):
            yield row


def only_thing(rows: list[dict[str, Any]]) -> Any:
    return rows[0]["thing"] if rows else None


CONVERTED = contract(dataclasses.replace(GET, result=only_thing))


@only("test_save_load")
class TestRowsAreNotThings(ShelfSuite):
    contract = contract()
    store = ReturnsRows
    known_failures: ClassVar = {"shelf.save.load": "a list of rows is not a thing"}


@only("test_save_load", "test_handles_see_each_other", "test_random_calls")
class TestRowsAreConverted(ShelfSuite):
    contract = CONVERTED
    store = ReturnsRows


@only("test_save_load")
class TestWrongRowsAreConverted(ShelfSuite):
    contract = CONVERTED
    store = ReturnsRowsOfOthers
    known_failures: ClassVar = {"shelf.save.load": "the row of another key"}


class Endless:
    """Its iterators wait for what never comes."""

    def get(self, _: str) -> Iterator[str]:
        while True:
            yield "again"

    async def aget(self, _: str) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield "never"


@pytest.mark.parametrize("name", ["get", "aget"])
def test_an_iterator_is_consumed_under_the_time_limit(name: str) -> None:
    with contextlib.closing(Driver(timeout=0.05)) as driver, pytest.raises(StoreTimeout, match=f"^{name} did not"):
        driver.call(Endless(), Call(name, ("a",)))


async def fails_later(rows: list[Any]) -> Any:
    return rows[0]


@pytest.mark.parametrize("convert", [lambda rows: rows[0], fails_later])
def test_an_error_of_a_conversion_is_not_taken_for_the_stores(convert: Callable[[Any], Any], tmp_path: Path) -> None:
    """It would look like the refusal of a missing record."""
    operation = dataclasses.replace(GET, result=convert)
    with contextlib.closing(Driver(operations=[operation])) as driver:
        FileShelf(tmp_path).put("a", {})
        with pytest.raises(AdapterError, match=r"^result= of get raises KeyError: 0\. It was called with \{\}"):
            driver.outcome(FileShelf(tmp_path), operation("a"))


@pytest.mark.parametrize("convert", [len, lambda rows: iter([len(rows)])])
def test_what_a_conversion_returns_is_read_to_the_end(convert: Callable[[Any], Any], tmp_path: Path) -> None:
    operation = dataclasses.replace(GET, result=convert)
    with contextlib.closing(Driver(operations=[operation])) as driver:
        FileShelf(tmp_path).put("a", "hat")
        assert driver.call(FileShelf(tmp_path), operation("a")) in (3, [3])


# at_random=


class CannotClear(FileShelf):
    def clear(self, key: str) -> None:
        raise OSError(f"{key} is kept")


@only("test_random_calls", "test_race_storm")
class TestCalledAtRandom(ShelfSuite):
    contract = contract(CLEAR)
    store = CannotClear
    known_failures: ClassVar = {"shelf.random.calls": "clear fails", "shelf.race.storm": "clear fails"}


@only("test_random_calls", "test_clear_forgets")
class TestNotCalledAtRandom(ShelfSuite):
    """It is called by scripts."""

    contract = contract(dataclasses.replace(CLEAR, at_random=False))
    store = CannotClear
    known_failures: ClassVar = {"shelf.clear.forgets": "clear fails"}
    test_clear_forgets = script("core", "What was cleared is gone.", PUT("a", "hat"), CLEAR("a"), GET("a"))


class InMemory(Shelf):
    """A store that is not kept, whose clear fails."""

    def clear(self, key: str) -> None:
        raise OSError(f"{key} is kept")


@only("test_race_storm")
class TestStormsLeaveItOut(Suite):
    contract = contract(dataclasses.replace(CLEAR, at_random=False))
    medium = "memory"
    shelf: ClassVar = InMemory()

    def open(self, home: Path) -> Shelf:  # noqa: ARG002
        return self.shelf


# unspecified=


def is_zero(_: Shelf, limit: int) -> bool:
    return limit == 0


class AllForNone(FileShelf):
    """Takes a limit of 0 for no limit."""

    def first(self, limit: int) -> list[str]:
        return super().first(limit or 100)


class RefusesNone(FileShelf):
    def first(self, limit: int) -> list[str]:
        if not limit:
            raise ValueError("a limit of 0 means nothing")
        return super().first(limit)


class OneTooMany(AllForNone):
    def first(self, limit: int) -> list[str]:
        return super().first(limit + 1)


LIMITS = script("core", "A list is cut.", *(PUT(key, "hat") for key in "ab"), *(FIRST(limit) for limit in range(3)))
UNSPECIFIED = contract(dataclasses.replace(FIRST, unspecified=is_zero))


@only("test_first_cut")
class TestSpecified(ShelfSuite):
    contract = contract(FIRST)
    store = AllForNone
    test_first_cut = LIMITS
    known_failures: ClassVar = {"shelf.first.cut": "0 is no limit"}


@only("test_first_cut", "test_random_calls")
class TestUnspecified(ShelfSuite):
    contract = UNSPECIFIED
    store = AllForNone
    test_first_cut = LIMITS


@only("test_first_cut", "test_random_calls")
class TestUnspecifiedMayBeRefused(ShelfSuite):
    contract = UNSPECIFIED
    store = RefusesNone
    test_first_cut = LIMITS


@only("test_first_cut")
class TestOthersAreSpecified(ShelfSuite):
    contract = UNSPECIFIED
    store = OneTooMany
    test_first_cut = LIMITS
    known_failures: ClassVar = {"shelf.first.cut": "one too many"}


class ClearsAndRefuses(FileShelf):
    def clear(self, key: str) -> None:
        super().clear(key)
        raise ValueError(key)


@only("test_clear_refused")
class TestRefusalOfAnUnspecifiedCallHasNoEffect(ShelfSuite):
    contract = contract(dataclasses.replace(CLEAR, unspecified=lambda shelf, key: key in shelf.things))
    store = ClearsAndRefuses
    test_clear_refused = script("core", "It refuses, or clears.", PUT("a", "hat"), CLEAR("a"), GET("a"))
    known_failures: ClassVar = {"shelf.clear.refused": "it does both"}


# may_raise=


class Busy(Exception):
    """Another call is in progress, or might be."""


class OftenBusy(FileShelf):
    """Is busy at every second put."""

    def put(self, key: str, thing: Any) -> None:
        file = self.home / "busy"
        if file.exists():
            file.unlink()
            raise Busy(key)
        file.touch()
        super().put(key, thing)


class BusyAndDone(FileShelf):
    def put(self, key: str, thing: Any) -> None:
        super().put(key, thing)
        raise Busy(key)


MAY_BE_BUSY = contract(dataclasses.replace(PUT, may_raise=(Busy,)))


@only("test_save_replaces")
class TestMayNotRaise(ShelfSuite):
    contract = contract()
    store = OftenBusy
    known_failures: ClassVar = {"shelf.save.replaces": "Busy is an error"}


@only("test_save_replaces", "test_save_survives_restart", "test_random_calls")
class TestMayRaise(ShelfSuite):
    contract = MAY_BE_BUSY
    store = OftenBusy


@only("test_save_load")
class TestRaisesAndHasAnEffect(ShelfSuite):
    contract = MAY_BE_BUSY
    store = BusyAndDone
    known_failures: ClassVar = {"shelf.save.load": "what was refused is there"}


class BusyReads(FileShelf):
    def get(self, key: str) -> Any:
        raise Busy(key)


@only("test_save_load")
class TestOnlyTheOperationMayRaise(ShelfSuite):
    contract = MAY_BE_BUSY
    store = BusyReads
    known_failures: ClassVar = {"shelf.save.load": "get may not be busy"}


class BusyInMemory(Shelf):
    """Is busy at every second put; the others lose what was there before."""

    def __init__(self, *, loses: bool) -> None:
        super().__init__()
        self.loses = loses
        self.puts = 0

    def put(self, key: str, thing: Any) -> None:
        self.puts += 1
        if self.puts % 2:
            if self.loses:
                self.things.pop(key, None)
            raise Busy(key)
        super().put(key, thing)


class BusySuite(Suite):
    contract = MAY_BE_BUSY
    medium = "memory"
    loses: ClassVar = False

    @pytest.fixture(autouse=True)
    def _stores(self) -> None:
        self.stores: dict[Path, BusyInMemory] = {}

    def open(self, home: Path) -> BusyInMemory:
        return self.stores.setdefault(home, BusyInMemory(loses=self.loses))


@only("test_race_storm", "test_race_put_put", "test_race_get", "test_random_calls")
class TestMayRaiseInRaces(BusySuite):
    pass


@only("test_race_storm", "test_random_calls")
class TestRaisesInRacesAndHasAnEffect(BusySuite):
    loses = True
    known_failures: ClassVar = {"shelf.race.storm": "a refused put removes", "shelf.random.calls": "the same"}


def test_a_hang_is_not_a_timeout_that_a_call_may_raise() -> None:
    operation = dataclasses.replace(GET, may_raise=(TimeoutError,))
    with contextlib.closing(Driver(timeout=0.05, operations=[operation])) as driver, pytest.raises(StoreTimeout):
        driver.outcome(Endless(), operation("a"))


@pytest.mark.parametrize("may_raise", [Busy, (Exception,), (OSError,), ("Busy",)])
def test_errors_that_say_nothing_cannot_be_allowed(may_raise: Any) -> None:
    with pytest.raises(
        InvalidSetting, match=r"^may_raise of operation 'get' is .* It must be a tuple of error classes"
    ):
        dataclasses.replace(GET, may_raise=may_raise)
