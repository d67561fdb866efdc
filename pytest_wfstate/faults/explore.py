"""Explore: run a workload once, derive every disk that a crash could have left, and check each.

Nothing here knows a contract: the workload is any code that writes files, and the check raises if a disk is not
acceptable. The work is a generator that asks for its calls to be made, so that one explorer serves sync and async.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import functools
import inspect
import pickle
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal

import pytest

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.cut import Choice, Cut, Model
from pytest_wfstate.faults.disk import Disk, Home
from pytest_wfstate.faults.fresh import FreshProcess, Verdict
from pytest_wfstate.faults.models import cuts
from pytest_wfstate.faults.ops import OPS, Item, Trace
from pytest_wfstate.faults.record import Gate, Recorder
from pytest_wfstate.faults.recording import recording
from pytest_wfstate.faults.states import Life, State, Tally, distinct_states, find
from pytest_wfstate.faults.violation import CrashBug, describe, mends, report, where_it_died
from pytest_wfstate.faults.world import Worlds

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Steps = Generator[Call, Any, Any]

FAILURES = (Exception, pytest.fail.Exception)
_SHRINKS = 300  # checks that shrinking one violation may cost
_SAMPLES = 3
_MOST_ADVICE = 5
_COUNTED = 500  # disks that are checked to tell how much an fsync would mend


class NotMeasured(WfstateError, AssertionError):
    """The lab could not see enough to say anything: neither a pass nor a violation."""


class CheckFails(WfstateError, AssertionError):
    """The check does not even accept the disk of a run that nothing interrupted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """How much an exploration may do."""

    states: float
    seconds: float


PROFILES = {
    "quick": Bounds(500, 2),
    "default": Bounds(20_000, 20),
    "thorough": Bounds(float("inf"), float("inf")),
}


