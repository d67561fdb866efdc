"""The active recorder of this process, if any, and the stand-ins that report to it.

It is global because some of what uses it cannot be removed again: the audit hook, and references to stand-ins that
the code under test keeps. Without an active recorder, a stand-in just makes the real call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

Watch = Callable[..., Any]
"""Replaces a real call: takes the recorder, and then the arguments of the real call."""


class ActiveRecorder:
    """The recorder that is active, and whether this thread is inside a stand-in."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.thread = _InStandIn()
        # In a forked child the log is a copy, and its lock may be held by a thread of the parent.
        os.register_at_fork(after_in_child=self.turn_off)

    def turn_off(self) -> None:
        """Deactivate the recorder: every stand-in makes the real call again."""
        self.recorder = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Make the real calls in a block, which does not belong to what is recorded."""
        recorder, self.recorder = self.recorder, None
        try:
            yield
        finally:
            self.recorder = recorder


class _InStandIn(threading.local):
    announced = False
    """Whether a stand-in is making a real call in this thread, so that the audit hook can ignore it."""


active = ActiveRecorder()


@dataclasses.dataclass(frozen=True, slots=True)
class Replaced:
    """A real call, and what replaces it while a recorder is active."""

    real: Callable[..., Any]
    watch: Watch

    def __deepcopy__(self, _: Any) -> Replaced:
        return self  # an object that holds a stand-in may be copied, as one that holds the real call may


def stand_in(real: Callable[..., Any], watch: Watch) -> Any:
    """Return a stand-in for a real call that raises no audit event."""

    def call(replaced: Replaced, /, *args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        return replaced.real(*args, **kwargs) if recorder is None else replaced.watch(recorder, *args, **kwargs)

    return _bound(call, Replaced(real, watch))


def audited_stand_in(real: Callable[..., Any], watch: Watch) -> Any:
    """Return a stand-in for a real call that raises an audit event."""

    def call(replaced: Replaced, /, *args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        if recorder is None:
            return replaced.real(*args, **kwargs)
        return announced(replaced.watch, recorder, *args, **kwargs)

    return _bound(call, Replaced(real, watch))


def announced(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make a call that the audit hook ignores."""
    thread = active.thread
    before = thread.announced
    thread.announced = True
    try:
        return call(*args, **kwargs)
    finally:
        thread.announced = before


def _bound(call: Callable[..., Any], replaced: Replaced) -> Any:
    # Like a builtin, a bound method does not become a method of a class that holds it; a function would.
    functools.update_wrapper(call, replaced.real)
    del call.__wrapped__  # type: ignore[attr-defined]  # inspect.signature would drop the first parameter
    return types.MethodType(call, replaced)
