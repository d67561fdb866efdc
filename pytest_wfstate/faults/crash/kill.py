"""Kill: a child really dies by SIGKILL at a point, and leaves its disk."""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connection
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.crash.points import KillTrigger, Point
from pytest_wfstate.faults.disk.home import Disk, Home
from pytest_wfstate.faults.drive import call
from pytest_wfstate.faults.forking import fork
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.world.remote import TIMEOUT, Message, WorldClient, WorldServer
from pytest_wfstate.faults.world.world import WorldMethod, Worlds

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True


class NeverReached(WfstateError, AssertionError):
    """The workload ended, or took too long, without coming to the point where it was to die."""

    __module__ = "pytest_wfstate"


def kill(workload: Callable[..., Any], point: Point, home: Home, worlds: Worlds, timeout: float) -> Disk:
    """Run `workload` in a child that dies at `point`, and give the disk that it leaves.

    Raises:
        NeverReached: it did not come to the point.
    """
    parent, child = connection.Pipe()
    pid = fork()
    if pid == 0:
        parent.close()
        _DoomedChild(child, worlds, point).run(workload, home)
    child.close()
    disk = Disk(home.path, [], [], lambda: str(point))
    try:
        with _effects_told(disk, worlds, _Killer(pid, point)) as killer:
            ended = _hear(WorldServer(parent, worlds), disk, now() + timeout)
    finally:
        parent.close()
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if ended is None and not killer.killed:
        ended = "died", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
    if ended is not None and ended[0] != "reached":
        raise NeverReached(_explain(point, ended, timeout))
    return disk


def _hear(server: WorldServer, disk: Disk, deadline: float) -> Message | None:
    """Listen to the child until it says how it ended, or is gone (None)."""
    while (said := server.receive(deadline)) is not None and said[0] == "ack":
        disk.acked.append(said[1])
    return said


class _Killer:
    """Kills the child from here: it is at the point because of a thread of this process."""

    def __init__(self, pid: int, point: Point) -> None:
        self._pid = pid
        self.watch = KillTrigger(point, self._kill)
        self.killed = False

    def _kill(self) -> None:
        self.killed = True
        os.kill(self._pid, signal.SIGKILL)
        raise ConnectionAbortedError("the process that asked for this was killed, as crash.kill was told to.")


@contextlib.contextmanager
def _effects_told(disk: Disk, worlds: Worlds, killer: _Killer) -> Iterator[_Killer]:
    """List the effects, also those of threads of this process, such as a server that the child talks to."""
    worlds.effects, worlds.around = disk.effects, killer.watch.world_called
    try:
        yield killer
    finally:
        worlds.effects = worlds.around = None


def _explain(point: Point, ended: Message, timeout: float) -> str:
    kind, value = ended
    if ended == TIMEOUT:
        return (
            f"{point} was not reached in {timeout:g} s, and the child was killed. Give kill(..., timeout=) more time."
        )
    if kind == "died":
        return f"the child died by itself before it came to {point}: {value}."
    if kind == "raised":
        return f"the workload raised before it came to {point}:\n{value}"
    seen = "\n".join(f"  {line}" for line in value) or "  nothing"
    return f"the workload ended without coming to {point}. It did:\n{seen}\nChoose a point among these."


class _DoomedChild(WorldClient):
    """The process that is to die."""

    def __init__(self, pipe: connection.Connection, worlds: Worlds, point: Point) -> None:
        super().__init__(pipe, worlds)
        self._watch = KillTrigger(point, self._die)

    def run(self, workload: Callable[..., Any], home: Home) -> None:
        """Run the workload. It does not return."""
        try:
            self._worlds.remote = self
            self._watch.watch_calls()
            with Recorder(home.path, self._watch, children="readonly"):
                call(workload, home.path)
            self.send("ended", self._watch.seen)
        except BaseException:
            self.send("raised", traceback.format_exc())
        finally:
            os._exit(0)

    def ack(self, value: Any) -> None:
        """Tell the test what was acknowledged."""
        self.send("ack", value)

    def call(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the test for an effect, which may be the point."""
        ask = super().call
        method = WorldMethod(self._worlds, world, name)
        return self._watch.world_called(method, lambda: ask(world, name, args, kwargs))

    def _die(self) -> None:
        self.send("reached", None)
        os.kill(os.getpid(), signal.SIGKILL)
        while True:
            signal.pause()
