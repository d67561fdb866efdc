"""Points: where a process is to die, named by its file operations or by the functions of its code."""

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
    *("create", "mkdir", "rmdir", "link", "symlink", "unlink", "rename"),
    *("write", "truncate", "allocate", "fsync", "fdatasync", "sync"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An op, or a call of a function, and for an op the file."""

    what: str | Callable[..., Any]
    pattern: str = "*"

    def __post_init__(self) -> None:
        if isinstance(self.what, str) and self.what not in KINDS:
            raise ValueError(
                f"{self.what!r} is not a file operation. Give one of {', '.join(KINDS)}, or a function to name a call."
            )
        if not isinstance(self.what, (str, WorldMethod)):
            plain_function(self.what)

    def is_op(self, intent: Intent) -> bool:
        """Whether this op is the event."""
        if self.what != intent.kind:
            return False
        return any(fnmatch.fnmatch(path, self.pattern) for path in (intent.path, intent.new_path) if path)

    def is_call(self, function: object) -> bool:
        """Whether a call of this function is the event."""
        return self.what == function

    def __str__(self) -> str:
        if isinstance(self.what, str):
            return self.what if self.pattern == "*" else f"{self.what} of {self.pattern}"
        if isinstance(self.what, WorldMethod):
            return self.what.name
        return getattr(self.what, "__qualname__", repr(self.what))


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
        """The events that name the point."""
        return [event for event in (self.first, self.last) if event is not None]

    def __str__(self) -> str:
        if self.first and self.last:
            text = f"between {self.first} and {self.last}"
        else:
            text = f"after {self.first}" if self.first else f"before {self.last}"
        return text if self.nth == 1 else f"{text}, occurrence {self.nth}"


def need_point(at: object) -> None:
    """Raise TypeError unless `at` is a point: the bare name of an op is not."""
    if not isinstance(at, Point):
        what = repr(at) if isinstance(at, str) else "..."
        raise TypeError(
            f"at is {at!r}, which does not say whether to die before or after it. "
            f"Give at=crash.before({what}), crash.after({what}) or crash.between(first, last)."
        )


class _PendingOp(threading.local):
    intent: Intent | None = None
    """What this thread is about to do."""


class KillTrigger:
    """Follows a run, and calls `die` when it reaches the point. It is the gate of a recorder."""

    injects_errors = False

    def __init__(self, point: Point, die: Callable[[], None]) -> None:
        self._point = point
        self._die = die
        self._armed = point.first is None
        self._reached = 0
        self._pending = _PendingOp()
        self.seen: list[str] = []
        """What the run did, for when the point is never reached."""

    def before(self, intent: Intent) -> None:
        """Note an op that is about to happen."""
        self._pending.intent = intent
        self._begins(lambda event: event.is_op(intent))

    def after(self, *_: object) -> None:
        """Note an op that has happened."""
        intent = self._pending.intent
        if intent is not None:
            to = f" to {intent.new_path}" if intent.new_path else ""
            self.seen.append(f"{intent.kind} {intent.path}{to}".strip())
            self._ended(lambda event: event.is_op(intent))

    def watch_calls(self) -> None:
        """Watch the functions that the point names. This cannot be undone: it is for a child."""
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

    def _begins(self, is_event: Callable[[Event], bool]) -> None:
        last = self._point.last
        if last is not None and self._armed and is_event(last):
            self._armed = self._point.first is None
            self._reach()

    def _ended(self, is_event: Callable[[Event], bool]) -> None:
        first, last = self._point.first, self._point.last
        if first is not None and is_event(first):
            if last is None:
                self._reach()
            else:
                self._armed = True

    def _reach(self) -> None:
        self._reached += 1
        if self._reached == self._point.nth:
            self._die()
