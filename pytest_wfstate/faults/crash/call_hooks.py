"""Functions that tell when they are called and when they return, whoever calls them by whatever name.

A wrapper put in the place of a function would not be seen by code that has imported the function before. So the code
inside the function is exchanged, and every reference to it stays good. There is no way back: it is for a child.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any


def plain_function(what: Any) -> types.FunctionType:
    """Give the function that a function or method is.

    Raises:
        TypeError: it is none that can be watched.
    """
    function = getattr(what, "__func__", what)
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"{what!r} is no function of Python code, so its calls cannot be watched. Give a function, a method, "
            "a method of a crash.world, or the name of a file operation such as 'rename'."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} is a generator, so a call of it returns before anything is done. Name a function "
            "that it calls, or a file operation."
        )
    return function


def watch_function(function: types.FunctionType, begins: Callable[[], None], ended: Callable[[], None]) -> None:
    """Have a function call `begins` before it does anything, and `ended` when it has returned."""
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
    new = (_ainstead if is_async else _instead).__code__
    names = tuple(name if one == "_watched" else one for one in new.co_names)
    # With as many free variables as the function has cells for; they are not used.
    function.__code__ = new.replace(co_names=names, co_freevars=code.co_freevars)


def _watched(*args: Any, **kwargs: Any) -> Any:
    """Stand for the name that is put into the code below."""


def _instead(*args: Any, **kwargs: Any) -> Any:
    return _watched(*args, **kwargs)


async def _ainstead(*args: Any, **kwargs: Any) -> Any:
    return await _watched(*args, **kwargs)