@dataclasses.dataclass(slots=True)
class Exploration:
    """What an exploration has seen."""

    model: Model
    possible: int = 0
    """Combinations of what could be kept and lost, over all points of the run."""
    distinct: int = 0
    """Different disks among those that were looked at."""
    tried: int = 0
    """Disks that were checked."""
    skipped: int = 0
    """Combinations that were not looked at, because a bound was reached."""
    seconds: float = 0.0
    verdict: Literal["CLEAN", "VIOLATED", "NOT_MEASURED"] = "CLEAN"
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Why it is NOT_MEASURED."""
    replay: str = ""
    """The id of the violation."""

    def __str__(self) -> str:
        skipped = f", {self.skipped:,} combinations skipped" if self.skipped else ""
        return (
            f"{self.model}: {self.tried:,} distinct disks checked of {self.possible:,} possible combinations"
            f"{skipped}, in {self.seconds:.2f} s"
        )


@dataclasses.dataclass(slots=True)
class Task:
    """What is to be explored, and how."""

    workload: Callable[..., Any]
    check: Callable[..., Any]
    setup: Callable[..., Any] | None
    model: Model
    depth: int
    home: Home
    worlds: Worlds
    bounds: Bounds
    children: str = "forbid"
    test: str | None = None
    replay: str | None = None
    keep: Callable[[Home], str] | None = None
    progress: Callable[[Exploration], None] = lambda _: None


class Explorer:
    """One exploration, from the run to the verdict."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._tally = Tally()
        self._began = time.perf_counter()
        self.result = Exploration(task.model)
        self._fresh: FreshProcess | None = None

    def steps(self) -> Steps:
        """Do it all. Gives the calls to make; returns the `Exploration`.

        Raises:
            CrashBug: a disk was found that the check does not accept.
        """
        task = self._task
        if task.setup is not None:
            yield task.setup, (task.home.path,)
        self._fresh = FreshProcess(self._check_afresh)
        try:
            life = yield from self._live()
            if not self.result.reasons:
                yield from self._explore(life)
        finally:
            self._fresh.close()
            self.count()
            self.result.verdict = "NOT_MEASURED" if self.result.reasons else self.result.verdict
        return self.result

    def _live(self) -> Generator[Call, Any, Life]:
        """Run the workload once, under the recorder."""
        task = self._task
        worlds = tuple(task.worlds.states())
        with self.recording() as recorder:
            yield task.workload, (task.home.path,)
        trace = recorder.trace()
        self.result.reasons += recorder.unmeasured
        if not any(isinstance(item, OPS) for item in trace.items):
            self.result.reasons.append("nothing was written below home: write to the folder that the workload is given")
        return Life(trace, task.model, worlds)

    @contextlib.contextmanager
    def recording(self, gate: Gate | None = None) -> Iterator[Recorder]:
        """Record what happens below home, and to the outside world."""
        worlds = self._task.worlds
        with recording(self._task.home.path, gate, self._task.children) as recorder:
            worlds.log = recorder.log
            try:
                yield recorder
            finally:
                worlds.log = None

    def points(self) -> Steps:
        """Run the workload, and list what it does, in words."""
        if self._task.setup is not None:
            yield self._task.setup, (self._task.home.path,)
        with self.recording() as recorder:
            yield self._task.workload, (self._task.home.path,)
        return describe(recorder.trace())

    def _explore(self, life: Life) -> Steps:
        yield from self._check_uncrashed(life)
        if self._task.replay is not None:
            yield from self._replay(life)
            return
        samples: list[State] = []
        for state in self.within_bounds(distinct_states(life, self._tally)):
            error = yield from self.check(state)
            if error is not None:
                yield from self._violated(state, error)
            if len(samples) < _SAMPLES or self.result.tried % 50 == 0:
                samples = [*samples[: _SAMPLES - 1], state]
            if self._task.depth > 1:
                yield from self._explore_recovery(state)
        for state in samples:
            self._compare(state, None)

    def within_bounds(self, states: Iterator[State]) -> Iterator[State]:
        """Give states to check until a bound is reached."""
        for state in states:
            if self.result.tried >= self._task.bounds.states or self._elapsed() > self._task.bounds.seconds:
                return
            self.result.tried += 1
            if self.result.tried % 64 == 0:
                self.count()
                self._task.progress(self.result)
            yield state

    def _check_uncrashed(self, life: Life) -> Steps:
        last = len(life.trace.items)
        (cut,) = (cut for cut in cuts(life.trace, "kill") if cut.index == last)
        end = State(dataclasses.replace(life, model="kill"), cut, cut.kept)
        error = yield from self.check(end)
        if error is not None:
            raise CheckFails(
                f"your check fails without a crash: {type(error).__name__}: {error}. It was given the disk of a run "
                "that ended well. Mend the check, or what it calls, before asking about crashes."
            ) from error

    def check(self, state: State) -> Generator[Call, Any, BaseException | None]:
        """Build a disk and check it; give what the check raised."""
        disk = self._build(state)
        try:
            yield self._task.check, (disk,)
        except FAILURES as error:
            return error
        return None

    def _build(self, state: State) -> Disk:
        life, index = state.life, state.cut.index
        self._task.home.build(state.content())
        self._task.worlds.put_back(life.worlds_at(index))
        died = functools.partial(where_it_died, state)
        return Disk(self._task.home.path, copy.deepcopy(life.acked(index)), life.effects(index), died)

    def _explore_recovery(self, state: State) -> Steps:
        """Crash the check as well, where it wrote."""
        first = self._build(state)
        with self.recording() as recorder:
            yield self._task.check, (first,)
        self.result.reasons += [reason for reason in recorder.unmeasured if reason not in self.result.reasons]
        second = recorder.trace()
        if not any(isinstance(item, OPS) for item in second.items):
            return
        for life in _second_lives(state, second):
            for again in self.within_bounds(distinct_states(life, self._tally)):
                error = yield from self.check(again)
                if error is not None:
                    yield from self._violated(again, error)

    def _violated(self, state: State, error: BaseException) -> Steps:
        """Shrink a violation, look for what would mend it, and raise it."""
        if not self._compare(state, str(error)):
            return
        state, error = yield from self._shrink(state, error)
        self.result.verdict = "VIOLATED"
        self.result.replay = state.replay
        advice = yield from self._advise(state)
        self._build(state)
        kept_at = self._task.keep(self._task.home) if self._task.keep else None
        self.count()
        text = report(state, error, self._task.test, f"{self.result}.", advice, kept_at)
        # The report says what the check said and where, so the error is not shown again.
        raise CrashBug(text.replace(str(self._task.home.path), "home"), state.replay) from None

    def _shrink(self, state: State, error: BaseException) -> Generator[Call, Any, tuple[State, BaseException]]:
        """Restore what was lost while the check still fails, then try earlier cuts with the same losses."""
        tries = 0
        for number, setting in enumerate(state.choice):
            for dial, turned in enumerate(setting):
                for position in range(turned):
                    candidate = state.with_position(number, dial, position)
                    tries += 1
                    failed = (yield from self.check(candidate)) if tries < _SHRINKS else None
                    if failed is not None:
                        state, error = candidate, failed
                        break
        wanted = set(state.lost())
        for cut in cuts(state.life.trace, state.life.model):
            if not state.life.since <= cut.index < state.cut.index or tries >= _SHRINKS:
                continue
            candidate = State(state.life, cut, _same_losses(cut, wanted))
            if set(candidate.lost()) != wanted:
                continue
            tries += 1
            failed = yield from self.check(candidate)
            if failed is not None:
                return candidate, failed
        return state, error

    def _advise(self, state: State) -> Generator[Call, Any, list[str]]:
        """Look for the fsyncs that are missing, one after the other, until no disk breaks the check."""
        before, of, _ = yield from self._violations(state.life)
        lines: list[str] = []
        broken: State | None = state
        while broken is not None and len(lines) < _MOST_ADVICE and (mend := next(iter(mends(broken)), None)):
            after, among, broken = yield from self._violations(mend.life)
            if not lines:
                lines.append(f"{mend.advice[0].upper()}{mend.advice[1:]} would make this state impossible.")
                lines.append(f"With it {after:,} of {among:,} disks break the check, without it {before:,} of {of:,}.")
            else:
                lines.append(f"With {mend.advice} as well, {after:,} of {among:,} do.")
        return lines

    def _violations(self, life: Life) -> Generator[Call, Any, tuple[int, int, State | None]]:
        """Count the disks that break the check, within a small bound, and give the one that lost the least."""
        broken: list[State] = []
        tried = 0
        for state in distinct_states(life, Tally()):
            if tried >= _COUNTED or self._elapsed() > 2 * self._task.bounds.seconds:
                break
            tried += 1
            if (yield from self.check(state)) is not None:
                broken.append(state)
        return len(broken), tried, min(broken, key=lambda state: len(state.lost()), default=None)

    def _replay(self, life: Life) -> Steps:
        assert self._task.replay is not None
        first, *second = self._task.replay.split("+")
        state = find(life if not second or first.startswith(life.model) else _killed(life), first)
        if second:
            disk = self._build(state)
            with self.recording() as recorder:
                yield self._task.check, (disk,)
            (model, *_) = second[0].split("-")
            lives = _second_lives(state, recorder.trace())
            state = find(next(life for life in lives if life.model == model), second[0])
        error = yield from self.check(state)
        if error is not None:
            yield from self._violated(state, error)

    def _compare(self, state: State, said: Verdict) -> bool:
        """Check a state once more where the workload never ran; tell whether that agrees."""
        assert self._fresh is not None
        life, index = state.life, state.cut.index
        subject = (state.content(), life.acked(index), life.effects(index), where_it_died(state), life.worlds_at(index))
        try:
            pickle.dumps(subject)
        except Exception:
            return True  # an ack or a world that cannot cross to another process: this cannot be compared
        verdict = self._fresh.check(subject)
        if (verdict is None) == (said is None):
            return True
        here, there = ("fails", "passes") if said is not None else ("passes", "fails")
        self.result.reasons.append(
            f"the check {here} in the process of the workload and {there} in a fresh one ({said or verdict}): it "
            "relies on something in memory, which a crash would have taken. Use crash.ack(value) and disk.acked, or "
            "crash.world"
        )
        return False

    def _check_afresh(self, subject: Any) -> Verdict:
        content, acked, effects, crash, worlds = subject
        self._task.home.build(content)
        self._task.worlds.put_back(worlds)
        try:
            result = self._task.check(Disk(self._task.home.path, acked, effects, lambda: crash))
            if inspect.isawaitable(result):
                asyncio.run(_wait(result))
        except FAILURES as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _elapsed(self) -> float:
        return time.perf_counter() - self._began

    def count(self) -> None:
        """Bring the result up to date."""
        self.result.possible = self._tally.possible
        self.result.distinct = self._tally.distinct
        self.result.skipped = self._tally.skipped
        self.result.seconds = self._elapsed()


