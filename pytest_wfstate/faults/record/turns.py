"""Turns: make the strands of a run go on in a certain order, as far as they can.

Strands have ranks. One that is about to do an item (a file operation, an effect or an acknowledgement) waits until
every strand before it is blocked or has ended. Nothing else is controlled: a recording is always a real execution, and
a strand that others wait for is never held, since those others are blocked. This is the scheduler of PCT (Burckhardt
et al., ASPLOS 2010), with priorities that are fixed or drawn from a seed.

A replay instead follows the turns of the run that it repeats.
"""

from __future__ import annotations

import hashlib
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pytest_wfstate.faults.real_clock import processor_time
from pytest_wfstate.faults.record.blocked import BlockedThreads, can_watch_threads, is_running
from pytest_wfstate.faults.record.task_turns import Activity, TaskTurns
from pytest_wfstate.faults.replay_id import EARLY, LATE, read_turns
from pytest_wfstate.faults.trace.strands import MAIN, Strand, Strands

Rank = Callable[[Strand], tuple[Any, ...]]
"""Returns when a strand has its turn, compared with others: the smallest is first."""

_PAUSE = 0.0003  # seconds between two looks at the other threads
_PATIENCE = 2.0  # seconds of processor time without an item, after which something spins
_MOST_LOOKS = 20_000  # without an item, after which something polls in a way that is not known here
_MOST_PAUSES = 5  # of a strand without an item, after which it polls: it waits for another one
_MOST_ITEMS = 10_000  # of others while a strand waits for its turn, after which they may go on like that for ever
_MOST_BEATS = 20  # sleeps of a strand while another waits for its turn, after which it does something now and then
_SHORT = 1.0  # seconds: whoever waits for at most longer waits for something else, and so does an event loop
_BRIEF = 0.1  # seconds: a longer sleep counts for as many as it has of these

_real_sleep = time.sleep
_real_wait = threading.Condition.wait
_real_join = threading.Thread.join
_SELECTORS: list[Any] = [selectors.SelectSelector, selectors.PollSelector, selectors.DefaultSelector]
_real_selects = [selector.select for selector in _SELECTORS]


