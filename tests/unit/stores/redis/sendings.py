"""A change whose answer gets lost, and the error for one that was never sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.unit.stores.redis.scripts import KINDS

each = pytest.mark.parametrize("kind", KINDS, ids=str)
NOTHING_SENT = r"cannot connect to the Redis server at .*: .*[^.]\. The call was .* Nothing was changed\."


class Meanwhile:
    """Loses the answer to the next change, and does something else before the change is resent."""

    def __init__(self, store: Any, action: Callable[[], Any]) -> None:
        self._client = store._client
        self._send = store._client._send
        self._action: Callable[[], Any] | None = action
        store._client._send = self

    def __call__(self, command: str, *args: Any, **options: Any) -> Any:
        reply = self._send(command, *args, **options)
        action = self._action
        if action is None or b":receipt:" not in str(args).encode():
            return reply
        self._action = None
        action()
        raise redis.ConnectionError("the answer is lost")