def _second_lives(state: State, second: Trace) -> list[Life]:
    """Give the runs that a crashed recovery is the end of."""
    life, index = state.life, state.cut.index
    markers = [item for item in life.trace.items[:index] if not isinstance(item, OPS)]
    # After a power cut, what is there is on the disk.
    durable = Life(
        Trace(second.start, [*markers, *second.items]),
        life.model,
        life.worlds,
        since=len(markers),
        before=f"{state.replay}+",
    )
    if state.lost() and life.model != "kill":
        return [durable]
    # All of it kept is also what a kill leaves: then what was not fsynced can still be lost with the recovery.
    joined = [*life.trace.items[:index], *_renumbered(second, state)]
    killed = Life(Trace(life.trace.start, joined), life.model, life.worlds, since=index, before=f"{state.replay}+")
    return [killed] if life.model == "kill" else [durable, dataclasses.replace(killed, before=f"{state.replay}+")]


def _renumbered(second: Trace, state: State) -> list[Item]:
    """Give the items of a recovery with the nodes that the first run knew its files by."""
    before = state.cut.tree(state.choice)
    first = dict(before.walk())
    known = {node: first[path] for path, node in second.start.walk() if path in first}
    known[0] = 0
    offset = max(before.kinds, default=0) + 1

    def renumber(item: Any) -> Any:
        names = [name for name in ("node", "folder", "new_folder", "replaced") if hasattr(item, name)]
        return dataclasses.replace(item, **{name: new(getattr(item, name)) for name in names})

    def new(node: int | None) -> int | None:
        return node if node is None or node < 0 else known.get(node, node + offset)

    return [renumber(item) for item in second.items]


def _same_losses(cut: Cut, wanted: set[int]) -> Choice:
    """Turn each dial of a cut as far as it loses nothing but these items."""
    return tuple(
        tuple(
            max((at for at, position in enumerate(dial.positions) if set(position.lost) <= wanted), default=0)
            for dial in part.dials
        )
        for part in cut.parts
    )


def _killed(life: Life) -> Life:
    return dataclasses.replace(life, model="kill")


async def _wait(result: Any) -> Any:
    return await result


def run(steps: Steps) -> Any:
    """Make the calls that `steps` asks for; an async one runs on a loop of its own."""
    with asyncio.Runner() as runner:

        def make(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            result = call(*args)
            return runner.run(_wait(result)) if inspect.isawaitable(result) else result

        return _drive(steps, make)


def _drive(steps: Steps, make: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> Any:
    try:
        asked = next(steps)
        while True:
            try:
                result = make(*asked)
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(result)
    except StopIteration as end:
        return end.value


async def arun(steps: Steps) -> Any:
    """Make the calls that `steps` asks for, on the running loop."""
    try:
        asked = next(steps)
        while True:
            try:
                call, args = asked
                result = call(*args)
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(result)
    except StopIteration as end:
        return end.value
