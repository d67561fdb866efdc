"""Races: every schedule of a few clients, within a bound, and what the check says to each."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pytest_wfstate.faults.bounds import FAILURES, Bounds, CheckFails
from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.drive import Call, Steps
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.report import RaceBug, report
from pytest_wfstate.faults.race.schedule import ClientFailed, Clients, Killed, ScheduleRun, Turn
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.replay_id import Choices, RaceId, ReplayId, TraceChanged
from pytest_wfstate.faults.report_text import named
from pytest_wfstate.faults.result import Result

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

By = Literal["line", "opcode", "await"]
BYS: tuple[By, ...] = get_args(By)
Client = Callable[..., Any]
TIMEOUT = 30.0  # seconds for a client to come to its next operation


class ClientDied(Exception):
    """What stands for the result of a client that was killed."""

    __module__ = "pytest_wfstate"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a check gets to see: where the clients have been, and what each of them gave."""

    home: Path
    shared: Any
    """What `setup` had given for clients in memory."""
    results: tuple[Any, ...]
    """For each client what it returned, or the exception that it raised, or a `ClientDied` if it was killed."""
    acked: tuple[list[Any], ...]
    """For each client what it had acknowledged, by `race.ack(value)`, in order."""
    turns: tuple[Turn, ...]
    """Who did what, in order."""

    def __repr__(self) -> str:
        return f"<Outcome {self.results!r}>"


@dataclasses.dataclass(slots=True)
class RaceResult(Result):
    """What an exploration of schedules has seen."""

    clients: int
    preemptions: int
    by: By | None = None
    """What clients in memory take turns at."""
    pruned: int = 0
    """Schedules that were left out, since they come to the same as one that was run."""

    def __str__(self) -> str:
        some = "1 preemption" if self.preemptions == 1 else f"{self.preemptions} preemptions"
        skipped = f", at least {self.skipped:,} skipped" if self.skipped else ""
        return (
            f"{self.tried:,} schedules of {self.clients} clients within {some} checked, {self.pruned:,} left out that "
            f"come to the same{skipped}, in {self.seconds:.2f} s"
        )

    def numbers(self) -> dict[str, Any]:
        """Give what there is to count, each by its name."""
        return {"schedules": self.tried, "pruned": self.pruned, "race_seconds": round(self.seconds, 3)}

    def progress(self) -> str:
        """Say how far it has come."""
        return f"{self.tried:,} schedules run, {self.skipped:,} waiting"


@dataclasses.dataclass(slots=True)
class RaceTask:
    """What is to be raced, and how."""

    setup: Client | None
    clients: Sequence[Client]
    check: Client
    preemptions: int
    by: By | None
    crash: bool
    """Whether one client is also killed."""
    home: Home
    bounds: Bounds
    test: str | None = None
    ordinal: int = 1
    """Which exploration of the test it is."""
    replay: ReplayId | None = None
    keep: Callable[[Home], str] | None = None
    progress: Callable[[RaceResult], None] = lambda _: None

    def start_clients(self) -> Clients:
        """Start the clients: processes, threads or tasks."""
        if self.by is None or self.setup is None:
            return ClientProcesses(self.home, self.clients, TIMEOUT, mortal=self.crash)
        if self.by == "await":
            from pytest_wfstate.faults.race.tasks import Tasks

            return Tasks(self.setup, self.clients, TIMEOUT)
        from pytest_wfstate.faults.race.threads import Threads

        return Threads(self.setup, self.clients, TIMEOUT, by=self.by)


