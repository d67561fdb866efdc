"""Tokens that a store generates: by themselves, and as a part of a record."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate import Violation
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.oracle.history import NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.judge import Judge
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.specs.lock import ACQUIRE, HELD, LOCK, RELEASE
from pytest_wfstate.specs.queue import DONE, PUT, QUEUE, RECOVER, TAKE

A = ACQUIRE("a", 60)


def judge(contract: Any, *history: tuple[Call, Any]) -> None:
    timeline = Judge(ReferenceModel(contract)).begin()
    for call, result in history:
        outcome: Outcome = NeverReturned() if result is ... else Returned(result)
        timeline.call("store", call, outcome)


def item(token: str, attempts: int = 1) -> dict[str, Any]:
    return {"id": "a", "value": 1, "attempts": attempts, "token": token}


@pytest.mark.parametrize(("first", "second"), [(1, 2), (5, 700), ("5", "6")])
def test_any_greater_token_is_right(first: Any, second: Any) -> None:
    judge(LOCK, (A, first), (RELEASE("a", first), True), (A, second), (HELD("a"), True))


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), ("9", "10"), (1, "2"), (1, None), (1, True)])
def test_a_token_that_does_not_grow_is_a_violation(first: Any, second: Any) -> None:
    with pytest.raises(Violation, match="expected: a new token"):
        judge(LOCK, (A, first), (RELEASE("a", first), True), (A, second))


def test_locks_may_have_equal_tokens() -> None:
    judge(LOCK, (A, 1), (ACQUIRE("b", 60), 1), (RELEASE("b", 1), True), (HELD("a"), True))


def test_a_token_that_nobody_received_may_be_any() -> None:
    judge(LOCK, (A, ...), (HELD("a"), True))
    judge(LOCK, (A, ...), (HELD("a"), False), (A, 1))


def test_the_token_of_a_record_ends_its_take() -> None:
    judge(QUEUE, (PUT("a", 1), None), (TAKE(), item("t1")), (DONE("a", "t1"), True), (DONE("a", "t1"), False))


def test_the_token_of_a_record_must_be_new_while_it_is_in_use() -> None:
    calls = [(PUT("a", 1), None), (PUT("b", 1), None), (TAKE(), item("t1"))]
    with pytest.raises(Violation, match="token is"):
        judge(QUEUE, *calls, (TAKE(), {**item("t1"), "id": "b"}))


def test_a_violation_expects_the_token_that_the_store_returned() -> None:
    calls = [(PUT("a", 1), None), (TAKE(), item("t1")), (RECOVER(), 1)]
    with pytest.raises(Violation) as raised:
        judge(QUEUE, *calls, (TAKE(), item("t2", attempts=1)))
    assert "attempts is 1, not 2" in str(raised.value)
    assert "never-seen" not in str(raised.value)
