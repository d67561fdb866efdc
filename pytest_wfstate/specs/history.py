"""The history contract: what was said in a session, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.specs.random_values import any_json
from pytest_wfstate.stores.memory import MemoryHistoryStore


def message(number: int, role: str = "user") -> dict[str, Any]:
    """Return an item."""
    return {"role": role, "content": [{"type": "text", "text": f"message {number}"}]}


def _appends(ids: Sequence[str]) -> Any:
    # Few items, so that an equal one is often appended again.
    items: list[list[Any]] = [[message(1)], [message(2), message(3, "tool")], [None], [0, ""], []]
    return st.sampled_from([(session_id, each) for session_id in ids for each in items])


def _reads(ids: Sequence[str]) -> Any:
    return only_an_id(ids) | st.sampled_from([(session_id, limit) for session_id in ids for limit in (0, 1, 2, 100)])


def _any_items(session_id: str) -> Any:
    return st.lists(any_json(), min_size=1, max_size=3).map(lambda items: (session_id, items))


APPEND = Operation(
    "append",
    _appends,
    mutates=True,
    returns_nothing=True,
    positional=2,
    required=True,
    keys=first_id,
    values=_any_items,
)
READ = Operation("read", _reads, keywords=("limit",), required=True, keys=first_id)
POP = Operation("pop", only_an_id, mutates=True, keys=first_id)
CLEAR = Operation("clear", only_an_id, mutates=True, returns_nothing=True, keys=first_id)


def append(session_id: str, *items: Any) -> Call:
    """Return a call that appends items."""
    return APPEND(session_id, list(items))


def say(session_id: str, number: int = 1) -> Call:
    """Return a call that appends a message, a different one for each number."""
    return append(session_id, message(number))


HISTORY = Contract(
    "history",
    [APPEND, READ, POP, CLEAR],
    reference=lambda generated: MemoryHistoryStore(clock=generated.time),
    write=say,
    reads=lambda ids: [READ(session_id) for session_id in ids],
)
