"""Hooks on calls of a function, whatever name it is called by.

Code that has imported a function already would not see a wrapper put in its place. So the code inside the function is
replaced, and every reference to it stays valid. This cannot be undone: it is for a child.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any


def plain_function(what: Any) -> types.FunctionType:
    """Return the function behind a function or method; raise TypeError if its calls cannot be watched."""
    function = getattr(what, "__func__", what)
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"{what!r} is not a function written in Python, so its calls cannot be watched. Give a function, a "
            "method, a method of a crash.world, or the name of a file operation such as 'rename'."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} is a generator function: a call returns before anything is done. Name a "
            "function that it calls, or a file operation."
        )
    return function


def watch_function(function: types.FunctionType, begins: Callable[[], None], ended: Callable[[], None]) -> None:
    """Make a function call `begins` before it does anything, and `ended` when it has returned."""
    code = function.__code__
    real = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    real.__kwdefaults__ = function.__kwdefaults__

    def call(*args: Any, **kwargs: Any) -> Any:
        begins()
        result = real(*args, **kwargs)
        ended()
        return result

    async def acall(*args: Any, **kwargs: Any) -> Any:
        begins()
        result = await real(*args, **kwargs)
        ended()
        return result

    is_async = inspect.iscoroutinefunction(function)
    name = f"_wfstate_watched_{id(function)}"
    function.__globals__[name] = acall if is_async else call
    forwarding = (_aforward if is_async else _forward).__code__
    names = tuple(name if known == "_watched" else known for known in forwarding.co_names)
    # With as many free variables as the function has cells for; they are not used.
    function.__code__ = forwarding.replace(co_names=names, co_freevars=code.co_freevars)


def _watched(*args: Any, **kwargs: Any) -> Any:
    """Placeholder for the name that is put into the code below."""


def _forward(*args: Any, **kwargs: Any) -> Any:
    return _watched(*args, **kwargs)


async def _aforward(*args: Any, **kwargs: Any) -> Any:
    return await _watched(*args, **kwargs)
