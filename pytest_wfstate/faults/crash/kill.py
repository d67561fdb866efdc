"""Real kills: a child process dies by SIGKILL at a point, and leaves its disk."""

from __future__ import annotations

import functools
import multiprocessing.connection as connection
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.crash.points import KillTrigger, Point
from pytest_wfstate.faults.disk.home import Disk, Home
from pytest_wfstate.faults.forking import fork
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.sync_async import call
from pytest_wfstate.faults.world.remote import TIMEOUT, Message, WorldClient, WorldServer
from pytest_wfstate.faults.world.world import WorldMethod, Worlds

__tracebackhide__ = True


class NeverReached(WfstateError, AssertionError):
    """The workload ended, or took too long, without reaching the point where it was to die."""


def kill(workload: Callable[..., Any], point: Point, home: Home, worlds: Worlds, timeout: float) -> Disk:
    """Run `workload` in a child that dies at `point`, and return the disk that it leaves.

    Raises:
        NeverReached: it did not reach the point.
    """
    parent, child = connection.Pipe()
    pid = fork()
    if pid == 0:
        parent.close()
        _DoomedChild(child, worlds, point).run(workload, home)
    child.close()
    disk, killer = Disk(home.path, [], [], lambda: str(point)), _Killer(pid, point)
    # Effects may also be those of threads of this process, such as a server that the child talks to.
    worlds.effects, worlds.around = disk.effects, killer.trigger.world_called
    try:
        server, deadline = WorldServer(parent, worlds), now() + timeout
        while (ended := server.receive(deadline)) is not None and ended[0] == "ack":
            disk.acked.append(ended[1])
    finally:
        worlds.effects = worlds.around = None
        parent.close()
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if ended is None and not killer.killed:
        ended = "died", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
    if ended is not None and ended[0] != "reached":
        raise NeverReached(_explain(point, ended, timeout))
    return disk


class _Killer:
    """Kills the child from here, when a thread of this process reaches the point on its behalf."""

    def __init__(self, pid: int, point: Point) -> None:
        self._pid = pid
        self.trigger = KillTrigger(point, self._kill)
        self.killed = False

    def _kill(self) -> None:
        self.killed = True
        os.kill(self._pid, signal.SIGKILL)
        raise ConnectionAbortedError("crash.kill has killed the process that made this call.")


def _explain(point: Point, ended: Message, timeout: float) -> str:
    kind, value = ended
    if ended == TIMEOUT:
        return f"The child did not reach {point} in {timeout:g} s, and was killed. Raise kill(..., timeout=)."
    if kind == "died":
        return f"The child died on its own before it reached {point}: {value}."
    if kind == "raised":
        return f"The workload raised before it reached {point}:\n{value}"
    seen = "\n".join(f"  {line}" for line in value) or "  nothing"
    return f"The workload ended without reaching {point}. It did:\n{seen}\nChoose a point among these."


class _DoomedChild(WorldClient):
    """The process that is to die."""

    def __init__(self, pipe: connection.Connection, worlds: Worlds, point: Point) -> None:
        super().__init__(pipe, worlds)
        self._trigger = KillTrigger(point, self._die)

    def run(self, workload: Callable[..., Any], home: Home) -> None:
        """Run the workload. Does not return."""
        try:
            self._worlds.remote = self
            self._trigger.watch_calls()
            self._worlds.send_ack = functools.partial(self.send, "ack")
            with Recorder(home.path, self._trigger, children="readonly"):
                call(workload, home.path)
            self.send("ended", self._trigger.seen)
        except BaseException:
            self.send("raised", traceback.format_exc())
        finally:
            os._exit(0)

    def call(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have the test's process make a call on a world, which may be the point."""
        ask = super().call
        method = WorldMethod(self._worlds, world, name)
        return self._trigger.world_called(method, lambda: ask(world, name, args, kwargs))

    def _die(self) -> None:
        self.send("reached", None)
        os.kill(os.getpid(), signal.SIGKILL)
        while True:
            signal.pause()
