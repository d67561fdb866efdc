"""The lock contract: which worker may do what only one may do, until when, and with which fencing token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract, Operation, ResultOf
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.stores.memory import MemoryLockStore

LONG = 3600  # seconds: longer than any test, unless its clock is frozen


def _acquisitions(ids: Sequence[str]) -> Any:
    return st.sampled_from([(name, LONG + number) for name in ids for number in range(2)])


def _releases(ids: Sequence[str]) -> Any:
    return st.sampled_from([(name, ResultOf("acquire", nth)) for name in ids for nth in (0, -2, -1)])


def _renewals(ids: Sequence[str]) -> Any:
    return _releases(ids).map(lambda args: (*args, LONG))


ACQUIRE = Operation("acquire", _acquisitions, mutates=True, positional=2, required=True, keys=first_id)
RENEW = Operation("renew", _renewals, mutates=True, positional=3, keys=first_id, in_storms=False)
RELEASE = Operation("release", _releases, mutates=True, positional=2, required=True, keys=first_id, in_storms=False)
HELD = Operation("held", only_an_id, keys=first_id)


def acquire(name: str, number: int = 0) -> Call:
    """Return a call that acquires a lock."""
    return ACQUIRE(name, LONG + number)


LOCK = Contract(
    "lock",
    [ACQUIRE, RENEW, RELEASE, HELD],
    reference=lambda generated: MemoryLockStore(clock=generated.time, new_token=generated.token_after),
    write=acquire,
    reads=lambda ids: [HELD(name) for name in ids],
)
