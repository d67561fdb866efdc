"""Storms on a store: random calls of several workers at once, some of which are killed, judged by the reference.

A storm goes in rounds, each with its own ids. At the end of a round no worker runs, and all its ids are read; so each
round is judged by itself, and at the very end all ids are read again.
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
from pytest_wfstate.faults.race.storm import PAUSE, Storm, TimedCall, WorkerLost
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.result import Result
from pytest_wfstate.oracle.history import Entry, Errored, NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.judge import Judge
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.render import call_in_words, entry_in_words, outcome_in_words

__tracebackhide__ = True

CALLS = 200  # in a round
_KINDS = 12  # different calls that a round chooses from
_PAUSES = 0.03  # of all calls come after a pause

_SERVER_KILLS = 3  # at least: how long a server takes to restart is unknown
_POLL_INTERVAL = 0.02  # seconds between two attempts to reach a restarted server

Medium = Literal["disk", "server", "memory"]
"""Where a store keeps its state."""


class KillableServer(Protocol):
    """A server that can be killed."""

    def kill(self) -> None:
        """Kill it."""

    def restart(self) -> None:
        """Restart it with the data it has kept."""


@dataclasses.dataclass(slots=True)
class StormResult(Result):
    """The result of a storm."""

    workers: int
    seed: int
    calls: int = 0
    rounds: int = 0
    killed: int = 0
    server_kills: int = 0
    violation: str = ""

    def __str__(self) -> str:
        server = f", {self.server_kills} server kills" if self.server_kills else ""
        return f"{self.progress()}{server}, in {self.seconds:.1f} s, seed {self.seed}"

    def numbers(self) -> dict[str, Any]:
        """Return the counts, by name."""
        return {"calls": self.calls, "killed": self.killed, "storm_seconds": round(self.seconds, 3)}

    def progress(self) -> str:
        """Format how far it has got."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.calls:,} calls by {workers}, {self.killed:,} kills"


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
        self._result = result
        self._kills = kills and medium != "memory"
        self._server = server
        self._disturb = self._kill_server if server else None
        self._timeout = timeout
        self._chance = random.Random(result.seed)
        self._judge = Judge(ReferenceModel(contract, normalise))
        self._outages: list[tuple[float, float]] = []
        """From when to when the server was down."""
        self._done_at = [now()] * result.workers
        """When each worker's last call ended."""
        self._operations, self._recovery = self._offered()
        self._last: list[tuple[Call, Outcome]] = []
        """What each id showed at the end of its round."""
        self._storm = Storm(
            self._worker,
            result.workers,
            random.Random(result.seed),
            deaths=self._kills,
            threads=medium == "memory",
            timeout=timeout + 5,
        )

    def run(self, seconds: float) -> None:
        """Run rounds for some seconds, then check everything again."""
        began = now()
        try:
            while not self._result.violation and (now() - began < seconds or self._has_more_to_kill):
                self._round()
                self._result.seconds = now() - began
            if not self._result.violation:
                self._check_all_again()
        except WorkerLost as lost:
            self._result.violation = str(lost)
        finally:
            self._result.seconds = now() - began
            self._storm.close()
        self._result.verdict = "VIOLATED" if self._result.violation else "CLEAN"

    def _offered(self) -> tuple[list[Operation], list[Call]]:
        with self._handles() as handles:
            store = handles["probe"]
            operations = [operation for operation in self._contract.operations if hasattr(store, operation.name)]
            recovery = self._contract.recovery
            return operations, [recovery] if recovery and hasattr(store, recovery.name) else []

    @property
    def _has_more_to_kill(self) -> bool:
        return self._server is not None and self._result.server_kills < _SERVER_KILLS

    def _kill_server(self) -> None:
        assert self._server is not None
        began = now()
        self._server.kill()
        self._server.restart()
        self._outages.append((began, now()))
        self._result.server_kills += 1

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Callable[[Call], Outcome | None]]:
        with self._handles() as handles:

            def do(call: Call) -> Outcome | None:
                outcome = _outcome(handles, "worker", call)
                if isinstance(outcome, Errored) and self._server is not None:
                    self._wait_for_server(handles)
                return outcome

            yield do

    def _wait_for_server(self, handles: Handles) -> None:
        """Read something until that works again: then the server that a call was lost with is gone.

        Calls made meanwhile would fail as well, and prove nothing.

        Raises:
            WorkerLost: it does not work again.
        """
        (read, *_), until = self._contract.reads(["server"]), now() + self._timeout
        while isinstance(outcome := _outcome(handles, "worker", read), Errored):
            if now() > until:
                raise WorkerLost(
                    f"{call_in_words(read)} still fails {self._timeout:g} s after a call was lost: {outcome.error}. "
                    "The server was restarted at once: the handle must reconnect."
                )
            time.sleep(_POLL_INTERVAL)

    def _round(self) -> None:
        from pytest_wfstate.engine.random_calls import chosen_calls  # which imports hypothesis

        result = self._result
        ids = [f"r{result.rounds}-{letter}" for letter in "abc"]
        result.rounds += 1
        calls = chosen_calls(self._operations, ids, _KINDS, result.seed + result.rounds)
        chosen = self._chance.choices(calls, k=CALLS)
        assigned = [self._with_pauses(chosen[number :: result.workers]) for number in range(result.workers)]
        timed_calls = self._storm.round(assigned, self._recovery, self._disturb)
        entries = [self._entry(timed) for timed in timed_calls if timed.died or timed.outcome is not None]
        result.calls += len(entries)
        result.killed = self._storm.killed
        generated = [
            entry.outcome.value
            for entry in entries
            if isinstance(entry.outcome, Returned) and self._contract[entry.name].generates_id
        ]
        entries += self._observe([*ids, *generated], now())
        result.violation = self._judged(entries)

    def _entry(self, timed_call: TimedCall) -> Entry:
        client = f"worker {timed_call.worker + 1}" + (f", restart {timed_call.restarts}" if timed_call.restarts else "")
        # A call that was lost with its server took effect before the server was back, or never.
        is_lost = timed_call.died or (isinstance(timed_call.outcome, Errored) and self._has_lost_server(timed_call))
        self._done_at[timed_call.worker] = timed_call.end
        outcome = NeverReturned() if is_lost else timed_call.outcome
        return Entry(client, timed_call.call.name, timed_call.call.args, timed_call.begin, timed_call.end, outcome)

    def _has_lost_server(self, timed_call: TimedCall) -> bool:
        """Whether the server was down at some time since the worker's last call: else it is not to blame."""
        return any(
            began <= timed_call.end and ended >= self._done_at[timed_call.worker] for began, ended in self._outages
        )

    def _with_pauses(self, calls: Sequence[Call]) -> list[Any]:
        return [item for call in calls for item in ([PAUSE, call] if self._chance.random() < _PAUSES else [call])]

    def _observe(self, ids: Sequence[str], start: float) -> list[Entry]:
        """Read everything about some ids."""
        offered = {operation.name for operation in self._operations}
        reads = [call for call in self._contract.observe(ids) if call.name in offered]
        with self._handles() as handles:
            seen = [(call, _outcome(handles, "afterwards", call)) for call in reads]
        last = len(reads) // 2 if self._recovery else 0  # `observe` reads before and after a recovery
        self._last += [
            (call, outcome)
            for call, outcome in seen[last:]
            if outcome is not None and self._contract[call.name].keys and not self._contract[call.name].mutates
        ]
        return [
            Entry("afterwards", call.name, call.args, start + 1 + number, start + 1 + number, outcome)
            for number, (call, outcome) in enumerate(seen)
            if outcome is not None
        ]

    def _check_all_again(self) -> None:
        """Check that all ids still show what they showed at the end of their rounds, after one more server kill."""
        if self._server:
            self._kill_server()
        with self._handles() as handles:
            for call, before in self._last:
                after = _outcome(handles, "at the end", call)
                if after is not None and after != before:
                    self._result.violation = (
                        f"{call_in_words(call)} returned {outcome_in_words(before)} at the end of its round, but "
                        f"{outcome_in_words(after)} at the end of the storm. No call used that id in between."
                    )
                    return

    def _judged(self, entries: Sequence[Entry]) -> str:
        failed = next((entry for entry in entries if isinstance(entry.outcome, Errored)), None)
        if failed is not None:
            server = " and its server was up" if self._server else ""
            return f"A call failed although its worker was not killed{server}:\n  {entry_in_words(failed)}"
        try:
            self._judge.storm(entries)
        except Violation as violation:
            return str(violation)
        return ""


def _outcome(handles: Handles, handle: str, call: Call) -> Outcome | None:
    """Make a call; return its outcome, or None if the store does not offer it."""
    try:
        return handles.outcome(handle, call)
    except pytest.skip.Exception:
        return None
    except (Exception, pytest.fail.Exception) as error:
        return Errored(f"{type(error).__name__}: {error}")
