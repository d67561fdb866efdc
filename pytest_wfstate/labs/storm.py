"""Storms on a store: random calls of several workers at once, some of which are killed, judged by the reference.

It goes in rounds, each about ids of its own. At the end of one nobody is at work, and all there is of its ids is looked
at; so every round can be judged by itself, and at the very end all of them must still be there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import pytest

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.engine.handles import Handles
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.race.storm import NAP, Storm, TimedCall, WorkerLost
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.result import Result
from pytest_wfstate.oracle.history import Entry, Errored, NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.judge import Judge
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.render import call_in_words, entry_in_words, outcome_in_words

__tracebackhide__ = True

CALLS = 200  # in a round
_KINDS = 12  # calls in a list, of which those of a round are chosen
_NAPS = 0.03  # of all calls come after a nap

_SERVER_KILLS = 3  # at least: how long a server takes to come back is its own affair
_PAUSE = 0.02  # seconds between two looks at whether a server is back

Medium = Literal["disk", "server", "memory"]


class KillableServer(Protocol):
    """A server that can be killed."""

    def kill(self) -> None:
        """End it at once."""

    def restart(self) -> None:
        """Start it again, with what it has kept."""


@dataclasses.dataclass(slots=True)
class StormResult(Result):
    """What a storm has seen."""

    workers: int
    seed: int
    calls: int = 0
    rounds: int = 0
    killed: int = 0
    server_kills: int = 0
    violation: str = ""

    def __str__(self) -> str:
        servers = f", the server {self.server_kills} times" if self.server_kills else ""
        return (
            f"{self.calls:,} calls of {self.workers} workers, of which {self.killed:,} were killed{servers}, "
            f"in {self.seconds:.1f} s, seed {self.seed}"
        )

    def numbers(self) -> dict[str, Any]:
        """Give what there is to count, each by its name."""
        return {"calls": self.calls, "killed": self.killed, "storm_seconds": round(self.seconds, 3)}

    def progress(self) -> str:
        """Say how far it has come."""
        return f"{self.calls:,} calls of {self.workers} workers, {self.killed:,} killed"


class StormRun:
    """A storm on one store."""

    def __init__(
        self,
        handles: Callable[[], Handles],
        contract: Contract,
        result: StormResult,
        *,
        medium: Medium,
        kills: bool,
        timeout: float,
        server: KillableServer | None = None,
        normalise: Callable[[Any], Any] = lambda record: record,
    ) -> None:
        self._handles = handles
        self._contract = contract
        self._weather = result
        self._kills = kills and medium != "memory"
        self._server = server
        self._disturb = self._kill_server if server else None
        self._timeout = timeout
        self._chance = random.Random(result.seed)
        self._judge = Judge(ReferenceModel(contract, normalise))
        self._outages: list[tuple[float, float]] = []
        """From when to when the server was gone."""
        self._done_at = [now()] * result.workers
        """When each worker was done with a call, last."""
        self._operations, self._recovery = self._offered()
        self._last: list[tuple[Call, Outcome]] = []
        """What was seen of each id at the end of its round."""
        self._storm = Storm(
            self._life,
            result.workers,
            random.Random(result.seed),
            deaths=self._kills,
            threads=medium == "memory",
            timeout=timeout + 5,
        )

    def run(self, seconds: float) -> None:
        """Go on for some time, and look at everything at the end."""
        began = now()
        try:
            while not self._weather.violation and (now() - began < seconds or self._has_more_to_kill):
                self._round()
                self._weather.seconds = now() - began
            if not self._weather.violation:
                self._look_again()
        except WorkerLost as broken:
            self._weather.violation = str(broken)
        finally:
            self._weather.seconds = now() - began
            self._storm.close()
        self._weather.verdict = "VIOLATED" if self._weather.violation else "CLEAN"

    def _offered(self) -> tuple[list[Operation], list[Call]]:
        with self._handles() as handles:
            store = handles["probe"]
            operations = [one for one in self._contract.operations if hasattr(store, one.name)]
            recovery = self._contract.recovery
            return operations, [recovery] if recovery and hasattr(store, recovery.name) else []

    @property
    def _has_more_to_kill(self) -> bool:
        return self._server is not None and self._weather.server_kills < _SERVER_KILLS

    def _kill_server(self) -> None:
        assert self._server is not None
        began = now()
        self._server.kill()
        self._server.restart()
        self._outages.append((began, now()))
        self._weather.server_kills += 1

    @contextlib.contextmanager
    def _life(self) -> Iterator[Callable[[Call], Outcome | None]]:
        with self._handles() as handles:

            def do(call: Call) -> Outcome | None:
                outcome = _made(handles, "worker", call)
                if isinstance(outcome, Errored) and self._server is not None:
                    self._wait_for_server(handles)
                return outcome

            yield do

    def _wait_for_server(self, handles: Handles) -> None:
        """Look at something until that works again: then the server that a call was lost with is gone.

        What is called meanwhile would fail as well, and prove nothing.

        Raises:
            Broken: it does not work again.
        """
        (look, *_), until = self._contract.reads(["server"]), now() + self._timeout
        while isinstance(outcome := _made(handles, "worker", look), Errored):
            if now() > until:
                raise WorkerLost(
                    f"{call_in_words(look)} still fails {self._timeout:g} s after a call was lost: {outcome.error}. "
                    "The server is started again at once; a handle has to connect anew."
                )
            time.sleep(_PAUSE)

    def _round(self) -> None:
        from pytest_wfstate.engine.random_calls import chosen_calls  # and hypothesis: see strategies

        result = self._weather
        ids = [f"r{result.rounds}-{letter}" for letter in "abc"]
        result.rounds += 1
        calls = chosen_calls(self._operations, ids, _KINDS, result.seed + result.rounds)
        chosen = self._chance.choices(calls, k=CALLS)
        orders = [self._with_naps(chosen[number :: result.workers]) for number in range(result.workers)]
        deeds = self._storm.round(orders, self._recovery, self._disturb)
        entries = [self._entry(timed_call) for timed_call in deeds if timed_call.died or timed_call.outcome is not None]
        result.calls += len(entries)
        result.killed = self._storm.killed
        made = [one.outcome.value for one in entries if isinstance(one.outcome, Returned) and self._invents(one)]
        entries += self._observed([*ids, *made], now())
        result.violation = self._judged(entries)

    def _entry(self, timed_call: TimedCall) -> Entry:
        client = f"worker {timed_call.worker + 1}" + (f", life {timed_call.life + 1}" if timed_call.life else "")
        # A call that was lost with its server has happened before the server was back, or never.
        is_lost = timed_call.died or (isinstance(timed_call.outcome, Errored) and self._has_lost_server(timed_call))
        self._done_at[timed_call.worker] = timed_call.end
        outcome = NeverReturned() if is_lost else timed_call.outcome
        return Entry(client, timed_call.order.name, timed_call.order.args, timed_call.begin, timed_call.end, outcome)

    def _has_lost_server(self, timed_call: TimedCall) -> bool:
        """Tell whether the server was gone at some time since the worker's last call: else it is not to blame."""
        return any(
            began <= timed_call.end and ended >= self._done_at[timed_call.worker] for began, ended in self._outages
        )

    def _invents(self, entry: Entry) -> bool:
        return self._contract[entry.name].generates_id

    def _with_naps(self, calls: Sequence[Call]) -> list[Any]:
        return [one for call in calls for one in ([NAP, call] if self._chance.random() < _NAPS else [call])]

    def _observed(self, ids: Sequence[str], at: float) -> list[Entry]:
        """Look at all there is of some ids."""
        offered = {one.name for one in self._operations}
        looks = [call for call in self._contract.observe(ids) if call.name in offered]
        with self._handles() as handles:
            seen = [(call, _made(handles, "afterwards", call)) for call in looks]
        last = len(looks) // 2 if self._recovery else 0  # it looks before and after a recovery
        self._last += [
            (call, outcome)
            for call, outcome in seen[last:]
            if outcome is not None and self._contract[call.name].keys and not self._contract[call.name].mutates
        ]
        return [
            Entry("afterwards", call.name, call.args, at + 1 + number, at + 1 + number, outcome)
            for number, (call, outcome) in enumerate(seen)
            if outcome is not None
        ]

    def _look_again(self) -> None:
        """See whether what was there at the end of a round still is, though the server be killed once more."""
        if self._server:
            self._kill_server()
        with self._handles() as handles:
            for call, before in self._last:
                after = _made(handles, "at the end", call)
                if after is not None and after != before:
                    self._weather.violation = (
                        f"{call_in_words(call)} gave {outcome_in_words(before)} at the end of its round, and "
                        f"{outcome_in_words(after)} at the end of the storm. Nobody had used that id since."
                    )
                    return

    def _judged(self, entries: Sequence[Entry]) -> str:
        failed = next((one for one in entries if isinstance(one.outcome, Errored)), None)
        if failed is not None:
            server = ", and the server was there" if self._server else ""
            return f"a call ended in an error, with nothing in its way but others{server}:\n  {entry_in_words(failed)}"
        try:
            self._judge.storm(entries)
        except Violation as violation:
            return str(violation)
        return ""


def _made(handles: Handles, handle: str, call: Call) -> Outcome | None:
    """Make a call, whatever comes of it. Give None if it is not offered."""
    try:
        return handles.outcome(handle, call)
    except pytest.skip.Exception:
        return None
    except (Exception, pytest.fail.Exception) as error:
        return Errored(f"{type(error).__name__}: {error}")