class RankedTurns:
    """Lets the strands of a run have their turns by rank."""

    def __init__(self, strands: Strands, order: str) -> None:
        self._strands = strands
        self._rank = _ranking(order, lambda: self._items)
        self._blocked = BlockedThreads()
        self._tasks = TaskTurns(self._rank, self._activity)
        self._items = 0
        self._is_on = False
        self.are_kept = True
        """Whether the order could be kept."""

    def on(self) -> None:
        """Begin."""
        self._is_on = self.are_kept = can_watch_threads()
        self._blocked.on()
        self._tasks.on()
        threading.Condition.wait = self._timed_stand_in(_real_wait)  # type: ignore[method-assign]
        threading.Thread.join = self._timed_stand_in(_real_join)  # type: ignore[method-assign]
        for selector, real in zip(_SELECTORS, _real_selects, strict=True):
            selector.select = self._select_stand_in(real)

    def off(self) -> None:
        """Let all strands go on as they like."""
        self._is_on = False
        threading.Condition.wait = _real_wait  # type: ignore[method-assign]
        threading.Thread.join = _real_join  # type: ignore[method-assign]
        for selector, real in zip(_SELECTORS, _real_selects, strict=True):
            selector.select = real
        self._tasks.off()
        self._blocked.off()

    def wait(self, strand: Strand) -> None:
        """Wait until every strand of a smaller rank is blocked or has ended."""
        for _, other in self._strands.threads():  # one that polls may now find what it looks for
            other.pauses = min(other.pauses, _MOST_PAUSES - 1)
        self._wait(strand)

    def pause(self, strand: Strand) -> None:
        """Do the same for a strand that was just started, or has just started another, but wait for no sleep.

        What is to happen meanwhile may be what the strand does between here and its next item.
        """
        strand.is_pausing = True
        try:
            self._wait(strand)
        finally:
            strand.is_pausing = False

    def _wait(self, strand: Strand) -> None:
        if self._may_go(strand):
            return
        strand.is_held = True
        try:
            self._hold(strand)
        finally:
            strand.is_held = False

    def done(self, _: Strand) -> None:
        """Count an item."""
        self._items += 1
        self._tasks.has_progress = True

    def sleep(self, call: Callable[..., Any], seconds: float, /, *args: Any) -> Any:
        """Make a call in which the calling strand sleeps for a certain time."""
        strand = self._strands.current()
        strand.is_asleep, strand.seconds = True, seconds
        try:
            return call(*args)
        finally:
            strand.is_asleep = False
            strand.pauses += 1
            if any(other.is_held for _, other in self._strands.threads()):
                strand.beats += max(1, seconds / _BRIEF)
            self._sleep_on(strand)

    def timed_wait(self, call: Callable[..., Any], seconds: float, /, *args: Any) -> Any:
        """Make a call in which the calling strand waits for something, but not for longer than a certain time.

        If that is short, it is a sleep that something else may end: a flusher often sleeps like this.
        """
        strand = self._strands.current()
        strand.is_waiting = True
        try:
            if 0 < seconds <= _SHORT:
                return self.sleep(call, seconds, *args)
            strand.pauses += 1
            return call(*args)
        finally:
            strand.is_waiting = False

    def _sleep_on(self, strand: Strand) -> None:
        """Let the main strand come to its next item first, if that is to wait for this one, however slow it is."""
        main, used = self._strands.main, processor_time()
        natives = [thread for thread, other in self._strands.threads() if other is main]
        while (
            self._is_on
            and self._rank(strand) < self._rank(main)
            and not (main.is_held or main.is_asleep or main.is_waiting or main.has_ended)
            and not all(map(self._blocked.has, natives))
            and processor_time() - used < _PATIENCE / 10
        ):
            _real_sleep(_PAUSE)

    def _hold(self, strand: Strand) -> None:
        items, used, looks = self._items, processor_time(), 0
        most = items + _MOST_ITEMS
        while self._is_on and not self._may_go(strand):
            _real_sleep(_PAUSE)
            looks += not any(other.is_asleep for _, other in self._strands.threads())
            if self._items != items:
                items, used, looks = self._items, processor_time(), 0
            elif processor_time() - used > _PATIENCE or looks > _MOST_LOOKS:
                self._give_up()
            if self._items > most:
                self._give_up()

    def _may_go(self, strand: Strand) -> bool:
        rank = self._rank(strand)
        return not self._is_on or all(
            self._rests(thread, other, strand)
            for thread, other in self._strands.threads()
            if other is not strand and self._rank(other) < rank
        )

    def _rests(self, thread: int, strand: Strand, held: Strand) -> bool:
        """Whether a strand does nothing until another one does, such as the one that is held."""
        if strand.has_ended:
            return True
        if strand.is_held or strand.is_busy:
            return False
        if strand.is_asleep and held.is_pausing:
            return True
        has_slept_enough = strand.pauses >= _MOST_PAUSES or strand.beats >= _MOST_BEATS
        if (strand.is_asleep or strand.is_waiting) and has_slept_enough:
            return not (strand.is_older and is_running(thread))  # a server's thread may have just got a request
        return (strand.is_older or not self._goes_on(strand, held)) and self._blocked.has(thread)

    def _goes_on(self, strand: Strand, held: Strand) -> bool:
        """Whether a strand only sleeps.

        One that would wait a little longer for something counts only if the main strand is held: another one may just
        be about to give it that, and it should not time out.
        """
        if not strand.is_asleep:
            return False
        return not strand.is_waiting or strand.seconds <= _BRIEF or held is self._strands.main

    def _activity(self, job: Future[Any]) -> Activity:
        """Return what the job of a future does. One that has not begun may be about to."""
        strand = self._strands.jobs.get(job)
        if strand is None:
            return "rests"
        thread = next((thread for thread, other in self._strands.threads() if other is strand), None)
        if thread is None or strand.has_ended:
            return "works"  # or has, and the event loop is about to be told
        if self._rests(thread, strand, self._strands.main):
            return "rests"
        return "sleeps" if strand.is_asleep else "works"

    def _give_up(self) -> None:
        self.are_kept = self._is_on = False

    def _select_stand_in(self, real: Any) -> Any:
        def select(selector: Any, timeout: float | None = None) -> Any:
            if timeout is None or not 0 < timeout <= _SHORT or self._tasks.is_looking:
                return real(selector, timeout)
            return self.sleep(real, timeout, selector, timeout)

        return select

    def _timed_stand_in(self, real: Any) -> Any:
        def wait(waited_for: Any, timeout: float | None = None) -> Any:
            if timeout is None:
                return real(waited_for)
            return self.timed_wait(real, timeout, waited_for, timeout)

        return wait


