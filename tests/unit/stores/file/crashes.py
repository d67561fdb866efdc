"""Crashing a file store, and judging what is left by the memory store: the reference that every store must equal.

A trial does the calls of a scenario and acknowledges each. After a crash the reopened store must show what the memory
store shows after the acknowledged calls, with or without the one that was in flight; then it must go on working.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_wfstate import CorruptRecord, Crash, Disk, samples
from pytest_wfstate.stores.file.base import FileStore
from tests.unit.stores.handles import another, outcome, plain
from tests.unit.stores.handles import call as call_method

RESTART = "restart"


class Clock:
    """The time that all stores of a trial go by."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> datetime.datetime:
        return samples.MOMENT + datetime.timedelta(seconds=self.second)


CLOCK = Clock()


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a store's method, through one of several handles, at a second of the trial's time."""

    method: str
    args: tuple[Any, ...]
    handle: int = 0
    at: float = 0
    only: frozenset[str] | None = None  # of a recovery that died: the runs that it came to

    def on(self, store: Any) -> Any:
        CLOCK.second = self.at
        if self.only is None:
            return outcome(store, self.method, *self.args)
        others = {run: store._inflight.pop(run) for run in list(store._inflight) if run not in self.only}
        result = outcome(store, self.method, *self.args)
        store._inflight.update(others)
        return result

    @functools.cached_property
    def cut_short(self) -> list[Call]:
        """What the call may come to if it dies, other than nothing."""
        if self.method != RECOVER.method:
            return [self]
        # It is atomic for each run, not over all of them.
        some = [runs for size in range(1, len(IDS)) for runs in itertools.combinations(IDS, size)]
        return [self, *(replace(self, only=frozenset(runs)) for runs in some)]

    @property
    def again(self) -> Call:
        """The call once more, if it failed."""
        return self

    @functools.cached_property
    def later(self) -> Call:
        """The same call when every lease is over: one that was never fsynced may be lost, and is over as well then."""
        return replace(self.again, at=self.at + 1000)

    def __repr__(self) -> str:
        return self.method + (f" of {', '.join(sorted(self.only))} alone" if self.only is not None else "")


@dataclass(frozen=True, eq=False)
class Damage(Call):
    """A save, after which the file cannot be read. In memory the record that was saved stands for that."""

    file: str = "a.json"

    def on(self, store: Any) -> Any:
        result = Call.on(self, store)
        if isinstance(store, FileStore):
            (store.directory / self.file).write_bytes(b"damage")
        return result


class Torn(Call):
    """A line of a journal that nobody lived to finish. In memory there is no such thing."""

    def on(self, store: Any) -> Any:
        if isinstance(store, FileStore):
            with open(store.directory / "a.json", "ab", buffering=0) as file:
                file.write(b"y" * 700 + b"\n")


@dataclass(frozen=True, eq=False)
class Overtaking(Call):
    """A call after another process, which did `first`, died before its fsync."""

    first: Call = field(kw_only=True)

    def on(self, store: Any) -> Any:
        other = another(store, "process") if isinstance(store, FileStore) else store
        try:
            self.first.on(other)
        except OSError:  # a trial lets one op fail: the next goes well
            self.first.on(other)
        return Call.on(self, store)

    @functools.cached_property
    def cut_short(self) -> list[Call]:
        return [self.first, self]

    @functools.cached_property
    def again(self) -> Call:
        return Call(self.method, self.args, self.handle, self.at)


IDS = ("a", "b")
RECOVER = Call("recover_orphaned", ())


@dataclass(frozen=True, eq=False)
class Contract:
    """One of the five: its stores, all that can be seen of them, and calls that must always work."""

    name: str
    file: Callable[..., Any]
    memory: Callable[[], Any]
    looks: Sequence[tuple[str, Any]]
    more: Sequence[Call]  # one of each kind
    fresh: tuple[Call, tuple[str, Any]]  # saves a record of run "z", and shows it
    damaged: Any = CorruptRecord  # the record that stands for one that cannot be read

    @property
    def recovery(self) -> list[Call]:
        return [RECOVER] if hasattr(self.file, RECOVER.method) else []


@dataclass(frozen=True, eq=False)
class Scenario:
    """What was there before, and the calls that a crash comes between."""

    name: str
    contract: Contract
    calls: Sequence[Call]
    before: Sequence[Call] = ()
    folder: str = "store"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Seen:
    """What a store's last call gave, and what the store shows after it."""

    result: Any
    sights: tuple[Any, ...]


