"""Strands: who did each item of a log. A strand is a thread, or the job that a thread of a pool is doing.

A job has a strand of its own because which thread of a pool takes it is up to chance. Names are the same in each run
that does the same: "0" is the thread that runs the workload; what a run starts is counted from 1; threads older than
the run, such as that of a fake server, are "a", "b" and so on, in the order in which they show up.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import thread as pools
from typing import Any, Protocol

from pytest_wfstate.faults.source_lines import SourceLine, job, waiting_line

MAIN = "0"


class Strand:
    """One thread of control of a run."""

    __slots__ = (
        "beats",
        "has_ended",
        "is_asleep",
        "is_busy",
        "is_held",
        "is_older",
        "is_pausing",
        "is_waiting",
        "is_worker",
        "name",
        "pauses",
        "seconds",
    )

    def __init__(self, name: str = "", *, is_older: bool = False, is_worker: bool = False) -> None:
        self.name = name
        self.is_older = is_older
        """Whether its thread was there before the run."""
        self.is_worker = is_worker
        """Whether it is a thread of a pool, which does nothing of its own."""
        self.is_held = False
        """Whether it waits for its turn."""
        self.is_pausing = False
        """Whether it does so, or would, only because it was started, or has started another."""
        self.is_busy = False
        """Whether it goes on by itself although its thread is blocked: it is starting another thread."""
        self.has_ended = False
        self.is_asleep = False
        """Whether it sleeps for a certain time."""
        self.is_waiting = False
        """Whether it waits for something, but not for longer than a certain time."""
        self.seconds = 0.0
        """How long it last slept or waited so, at most."""
        self.pauses = 0
        """How often it has slept or waited so since it last did something."""
        self.beats = 0.0
        """How often it has slept while another strand waited for its turn; a long sleep counts for several."""


class Turns(Protocol):
    """Decides which strand goes on."""

    def wait(self, strand: Strand, /) -> None:
        """Wait until a strand may do its next item."""

    def pause(self, strand: Strand, /) -> None:
        """Wait until a strand may go on, where it has started another or was started."""

    def done(self, strand: Strand, /) -> None:
        """Take note that a strand did an item."""


class Strands:
    """The strands of a run, by the thread that each is in."""

    def __init__(self) -> None:
        self.main = Strand(MAIN)
        self.turns: Turns | None = None
        self.are_several = False
        """Whether more than one strand, or task or timer of an event loop, was there. It need not have done anything:
        that may be up to the load of the machine."""
        self.jobs: weakref.WeakKeyDictionary[Future[Any], Strand] = weakref.WeakKeyDictionary()
        """The strand of each job of a pool."""
        self._here = threading.local()
        self._here.strand = self.main
        self._by_thread: dict[int, Strand] = {threading.get_native_id(): self.main}
        for thread in threading.enumerate():
            if thread.native_id is not None and thread is not threading.current_thread():
                self._by_thread[thread.native_id] = self._older(thread)
        self._at_first = set(self._by_thread)
        self._started = itertools.count(1)
        self._shown_up = itertools.count()
        self._tasks: weakref.WeakSet[Any] = weakref.WeakSet()
        self._acted = 0
        self._had_others = False

    def current(self) -> Strand:
        """Return the strand that calls this."""
        strand: Strand | None = getattr(self._here, "strand", None)
        if strand is None:
            native = threading.get_native_id()
            strand = self._by_thread.get(native) or self._older(threading.current_thread())
            self._by_thread[native] = self._here.strand = strand
            job.waits = self.waiting_line if strand.is_older else None
        return strand

    def new(self) -> Strand:
        """Return a strand for a thread or job that the calling strand starts."""
        if self.current().is_older:
            return Strand(is_older=True)
        self.are_several = True
        return Strand(str(next(self._started)))

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Mark the calling strand as one that starts another in a block: it waits until that runs, but not for it."""
        strand = self.current()
        strand.is_busy = True
        try:
            yield
        finally:
            strand.is_busy = False

    def enter(self, strand: Strand) -> Strand | None:
        """Make the calling thread a strand; return which one it was."""
        before: Strand | None = getattr(self._here, "strand", None)
        self._here.strand = self._by_thread[threading.get_native_id()] = strand
        return before

    def leave(self, before: Strand | None) -> None:
        """End the strand of the calling thread, which is what it was before again."""
        native = threading.get_native_id()
        self._by_thread[native].has_ended = True
        self._here.strand = before
        if before is None:
            del self._by_thread[native]
        else:
            self._by_thread[native] = before

    def threads(self) -> list[tuple[int, Strand]]:
        """Return the native id of each thread, and its strand."""
        return list(self._by_thread.items())

    def others(self) -> list[tuple[int, Strand]]:
        """Return the native id and the strand of each thread that was started in the run, or does a job of it."""
        return [
            (thread, strand)
            for thread, strand in self.threads()
            if strand is not self.main and not (strand.is_older and thread in self._at_first)
        ]

    def at_item(self) -> None:
        """Announce that the calling strand is about to do an item. It may have to wait for its turn."""
        strand = self._named()
        strand.pauses = 0
        if not self.are_several:
            self.are_several = strand is not self.main or self._have_tasks_acted()
        if self.turns is not None:
            self.turns.wait(strand)

    def done(self) -> str:
        """Take note that the calling strand did an item, and return its name."""
        strand = self._named()
        if self.turns is not None:
            self.turns.done(strand)
        return strand.name

    def pause(self) -> None:
        """Let other strands go first, where the calling strand has started another or was started."""
        strand = self.current()
        if self.turns is not None and not strand.is_worker:
            self.turns.pause(strand)

    def _named(self) -> Strand:
        strand = self.current()
        strand.name = strand.name or _letters(next(self._shown_up))
        return strand

    def waiting_line(self) -> SourceLine | None:
        """Return the line that waits for the calling strand, if that is older than the run, as a server's is."""
        if not self.current().is_older:
            return None
        waiting = [
            thread.ident
            for thread in threading.enumerate()
            if thread.ident and thread.native_id and self._may_wait(thread.native_id)
        ]
        return waiting_line(waiting)

    def _may_wait(self, thread: int) -> bool:
        strand = self._by_thread.get(thread)
        return strand is not None and not (strand.is_older or strand.is_worker or strand.is_held)

    def _have_tasks_acted(self) -> bool:
        """Whether two tasks of an event loop did items, and one of them while another one was there."""
        loop = asyncio._get_running_loop()
        task = None if loop is None else asyncio.current_task(loop)
        if task is None:
            return False
        if task not in self._tasks:
            self._tasks.add(task)
            self._acted += 1
        self._had_others = self._had_others or len(asyncio.all_tasks(loop)) > 1
        return self._acted > 1 and self._had_others

    def _older(self, thread: threading.Thread) -> Strand:
        if works_for_caller(thread):
            return self.main
        return Strand(is_older=True, is_worker=getattr(thread, "_target", None) is pools._worker)


def works_for_caller(thread: threading.Thread) -> bool:
    """Whether it is the thread of `as_sync`, whose caller always waits for it: both are one strand."""
    return thread.name == "wfstate-as-sync"


def _letters(number: int) -> str:
    """Return a, b, ..., z, ba, bb and so on."""

    def reversed_letters(number: int) -> Iterator[str]:
        yield chr(ord("a") + number % 26)
        if number >= 26:
            yield from reversed_letters(number // 26)

    return "".join(reversed(list(reversed_letters(number))))
