"""Stepping: makes a thread stop before each line, or each opcode, of the code under test.

Python 3.12 and later have `sys.monitoring` for that. Its tool ids keep us apart from coverage and debuggers, which see
all that they would see without us. Before 3.12 there is one trace function a thread: ours calls the one it replaces.
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, Protocol

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.race.stop_points import StopPoint, StopPoints
from pytest_wfstate.faults.race.thread_scheduler import current


class CannotStep(WfstateError, RuntimeError, public=False):
    """Python offers no free way to step through code."""


def stop_at(point: StopPoint) -> None:
    """Make a step, if this thread is a client."""
    thread = current.client
    if thread is not None:
        thread.step(point.access(thread.held))


def resume_coroutine(points: StopPoints, code: types.CodeType, frame: types.FrameType) -> None:
    """Make a step where a client's coroutine resumes, if it is the outermost one that waits."""
    thread = current.client
    if thread is not None and thread.has_polled:
        thread.has_polled = False
        thread.step(points.at_await(code, frame).access(thread.held))


class Stepping(Protocol):
    """Makes clients stop at stop points."""

    def on(self) -> None:
        """Begin, in all threads that call `enter`."""

    def off(self) -> None:
        """Stop, and leave Python as it was."""

    def enter(self) -> None:
        """Begin in this thread."""

    def leave(self) -> None:
        """Leave this thread as it was."""


class Monitoring:
    """Stepping by `sys.monitoring`."""

    def __init__(self, points: StopPoints) -> None:
        self._points = points
        self._tool: int | None = None
        self._event = 0
        self._codes: dict[types.CodeType, dict[int, StopPoint]] = {}

    def on(self) -> None:
        """Begin. Threads that are not clients do not stop.

        Raises:
            CannotStep: other tools have taken both ids.
        """
        if self._tool is not None:
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        free = [tool for tool in (3, 4) if monitoring.get_tool(tool) is None]
        if not free:
            raise CannotStep(
                f"the tool ids 3 and 4 of sys.monitoring are taken, by {monitoring.get_tool(3)!r} and "
                f"{monitoring.get_tool(4)!r}. Stopping threads at lines needs one: run these tests without that tool."
            )
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "wfstate")
        events = monitoring.events
        self._event = events.LINE if self._points.by == "line" else events.INSTRUCTION
        monitoring.register_callback(self._tool, self._event, self._on_step)
        monitoring.register_callback(self._tool, events.PY_START, self._on_start)
        monitoring.register_callback(self._tool, events.PY_RESUME, self._on_resume)
        monitoring.restart_events()  # an earlier tool of this id may have disabled some places
        monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)

    def off(self) -> None:
        """Stop, and free the tool id."""
        if self._tool is None:
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        monitoring.set_events(self._tool, 0)
        for code in self._codes:
            monitoring.set_local_events(self._tool, code, 0)
        for event in (self._event, events.PY_START, events.PY_RESUME):
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)
        monitoring.restart_events()
        self._codes.clear()
        self._tool = None

    def enter(self) -> None:
        """Do nothing: monitoring covers all threads."""

    def leave(self) -> None:
        """Do nothing."""

    def _on_start(self, code: types.CodeType, _: int) -> Any:
        if self._is_followed(code, sys._getframe(1)) and self._points.by == "line":
            return None  # disabling the start of a function would disable a body on the same line, too
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _on_resume(self, code: types.CodeType, _: int) -> Any:
        frame = sys._getframe(1)
        if self._is_followed(code, frame) and code.co_flags & inspect.CO_COROUTINE:
            return resume_coroutine(self._points, code, frame)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _is_followed(self, code: types.CodeType, frame: types.FrameType) -> bool:
        """Whether code is under test; if so, monitor its steps."""
        if code in self._codes:
            return True
        points = self._points.of(code, frame)
        if points is None:
            return False
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        self._codes[code] = points
        monitoring.set_local_events(self._tool, code, self._event)
        return True

    def _on_step(self, code: types.CodeType, line_or_offset: int) -> Any:
        point = self._codes[code].get(line_or_offset)
        return stop_at(point) if point else sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]


class Tracing:
    """Stepping by `sys.settrace`, thread by thread; the previous trace function sees all that it would have seen."""

    def __init__(self, points: StopPoints) -> None:
        self._points = points
        self._by = points.by
        self._of_code: dict[types.CodeType, Callable[..., Any] | None] = {}

    def on(self) -> None:
        """Do nothing: each thread traces itself."""

    def off(self) -> None:
        """Do nothing."""

    def enter(self) -> None:
        """Trace this thread, and keep calling its previous trace function."""
        previous = sys.gettrace()
        sys.settrace(self._on_call if previous is None else _Chain(previous, self._on_call))

    def leave(self) -> None:
        """Restore the previous trace function of this thread."""
        tracing = sys.gettrace()
        sys.settrace(tracing.previous if isinstance(tracing, _Chain) else None)

    def _on_call(self, frame: types.FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._of_code:
            points = self._points.of(code, frame)
            self._of_code[code] = None if points is None else self._local_tracer(points)
        local = self._of_code[code]
        if local is not None:
            frame.f_trace_opcodes = self._by == "opcode"
            if code.co_flags & inspect.CO_COROUTINE and _is_resumed(frame):
                resume_coroutine(self._points, code, frame)
        return local

    def _local_tracer(self, points: dict[int, StopPoint]) -> Callable[..., Any]:
        wanted = self._by
        by_line = wanted == "line"

        def local(frame: types.FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == wanted:
                point = points.get(frame.f_lineno if by_line else frame.f_lasti)
                if point is not None:
                    stop_at(point)
            return local

        return local


class _Chain:
    """Two trace functions, called one after the other: the previous one, and ours."""

    def __init__(self, previous: Any, ours: Callable[..., Any]) -> None:
        self.previous = previous
        self._ours = ours

    def __call__(self, frame: types.FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        theirs = self.previous(frame, event, arg)
        installed = sys.gettrace()
        if installed is not self:  # it has replaced us both, as coverage does
            self.previous = installed
            sys.settrace(self)
        ours = self._ours(frame, event, arg)
        if theirs is None or ours is None:
            return ours or theirs  # type: ignore[no-any-return]
        return _chained(theirs, ours)


def _chained(theirs: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    def local(frame: types.FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal theirs
        if theirs is not None and event != "opcode":
            theirs = theirs(frame, event, arg)
        ours(frame, event, arg)
        return local

    return local


def stepping(points: StopPoints) -> Stepping:
    """Return this Python's way to stop threads."""
    return Monitoring(points) if hasattr(sys, "monitoring") else Tracing(points)


def _is_resumed(frame: types.FrameType) -> bool:
    """Whether a frame resumes after an `await`, rather than being called."""
    code, offset = frame.f_code.co_code, frame.f_lasti
    return offset >= 0 and dis.opname[code[offset]] == "RESUME" and code[offset + 1] & 3 == 3
