"""The race lab, as a test sees it: the `race` fixture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.engine.handles import Handles, close, open_store
from pytest_wfstate.errors import InvalidSetting, blamed
from pytest_wfstate.faults.disk.home import memory_home, need_real_disk
from pytest_wfstate.faults.race.explorer import (
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
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.faults.race.schedule import PROGRESS
from pytest_wfstate.faults.sync_async import Steps, async_twin, call, sync_method
from pytest_wfstate.labs.fixtures import unique_home
from pytest_wfstate.labs.lab import Lab, Settings, Unmeasured, need_known
from pytest_wfstate.labs.storm import KillableServer, Medium, StormResult, StormRun
from pytest_wfstate.oracle.render import shown_by
from pytest_wfstate.specs import CONTRACTS

__all__ = ["ClientDied", "Outcome", "Race", "RaceBug", "RaceResult", "StormResult"]

__tracebackhide__ = True

CALLS = {"quick": 600, "default": 2_000, "thorough": 20_000}
"""How many calls a storm makes."""


class Race(Lab):
    """Runs clients against each other: in every schedule within a bound, or all at once in a storm.

    A *client* is called with a folder, home, opens its own handle there, and does its work. A *check* is called with an
    `Outcome`, and raises if that is not acceptable. All may be async.
    """

    def __init__(self, settings: Settings | None = None, profile: str = "default") -> None:
        super().__init__(settings)
        self._profile = profile

    @sync_method
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
    ) -> Steps[RaceResult]:
        """Run `clients` in every schedule of their file operations within a bound, and check each outcome.

        `preemptions` is how often a schedule may switch away from a client that could have continued: 2 by default,
        or 1 by opcode. With `crash`, one client is also killed, wherever it has changed something.

        With `by`, nothing is on files: `setup()` makes what the clients share in memory, again for each schedule, and
        they are called with it. They are threads that switch at each `"line"` or `"opcode"` of its code, or tasks of
        one event loop that switch at each `"await"`.

        Raises:
            RaceBug: an outcome fails the check, or the clients cannot finish.
            NotMeasured: the lab could not see what the clients did.
        """
        task = self._task(setup, clients, check, preemptions, by, crash=crash)
        return (yield from self._measure(RaceExplorer(task), unmeasured))

    aexplore = async_twin(explore)

    def unseen(self, setup: Client, clients: Sequence[Client]) -> list[str]:
        """Run clients one after the other, and return what they use that cannot be interleaved, such as SQLite."""
        with memory_home(self._settings.home) as home:
            call(setup, home.path)
            with contextlib.closing(ClientProcesses(home, clients, TIMEOUT)) as processes:
                return processes.run(()).unseen

    def ack(self, value: Any = None) -> None:
        """Promise something to the outside: the death of this client must not undo it. For use in a client."""
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
            raise ValueError(f"A race needs at least two clients, not {len(clients)}.")
        if bound < 0:
            raise ValueError(f"preemptions is {preemptions!r}. It must be 0 or more.")
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
            replay_with=settings.replay_with,
            ordinal=self._explorations + 1,
            replay=settings.replay,
            remembered=settings.remembered,
            keep=settings.keep,
            progress=settings.progress,
        )

    def storm(
        self,
        open: Callable[[Path], Any],  # noqa: A002 - as suites call it
        contract: Contract | str,
        *,
        processes: int = 4,
        calls: int | None = None,
        kills: bool = True,
        seed: int = 0,
        medium: Medium = "disk",
        server: KillableServer | None = None,
        unmeasured: Unmeasured = "fail",
    ) -> StormResult:
        """Have several processes make random calls of a contract, all at once, on the store that `open(home)` opens.

        With `kills`, some of them are killed and restarted. Without `calls`, the profile says how many they make. A
        store with `medium="memory"` is shared by threads, which cannot be killed. A `server`, such as the fixture
        `redis_server`, is killed and restarted every 200 calls; that proves that its store survives the death of its
        process, not a power cut.

        Raises:
            RaceBug: the results are impossible in any order of the calls, or a call failed or hung.
            NotMeasured: it is INCOMPLETE: calls were not made or not judged, and that is not to skip the test.
        """
        if calls is not None and calls < 1:
            raise ValueError(f"calls is {calls!r}. A storm needs at least one call.")
        need_real_disk()
        chosen = _contract(contract)
        driver = Driver(TIMEOUT, operations=chosen.operations, keeps_tuples=chosen.same is not None)
        with memory_home(unique_home()) as home, contextlib.closing(driver):

            def handles() -> Handles:
                return Handles(
                    lambda: open_store(driver, lambda: open(home.path), close, methods=chosen.methods), driver
                )

            return self.run_storm(
                handles,
                chosen,
                StormResult(processes, seed),
                calls,
                medium=medium,
                kills=kills,
                timeout=TIMEOUT,
                server=server,
                unmeasured=unmeasured,
            )

    def run_storm(
        self,
        handles: Callable[[], Handles],
        contract: Contract,
        result: StormResult,
        calls: int | None = None,
        unmeasured: Unmeasured = "fail",
        **settings: Any,
    ) -> StormResult:
        """Do what `storm` does, through handles that a suite opens. `settings` are passed to `StormRun`.

        Raises:
            RaceBug, NotMeasured: as `storm` does.
        """
        need_known("unmeasured", unmeasured, get_args(Unmeasured))
        with self._reporting(result), shown_by(contract):
            run = StormRun(handles, contract, result, **settings)
            run.run(CALLS[self._profile] if calls is None else calls, self._settings.bounds.seconds)
        if result.violation:
            text = f"A storm broke the store.\n\n{result.violation}\n\n{result}."
            raise blamed(RaceBug(text), result.cause)
        self._need_verdict(result, unmeasured)
        return result


def _check_by(by: By, setup: Client | None, *, crash: bool) -> None:
    need_known("by", by, BYS)
    if setup is None:
        raise ValueError(f"setup is None with by={by!r}. It must be a function that makes what the clients share.")
    if crash:
        raise ValueError(f"crash=True with by={by!r}. Threads and tasks cannot be killed: use it with files.")


def _contract(contract: Contract | str) -> Contract:
    if isinstance(contract, Contract):
        return contract
    if contract in CONTRACTS:
        return CONTRACTS[contract]
    raise InvalidSetting(f"{contract!r} is not a contract. Use a Contract, or one of: {', '.join(CONTRACTS)}.")
