"""Own runs: a store that is judged by what it does when nothing interrupts it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_wfstate import MemoryPausedStore, MemoryRunStore, NotMeasured, PausedWorkflow, Violation, samples
from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.engine.handles import Handles, OpenStore
from pytest_wfstate.engine.own_runs import OwnRuns, own_problem
from pytest_wfstate.engine.visibility import need_visible
from pytest_wfstate.oracle import Entry, Judge, Outcome, ReferenceModel, Refused, Returned
from pytest_wfstate.oracle.history import Errored, NeverReturned
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.specs.paused import CLAIM, COMPLETE, LIST, LOAD, PAUSED, RECOVER, RENEW, TOKEN, save
from pytest_wfstate.specs.runs import GET, RUNS, create, update

DONE = Returned(None)


class Receipts(MemoryPausedStore):
    """Completing a run returns a receipt, and a record is loaded with its iterations doubled."""

    def complete(self, run_id: str, token: str | None = None) -> Any:
        super().complete(run_id, token)
        return {"completed": run_id}

    def load(self, run_id: str) -> PausedWorkflow | None:
        paused = super().load(run_id)
        return paused and paused.model_copy(update={"iterations": paused.iterations * 2})


class NoReplace(MemoryPausedStore):
    def save(self, paused: PausedWorkflow) -> None:
        if super().load(paused.run_id):
            raise KeyboardError(paused.run_id)
        super().save(paused)


class KeyboardError(RuntimeError):
    pass


_DRIVERS: list[Driver] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _DRIVERS:
        _DRIVERS.pop().close()


def own_runs(new: Callable[[], Any], contract: Contract = PAUSED) -> OwnRuns:
    driver = Driver(operations=contract.operations)
    _DRIVERS.append(driver)

    def open_new() -> Handles:
        store = new()
        return Handles(
            lambda: OpenStore(store.handle() if hasattr(store, "handle") else store, int), driver, (Exception,)
        )

    return OwnRuns(contract, open_new)


def loaded(iterations: int) -> Outcome:
    return Returned(plain(samples.paused("a", iterations=iterations)))


def test_what_a_store_returns_by_itself_is_right() -> None:
    timeline = Judge(own_runs(Receipts), remembers=True).begin()
    timeline.call("store", save("a", 3), DONE)
    timeline.call("store", LOAD("a"), loaded(6))
    timeline.call("store", CLAIM("a"), loaded(3))
    timeline.call("store", COMPLETE("a"), Returned({"completed": "a"}))
    timeline.call("store", LOAD("a"), DONE)


@pytest.mark.parametrize("seen", [loaded(3), DONE, loaded(4)], ids=["as promised", "nothing", "other"])
def test_what_it_does_not_is_wrong(seen: Outcome) -> None:
    timeline = Judge(own_runs(Receipts), remembers=True).begin()
    timeline.call("store", save("a", 3), DONE)
    with pytest.raises(Violation, match=r"expected: \{"):
        timeline.call("store", LOAD("a"), seen)


@pytest.mark.parametrize(("iterations", "is_right"), [(2, True), (4, True), (0, False), (6, False)])
def test_the_call_in_flight_took_effect_or_not(iterations: int, is_right: bool) -> None:
    timeline = Judge(own_runs(Receipts), remembers=True).begin()
    timeline.crash("store", [save("a", 1), save("a", 2)], [DONE])
    if is_right:
        timeline.call("reopened", LOAD("a"), loaded(iterations))
    else:
        with pytest.raises(Violation):
            timeline.call("reopened", LOAD("a"), loaded(iterations))


def test_an_error_is_an_outcome_if_an_own_run_raises_it() -> None:
    own = own_runs(NoReplace)
    timeline = Judge(own, remembers=True).begin()
    timeline.call("store", save("a", 1), DONE)
    timeline.call("store", save("a", 2), Refused(KeyboardError))
    assert own.errors == (KeyboardError,)
    with pytest.raises(Violation, match="refused: KeyboardError"):
        timeline.call("store", save("b", 2), Refused(KeyboardError))


def test_a_call_that_failed_and_was_retried_may_have_taken_effect_before() -> None:
    timeline = Judge(own_runs(NoReplace), remembers=True).begin()
    timeline.call("store", save("a", 1), Errored("OSError"))
    timeline.call("store", save("a", 1), Refused(KeyboardError))
    timeline.call("store", LOAD("a"), loaded(1))


def test_generated_texts_stand_for_those_of_another_run() -> None:
    timeline = Judge(own_runs(Receipts), remembers=True).begin()
    timeline.call("store", save("a", 1), DONE)
    timeline.call("store", CLAIM("a"), loaded(1))
    timeline.call("store", TOKEN("a"), Returned("what this store has generated"))
    timeline.call("store", TOKEN("a"), Returned("what this store has generated"))
    timeline.call("store", RENEW("a", "what this store has generated"), Returned(True))
    timeline.call("store", RENEW("a", "another"), Returned(False))
    timeline.call("store", RECOVER(), Returned(1))
    timeline.call("store", CLAIM("a"), loaded(1))
    with pytest.raises(Violation, match="expected: a new token"):
        timeline.call("store", TOKEN("a"), Returned("what this store has generated"))


def test_times_are_not_compared_unless_they_are_long_ago() -> None:
    timeline = Judge(own_runs(MemoryRunStore, RUNS), remembers=True).begin()
    timeline.call("store", create("a"), DONE)
    timeline.call("store", update("a", 1), DONE)
    run = {**plain(samples.run("a", context=update("a", 1).args[1])), "input": {"n": 1}}
    timeline.call("store", GET("a"), Returned({**run, "updated_at": "2031-07-08T09:10:11.121Z"}))
    with pytest.raises(Violation, match="created_at is"):
        timeline.call("store", GET("a"), Returned({**run, "created_at": "2031-07-08T09:10:11.121Z"}))


def test_a_store_that_does_something_else_each_time_is_not_measured() -> None:
    numbers = itertools.count()

    class Random(MemoryPausedStore):
        def list(self) -> list[str]:
            return [f"run-{next(numbers)}"]

    own = own_runs(Random)
    state = own.start()
    seen = [Entry(client, "list", (), 0, 0, DONE) for client in ("one", "two")]
    (_, listed), *_ = own.transitions(state, seen[0])
    own.close()
    with pytest.raises(
        NotMeasured, match=r"two of the store's own uninterrupted runs differ: list\(\) -> \[\"run-0\"\]"
    ):
        list(own.transitions(listed, seen[1]))
    assert own_problem(own, "").startswith("two of the store's own")


def test_a_race_is_judged_by_serial_runs_in_every_order() -> None:
    judge = Judge(own_runs(Receipts), remembers=True)

    def entries(*winners: int) -> list[Entry]:
        before = Entry("before", "save", save("a", 1).args, 0, 0, DONE)
        results = [loaded(1) if number in winners else DONE for number in (1, 2)]
        claims = [Entry(f"client {n}", "claim", ("a",), 1, 2, result) for n, result in enumerate(results, 1)]
        return [before, *claims, Entry("afterwards", "load", ("a",), 3, 3, DONE)]

    judge.schedule(entries(1))
    judge.schedule(entries(2))
    with pytest.raises(Violation, match="impossible in any order") as caught:
        judge.schedule(entries(1, 2))
    assert caught.value.cause == "claim() returns a record instead of None"


def test_calls_in_part_cannot_be_told_from_own_runs() -> None:
    assert "recover_orphaned() may take effect in part" in own_problem(own_runs(Receipts), "recover_orphaned")
    assert own_problem(ReferenceModel(PAUSED), "recover_orphaned") == ""


def test_a_store_that_shows_nothing_is_not_measured() -> None:
    class Blind(MemoryPausedStore):
        def load(self, run_id: str) -> Any:
            return run_id

    class Forgetful(MemoryPausedStore):
        def list(self) -> Any:
            return []

    def need(kind: Any, *calls: Any) -> None:
        need_visible(own_runs(kind), ReferenceModel(PAUSED), [save("b")], calls, [LIST(), LOAD("a"), LOAD("b")])

    need(Receipts, save("a"))
    need(Forgetful, save("a"))
    with pytest.raises(NotMeasured, match=r"load\(\) returned the same with save\(samples.paused\('a'.*\) and without"):
        need(Blind, save("a", 7))
    need_visible(own_runs(Blind), ReferenceModel(PAUSED), (), [COMPLETE("a")], [LOAD("a")])  # which changes nothing


def test_what_died_may_have_happened_or_not() -> None:
    judge = Judge(own_runs(Receipts), remembers=True)
    for seen in (DONE, loaded(2)):
        died = Entry("client 1", "save", save("a", 1).args, 0, 1, NeverReturned())
        judge.schedule([died, Entry("afterwards", "load", ("a",), 2, 2, seen)])
