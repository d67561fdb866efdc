"""Async stores that do not survive that a call is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_generic_stores import CORRECT_GENERIC_STORES
from pytest_wfstate.zoo.correct_stores import CORRECT_STORES

_METHODS = {
    "effects": ("cancel.save", "cancel.mark", "cancel.delete"),
    "paused": (
        *("cancel.save", "cancel.claim", "cancel.complete", "cancel.recover", "cancel.remove"),
        *("cancel.fenced-complete", "cancel.renew", "cancel.takeover"),
    ),
    "resume": ("cancel.save", "cancel.delete"),
    "runs": ("cancel.create", "cancel.update", "cancel.delete", "cancel.upsert"),
    "snapshots": ("cancel.save", "cancel.fork"),
    "history": ("cancel.append", "cancel.pop", "cancel.clear"),
    "queue": ("cancel.put", "cancel.take", "cancel.done", "cancel.retry", "cancel.recover", "cancel.takeover"),
    "lock": ("cancel.acquire", "cancel.renew", "cancel.release"),
}


class Awaited:
    """A correct store whose methods are async."""

    correct: ClassVar[type]

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.home = Path(home)
        self.store = self.correct(home)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self.make(functools.partial(method, *args, **kwargs))

        return call

    async def make(self, call: Callable[[], Any]) -> Any:
        """Make a call."""
        return call()


def _known_bad_when_cancelled(
    stores: Mapping[str, type] = CORRECT_STORES, **left_out: str
) -> Callable[[type[Awaited]], type[Awaited]]:
    """Register a bug for each contract. It breaks all its clauses, but those that are left out."""

    def register(bug: type[Awaited]) -> type[Awaited]:
        for contract, correct in stores.items():
            breaks = [clause for clause in _METHODS[contract] if clause not in left_out.get(contract, "").split()]
            store = type(bug.__name__, (bug,), {"__doc__": bug.__doc__, "correct": correct})
            known_bad(contract, *breaks)(store)
        return bug

    return register


@_known_bad_when_cancelled({**CORRECT_STORES, **CORRECT_GENERIC_STORES})
class KeepsItsLock(Awaited):
    """Calls of one process take turns. Whatever error a call ends in, it gives its turn back: any Exception, that is.

    CancelledError is not an Exception. After a cancelled call, all others wait until they give up.
    """

    taken: ClassVar[set[Path]] = set()

    async def make(self, call: Callable[[], Any]) -> Any:
        if self.home in self.taken:
            raise TimeoutError("the lock is taken")
        self.taken.add(self.home)
        try:
            await asyncio.sleep(0)
            result = call()
        except Exception:
            self.taken.remove(self.home)
            raise
        self.taken.remove(self.home)
        return result


@_known_bad_when_cancelled()
class KeepsItsConnection(Awaited):
    """A handle has one connection, which a cancelled call does not return to the pool. The next call finds none."""

    is_free = True

    async def make(self, call: Callable[[], Any]) -> Any:
        if not self.is_free:
            raise RuntimeError("no connection is free")
        self.is_free = False
        await asyncio.sleep(0)
        self.is_free = True
        return call()


@_known_bad_when_cancelled(snapshots="cancel.fork")  # nobody knows the id of its fork
class GoesOnWhenClosed(Awaited):
    """A cancelled call goes on in the background, and closing the store does not wait for it."""

    async def make(self, call: Callable[[], Any]) -> Any:
        return await asyncio.shield(asyncio.ensure_future(super().make(call)))

    async def aclose(self) -> None:
        """There is nothing to close."""


@_known_bad_when_cancelled(snapshots="cancel.fork")
class ThreadsGoOn(Awaited):
    """A call runs in a thread, which goes on when the call is cancelled. Closing the store does not wait for it."""

    async def make(self, call: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(call)

    def close(self) -> None:
        """There is nothing to close."""


@_known_bad_when_cancelled()
class TakesCancelledForDone(Awaited):
    """CancelledError is caught as if it were an error like others. The call returns, and has done nothing."""

    async def make(self, call: Callable[[], Any]) -> Any:
        try:
            await asyncio.sleep(0)
            return call()
        except asyncio.CancelledError:
            return None


@_known_bad_when_cancelled(
    effects="cancel.delete",
    paused="cancel.remove",
    resume="cancel.delete",
    runs="cancel.delete",
    snapshots="cancel.fork",
)
class UndoesByDeleting(Awaited):
    """A cancelled call is undone: the files that it has written are deleted. What they have replaced is gone, too."""

    async def make(self, call: Callable[[], Any]) -> Any:
        before = self.files()
        result = call()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            for path, data in self.files().items():
                if before.get(path) != data:
                    path.unlink()
            raise
        return result

    def files(self) -> dict[Path, bytes]:
        """Return what all records are."""
        contents = {}
        for path in self.home.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                contents[path] = path.read_bytes()
        return contents
