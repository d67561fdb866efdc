"""Async stores that do not survive that a call is cancelled."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from pytest_wfstate.zoo.base import known_bad
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


def _known_bad_when_cancelled(**left_out: str) -> Callable[[type[Awaited]], type[Awaited]]:
    """Register a bug for each contract. It breaks all its clauses, but those that are left out."""

    def register(bug: type[Awaited]) -> type[Awaited]:
        for contract, correct in CORRECT_STORES.items():
            breaks = [clause for clause in _METHODS[contract] if clause not in left_out.get(contract, "").split()]
            store = type(bug.__name__, (bug,), {"__doc__": bug.__doc__, "correct": correct})
            known_bad(contract, *breaks)(store)
        return bug

    return register


@_known_bad_when_cancelled()
class KeepsItsLock(Awaited):
    """A call takes a lock, and gives it back when it has returned. A cancelled one never does: all others fail."""

    async def make(self, call: Callable[[], Any]) -> Any:
        lock = self.home / "lock"
        lock.touch(exist_ok=False)
        await asyncio.sleep(0)
        result = call()
        lock.unlink()
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


@_known_bad_when_cancelled(paused="cancel.remove", runs="cancel.delete", snapshots="cancel.fork")
class ChangesInTwoSteps(Awaited):
    """A call changes files in two steps, and awaits something in between. If it is cancelled there, half is changed."""

    async def make(self, call: Callable[[], Any]) -> Any:
        before = self.files()
        result = call()
        after = self.files()
        for path in [path for path, data in after.items() if data != before.get(path)]:
            path.write_bytes(after[path][: len(after[path]) // 2])
            await asyncio.sleep(0)
            path.write_bytes(after[path])
        return result

    def files(self) -> dict[Path, bytes]:
        """Return what all files hold."""
        return {path: path.read_bytes() for path in self.home.rglob("*") if path.is_file()}
