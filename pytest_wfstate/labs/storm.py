"""Storms on a store: random calls of several workers at once, some of which are killed, judged by the reference.

A storm goes in rounds of calls, each with ids of its own. At the end of a round no worker runs, all its ids are read,
and it is judged, from whatever the rounds before can have left. At the very end all ids are read again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, Protocol

import pytest

from pytest_wfstate.contracts.base import Call, Contract
from pytest_wfstate.engine.handles import Handles
from pytest_wfstate.errors import AdapterError, CannotCompare, InvalidSetting, Violation, cause_of
from pytest_wfstate.faults.failures import is_interruption
from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.race.storm import PAUSE, Storm, TimedCall, WorkerLost
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.result import Result
from pytest_wfstate.oracle.history import Entry, Errored, NeverReturned, Outcome, Returned
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.partition import has_shares
from pytest_wfstate.oracle.render import call_in_words, entry_in_words, outcome_in_words
from pytest_wfstate.oracle.rounds import Rounds, TooManyOrders
from pytest_wfstate.oracle.values import frozen

__tracebackhide__ = True

ROUND = 200  # calls, at most
_KINDS = 12  # different calls that a round chooses from
_PAUSES = 0.03  # of all calls come after a pause

_SERVER_KILLS = 3  # at least, one in a round
_AFTERWARDS = "afterwards"
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
    left: int = 0
    """Calls that were not made."""
    violation: str = ""
    cause: str = ""
    """What the violation is due to, in few words."""

    def __str__(self) -> str:
        server = f", {self.server_kills} server kills" if self.server_kills else ""
        return f"{self.progress()}{server}, in {self.seconds:.1f} s, seed {self.seed}"

    def not_tried(self) -> str:
        """Describe what the safety net left out."""
        return f"{self.left:,} calls"

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
        model: ReferenceModel | None = None,
        accepts: Callable[[Call], bool] = lambda _: True,
    ) -> None:
        self._handles = handles
        self._contract = contract
        self._result = result
        self._kills = kills and medium != "memory"
        self._server = server
        self._disturb = self._kill_server if server else None
        self._timeout = timeout
        self._chance = random.Random(result.seed)
        self._model = model or ReferenceModel(contract)
        self._ids: list[str] = []
        """All ids of all rounds."""
        self._switches = mmap.mmap(-1, 1)
        """How often the server was killed or restarted, modulo 256, which the workers see as well."""
        self._outages: list[tuple[float, float]] = []
        """From when to when the server was down."""
        self._done_at = [now()] * result.workers
        """When each worker's last call ended."""
        if self._model.refuses(write := contract.write(_ids(0)[0], 1)):
            raise InvalidSetting(
                f"The reference of the {contract.name} contract refuses {call_in_words(write)}, so a storm would prove "
                "nothing: its ids are of lower-case letters, digits and dashes. Have the reference take those, or have "
                "`write` and the arguments of the operations make valid ids of them."
            )
        self._accepts = accepts
        self._offered = self._find_offered()
        recovery = contract.recovery
        self._recovery = [recovery] if recovery and recovery.name in self._offered else []
        self._kinds = self._chosen(_ids(0), 0)
        """The different calls that the first round chooses from."""
        self._rounds = Rounds(self._model, [*self._kinds, *contract.reads(_ids(0))])
        self._last: dict[Hashable, tuple[Call, Outcome]] = {}
        """What each id showed at the end of its round."""
        self._storm = Storm(
            self._worker,
            result.workers,
            random.Random(result.seed),
            deaths=self._kills,
            threads=medium == "memory",
            timeout=timeout + 5,
        )

    def run(self, calls: int, seconds: float) -> None:
        """Have the workers make this many calls, or stop after some seconds. Then check everything again."""
        began, result = now(), self._result
        result.left = max(calls, ROUND * _SERVER_KILLS if self._server else 1)
        try:
            while result.left and result.out_of_time is None:
                self._round(min(result.left, ROUND))
                if result.left and now() - began > seconds:
                    result.out_of_time = seconds
            self._check_all_again()
        except (WorkerLost, Violation) as violation:
            result.violation, result.cause = str(violation), cause_of(violation)
            result.verdict = "VIOLATED"
        except TooManyOrders as undecided:
            result.incomplete.append(
                f"round {result.rounds} was not judged: {undecided}. Not made: {result.not_tried()}"
            )
        finally:
            result.seconds = now() - began
            self._storm.close()
        if not result.violation:
            result.conclude()

    def _find_offered(self) -> list[str]:
        with self._handles() as handles:
            names = [operation.name for operation in self._contract.operations]
            return [name for name in names if handles.has("probe", name)]

    def _chosen(self, ids: Sequence[str], number: int) -> list[Call]:
        """Choose random calls for a round, of those that the store takes."""
        from pytest_wfstate.engine.random_calls import chosen_calls  # which imports hypothesis

        operations = [each for each in self._contract.operations if each.in_storms and each.at_random]
        offered = [operation for operation in operations if operation.name in self._offered]
        if not offered:
            pytest.skip("the store offers no operation that storms call")
        chosen = chosen_calls(offered, ids, _KINDS, self._result.seed + number + 1)
        accepted = [call for call in chosen if self._accepts(call)]
        if not accepted:
            pytest.skip("the store takes none of the calls that storms make, as its suite declares")
        return accepted

    def _kill_server(self) -> None:
        assert self._server is not None
        began = now()
        self._switches[0] = (self._switches[0] + 1) % 256
        self._server.kill()
        self._server.restart()
        self._switches[0] = (self._switches[0] + 1) % 256
        self._outages.append((began, now()))
        self._result.server_kills += 1

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Callable[[Call], Any]]:
        with self._handles() as handles:

            def do(call: Call) -> Outcome | AdapterError | CannotCompare | None:
                try:
                    outcome = _outcome(handles, "worker", call)
                except (AdapterError, CannotCompare) as error:
                    return error
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
        (read, *_), patience = self._contract.reads(["server"]), Patience(self._timeout)
        while isinstance(outcome := _outcome(handles, "worker", read), Errored):
            switches = self._switches[0]
            if patience.is_over(switches) and not switches % 2:
                raise WorkerLost(
                    f"{call_in_words(read)} still fails {self._timeout:g} s after a call was lost: {outcome.error}. "
                    "The server is up again: the handle must reconnect."
                )
            time.sleep(_POLL_INTERVAL)

    def _round(self, number: int) -> None:
        result = self._result
        ids = _ids(result.rounds)
        calls = self._chosen(ids, result.rounds) if result.rounds else self._kinds
        if self._rounds.is_divided:  # then none can be about everything: it would see what earlier rounds have left
            calls = [call for call in calls if has_shares(call, self._contract)]
        result.rounds += 1
        chosen = self._chance.choices(calls, k=number)
        assigned = [self._with_pauses(chosen[first :: result.workers]) for first in range(result.workers)]
        timed_calls = self._storm.round(assigned, self._recovery, self._disturb)
        entries = [self._entry(timed) for timed in timed_calls if timed.died or timed.outcome is not None]
        result.calls += len(entries)
        result.killed = self._storm.killed
        result.left -= number
        ids += [
            entry.outcome.value
            for entry in entries
            if isinstance(entry.outcome, Returned) and self._contract[entry.name].generates_id
        ]
        self._ids += ids
        observed = self._observe(ids)
        self._remember(observed, ids)
        self._judge([*entries, *observed], ids)

    def _entry(self, timed_call: TimedCall) -> Entry:
        if isinstance(timed_call.outcome, Exception):
            raise timed_call.outcome
        # A call that was lost with its server took effect before the server was back, or never.
        is_lost = timed_call.died or (isinstance(timed_call.outcome, Errored) and self._has_lost_server(timed_call))
        self._done_at[timed_call.worker] = timed_call.end
        outcome = NeverReturned() if is_lost else timed_call.outcome
        client, call = _client(timed_call.worker, timed_call.restarts), timed_call.call
        return Entry(client, call.name, call.args, timed_call.begin, timed_call.end, outcome)

    def _has_lost_server(self, timed_call: TimedCall) -> bool:
        """Whether the server was down at some time since the worker's last call: else it is not to blame."""
        return any(
            began <= timed_call.end and ended >= self._done_at[timed_call.worker] for began, ended in self._outages
        )

    def _with_pauses(self, calls: Sequence[Call]) -> list[Any]:
        return [item for call in calls for item in ([PAUSE, call] if self._chance.random() < _PAUSES else [call])]

    def _observe(self, ids: Sequence[str]) -> list[Entry]:
        """Read everything about some ids."""
        reads = [call for call in self._contract.observe(ids) if call.name in self._offered]
        entries = []
        with self._handles() as handles:
            for call in reads:
                begin, outcome = now(), _outcome(handles, _AFTERWARDS, call)
                if outcome is not None:
                    entries.append(Entry(_AFTERWARDS, call.name, call.args, begin, now(), outcome))
        return entries

    def _judge(self, entries: Sequence[Entry], own: Sequence[str] = ()) -> None:
        """Judge a round, after which its own ids are used no more.

        Raises:
            Violation: a call failed for no reason, or the results are impossible in any order of the calls.
            TooManyOrders: that could not be decided.
        """
        failed = next((entry for entry in entries if isinstance(entry.outcome, Errored)), None)
        if failed is not None:
            server = " and its server was up" if self._server else ""
            raise Violation(f"A call failed although its worker was not killed{server}:\n  {entry_in_words(failed)}")
        alive = {_client(worker, restarts) for worker, restarts in enumerate(self._storm.restarts)}
        self._rounds.add(entries, own=own, clients=alive)

    def _check_all_again(self) -> None:
        """Check that all ids still show what they should, after one more server kill.

        Raises:
            Violation: some do not.
            TooManyOrders: that could not be decided.
        """
        if self._server:
            self._kill_server()
        if self._rounds.continues:
            self._judge([entry for entry in self._observe(self._ids) if not self._is_own(entry, self._ids)])
        with self._handles() as handles:
            for call, before in self._last.values():
                after = _outcome(handles, "at the end", call)
                if after is not None and not self._model.is_alike(before, after, call.name):
                    raise Violation(
                        f"{call_in_words(call)} returned {outcome_in_words(before)} at the end of its round, but "
                        f"{outcome_in_words(after)} at the end of the storm. No call used that id in between."
                    )

    def _remember(self, entries: Sequence[Entry], ids: Sequence[str]) -> None:
        """Remember what ids showed at the end of their round: the last read of each."""
        for entry in entries:
            operation = self._contract[entry.name]
            if self._is_own(entry, ids) and not operation.mutates and operation.unspecified is None:
                self._last[frozen((entry.name, entry.args))] = operation(*entry.args), entry.outcome

    def _is_own(self, entry: Entry, ids: Sequence[str]) -> bool:
        """Whether a call depends on these ids alone, which no later round uses."""
        keys = self._contract[entry.name].keys_of(entry.args)
        return self._rounds.is_divided and keys is not None and {*keys} <= {*ids}


def _ids(number: int) -> list[str]:
    """Return the ids of a round."""
    return [f"r{number}-{letter}" for letter in "abc"]


def _client(worker: int, restarts: int) -> str:
    return f"worker {worker + 1}" + (f", restart {restarts}" if restarts else "")


def _outcome(handles: Handles, handle: str, call: Call) -> Outcome | None:
    """Make a call; return its outcome, or None if the store does not offer it."""
    try:
        return handles.outcome(handle, call)
    except pytest.skip.Exception:
        return None
    except (AdapterError, CannotCompare):
        raise  # nothing is known about the store then
    except (Exception, pytest.fail.Exception) as error:
        if is_interruption(error):
            raise
        return Errored(f"{type(error).__name__}: {error}")
