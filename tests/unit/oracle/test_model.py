"""The model of a contract: which states a call can lead to."""

from __future__ import annotations

import pytest

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.errors import InvalidId
from pytest_wfstate.oracle import Entry, Errored, NeverReturned, Outcome, Refused, Returned
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
        assert sorted(sorted(state.handles[""]._paused) for state in left) == [["a"], ["a", "b"], ["b"]]

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


def test_an_error_counts_as_one_of_few_refusals() -> None:
    assert refused(InvalidId("no")) == Refused(ValueError)
    assert refused(KeyError("no")) == Refused(LookupError)
