"""Context managers that a signal cannot skip the end of.

A signal handler that raises (Ctrl-C, `signal.alarm`, the time limit of a test) may do so at any line of Python: also
at the first line of a `contextlib.contextmanager`'s exit, before it does anything. The traceback then keeps the
generator alive, and a lock in it held, for as long as somebody keeps the error.

Here `with` itself is the only owner of the generator: no frame of Python refers to it while it is open. However the
block ends, at the latest CPython drops the generator when it leaves the statement, which runs its `finally`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def scope(function: Callable[P, Generator[T]]) -> Callable[P, AbstractContextManager[T, None]]:
    """Turn a generator function with one `yield` into a context manager, for a `with` statement and nothing else."""

    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T, None]:
        return cast("AbstractContextManager[T, None]", _Scope(function(*args, **kwargs)))

    return make


class _Scope(Generic[T]):
    """A generator that has not begun. `with` takes its two methods, and keeps nothing else of it."""

    __slots__ = ("_generator",)

    def __init__(self, generator: Generator[T]) -> None:
        self._generator = generator

    @property
    def __enter__(self) -> Callable[[], T]:
        return self._generator.__next__

    @property
    def __exit__(self) -> Callable[..., None]:
        leave: Any = functools.partial(_leave, weakref.ref(self._generator))
        leave.generator = self._generator  # which lives as long as `with` keeps this
        return cast("Callable[..., None]", leave)


def _leave(
    generator: Callable[[], Any],
    _: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Run the generator to its end. It is never in a variable: a traceback would keep it."""
    if error is None:
        next(generator(), None)
        return
    try:
        generator().throw(error)
    except BaseException as raised:
        if raised is not error:
            raise
        error.__traceback__ = trace
