"""The race lab: schedules of clients, one by one, and storms of workers on a store."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.engine.handles import Handles
from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.faults.disk.home import memory_home, need_real_disk
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.faults.race.schedules import TIMEOUT, ClientDied, Outcome, RaceResult, Schedules
from pytest_wfstate.labs.settings import Settings
from pytest_wfstate.labs.storm import KillableServer, Medium, StormResult, StormRun
from pytest_wfstate.suites.context import close

__all__ = ["ClientDied", "Outcome", "Race", "RaceBug", "RaceResult", "StormResult"]

__tracebackhide__ = True

SECONDS = {"quick": 1.0, "default": 3.0, "thorough": 20.0}


class Race(Schedules):
    """Lets workers run against each other: in every order in which they can take turns, or all at once in a storm."""

    def __init__(self, settings: Settings | None = None, profile: str = "default") -> None:
        super().__init__(settings)
        self._profile = profile

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

            return self.rage(
                handles,
                _contract(contract),
                StormResult(processes, seed),
                seconds,
                medium=medium,
                kills=kills,
                timeout=TIMEOUT,
                server=server,
            )

    def rage(
        self,
        handles: Callable[[], Handles],
        contract: Contract,
        weather: StormResult,
        seconds: float | None = None,
        **settings: Any,
    ) -> StormResult:
        """Do what `storm` does, through handles that a suite opens. `settings` are those of `StormRun`.

        Raises:
            RaceBug: as `storm` does.
        """
        with self._telling(weather):
            StormRun(handles, contract, weather, **settings).rage(
                SECONDS[self._profile] if seconds is None else seconds
            )
        if weather.violation:
            raise RaceBug(f"a storm of {weather.workers} workers broke the store.\n\n{weather.violation}\n\n{weather}.")
        return weather


def _contract(contract: Contract | str) -> Contract:
    from pytest_wfstate.suites import SUITES

    if isinstance(contract, Contract):
        return contract
    if contract in SUITES:
        return SUITES[contract].contract
    raise InvalidSetting(f"there is no contract {contract!r}. It is a Contract, or one of {', '.join(SUITES)}.")
