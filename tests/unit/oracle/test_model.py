"""The model of a contract: which states a call can lead to."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.errors import CannotCompare, InvalidId
from pytest_wfstate.oracle import Entry, Errored, Forgotten, NeverReturned, Outcome, Refused, Returned
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState, refused
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.specs.paused import CLAIM, COMPLETE, LOAD, PAUSED, RECOVER, TOKEN, save

A = plain(samples.paused("a", iterations=1))


def after(*calls: tuple[Call, Outcome], client: str = "one") -> list[ReferenceState]:
    """Return the states that calls can lead to."""
    model = ReferenceModel(PAUSED)
    states = [model.start()]
    for call, outcome in calls:
        entry = Entry(client, call.name, call.args, 0, 0, outcome)
        states = [next_state for state in states for next_state in model.step(state, entry)]
    return states


class TestStep:
    def test_accepts_the_result_of_the_reference(self) -> None:
        assert len(after((save("a"), Returned(None)), (LOAD("a"), Returned(A)))) == 1

    def test_accepts_no_other_result(self) -> None:
        assert after((save("a"), Returned(None)), (LOAD("a"), Returned(None))) == []

    def test_a_refusal_counts_by_its_class(self) -> None:
        assert len(after((LOAD(""), Refused(ValueError)))) == 1
        assert after((LOAD(""), Refused(LookupError))) == []

    @pytest.mark.parametrize("outcome", [NeverReturned(), Errored("EIO")], ids=str)
    def test_a_call_without_a_result_may_have_any(self, outcome: Outcome) -> None:
        assert len(after((save("a"), Returned(None)), (CLAIM("a"), outcome), (LOAD("a"), Returned(None)))) == 1

    def test_a_recovery_that_died_may_have_recovered_some_runs(self) -> None:
        two_claimed = [
            (call(one), Returned(plain(samples.paused(one, iterations=1)) if call is CLAIM else None))
            for one in "ab"
            for call in (save, CLAIM)
        ]
        left = after(*two_claimed, (RECOVER(), NeverReturned()))
        assert sorted(state.handles[""].list() for state in left) == [["a"], ["a", "b"], ["b"]]

    def test_a_token_is_the_one_that_the_store_returned_first(self) -> None:
        claimed = [(save("a"), Returned(None)), (CLAIM("a"), Returned(A)), (TOKEN("a"), Returned("t"))]
        assert len(after(*claimed, (TOKEN("a"), Returned("t")), (COMPLETE("a", "t"), Returned(True)))) == 1
        assert after(*claimed, (TOKEN("a"), Returned("other"))) == []
        assert after(*claimed, (COMPLETE("a", "other"), Returned(True))) == []

    def test_a_token_must_be_new(self) -> None:
        b = plain(samples.paused("b", iterations=1))
        claimed = [
            *((save("a"), Returned(None)), (CLAIM("a"), Returned(A)), (TOKEN("a"), Returned("t"))),
            *((save("b"), Returned(None)), (CLAIM("b"), Returned(b))),
        ]
        assert after(*claimed, (TOKEN("b"), Returned("t"))) == []
        assert len(after(*claimed, (TOKEN("b"), Returned("u")))) == 1

    def test_a_step_does_not_change_its_state(self) -> None:
        model = ReferenceModel(PAUSED)
        state = model.start()
        list(model.step(state, Entry("one", "save", save("a").args, 0, 0, Returned(None))))
        assert state == model.start()

    def test_a_restart_forgets_who_claimed_what(self) -> None:
        model = ReferenceModel(PAUSED)
        (state,) = after((save("a"), Returned(None)), (CLAIM("a"), Returned(A)))
        assert set(state.handles) == {"", "one"}
        assert set(model.restart(state).handles) == {""}


class TestStates:
    def test_are_equal_if_no_call_can_tell_them_apart(self) -> None:
        (one,) = after((save("a"), Returned(None)))
        (other,) = after((save("a", 2), Returned(None)), (save("a"), Returned(None)))
        assert one == other
        assert hash(one) == hash(other)

    def test_differ_by_who_owns_a_claim(self) -> None:
        claims = (save("a"), Returned(None)), (CLAIM("a"), Returned(A)), (RECOVER(), Returned(1))
        (one,) = after(*claims, *claims[1:2])
        (other,) = after(*claims[:2])
        assert one == other
        (freed,) = after(*claims)
        assert one != freed


IN_A_MODULE: dict[str, Any] = {}


class Base:
    def put(self, key: str, value: Any) -> None:
        self.items()[key] = value

    def get(self, key: str) -> Any:
        return self.items().get(key)

    def items(self) -> dict[str, Any]:
        raise NotImplementedError


class InAClosure(Base):
    def __init__(self) -> None:
        items: dict[str, Any] = {}
        self.items = lambda: items  # type: ignore[method-assign]


class OnItsClass(Base):
    shared: ClassVar[dict[str, Any]] = {}

    def items(self) -> dict[str, Any]:
        return self.shared


class InAModule(Base):
    def items(self) -> dict[str, Any]:
        return IN_A_MODULE


class NeverCopied(Base):
    def __init__(self) -> None:
        self.own: dict[str, Any] = {}

    def items(self) -> dict[str, Any]:
        return self.own

    def __deepcopy__(self, _: Any) -> NeverCopied:
        return self


class CopiedInPart(NeverCopied):
    def __deepcopy__(self, _: Any) -> CopiedInPart:
        return CopiedInPart()


class CountsOnItsClass(Base):
    """What is shared shows in no read."""

    numbers = itertools.count()

    def put(self, *_: Any) -> int:  # type: ignore[override]
        return next(self.numbers)

    def get(self, *_: Any) -> None:
        pass


PUT = Operation("put", lambda _: st.nothing(), mutates=True, positional=2, required=True)
GET = Operation("get", lambda _: st.nothing())


def put_twice(reference: type) -> None:
    model = ReferenceModel(Contract("", [PUT, GET], lambda _: reference(), PUT, lambda ids: list(map(GET, ids))))
    state = model.start()
    for value in (1, 2):
        (state,) = model.step(state, Entry("one", "put", ("a", value), 0, 0, Forgotten()))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            InAClosure,
            r"^The reference InAClosure shares .* get\('a'\) on the original returned 1, before returned None",
        ),
        (OnItsClass, r"get\('a'\) on the original returned .* State of a reference belongs in its instance\.$"),
        (InAModule, r"get\('a'\) on the original returned"),
        (NeverCopied, r"^The reference NeverCopied shares state"),
        (CopiedInPart, r"^The reference CopiedInPart is not copied in full"),
        (CountsOnItsClass, r"put\('a', 1\) on another copy returned \d, before returned \d\."),
    ],
)
def test_a_reference_that_shares_state_with_its_copies_is_refused(reference: type, message: str) -> None:
    for _ in range(2):  # the second time, something is there already
        with pytest.raises(CannotCompare, match=message):
            put_twice(reference)


def test_an_error_counts_as_one_of_few_refusals() -> None:
    assert refused(InvalidId("no")) == Refused(ValueError)
    assert refused(KeyError("no")) == Refused(LookupError)
