"""Which calls a store offers."""

from __future__ import annotations

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.driver import Driver

RENEW = Call("renew", ("a", "t"), ("token",))


class Required:
    def renew(self, run_id: str, *, token: str) -> bool:
        return (run_id, token) == ("a", "t")


class Optional:
    def renew(self, run_id: str, token: str | None = None) -> bool:
        return (run_id, token) == ("a", "t")


class Lacking:
    def renew(self, run_id: str) -> bool:
        raise AssertionError(run_id)


class WithoutIds:
    def renew(self) -> bool:
        raise AssertionError


@pytest.mark.parametrize("store", [Required, Optional])
def test_an_argument_that_is_passed_by_name_may_be_required(store: type) -> None:
    assert Driver().call(store(), RENEW) is True


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (Lacking, "not offered: Lacking.renew has no argument token"),
        (WithoutIds, "not offered: WithoutIds.renew() -> 'bool' cannot be called as renew('a', token='t')"),
        (object, "not offered: object has no method renew"),
    ],
)
def test_a_call_that_a_store_does_not_offer_skips_with_the_reason(store: type, reason: str) -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        Driver().call(store(), RENEW)

    assert str(skipped.value) == reason
