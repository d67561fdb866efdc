"""Recordings: a workload is run under the recorder, and in several orders if it has several threads or tasks.

Each recording is a real execution, so none can cause a false alarm. They are a sample: what is wrong only in an order
that no recording had is not found.
"""

from __future__ import annotations

import dataclasses

from pytest_wfstate.faults.crash.checker import Checker
from pytest_wfstate.faults.crash.task import NOTHING_WRITTEN, CrashResult, CrashTask
from pytest_wfstate.faults.disk.home import HomeImage
from pytest_wfstate.faults.disk.states import CrashedRun, end_state
from pytest_wfstate.faults.failures import CatchFailure
from pytest_wfstate.faults.replay_id import EARLY, LATE
from pytest_wfstate.faults.report_text import error_name
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.ops import OPS, Ack, Trace

__tracebackhide__ = True


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """One run of the workload."""

    run: CrashedRun
    reasons: list[str]
    """Why it proves nothing."""
    keeps_order: bool


class Recordings:
    """Runs of one workload, each from the same start."""

    def __init__(self, task: CrashTask, checker: Checker, result: CrashResult) -> None:
        self._task = task
        self._checker = checker
        self._result = result
        self._start = HomeImage({}, {}, {})

    def first(self, order: str = "") -> Steps[Recording]:
        """Record the workload for the first time."""
        self._start = self._task.home.image()
        recording = yield from self._record(order)
        self._result.reasons += recording.reasons
        self._result.orders = [order]
        return recording

    def all(self, first: CrashedRun) -> Steps[list[CrashedRun]]:
        """Record the workload in other orders, if it has several threads or tasks, and return the runs that differ."""
        runs = {_key(first): first}
        for order in _orders(self._task.bounds.orders) if first.trace.turns else ():
            recorded = yield from self._again(first, order)
            if recorded is None:
                break
            for run in recorded:
                self._result.orders.append(order)
                same = runs.setdefault(_key(run), run)
                if not same.order:  # a replay need not repeat each turn if there is a rule for it
                    runs[_key(run)] = dataclasses.replace(same, order=order)
        return list(runs.values())

    def again(self, first: CrashedRun, order: str) -> Steps[CrashedRun | None]:
        """Record the workload in one more order; return None if that cannot be done."""
        return next(iter((yield from self._again(first, order)) or ()), None)

    def _again(self, first: CrashedRun, order: str) -> Steps[list[CrashedRun] | None]:
        """Record the workload in an order, if it can be kept. Return None if the workload cannot be run again."""
        with CatchFailure() as caught:
            recording = yield from self._repeat(first, order)
            if not recording.keeps_order:
                self._not_kept(order, "a thread kept running, and never waited")
                return []
            if not recording.reasons:
                return [recording.run]
        raised = caught.error
        problem = recording.reasons[0] if raised is None else f"it raised {error_name(raised)}"
        if not (yield from self._can_repeat(first)):
            self._not_recorded(f"recorded in one order only, since it cannot be run again: {problem}")
            return None
        if raised is not None:
            raised.add_note(f"No crash caused this, but the order of the run: {order_in_words(order)}.")
            raise raised
        self._not_kept(order, problem)
        return []

    def _can_repeat(self, first: CrashedRun) -> Steps[bool]:
        """Whether the workload can be run again, if its threads and tasks run as they like."""
        with CatchFailure():
            return not (yield from self._repeat(first, "")).reasons
        return False

    def _not_kept(self, order: str, problem: str) -> None:
        self._not_recorded(f"not recorded in the order in which {order_in_words(order)}: {problem}")

    def _not_recorded(self, reason: str) -> None:
        self._result.not_recorded = "; ".join(filter(None, [self._result.not_recorded, reason]))

    def _repeat(self, first: CrashedRun, order: str) -> Steps[Recording]:
        """Record the workload from the start of the first run, and check the disk of the uninterrupted run."""
        self._task.home.build(*self._start)
        self._task.worlds.restore(list(first.worlds))
        recording = yield from self._record(order)
        if not recording.reasons:
            yield from self._checker.check_uninterrupted(end_state(recording.run), "a crash")
        return recording

    def _record(self, order: str) -> Steps[Recording]:
        task = self._task
        worlds = tuple(task.worlds.states())
        with task.recording(order=order) as recorder:
            yield task.workload, (task.home.path,)
        trace = recorder.trace()
        reasons = list(recorder.unmeasured)
        if not writes(trace):
            reasons.append(NOTHING_WRITTEN)
        run = CrashedRun(trace, task.model, worlds, order=order, order_in_words=order_in_words(order))
        reasons += task.worlds.changed_unseen(run.worlds_at(len(trace.items)))
        return Recording(run, reasons, recorder.keeps_order)


def writes(trace: Trace) -> bool:
    """Whether anything was done to files."""
    return any(isinstance(item, OPS) for item in trace.items)


def order_in_words(order: str) -> str:
    """Return how the threads and tasks of a run had their turns, or "" if they ran as they liked."""
    drawn = order.startswith("mix")
    return f"the turns of the threads and tasks were drawn by lot ({order})" if drawn else _IN_WORDS.get(order, "")


_IN_WORDS = {
    LATE: "the other threads and tasks were held back",
    EARLY: "the other threads and tasks went first",
}


def _orders(most: int) -> list[str]:
    return [LATE, EARLY, *(f"mix{seed}" for seed in range(1, most - 1))][:most]


def _key(run: CrashedRun) -> tuple[str, ...]:
    """Return what is the same for two recordings of one order."""
    items = run.trace.items
    acked = [repr(item.value) for item in items if isinstance(item, Ack)]
    return (dataclasses.replace(run, order="").fingerprint(), *acked, *run.effects(len(items)))
