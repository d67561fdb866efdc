"""File steps: a process that stops before each file operation below home, and makes it when the schedule allows."""

from __future__ import annotations

import collections
import contextlib
import errno
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, NoReturn

from pytest_wfstate.faults.race.bypasses import bypassed
from pytest_wfstate.faults.race.file_calls import LISTING, Effect, Target
from pytest_wfstate.faults.race.lookup import Lookup, Lookups, Place
from pytest_wfstate.faults.race.schedule import HANGS, LOCK_STEPS, PROGRESS, SLEEP, Access, ClientProgress, Key
from pytest_wfstate.faults.race.witness import HomeWitness, OlderFiles, WitnessedPaths
from pytest_wfstate.faults.source_lines import SourceLine, users_line

_SPACE: Key = ("space", 0, "")
_SPINS = 10  # times that a client does the same, and changes nothing, before it counts as one that polls
_PROGRESSING = {"read", "readinto", "readv", "pread", "preadv", "seek", "lseek", *LOCK_STEPS}
_OF_PROCESS = re.compile(r"/proc/(\d+)(?![^/])(?!/comm$)")  # comm, the name of its program, is for messages


class AttemptedAccess(NamedTuple):
    """An operation that was made or, if it was blocked, attempted."""

    access: Access
    blocked: bool = False
    acked: int = 0
    """How many values had been acknowledged before it."""


LockKind = Literal["whole", "range"]
"""A lock of flock(2) is on a whole file; those of fcntl(2) and lockf(3) are on ranges, any number of them."""


class HeldFileLock(NamedTuple):
    """A lock on a file that a process holds."""

    inode: int
    exclusive: bool
    excludes: bool
    """Whether it keeps others from all that they do under a lock of the same file: not if it may be on part of the
    file, nor outside home, where nobody sees the file get another name."""