class RaceExplorer:
    """One exploration, from the setup to the verdict."""

    def __init__(self, task: RaceTask) -> None:
        self._task = task
        self.result = RaceResult(len(task.clients), task.preemptions, task.by)
        self._began = now()

    def steps(self) -> Steps[None]:
        """Do it all. Gives the calls to make."""
        if self._task.setup is not None and self._task.by is None:
            yield self._task.setup, (self._task.home.path,)
        clients = self._task.start_clients()
        self._began = now()
        try:
            replay = self._task.replay
            if replay is None:
                yield from self._explore(clients)
            elif replay.ordinal == self._task.ordinal:
                yield from self._replay(clients, replay)
            if not self.result.reasons:
                self.result.verdict = "CLEAN"
        finally:
            clients.close()
            self.result.seconds = now() - self._began

    def _explore(self, clients: Clients) -> Steps[None]:
        search, bounds = ScheduleSearch(clients, self.result.preemptions), self._task.bounds
        for schedule in search:
            self._count(search)
            error = yield from self._judge(schedule, clients)
            if error is not None and search.runs == 1 and not schedule.stuck:
                raise CheckFails(
                    f"your check fails without a race: {named(error)}. It was given what the clients came to one after "
                    "the other. Mend the check, or what it calls, before asking about races."
                ) from error
            if error is not None:
                self._count(search)
                yield from self._violated(clients, tuple(schedule.choices))
            if self.result.reasons or error is not None:
                return
            if search.runs >= bounds.states or now() - self._began > bounds.seconds:
                break
        self._count(search)
        self._need_turns(schedule)

    def _count(self, search: ScheduleSearch) -> None:
        self.result.tried, self.result.pruned, self.result.skipped = search.runs, search.pruned, len(search.waiting)
        self.result.seconds = now() - self._began
        self._task.progress(self.result)

    def _need_turns(self, schedule: ScheduleRun) -> None:
        if all(turn.access.kind == "end" for turn in schedule.turns):
            self.result.reasons.append(
                "no client did anything below home: work in the folder that clients are given"
                if self.result.by is None
                else "no client ran any code that takes turns: that of the test and of what setup gives"
            )

    def _judge(self, schedule: ScheduleRun, clients: Clients) -> Generator[Call, Any, BaseException | None]:
        """Check what a schedule came to; give what speaks against it."""
        if schedule.unseen:
            seen = ", ".join(dict.fromkeys(schedule.unseen))
            self.result.reasons.append(f"a client did what no turns can be taken at: {seen}")
            return None
        if schedule.diverged:
            self.result.reasons.append(
                "the clients do not do the same when they are run again in the same order, so their schedules cannot "
                "be explored. Whatever they depend on besides their files, such as time or chance, must stand still"
            )
            return None
        if schedule.stuck:
            return RuntimeError(schedule.stuck)
        try:
            yield self._task.check, (self._outcome(schedule, clients),)
        except FAILURES as error:
            return error
        return None

    def _outcome(self, schedule: ScheduleRun, clients: Clients) -> Outcome:
        results = [_result(result) for _, result in sorted(schedule.results.items())]
        acked = [schedule.acked.get(client, []) for client in range(len(results))]
        return Outcome(self._task.home.path, clients.shared, tuple(results), tuple(acked), tuple(schedule.turns))

    def _violated(self, clients: Clients, choices: Choices, counts: str = "{0}.") -> Steps[None]:
        """Run a schedule that failed once more, to see the lines that did it, and tell it."""
        schedule = clients.run(choices, lines=True)
        content = (self._task.home.content(), self._task.home.links()) if self.result.by is None else None
        kept_at = self._task.keep(self._task.home) if self._task.keep else None
        error = yield from self._judge(schedule, clients)
        if error is None:
            if not self.result.reasons:
                self.result.reasons.append(
                    "a schedule broke the check, and did not when it was run again. Whatever the check depends on "
                    "besides the files, such as time or chance, must stand still"
                )
            return
        replay = str(ReplayId(self._task.ordinal, race=race_id(schedule, self.result.by)))
        self.result.verdict, self.result.replay = "VIOLATED", replay
        test = self._task.test
        text = report(
            schedule,
            error,
            content,
            counts.format(self.result),
            kept_at,
            (test, replay) if test else None,
        )
        raise RaceBug(text.replace(str(self._task.home.path), "home"), replay) from None

    def _replay(self, clients: Clients, replay: ReplayId) -> Steps[None]:
        assert replay.race is not None
        self.result.replayed, self.result.tried = True, 1
        schedule = clients.run(replay.race.choices)
        if race_id(schedule, self.result.by) != replay.race:
            raise TraceChanged(
                f"'{replay}' is of another run: the clients do not do now what they did then. Run the test without "
                "--wfstate-replay."
            )
        error = yield from self._judge(schedule, clients)
        if error is not None:
            yield from self._violated(clients, replay.race.choices, "This is one schedule, replayed.")


def race_id(schedule: ScheduleRun, by: By | None) -> RaceId:
    """Give what a schedule is known by: who went on, and the shape of what they did, whatever the files were called."""
    numbers: dict[str, int] = {}
    shape = [
        (turn.client, turn.access.kind, numbers.setdefault(turn.access.path, len(numbers)), turn.blocked)
        for turn in schedule.turns
    ]
    return RaceId(by or "race", tuple(schedule.choices), hashlib.sha256(repr(shape).encode()).hexdigest()[:8])


def _result(result: Any) -> Any:
    if isinstance(result, Killed):
        return ClientDied("it was killed")
    return result.error if isinstance(result, ClientFailed) else result
