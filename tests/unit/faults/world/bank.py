"""A fake bank, the outside world of these tests."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self


class Refused(Exception):
    """An exception that cannot be rebuilt from its args."""

    def __init__(self, order: str, reason: str) -> None:
        super().__init__(f"{order}: {reason}")
        self.order = order


class Bank:
    """A bank that remembers idempotency keys."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.open = True
        self._lock = threading.Lock()

    def charge(self, order: str, *, amount: int = 1) -> int:
        with self._lock:
            if amount <= 0:
                raise Refused(order, "nothing to charge")
            self.charges.append(order)
            return len(self.charges)

    async def acharge(self, order: str) -> int:
        await asyncio.sleep(0)
        return self.charge(order)

    def indirect(self, order: str) -> Any:
        return self.acharge(order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False