class FileSteps:
    """Lets a process make `allowance` file operations below `home`, then calls `stop` with the reason.

    `stop` returns when there is a new allowance.
    """

    def __init__(self, place: Place, stop: Callable[[str], None]) -> None:
        self._place = place
        self._lookups = Lookups(place)
        self._older = OlderFiles(self._lookups)
        self._stop = stop
        self._locked: dict[tuple[int, LockKind], HeldFileLock] = {}
        """By descriptor and kind."""
        self._stepping = threading.RLock()
        self._inside = threading.local()
        self._attempts: list[AttemptedAccess] = []
        self.is_on = False
        self.lines = False
        """Whether to look up the user's lines, which is slow."""
        self.allowance = 0
        self.wakeups = 0
        """How often it may wake up without asking, because the others are stalled."""
        self.progress = ClientProgress()
        self.unseen: list[str] = []
        self.others: frozenset[int] = frozenset()
        """The processes of the other clients, dead ones included."""
        self.is_stopped = False
        """Whether one of its threads waits for the schedule."""
        self._naps = 0
        self._repeated: collections.Counter[tuple[str, str, str]] = collections.Counter()
        """How often the client did what, and how that failed, since it last changed something or slept."""
        self.rest: Callable[[], object] = self.sleep
        """Sleep in place of a client that polls without a pause."""
        self._witness: HomeWitness | None = None
        """Looks at all of home around each step, which is slow. So there is one only after steps not taken before."""
        self._witnessed = WitnessedPaths()
        self._changing: set[int] = set()
        """The threads that are making a change that was a step."""

    def begin(self) -> None:
        """Begin a run of the client."""
        self.progress = ClientProgress()
        PROGRESS.set(self.progress)
        self.unseen = []
        self._naps = 0
        self._repeated.clear()
        self._witnessed.begin()
        self._watch()
        self.is_on = True

    def finish(self, free_locks: Callable[[int], None]) -> None:
        """End a run of the client. It frees all its locks, as the end of its process would."""
        self._note_unexplained()
        self._witnessed.step("end", "", is_watched=self._witness is not None)
        for fd, lock in {fd: lock for (fd, _), lock in self._locked.items()}.items():
            if self._lookups.descriptor(fd, anywhere=True).inode == lock.inode:
                self._lock_step("close", fd)
                free_locks(fd)
        self._locked.clear()
        self.is_on = False

    def note_unseen(self, what: str) -> None:
        """Note that the client used something that the scheduler cannot interleave."""
        if self.is_on and what not in self.unseen:
            self.unseen.append(what)

    def look_at_process(self, pid: Any) -> None:
        """Note a look at the process of another client.

        Nobody is scheduled around it; and a client's process outlives the client, which a worker's may or may not.
        """
        if pid in self.others:
            self.note_unseen("whether the process of another client is alive")

    def take_attempts(self) -> list[AttemptedAccess]:
        """Return the operations made since the last call."""
        attempts, self._attempts = self._attempts, []
        return attempts

    def step(self, kind: str, *targets: Target) -> None:
        """Wait until the schedule allows an operation, if any file that it names is below home."""
        with self._looking() as looks:
            if looks:
                self._note_processes(targets)
                self._note_older(*(target.file for target in targets))
            if looks and any(self._lookups.may_matter(target.file, target.dir_fd) for target in targets):
                # Others may run meanwhile: what counts is what it accesses then.
                may_change = any(target.effect.may_change for target in targets)
                self._take(lambda: self._access(kind, targets), may_change=may_change)

    def made(self) -> None:
        """Note that the operation of the last step is over."""
        if threading.get_ident() in self._changing:
            if self._witness is not None:
                self._witness.explain()
            self._changing.discard(threading.get_ident())

    def lock(self, fd: int, kind: LockKind, try_lock: Callable[[], Any], *, exclusive: bool, may_wait: bool) -> Any:
        """Try a lock until it is free, without ever waiting in the kernel."""
        self._lock_step("lock" if may_wait else "try lock", fd)
        if kind == "whole":
            self._locked.pop((fd, kind), None)  # the kernel gives it up to convert it
        while True:
            try:
                result = try_lock()
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES) or not may_wait:
                    self.failed(error)
                    raise
                self._retry("blocked")
            else:
                lookup = self._lookups.descriptor(fd, anywhere=True)
                excludes = kind == "whole" and self._lookups.descriptor(fd).is_below_home
                self._locked[fd, kind] = HeldFileLock(lookup.inode, exclusive, excludes)
                return result

    def test_lock(self, fd: int) -> None:
        """Wait until the schedule allows looking at a lock."""
        self._lock_step("test lock", fd)

    def unlock(self, fd: int, kind: LockKind, unlock: Callable[[], Any]) -> Any:
        """Free a lock when the schedule allows."""
        self._lock_step("unlock", fd)
        if kind == "whole":  # else other ranges may still be locked
            self._forget(fd)
        return unlock()

    def close(self, fd: int) -> None:
        """Wait until the schedule allows closing a descriptor, if that may free a lock.

        Closing any descriptor of a file frees the locks that the process holds on it by fcntl(2).
        """
        if self._locked and self._lookups.descriptor(fd, anywhere=True).inode in self._locked_inodes():
            self._lock_step("close", fd)
            self._hand_on(fd)

    def close_range(self, begin: int, end: int) -> None:
        """Wait as `close` does, for several descriptors."""
        for fd in {fd for fd, _ in self._locked if begin <= fd < end}:
            self.close(fd)

    def sleep(self, seconds: float = 0.0) -> int:
        """Let others run instead of sleeping. Return how often it slept since it last changed something.

        `seconds` is how long it has really waited already.
        """
        with self._stepping:
            self._repeated.clear()
            self._wait()
            self._record(Access(SLEEP, "", users_line() if self.lines else None, seconds=seconds))
            self._retry("asleep")
            self._naps += 1
            return self._naps

    def hang(self, line: SourceLine | None) -> NoReturn:
        """Report that the process waits at this line for something that cannot happen."""
        self._record(Access(HANGS, "", line))
        self._halt(HANGS)
        raise AssertionError("a client that hangs is killed")

    def attempts_until(self, line: SourceLine | None) -> list[AttemptedAccess]:
        """Return the operations made since the last report, of a process that hangs at this line."""
        return [*self._attempts, AttemptedAccess(Access(HANGS, "", line), acked=len(self.progress.acked))]

    @property
    def is_looking(self) -> bool:
        """Whether this thread is looking up what the client is about to access."""
        return bool(getattr(self._inside, "looking", False))

    def failed(self, error: OSError) -> None:
        """Record how the last operation failed."""
        if self.is_on and self._attempts and not self.is_looking:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            last = self._attempts[-1]
            self._attempts[-1] = last._replace(access=last.access._replace(error=name))
            self._witnessed.failed(name)
            self._watch()

    @contextlib.contextmanager
    def _looking(self) -> Iterator[bool]:
        """Mark lookups, which are not the client's operations. Yield whether this is one of the client's."""
        if not self.is_on or self.is_looking:
            yield False
            return
        self._inside.looking = True
        try:
            yield True
        finally:
            self._inside.looking = False

    def _note_processes(self, targets: tuple[Target, ...]) -> None:
        """Note looks at other clients below /proc."""
        for file in (target.file for target in targets):
            if isinstance(file, (str, bytes, os.PathLike)) and (process := _OF_PROCESS.match(os.fsdecode(file))):
                self.look_at_process(int(process[1]))

    def _note_older(self, *files: Any) -> None:
        """Note the use of files that were open before."""
        for name in filter(None, map(self._older.name, files)):
            self.note_unseen(f"{name}, which was opened before the clients began. Open it in the client")

    def _note_unexplained(self) -> None:
        """Note what the steps so far do not explain, unless it is known already that they are not all."""
        if self._witness is None or self._changing or self.unseen:
            return
        self._note_older(*self._older.used())
        for path in self._witness.unexplained():
            self.note_unseen(bypassed(self._place.name(path), "changed"))

    def _watch(self) -> None:
        """Look at home around the next step, if what the client does before that is not known to be nothing."""
        if not self._witnessed.needs_watch():
            self._witness = None
        elif self._witness is None:
            self._witness = HomeWitness(self._place.base)

    def _lock_step(self, kind: str, fd: int) -> None:
        with self._looking() as looks:
            if looks:
                self._note_older(fd)
                self._take(lambda: self._lock_access(kind, self._lookups.descriptor(fd, anywhere=True)))

    def _take(self, access: Callable[[], Access], *, may_change: bool = False) -> None:
        with self._stepping:
            if self._is_spinning():
                self.rest()
            self._wait()
            self._record(access())
            if may_change:  # noted before another thread can look at home
                self._changing.add(threading.get_ident())

    def _is_spinning(self) -> bool:
        """Whether the client polls without a pause. It would never stop, since the others are stopped meanwhile."""
        if not self._attempts:
            return False
        last = self._attempts[-1].access
        if last.is_change and not last.error:
            self._repeated.clear()
        elif last.kind not in _PROGRESSING or last.error:
            self._repeated[last.kind, last.path, last.error] += 1
            return self._repeated[last.kind, last.path, last.error] >= _SPINS
        return False

    def _wait(self) -> None:
        self._note_unexplained()
        if self.allowance <= 0:
            self._halt("op")
        self.allowance -= 1

    def _halt(self, why: str) -> None:
        self.is_stopped = True
        self._stop(why)
        self.is_stopped = False
        if self._witness is not None:
            self._witness.explain()

    def _record(self, access: Access) -> None:
        self._attempts.append(AttemptedAccess(access, acked=len(self.progress.acked)))
        self.progress.steps += 1
        self._witnessed.step(access.kind, access.path, is_watched=self._witness is not None)
        self._watch()
        self._naps = 0 if access.is_change else self._naps

    def _retry(self, why: str) -> None:
        """Mark the last operation as blocked, and attempt it again as a new step."""
        last = self._attempts[-1]
        self._attempts[-1] = last._replace(blocked=True)
        if why == "asleep" and self.wakeups and self.allowance > 0 and not last.access.seconds:
            self.wakeups -= 1
        else:
            self._halt(why)
        self.allowance -= 1
        self._record(last.access)

    def _access(self, kind: str, targets: tuple[Target, ...]) -> Access:
        reads: set[Key] = set()
        writes: set[Key] = set()
        found: list[Lookup] = []
        is_change = False
        for file, effect, dir_fd, follow in targets:
            lookup = self._lookups.find(file, dir_fd, follow=follow)
            if lookup.is_below_home:
                found.append(lookup)
                reads.update(lookup.passed)
                is_change |= _touch(lookup, effect, reads, writes)
                if lookup.is_outside and effect.may_change:
                    self.note_unseen(
                        f"{lookup.name}, which a link in home leads to. It is not put back before each schedule: keep "
                        "it below home"
                    )
        may_change = any(target.effect.may_change for target in targets)
        return self._described(kind, found, reads, writes, may_change=may_change, is_change=is_change)

    def _lock_access(self, kind: str, lookup: Lookup) -> Access:
        keys: set[Key] = {("lock", lookup.inode, "")}
        return self._described(kind, [lookup], *((keys, set()) if kind == "test lock" else (set(), keys)))

    def _described(
        self,
        kind: str,
        found: list[Lookup],
        reads: set[Key],
        writes: set[Key],
        *,
        may_change: bool = False,
        is_change: bool = False,
    ) -> Access:
        return Access(
            kind,
            " to ".join(lookup.name for lookup in found),
            users_line() if self.lines else None,
            frozenset(reads),
            frozenset(writes),
            frozenset((lock.inode, lock.exclusive) for lock in self._locked.values() if lock.excludes),
            bool(self._locked),
            tuple(dict.fromkeys(name for lookup in found for name in lookup.names)),
            may_change,
            is_change,
        )

    def _locked_inodes(self) -> set[int]:
        return {lock.inode for lock in self._locked.values()}

    def _forget(self, fd: int) -> None:
        """Forget the locks of a descriptor. Another one of the same file may hold the same lock, or hold it no more."""
        freed = {key: self._locked.pop(key) for key in list(self._locked) if key[0] == fd}
        inodes = {lock.inode for lock in freed.values()}
        for key, lock in self._locked.items():
            if lock.inode in inodes:
                self._locked[key] = lock._replace(excludes=False)

    def _hand_on(self, fd: int) -> None:
        """Forget the locks of a descriptor that is closed, unless it may have a duplicate, which holds them too."""
        held = [(kind, lock) for (number, kind), lock in self._locked.items() if number == fd]
        self._forget(fd)
        inodes = {lock.inode for _, lock in held}
        found = self._lookups.open_descriptors().items() if held else ()
        others = [other for other, lookup in found if lookup.inode in inodes and other != fd]
        for other, (kind, lock) in itertools.product(others, held):
            self._locked.setdefault((other, kind), lock._replace(excludes=False))


def _touch(lookup: Lookup, effect: Effect, reads: set[Key], writes: set[Key]) -> bool:
    """Add what an operation does to the file that a lookup ends at; return whether it changes anything."""
    exists = lookup.inode >= 0
    changes_entry = lookup.entry is not None and effect.changes_entry(exists=exists)
    changes_file = effect.changes_file(exists=exists)
    if lookup.entry is not None and changes_entry:
        writes.update((lookup.entry, ("listing", lookup.folder, "")))
    if exists and effect is not Effect.PROBE:
        (writes if changes_file else reads).add(("inode", lookup.inode, ""))
    if lookup.is_folder and effect in LISTING:
        reads.add(("listing", lookup.inode, ""))
    if changes_entry or changes_file:
        writes.add(_SPACE)
    if effect is Effect.MEASURE:
        reads.add(_SPACE)
    return changes_entry or (changes_file and not (effect is Effect.EMPTY and not lookup.size))