Plan = Callable[[Contract, Call], list[Call]]
"""What a process does that starts after a crash, given the call that was in flight, or else the last one."""


def recover(contract: Contract, _: Call) -> list[Call]:
    return contract.recovery


def repeat(contract: Contract, call: Call) -> list[Call]:
    return [call.later, *contract.recovery]


def do_everything(contract: Contract, call: Call) -> list[Call]:
    return [*contract.recovery, call.later, *contract.more]


def do(call: Call) -> Plan:
    return lambda contract, _: [call, *contract.recovery]


Way = tuple[Call | str, ...]
"""A way in which things may have gone: the calls that happened, and the restarts between them."""


class Handles:
    """The handles of one process, by number; each is opened when it is first used."""

    def __init__(self, open_: Callable[[], Any]) -> None:
        self._open = open_
        self._opened: dict[int, Any] = {}

    def __getitem__(self, number: int) -> Any:
        if number not in self._opened:
            self._opened[number] = self._open()
        return self._opened[number]


class Trial:
    """A scenario in the crash lab: `setup`, a workload and a check are for `crash.explore` and `crash.errors`."""

    def __init__(self, crash: Crash, scenario: Scenario, plan: Plan = do_everything, durability: str = "power") -> None:
        self._crash = crash
        self._scenario = scenario
        self._contract = scenario.contract
        self._restarted = plan
        self._durability = durability
        self._unexplained: AssertionError | None = None  # what was seen right after an error, if nothing explains it
        self.ways = functools.cache(self._ways)
        self.reference = functools.cache(self._replay)

    def setup(self, home: Path) -> None:
        handles = self._handles(home)
        for call in self._scenario.before:
            call.on(handles[call.handle])

    def workload(self, home: Path) -> None:
        handles = self._handles(home)
        for number, call in enumerate(self._scenario.calls):
            call.on(handles[call.handle])
            self._crash.ack(number)

    def stubborn_workload(self, home: Path) -> None:
        """Do what `workload` does, and repeat a call that failed, through the same handle."""
        self._try_twice(home, lambda handles: handles)

    def restarted_workload(self, home: Path) -> None:
        """Do what `workload` does, and repeat a call that failed, in a process that knows nothing of it."""
        self._try_twice(home, lambda _: self._handles(home))

    def _try_twice(self, home: Path, after_error: Callable[[Handles], Handles]) -> None:
        self._unexplained = None
        handles = self._handles(home)
        for number, call in enumerate(self._scenario.calls):
            try:
                call.on(handles[call.handle])
            except OSError:
                self._look_after_error(home, number)
                handles = after_error(handles)
                call.again.on(handles[call.handle])
            self._crash.ack(number)

    def _look_after_error(self, home: Path, done: int) -> None:
        try:
            self._explained(self.ways(tuple(range(done))), sights=self._sights(self._open(home)))
        except AssertionError as error:
            self._unexplained = error  # the lab takes what a workload raises for the error that it caused

    def check(self, disk: Disk) -> None:
        """Find a way that explains what is there, then go on, each call acknowledged: a check is crashed as well."""
        if self._unexplained is not None:
            raise self._unexplained
        self._crash.ack(RESTART)
        handles = self._handles(disk.home)
        ways = self._explained(self.ways(tuple(disk.acked)), sights=self._sights(handles[0]))
        for number, call in enumerate(self._plan(disk.acked)):
            result = call.on(handles[call.handle])
            ways = self._explained([(*way, call) for way in ways], result=result)
            if not isinstance(result, type):  # a refusal only looks, and promises nothing
                self._crash.ack(number)
        self._explained(ways, sights=self._sights(self._open(disk.home)))

    def check_nothing_is_mixed_up(self, disk: Disk) -> None:
        """Accept that anything is lost or unreadable, but nothing that never was, and a store that works no more."""
        known = self._all_sights()
        sights = self._sights(self._open(disk.home))
        if self._contract.recovery:
            RECOVER.on(self._open(disk.home))
            sights = (*sights, *self._sights(self._open(disk.home)))
            known *= 2
        for sight, before in zip(sights, known, strict=True):
            assert sight in before
        call, (look, arg) = self._contract.fresh
        call.on(self._open(disk.home))
        assert outcome(self._open(disk.home), look, *arg) == outcome(self._after([call])[0], look, *arg)

    def _all_sights(self) -> list[list[Any]]:
        """Give, for each look, all that it ever showed, and what it shows if things are lost."""
        before: Way = (*self._scenario.before, RESTART)
        ways: list[Way] = [before[:count] for count in range(len(before))]
        for done in range(len(self._scenario.calls) + 1):
            ways += _went_on([before], self._scenario.calls, done)
        ways += [(*way, *self._contract.recovery) for way in ways]
        shown = zip(*(self.reference(way).sights for way in ways), strict=True)
        nothing = [None, [], plain(self._contract.damaged)]
        if self._contract.recovery:  # list() gives those that are left
            nothing += [list(some) for size in (1, 2) for some in itertools.combinations(IDS, size)]
        return [[*before, *nothing] for before in shown]

    def _ways(self, acked: Sequence[Any]) -> list[Way]:
        """Give every way in which things may have gone."""
        first, *later = _lives(acked)
        begun: Way = (*self._scenario.before, RESTART)
        ways = self._distinct(_went_on([begun], self._scenario.calls, first))
        for done in later:
            ways = self._distinct(_went_on(ways, self._plan(acked), done))
        return ways

    def _distinct(self, ways: Iterable[Way]) -> list[Way]:
        """Leave out ways that nobody can tell from another: a process that starts now sees the same."""
        recovery = self._contract.recovery
        told = {str((self.reference(way).sights, self.reference((*way, *recovery)).sights)): way for way in ways}
        return list(told.values())

    def _plan(self, acked: Sequence[Any]) -> list[Call]:
        (done, *_), calls = _lives(acked), self._scenario.calls
        return self._restarted(self._contract, calls[min(done, len(calls) - 1)])

    def _explained(self, ways: Iterable[Way], **seen: Any) -> list[Way]:
        """Give the ways after which the memory store gives the same result, or shows the same."""
        after = {way: self.reference(way) for way in ways}
        found = [way for way, expected in after.items() if all(getattr(expected, name) == seen[name] for name in seen)]
        assert found, f"seen: {seen}\n" + "\n".join(f"but after {way}: {expected}" for way, expected in after.items())
        return found

    def _replay(self, way: Way) -> Seen:
        store, result = self._after(way)
        return Seen(result, self._sights(store))

    def _after(self, way: Sequence[Call | str]) -> tuple[Any, Any]:
        store = self._contract.memory()
        handles, result = Handles(store.handle), None
        for call in way:
            if isinstance(call, Call):
                result = call.on(handles[call.handle])
            else:
                handles = Handles(store.handle)
        return store, result

    def _sights(self, store: Any) -> tuple[Any, ...]:
        return tuple(self._look(store, look, args) for look, args in self._contract.looks)

    def _look(self, store: Any, look: str, args: Any) -> Any:
        try:
            return plain(call_method(store, look, *args))
        except CorruptRecord:
            return plain(self._contract.damaged)

    def _handles(self, home: Path) -> Handles:
        return Handles(lambda: self._open(home))

    def _open(self, home: Path) -> Any:
        return self._contract.file(home / self._scenario.folder, self._durability)


def _lives(acked: Sequence[Any]) -> list[int]:
    """Tell for each process how many calls it had done when it last acknowledged one."""
    lives = [0]
    for one in acked:
        if one == RESTART:
            lives.append(0)
        else:
            lives[-1] = one + 1
    return lives


def _went_on(ways: Iterable[Way], calls: Sequence[Call], done: int) -> list[Way]:
    """Let a process do its calls after each way: those that were acknowledged, and perhaps the next; then it dies."""
    after = [(*way, *calls[:done]) for way in ways]
    flying = [one for call in calls[done : done + 1] for one in call.cut_short]
    return [(*way, *one, RESTART) for way in after for one in ((), *((call,) for call in flying))]
