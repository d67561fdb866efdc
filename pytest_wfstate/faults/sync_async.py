"""Work written once as steps, a generator that yields the calls it needs, and driven with or without an event loop.

Workloads, checks and clients may be sync or async. `sync_method` and `async_twin` derive both public methods of a lab
from one such generator, so that nothing is written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

__tracebackhide__ = True

P = ParamSpec("P")
T = TypeVar("T")

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Steps = Generator[Call, Any, T]
"""Yields calls, is sent their results or has their errors raised in it, and returns a result of its own."""


def sync_method(method: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Turn a method that is written as steps into one that blocks. It refuses to run inside an event loop."""

    @functools.wraps(method)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
        _need_no_loop(method.__qualname__)
        return run(method(*args, **kwargs))

    return _with_result(blocking, method)


def async_twin(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the async twin of a `sync_method`: the same steps, on the running event loop."""
    steps: Callable[P, Steps[T]] = inspect.unwrap(method)

    @functools.wraps(steps)
    async def awaitable(*args: P.args, **kwargs: P.kwargs) -> T:
        return await arun(steps(*args, **kwargs))

    prefix, _, name = steps.__qualname__.rpartition(".")
    awaitable.__name__, awaitable.__qualname__ = f"a{name}", f"{prefix}.a{name}"
    awaitable.__doc__ = f"Do what `{name}` does, with the same arguments, on the running event loop."
    return _with_result(awaitable, steps)


def run(steps: Steps[T]) -> T:
    """Make the calls that `steps` yields; async ones run on an event loop that is made for them."""
    with contextlib.ExitStack() as runners:
        runner: asyncio.Runner | None = None
        try:
            function, args = next(steps)
            while True:
                try:
                    result = function(*args)
                    if inspect.isawaitable(result):
                        runner = runner or runners.enter_context(asyncio.Runner())
                        result = runner.run(_wait_alone(result))
                except BaseException as error:
                    function, args = steps.throw(error)
                else:
                    function, args = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value


async def arun(steps: Steps[T]) -> T:
    """Make the calls that `steps` yields, on the running event loop."""
    try:
        function, args = next(steps)
        while True:
            try:
                result = function(*args)
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as error:
                function, args = steps.throw(error)
            else:
                function, args = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Make one call, and wait for its result if it is async."""
    result = function(*args)
    return asyncio.run(_wait(result)) if inspect.isawaitable(result) else result


def beside_loop(function: Callable[..., Any], *args: Any) -> Any:
    """Call what blocks for long: in a thread if an event loop is running here, which is not held up then."""
    return asyncio.to_thread(function, *args) if _is_in_loop() else function(*args)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _need_no_loop(qualname: str) -> None:
    """Raise if an event loop is running: an async workload needs one of its own."""
    if _is_in_loop():
        fixture, _, name = qualname.lower().rpartition(".")
        raise RuntimeError(
            f"{fixture}.{name} was called inside a running event loop, where it cannot start another. "
            f"Use `await {fixture}.a{name}(...)` there: it takes the same arguments."
        )


def _with_result(function: Callable[P, T], steps: Callable[..., Any]) -> Callable[P, T]:
    """Have `help` and editors show the result of the steps, not that they are steps."""
    signature = inspect.signature(steps)
    result = signature.return_annotation.removeprefix("Steps[").removesuffix("]")
    function.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return function


async def _wait(result: Any) -> Any:
    return await result


async def _wait_alone(result: Any) -> Any:
    """Wait for a result, and cancel the tasks that are left, as `asyncio.run` does: the next call gets a clean loop."""
    try:
        return await result
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
