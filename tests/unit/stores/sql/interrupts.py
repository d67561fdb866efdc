"""Interrupts: raise an exception at every line of the stores' own code, as a signal handler can."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest_wfstate.stores.sql

FOLDER = str(Path(pytest_wfstate.stores.sql.__file__).parent)


class InterruptedBySignal(Exception):
    """What a handler raises. Handlers of pytest-timeout and `signal.alarm` raise an Exception as well."""


def interrupt_each_line(call: Callable[[], Any], kind: type[BaseException], callers: int, rounds: int) -> Iterator[str]:
    """Make a call again and again, each time interrupted at a new line, until it comes to its end.

    A line is new for each way to it, that is the lines that called it, as many as `callers`. If a loop reaches it
    again, it is new for as many times as `rounds`. Yield the line after each call. The exception and its traceback are
    kept meanwhile: what only they keep is not free.
    """
    done: set[object] = set()
    while True:
        tracer = _Tracer(kind, callers, rounds, done)
        before, kept = sys.gettrace(), None
        try:
            sys.settrace(tracer)
            call()
        except kind as raised:
            kept = raised
        finally:
            sys.settrace(before)
        if not tracer.line:
            return
        yield tracer.line
        assert kept is not None, f"the exception raised at {tracer.line} was swallowed"


class _Tracer:
    def __init__(self, kind: type[BaseException], callers: int, rounds: int, done: set[object]) -> None:
        self.line = ""
        self._kind = kind
        self._lines = callers + 1
        self._rounds = rounds
        self._done = done
        self._times: Counter[object] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line" and not self.line and frame.f_lasti not in _ends_of_with(frame.f_code):
            way = tuple(itertools.islice(_way_to(frame), self._lines))
            self._times[way] += 1
            if self._times[way] <= self._rounds and (way, self._times[way]) not in self._done:
                self._done.add((way, self._times[way]))
                self.line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise self._kind(self.line)
        return self


def _way_to(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    """Yield a line of the stores' own code, and the lines of it that it is called from."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(FOLDER):
            yield frame.f_code, frame.f_lineno
        frame = frame.f_back


@functools.cache
def _ends_of_with(code: CodeType) -> frozenset[int]:
    """Return where the interpreter is about to call the `__exit__` of a `with`.

    A trace function sees a line there. A signal handler never runs there: the interpreter looks for signals after calls
    and before it jumps back, and does neither between the block and the exit.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "NOP", "SWAP")]
    ends = {
        first.offset
        for first, *more in zip(steps, steps[1:], steps[2:], strict=False)
        if all(step.opname == "LOAD_CONST" and step.argval is None for step in (first, *more))
    }
    ends |= {
        step.offset
        for step, after in itertools.pairwise(steps)
        if step.opname == "PUSH_EXC_INFO" and after.opname == "WITH_EXCEPT_START"
    }
    skipped = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for step, after in reversed(list(itertools.pairwise(skipped))):
        if step.opname in ("NOP", "SWAP") and after.offset in ends:
            ends.add(step.offset)
    return frozenset(ends)
