"""Failures of the code under test, and interruptions, which are not failures: a time limit, Ctrl-C, a termination.

pytest-timeout, for example, calls `pytest.fail` in a signal handler, in the middle of whatever runs. That says nothing
about the store, so it must end the test as itself, wherever it strikes.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

import pytest

_FAILURES = (Exception, SystemExit, pytest.fail.Exception)


class CatchFailure:
    """Catches what a block raises if that is a failure: `with CatchFailure() as caught`, then `caught.error`.

    Interruptions pass through, and so do `pytest.skip` and `pytest.exit`.
    """

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        # The exception of pytest.exit is an Exception.
        is_failure = isinstance(error, _FAILURES) and not isinstance(error, pytest.exit.Exception)
        if error is None or not is_failure or is_interruption(error):
            return False
        self.error = error
        return True


def is_interruption(error: BaseException) -> bool:
    """Whether a signal handler raised an error, or one that led to it."""
    return any(_is_signal_handler(frame) for each in _chain(error) for frame in _frames(each))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those in it if it is a group, and those that each was raised from or while handling."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def _frames(error: BaseException) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _is_signal_handler(frame: FrameType) -> bool:
    """Whether Python called this frame for a signal: with the signal's number, and the frame that it interrupted."""
    names, more, _, values = inspect.getargvalues(frame)
    args = [values.get(name) for name in names] + list(values.get(more, ()) if more else ())
    return frame.f_back is not None and any(
        isinstance(number, int) and interrupted is frame.f_back for number, interrupted in itertools.pairwise(args)
    )
