"""An exploration: every schedule of a few clients within a bound, and whether each outcome passes the check."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pytest_wfstate.errors import blamed, cause_of
from pytest_wfstate.faults.bounds import Bounds, CheckFails
from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.failures import CatchFailure
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.report import RaceBug, report
from pytest_wfstate.faults.race.schedule import ClientFailed, Clients, Killed, ScheduleRun, ScheduleStep
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.remembered import NOTHING, Remembered
from pytest_wfstate.faults.replay_id import Choices, RaceId, ReplayId, TraceChanged, death_of
from pytest_wfstate.faults.report_text import error_name
from pytest_wfstate.faults.result import Result
from pytest_wfstate.faults.sync_async import Call, Steps

__tracebackhide__ = True

By = Literal["line", "opcode", "await"]
BYS: tuple[By, ...] = get_args(By)
Client = Callable[..., Any]
REMEMBERED = "This schedule failed in an earlier run of the test, so it was run first."
TIMEOUT = 30.0  # seconds for a client to reach its next operation


class ClientDied(Exception):
    """The result of a client that was killed."""

    __module__ = "pytest_wfstate"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a check is called with: where the clients worked, and what each of them returned."""

    home: Path
    shared: Any
    """What `setup` returned, for clients in memory."""
    results: tuple[Any, ...]
    """What each client returned, or the exception that it raised, or a `ClientDied` if it was killed."""
    acked: tuple[list[Any], ...]
    """What each client had acknowledged by `race.ack(value)`, in order."""
    steps: tuple[ScheduleStep, ...]
    """Which client did what, in order."""

    def __repr__(self) -> str:
        return f"<Outcome {self.results!r}>"


@dataclasses.dataclass(slots=True)
class RaceResult(Result):
    """The result of an exploration of schedules."""

    clients: int
    preemptions: int
    by: By | None = None
    """What one step of a client in memory is."""
    pruned: int = 0
    """Schedules that were not run, because each is equivalent to one that was."""
    endless: tuple[int, ...] = ()
    """The clients, counted from 1, that were still polling when the others had been stalled for the longest time."""

    def __str__(self) -> str:
        schedules = "1 schedule" if self.tried == 1 else f"{self.tried:,} schedules"
        bound = "1 preemption" if self.preemptions == 1 else f"{self.preemptions} preemptions"
        skipped = f", at least {self.skipped:,} skipped" if self.skipped else ""
        polls = "".join(f"; client {client} keeps polling for a stalled client" for client in self.endless)
        return (
            f"checked {schedules} of {self.clients} clients (at most {bound}); "
            f"{self.pruned:,} equivalent ones pruned{skipped}{polls}, in {self.seconds:.2f} s"
        )

    def covered(self) -> str:
        """Describe how much was tried of what is possible."""
        return f"{self.tried:,} of at least {self.tried + self.skipped:,} schedules"

    def not_tried(self) -> str:
        """Describe what the safety net left out."""
        return f"at least {self.skipped:,} schedules"

    def used(self) -> dict[str, int]:
        """Return how much of each shared bound it used, by name."""
        return {"schedules": self.tried}

    def numbers(self) -> dict[str, Any]:
        """Return the counts, by name."""
        return {"schedules": self.tried, "pruned": self.pruned, "race_seconds": round(self.seconds, 3)}

    def progress(self) -> str:
        """Format how far it has got."""
        return f"{self.tried:,} schedules run, {self.skipped:,} waiting"


