"""The race lab: schedules of clients, one by one, and storms of workers on a store."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.engine.handles import Handles, close
from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.faults.disk.home import memory_home, need_real_disk
from pytest_wfstate.faults.drive import arun, call, run
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.faults.race.schedule import PROGRESS
from pytest_wfstate.faults.race.schedules import (
    BYS,
    TIMEOUT,
    By,
    Client,
    ClientDied,
    Outcome,
    RaceExplorer,
    RaceResult,
    RaceTask,
)
from pytest_wfstate.labs.settings import Lab, Settings, Unmeasured, need_measured, need_no_loop
from pytest_wfstate.labs.storm import KillableServer, Medium, StormResult, StormRun
from pytest_wfstate.specs import CONTRACTS

__all__ = ["ClientDied", "Outcome", "Race", "RaceBug", "RaceResult", "StormResult"]

__tracebackhide__ = True

SECONDS = {"quick": 1.0, "default": 3.0, "thorough": 20.0}


class Race(Lab):
    """Runs clients against each other: in every order in which they can take turns, or all at once in a storm.

    A *client* is called with a folder, home, opens a handle of its own there, and does its work. A *check* is called
    with an `Outcome`, and raises if that is not acceptable. All may be async.
    """

    def __init__(self, settings: Settings | None = None, profile: str = "default") -> None:
        super().__init__(settings)
        self._profile = profile

    def explore(
        self,
        setup: Client | None,
        clients: Sequence[Client],
        check: Client,
        *,
        preemptions: int | None = None,
        crash: bool = False,
        by: By | None = None,
        unmeasured: Unmeasured = "fail",
    ) -> RaceResult:
        """Run `clients` in every order in which they can take turns at their file operations, and check each outcome.

        `preemptions` is how often a client is stopped that could have gone on: 2, or 1 by opcode. With `crash`, one
        client is also really killed, wherever it has changed something, and the others go on.

        With `by`, nothing is on files: `setup()` makes what the clients share in memory, anew each time, and they are
        called with it. They are threads that take turns at each `"line"` or `"opcode"` of its code, or tasks of one
        event loop that take turns at each `"await"`.

        Raises:
            RaceBug: the check does not accept an outcome, or the clients cannot come to their ends.
            NotMeasured: the lab could not see what the clients did.
        """
        need_no_loop("race", "explore")
        explorer = RaceExplorer(self._task(setup, clients, check, preemptions, by, crash=crash))
        with self._reporting(explorer.result):
            run(explorer.steps())
        need_measured(explorer.result, unmeasured)
        return explorer.result

    async def aexplore(
        self,
        setup: Client | None,
        clients: Sequence[Client],
        check: Client,
        *,
        preemptions: int | None = None,
        crash: bool = False,
        by: By | None = None,
        unmeasured: Unmeasured = "fail",
    ) -> RaceResult:
        """Do what `explore` does, from a running event loop. `setup` and `check` run on it."""
        explorer = RaceExplorer(self._task(setup, clients, check, preemptions, by, crash=crash))
        with self._reporting(explorer.result):
            await arun(explorer.steps())
        need_measured(explorer.result, unmeasured)
        return explorer.result

    def unseen(self, setup: Client, clients: Sequence[Client]) -> list[str]:
        """Run clients one after the other, and tell what of their work no turns can be taken at, such as SQLite."""
        with memory_home(self._settings.home) as home:
            call(setup, home.path)
            with contextlib.closing(ClientProcesses(home, clients, TIMEOUT)) as processes:
                return processes.run(()).unseen

    def ack(self, value: Any = None) -> None:
        """Promise something to the outside: no death of this client may undo it. For use in a client."""
        progress = PROGRESS.get()
        if progress is not None:
            progress.acked.append(value)

    def _task(
        self,
        setup: Client | None,
        clients: Sequence[Client],
        check: Client,
        preemptions: int | None,
        by: By | None,
        *,
        crash: bool,
    ) -> RaceTask:
        bound = (1 if by == "opcode" else 2) if preemptions is None else preemptions
        if len(clients) < 2:
            raise ValueError(f"there {'is 1 client' if clients else 'are no clients'}. It takes two to race.")
        if bound < 0:
            raise ValueError(f"preemptions is {preemptions!r}. It is how often a client may be stopped: from 0 up.")
        if by is not None:
            _check_by(by, setup, crash=crash)
        settings = self._settings
        return RaceTask(
            setup=setup,
            clients=clients,
            check=check,
            preemptions=bound,
            by=by,
            crash=crash,
            home=self._home(),
            bounds=self._bounds,
            test=settings.test,
            ordinal=self._explorations + 1,
            replay=settings.replay,
            keep=settings.keep,
            progress=settings.progress,
        )

    def storm(
        self,
        open: Callable[[Path], Any],  # noqa: A002 - as suites call it
        contract: Contract | str,
        *,
        processes: int = 4,
        seconds: float | None = None,
        kills: bool = True,
        seed: int = 0,
        medium: Medium = "disk",
        server: KillableServer | None = None,
    ) -> StormResult:
        """Have several processes make random calls of a contract on the store that `open(home)` opens, all at once.

        With `kills` one of them is killed now and then, and started again. How long it takes is up to the profile,
        where `seconds` are not given. A store with `medium="memory"` is shared by threads, which cannot be killed. A
        `server`, such as that of the fixture `redis_server`, is killed and started again every 200 calls; that proves
        that its store survives the death of its process, not a power cut.

        Raises:
            RaceBug: no order of the calls explains what came of them, a call ended in an error, or did not end.
        """
        need_real_disk()
        with memory_home(f"h{uuid.uuid4().hex[:15]}") as home, contextlib.closing(Driver(TIMEOUT)) as driver:

            def handles() -> Handles:
                return Handles(
                    lambda: driver.run(lambda: open(home.path), "open"),
                    lambda store: driver.run(lambda: close(store), "close"),
                    driver,
                )

            return self.run_storm(
                handles,
                _contract(contract),
                StormResult(processes, seed),
                seconds,
                medium=medium,
                kills=kills,
                timeout=TIMEOUT,
                server=server,
            )

    def run_storm(
        self,
        handles: Callable[[], Handles],
        contract: Contract,
        result: StormResult,
        seconds: float | None = None,
        **settings: Any,
    ) -> StormResult:
        """Do what `storm` does, through handles that a suite opens. `settings` are those of `StormRun`.

        Raises:
            RaceBug: as `storm` does.
        """
        with self._reporting(result):
            StormRun(handles, contract, result, **settings).run(SECONDS[self._profile] if seconds is None else seconds)
        if result.violation:
            raise RaceBug(f"a storm of {result.workers} workers broke the store.\n\n{result.violation}\n\n{result}.")
        return result


def _check_by(by: By, setup: Client | None, *, crash: bool) -> None:
    if by not in BYS:
        raise ValueError(f"by is {by!r}. It is one of {', '.join(BYS)}, or None for clients on files.")
    if setup is None:
        raise ValueError(f"setup is None with by={by!r}. It makes what the clients share in memory: give a function.")
    if crash:
        raise ValueError(f"crash=True with by={by!r}: a thread cannot be killed, and memory does not survive it.")


def _contract(contract: Contract | str) -> Contract:
    if isinstance(contract, Contract):
        return contract
    if contract in CONTRACTS:
        return CONTRACTS[contract]
    raise InvalidSetting(f"there is no contract {contract!r}. It is a Contract, or one of {', '.join(CONTRACTS)}.")
