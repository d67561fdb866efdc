"""The switch: which recorder is on, if any, and what stands in the place of a real call meanwhile.

There is one switch a process, because what it serves cannot be taken out again: the audit hook, and any reference to
a stand-in that code under test keeps. With no recorder on, a stand-in is the real call.
"""

from __future__ import annotations

import functools
import os
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

Watch = Callable[..., Any]
"""What is done in the place of a real call: it takes the recorder, and then what the real call takes."""


class ActiveRecorder:
    """Who is recording."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.thread = _InStandIn()
        # A child's ops would go to a log that nobody reads, under a lock that a thread of its parent may hold.
        os.register_at_fork(after_in_child=self.turn_off)

    def turn_off(self) -> None:
        """Let every stand-in be the real call again."""
        self.recorder = None


class _InStandIn(threading.local):
    announced = False
    """Whether this thread is in a real call that a stand-in makes: the audit hook has nothing to add."""


active = ActiveRecorder()


def stand_in(real: Callable[..., Any], watch: Watch) -> Any:
    """Make what stands in for a real call that the audit hook does not hear of."""

    def call(active: ActiveRecorder, /, *args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        return real(*args, **kwargs) if recorder is None else watch(recorder, *args, **kwargs)

    return _bound(call, real)


def audited_stand_in(real: Callable[..., Any], watch: Watch) -> Any:
    """Make what stands in for a real call that the audit hook hears of too."""

    def call(active: ActiveRecorder, /, *args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        if recorder is None:
            return real(*args, **kwargs)
        return announced(watch, recorder, *args, **kwargs)

    return _bound(call, real)


def announced(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make a call of which the audit hook need not speak."""
    thread = active.thread
    before = thread.announced
    thread.announced = True
    try:
        return call(*args, **kwargs)
    finally:
        thread.announced = before


def _bound(call: Callable[..., Any], real: Callable[..., Any]) -> Any:
    # A bound method stays what it is when it is kept in a class, as a builtin does; a function would become a method.
    functools.update_wrapper(call, real)
    del call.__wrapped__  # type: ignore[attr-defined]  # inspect.signature would take off the first parameter
    return types.MethodType(call, active)