@dataclasses.dataclass(slots=True)
class RaceTask:
    """What to race, and how."""

    setup: Client | None
    clients: Sequence[Client]
    check: Client
    preemptions: int
    by: By | None
    crash: bool
    """Whether to kill one client as well."""
    home: Home
    bounds: Bounds
    replay_with: str | None = None
    """The command that replays a violation, up to its id."""
    ordinal: int = 1
    """The number of this exploration in its test."""
    replay: ReplayId | None = None
    remembered: Remembered = NOTHING
    keep: Callable[[Home], str] | None = None
    progress: Callable[[RaceResult], None] = lambda _: None

    def start_clients(self) -> Clients:
        """Start the clients: processes, threads or tasks."""
        if self.by is None or self.setup is None:
            return ClientProcesses(self.home, self.clients, TIMEOUT, killable=self.crash)
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
        """Explore all schedules, or replay one."""
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
            self.result.conclude()
        finally:
            clients.close()
            self.result.seconds = now() - self._began

    def _explore(self, clients: Clients) -> Steps[None]:
        bounds = self._task.bounds
        search = ScheduleSearch(clients, self.result.preemptions, most=max(1, bounds.schedules))
        for schedule in search:
            self._count(search)
            error = yield from self._judge(schedule, clients)
            if error is not None and search.runs == 1 and not schedule.stuck:
                raise CheckFails(
                    f"Your check fails even without a race, with {error_name(error)}. Fix it first: in this run the "
                    "clients ran one after the other."
                ) from error
            if error is not None:
                self._count(search)
                yield from self._violated(clients, tuple(schedule.choices))
            elif search.runs == 1 and not self.result.reasons:
                yield from self._try_remembered(clients)
            if self.result.reasons or error is not None:
                return
            if now() - self._began > bounds.seconds:
                search.most = search.runs
        if search.waiting and search.most < bounds.schedules:
            self.result.out_of_time = bounds.seconds
        self._count(search)
        self._need_steps(schedule)

    def _count(self, search: ScheduleSearch) -> None:
        self.result.tried, self.result.pruned, self.result.skipped = search.runs, search.pruned, len(search.waiting)
        self.result.endless = tuple(client + 1 for client in sorted(search.endless))
        self.result.seconds = now() - self._began
        self._task.progress(self.result)

    def _need_steps(self, schedule: ScheduleRun) -> None:
        if all(step.access.kind == "end" for step in schedule.steps):
            self.result.reasons.append(
                "no client did anything below home. Clients must work in the folder that they are called with"
                if self.result.by is None
                else "no client ran any code that can be interleaved: that of the test, and of what setup returns"
            )

    def _judge(self, schedule: ScheduleRun, clients: Clients) -> Generator[Call, Any, BaseException | None]:
        """Check the outcome of a schedule; return the error that it fails with, if it does."""
        if schedule.unseen:
            unseen = ", ".join(dict.fromkeys(schedule.unseen))
            self.result.reasons.append(f"a client used something the scheduler cannot interleave: {unseen}")
            return None
        if schedule.diverged:
            self.result.reasons.append(
                "the clients behave differently when they run again in the same order, so their schedules cannot be "
                "explored. Make them deterministic: freeze the time, seed random numbers, keep nothing between runs"
            )
            return None
        if schedule.stuck:
            return RuntimeError(schedule.stuck)
        with CatchFailure() as caught:
            yield self._task.check, (self._outcome(schedule, clients),)
        return caught.error

    def _outcome(self, schedule: ScheduleRun, clients: Clients) -> Outcome:
        results = [_result(result) for _, result in sorted(schedule.results.items())]
        acked = [schedule.acked.get(client, []) for client in range(len(results))]
        return Outcome(self._task.home.path, clients.shared, tuple(results), tuple(acked), tuple(schedule.steps))

    def _violated(self, clients: Clients, choices: Choices, counts: str = "{0}.") -> Steps[None]:
        """Run a failing schedule again, to record the lines of code, and report it."""
        schedule = clients.run(choices, lines=True)
        content = (self._task.home.content(), self._task.home.links()) if self.result.by is None else None
        kept_at = self._task.keep(self._task.home) if self._task.keep else None
        error = yield from self._judge(schedule, clients)
        if error is None:
            if not self.result.reasons:
                self.result.reasons.append(
                    "a schedule failed the check, and passed when it ran again. Make the check deterministic: it must "
                    "depend on the outcome alone, not on time or random numbers. Clients must keep nothing in memory "
                    "between two runs, such as in a variable of a module or class"
                )
            return
        replay = str(ReplayId(self._task.ordinal, race=race_id(schedule, self.result.by)))
        self.result.verdict, self.result.replay = "VIOLATED", replay
        command = self._task.replay_with
        replayed = (command, replay) if command else None
        text = report(schedule, error, content, counts.format(self.result), kept_at, replayed)
        raise blamed(RaceBug(text.replace(str(self._task.home.path), "home"), replay), cause_of(error)) from None

    def _try_remembered(self, clients: Clients) -> Steps[None]:
        """Run the schedules that failed in earlier runs of the test, as far as this race allows them."""
        task = self._task
        for replay in task.remembered.ids():
            if replay.race is None or replay.ordinal != task.ordinal or not self._allows(replay.race):
                continue
            schedule = clients.run(replay.race.choices)
            if race_id(schedule, self.result.by) != replay.race:
                task.remembered.drop(replay)
            elif (yield from self._judge(schedule, clients)) is not None:
                yield from self._violated(clients, replay.race.choices, REMEMBERED)
            if self.result.reasons:
                return

    def _allows(self, race: RaceId) -> bool:
        """Whether a schedule is one of this race: of its clients, with deaths only if it kills one."""
        clients = [client if client >= 0 else death_of(client) for client in race.choices]
        has_death = min(race.choices) < 0
        is_of_clients = race.by == (self.result.by or "race") and max(clients) < self.result.clients
        return is_of_clients and (self._task.crash or not has_death)

    def _replay(self, clients: Clients, replay: ReplayId) -> Steps[None]:
        assert replay.race is not None
        self.result.replayed, self.result.tried = True, 1
        schedule = clients.run(replay.race.choices)
        if race_id(schedule, self.result.by) != replay.race:
            raise TraceChanged(
                f"'{replay}' belongs to another run: the clients no longer do what they did then. Run the test without "
                "--wfstate-replay."
            )
        error = yield from self._judge(schedule, clients)
        if error is not None:
            yield from self._violated(clients, replay.race.choices, "This is one schedule, replayed.")


def race_id(schedule: ScheduleRun, by: By | None) -> RaceId:
    """Return the id of a schedule: its choices, and a hash of what the clients did, whatever the files are called."""
    numbers: dict[str, int] = {}
    shape = [
        (step.client, step.access.kind, numbers.setdefault(step.access.path, len(numbers)), step.blocked)
        for step in schedule.steps
    ]
    return RaceId(by or "race", tuple(schedule.choices), hashlib.sha256(repr(shape).encode()).hexdigest()[:8])


def _result(result: Any) -> Any:
    if isinstance(result, Killed):
        return ClientDied("the client was killed")
    return result.error if isinstance(result, ClientFailed) else result
