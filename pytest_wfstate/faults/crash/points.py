"""Points: where a process is to die, said in the words of its files or of its code."""

from __future__ import annotations

import dataclasses
import fnmatch
import threading
from collections.abc import Callable
from typing import Any

from pytest_wfstate.faults.crash.call_hooks import plain_function, watch_function
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.world.world import WorldMethod

KINDS = (
    "create",
    "write",
    "truncate",
    "allocate",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "link",
    "symlink",
    "sync",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An op, or a call of a function, and for an op the file."""

    what: str | Callable[..., Any]
    pattern: str = "*"

    def __post_init__(self) -> None:
        if isinstance(self.what, str) and self.what not in KINDS:
            raise ValueError(
                f"{self.what!r} is no file operation. One of: {', '.join(KINDS)}; or give a function to name its call."
            )
        if not isinstance(self.what, (str, WorldMethod)):
            plain_function(self.what)

    def is_op(self, intent: Intent) -> bool:
        """Tell whether an op is meant."""
        if self.what != intent.kind:
            return False
        return any(fnmatch.fnmatch(path, self.pattern) for path in (intent.path, intent.new_path) if path)

    def is_call(self, function: object) -> bool:
        """Tell whether a call of this function is meant."""
        return self.what == function

    def __str__(self) -> str:
        if isinstance(self.what, str):
            return self.what if self.pattern == "*" else f"{self.what} of {self.pattern}"
        return (
            self.what.name
            if isinstance(self.what, WorldMethod)
            else getattr(self.what, "__qualname__", repr(self.what))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """Right after `first`, or right before `last`, or between the two: the `nth` time."""

    first: Event | None
    last: Event | None
    nth: int = 1

    def __post_init__(self) -> None:
        if self.nth < 1:
            raise ValueError(f"nth is {self.nth}. Points are counted from 1.")

    @property
    def events(self) -> list[Event]:
        """What the point is said in terms of."""
        return [event for event in (self.first, self.last) if event is not None]

    def __str__(self) -> str:
        if self.first and self.last:
            text = f"between {self.first} and {self.last}"
        else:
            text = f"after {self.first}" if self.first else f"before {self.last}"
        return text if self.nth == 1 else f"{text}, time {self.nth}"


def need_point(at: object) -> None:
    """Refuse what is no point, such as the bare name of an op.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(at, Point):
        what = repr(at) if isinstance(at, str) else "..."
        raise TypeError(
            f"at is {at!r}, which is no point to die at: it does not say on which side of it. "
            f"Give at=crash.before({what}), crash.after({what}) or crash.between(first, last)."
        )


class _PendingOp(threading.local):
    doing: Intent | None = None
    """The op that this thread is about to do."""


class KillTrigger:
    """Follows a run, and calls `die` when it comes to the point. It is the gate of a recorder."""

    def __init__(self, point: Point, die: Callable[[], None]) -> None:
        self._point = point
        self._die = die
        self._armed = point.first is None
        self._reached = 0
        self._thread = _PendingOp()
        self.seen: list[str] = []
        """What the run did, for when the point is never reached."""

    def before(self, intent: Intent) -> None:
        """Take note of an op that is about to be done."""
        self._thread.doing = intent
        self._begins(lambda event: event.is_op(intent))

    def after(self, *_: object) -> None:
        """Take note of an op that is done."""
        intent = self._thread.doing
        if intent is not None:
            to = f" to {intent.new_path}" if intent.new_path else ""
            self.seen.append(f"{intent.kind} {intent.path}{to}".strip())
            self._ended(lambda event: event.is_op(intent))

    def watch_calls(self) -> None:
        """Watch the functions that the point names. There is no way back: it is for a child."""
        for event in self._point.events:
            if not isinstance(event.what, (str, WorldMethod)):
                self._watch(event.what)

    def world_called(self, method: WorldMethod, call: Callable[[], Any]) -> Any:
        """Make a call on the outside world, as one of the events that a point may name."""
        self._begins(lambda event: event.is_call(method))
        result = call()
        self.seen.append(f"effect {method.name}")
        self._ended(lambda event: event.is_call(method))
        return result

    def _watch(self, function: Callable[..., Any]) -> None:
        def begins() -> None:
            self._begins(lambda event: event.is_call(function))

        def ended() -> None:
            self.seen.append(f"return from {function.__qualname__}")
            self._ended(lambda event: event.is_call(function))

        watch_function(plain_function(function), begins, ended)

    def _begins(self, is_it: Callable[[Event], bool]) -> None:
        last = self._point.last
        if last is not None and self._armed and is_it(last):
            self._armed = self._point.first is None
            self._reach()

    def _ended(self, is_it: Callable[[Event], bool]) -> None:
        first, last = self._point.first, self._point.last
        if first is not None and is_it(first):
            if last is None:
                self._reach()
            else:
                self._armed = True

    def _reach(self) -> None:
        self._reached += 1
        if self._reached == self._point.nth:
            self._die()
