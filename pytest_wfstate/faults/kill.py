"""Kill: a child really dies by SIGKILL at a point, and leaves its disk."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing.connection as connection
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.disk import Disk, Home
from pytest_wfstate.faults.points import Point, Watch
from pytest_wfstate.faults.recording import recording
from pytest_wfstate.faults.world import WorldMethod, Worlds

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True


class NeverReached(WfstateError, AssertionError):
    """The workload ended, or took too long, without coming to the point where it was to die."""


def kill(workload: Callable[..., Any], point: Point, home: Home, worlds: Worlds, timeout: float) -> Disk:
    """Run `workload` in a child that dies at `point`, and give the disk that it leaves.

    Raises:
        NeverReached: it did not come to the point.
    """
    parent, child = connection.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only runs the workload
        pid = os.fork()
    if pid == 0:
        parent.close()
        _Child(child, worlds).run(workload, point, home)
    child.close()
    acked: list[Any] = []
    effects: list[str] = []
    try:
        ended = _serve(parent, worlds, acked, effects, time.monotonic() + timeout)
    finally:
        parent.close()
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if ended is not None:
        raise NeverReached(_explain(point, ended, timeout))
    if not os.WIFSIGNALED(status):
        raise NeverReached(f"the child ended by itself, without coming to {point}: exit status {status >> 8}.")
    return Disk(home.path, acked, effects, lambda: str(point))


def _serve(
    parent: connection.Connection, worlds: Worlds, acked: list[Any], effects: list[str], deadline: float
) -> tuple[str, Any] | None:
    """Answer the child until it dies (None) or says how it ended."""
    while True:
        if not parent.poll(max(0.0, deadline - time.monotonic())):
            return ("timeout", None)
        try:
            kind, value = parent.recv()
        except (EOFError, ConnectionResetError):
            return None
        if kind == "ack":
            acked.append(value)
        elif kind == "effect":
            number, name, args, kwargs, text = value
            parent.send(_call(worlds, number, name, args, kwargs))
            effects.append(text)
        else:
            return (kind, value)


def _call(worlds: Worlds, number: int, name: str, args: Any, kwargs: Any) -> tuple[bool, Any]:
    try:
        result = worlds.call(number, name, args, kwargs)
        if inspect.isawaitable(result):
            result = asyncio.run(_wait(result))
        return True, result
    except Exception as error:
        return False, error


async def _wait(result: Any) -> Any:
    return await result


def _explain(point: Point, ended: tuple[str, Any], timeout: float) -> str:
    kind, value = ended
    if kind == "timeout":
        return (
            f"{point} was not reached in {timeout:g} s, and the child was killed. Give kill(..., timeout=) more time."
        )
    if kind == "raised":
        return f"the workload raised before it came to {point}:\n{value}"
    seen = "\n".join(f"  {line}" for line in value) or "  nothing"
    return f"the workload ended without coming to {point}. It did:\n{seen}\nChoose a point among these."


class _Child:
    """The process that is to die."""

    def __init__(self, pipe: connection.Connection, worlds: Worlds) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._worlds = worlds

    def run(self, workload: Callable[..., Any], point: Point, home: Home) -> None:
        """Run the workload. It does not return."""
        try:
            self._watch = Watch(point, _die)
            self._worlds.remote = self
            self._watch.watch_calls()
            with recording(home.path, self._watch, children="readonly"):
                result = workload(home.path)
                if inspect.isawaitable(result):
                    asyncio.run(_wait(result))
            self._say("ended", self._watch.seen)
        except BaseException:
            self._say("raised", traceback.format_exc())
        finally:
            os._exit(0)

    def ack(self, value: Any) -> None:
        """Tell the test what was acknowledged."""
        self._say("ack", value)

    def call(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the test for an effect."""
        assert self._watch is not None
        return self._watch.world_called(
            WorldMethod(self._worlds, world, name), lambda: self._ask(world, name, args, kwargs)
        )

    def _ask(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shown = [repr(arg) for arg in args] + [f"{key}={value!r}" for key, value in kwargs.items()]
        with self._lock:
            self._pipe.send(("effect", (world, name, args, kwargs, f"{name}({', '.join(shown)})")))
            worked, result = self._pipe.recv()
        if not worked:
            raise result
        return result

    def _say(self, kind: str, value: Any) -> None:
        with self._lock:
            self._pipe.send_bytes(pickle.dumps((kind, value)))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()