class FollowedTurns(RankedTurns):
    """Follows the turns of another run, and when those are over, holds all but the main strand back."""

    def __init__(self, strands: Strands, order: str) -> None:
        super().__init__(strands, LATE)
        self._turns = read_turns(order)
        self._tasks.rank = None

    def pause(self, strand: Strand) -> None:
        """Wait only when the turns are over: starting a strand is none."""
        if self._items >= len(self._turns):
            super().pause(strand)

    def _may_go(self, strand: Strand) -> bool:
        items = self._items
        if items >= len(self._turns):
            return super()._may_go(strand)
        if not self._is_on or self._turns[items] == strand.name:
            return True
        others = [(thread, other) for thread, other in self._strands.threads() if other is not strand]
        held = [other for _, other in others if other.is_held]
        if any(other.name == self._turns[items] for other in held):
            return False  # it is about to go on
        if not all(other in held or self._rests(thread, other, strand) for thread, other in others):
            return False
        # The strand whose turn it is waits for another one. That may do what is no item, such as opening a database.
        may_go = all(self._rank(other) > self._rank(strand) for other in held)
        return may_go and self._items == items  # else what was held is not any more

    def done(self, strand: Strand) -> None:
        """Count an item, and give up if it was not this strand's turn."""
        if self._items < len(self._turns) and self._turns[self._items] != strand.name:
            self._give_up()
        super().done(strand)


def turns_for(strands: Strands, order: str) -> RankedTurns | None:
    """Return the turns of an order, or None if the strands are to go on as they like."""
    if not order:
        return None
    return FollowedTurns(strands, order) if order.startswith("t") else RankedTurns(strands, order)


def _ranking(order: str, items: Callable[[], int]) -> Rank:
    if order == EARLY:
        return lambda strand: (_FIRST_TO_LAST.index(_kind(strand)), _number(strand))
    if order == LATE:  # the reverse, so that any two strands are recorded in both orders
        return lambda strand: (not strand.is_worker, -_FIRST_TO_LAST.index(_kind(strand)), -_number(strand))
    stretch = 1 + _draw(order) % 16  # the ranks are drawn again after so many items
    return lambda strand: (not strand.is_worker, _draw(order, strand.name, str(items() // stretch)), strand.name)


# A thread of a pool that has no job is waited for in any case: it may be about to take one.
_FIRST_TO_LAST = ("worker", "started", "older", "main")


def _number(strand: Strand) -> int:
    return int(strand.name or "0", 36)


def _kind(strand: Strand) -> str:
    if strand.name == MAIN:
        return "main"
    if strand.is_worker:
        return "worker"
    return "older" if strand.is_older else "started"


def _draw(*texts: str) -> int:
    return int.from_bytes(hashlib.sha256(":".join(texts).encode()).digest()[:4], "big")
