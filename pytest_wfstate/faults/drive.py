"""Steps: work that asks for its calls to be made, so that one piece of code serves sync and async callables."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Generator
from typing import Any

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Steps = Generator[Call, Any, Any]


def run(steps: Steps) -> Any:
    """Make the calls that `steps` asks for; async ones run on a loop of their own."""
    with contextlib.ExitStack() as runners:
        runner: asyncio.Runner | None = None

        def make(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            nonlocal runner
            result = call(*args)
            if not inspect.isawaitable(result):
                return result
            runner = runner or runners.enter_context(asyncio.Runner())
            return runner.run(_wait_alone(result))

        return _drive(steps, make)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Make one call, and wait for its result if it is async."""
    result = function(*args)
    return asyncio.run(_wait(result)) if inspect.isawaitable(result) else result


async def acall(function: Callable[..., Any], *args: Any) -> Any:
    """Make one call on the running loop, and wait for its result if it is async."""
    result = function(*args)
    return await result if inspect.isawaitable(result) else result


async def arun(steps: Steps) -> Any:
    """Make the calls that `steps` asks for, on the running loop."""
    try:
        asked = next(steps)
        while True:
            try:
                function, args = asked
                result = await acall(function, *args)
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(result)
    except StopIteration as end:
        return end.value


def _drive(steps: Steps, make: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> Any:
    try:
        asked = next(steps)
        while True:
            try:
                result = make(*asked)
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(result)
    except StopIteration as end:
        return end.value


async def _wait(result: Any) -> Any:
    return await result


async def _wait_alone(result: Any) -> Any:
    """Wait for a result, and end the tasks that are left, as `asyncio.run` does: the next call finds a clean loop."""
    try:
        return await result
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
