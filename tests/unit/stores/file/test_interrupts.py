"""Exceptions that a signal raises: wherever they hit, no lock and no descriptor is left behind.

A signal handler runs between two instructions of Python. So a trace function raises at every line of the code that
locks, and where the lock is taken and released at every instruction, one after the other: once for each place that the
function is called from.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_wfstate import FilePausedStore, samples
from pytest_wfstate.stores.file import descriptors as descriptors_module
from tests.unit.stores.file.kinds import EFFECTS, GATE, PAUSED, RUNS, SNAPSHOTS, Kind
from tests.unit.stores.file.lockers import is_free

FILE_STORES = str(Path(descriptors_module.__file__).parent)
# Its lock is entered and left in C, between which CPython does not look for signals; a trace function would.
CACHE = str(Path(FILE_STORES, "cache.py"))
LOCK = {str(Path(FILE_STORES, name)) for name in ("descriptors.py", "lock.py", "scope.py")}


class Interrupted(BaseException):
    """What a signal handler raises."""


class Interrupting:
    """Raises at the first line, or instruction, of the code that locks at which it has not raised before."""

    def __init__(self, before: set[Any], *, instructions: bool) -> None:
        self.before = before
        self.instructions = instructions
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        of_lock = file in LOCK
        if file == CACHE:
            return None
        if not of_lock and (self.instructions or not (file.startswith(FILE_STORES) or file == contextlib.__file__)):
            return None
        frame.f_trace_opcodes = self.instructions
        if event in ("line", "call", "opcode"):
            caller = frame.f_back
            assert caller is not None
            place = event, frame.f_code, frame.f_lasti, caller.f_code, caller.f_lasti
            if place not in self.before:
                self.before.add(place)
                self.where = f"{Path(file).name}:{frame.f_lineno} ({event})"
                raise Interrupted
        return self


def interrupted(act: Callable[[], Any], *, instructions: bool) -> Iterator[tuple[str, BaseException]]:
    """Make a call again and again, interrupted at one place after the other, until it is over before the interruption.

    Yield the place and the error, which keeps every frame alive, as pytest and a debugger do.
    """
    places: set[Any] = set()
    while True:
        tracer, before = Interrupting(places, instructions=instructions), sys.gettrace()
        sys.settrace(tracer)
        try:
            act()
        except Interrupted as error:
            yield tracer.where, error
        else:
            assert len(places) > 20, "the code that locks was not traced"
            return
        finally:
            sys.settrace(before)


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def another_thread_can_fork() -> bool:
    """Whether this thread left no lock of the process behind that others wait for."""
    return not descriptors_module._forking._is_owned()  # type: ignore[attr-defined]


CALLS: dict[str, tuple[Kind, Callable[[Any], Any]]] = {
    "save": (PAUSED, lambda store: store.save(samples.paused("a"))),
    "list": (PAUSED, lambda store: store.list()),
    "claim": (PAUSED, lambda store: store.claim("b")),
    "mark": (EFFECTS, lambda store: store.mark_step_complete("a", "use-1", samples.effect("use-1"))),
    "load": (EFFECTS, lambda store: store.load_checkpoint("a")),
    "step": (RUNS, lambda store: store.upsert_step("a", samples.step("step-2"))),
    "fork": (SNAPSHOTS, lambda store: store.fork(samples.key("a", 1))),
}


@pytest.mark.parametrize(
    ("call", "instructions"),
    [*((call, False) for call in CALLS), *((call, True) for call in ("save", "list", "mark"))],
    ids=lambda value: value if isinstance(value, str) else "instructions" if value else "lines",
)
def test_a_call_that_is_interrupted_anywhere_leaves_no_lock(call: str, instructions: bool, tmp_path: Path) -> None:
    kind, act = CALLS[call]
    store = kind.open(tmp_path, "process")
    kind.change(store, "a", 1)
    (tmp_path / GATE).touch()
    opened, written = descriptors(), (tmp_path / kind.file).read_bytes()
    leaks, places = [], 0

    for where, _error in interrupted(lambda: act(store), instructions=instructions):
        places += 1
        (tmp_path / kind.file).write_bytes(written)  # or a journal would grow, and take longer to read each time
        if (
            not is_free(tmp_path)
            or not is_free(tmp_path / GATE)
            or descriptors() != opened
            or not another_thread_can_fork()
        ):
            leaks.append(where)
            break

    assert leaks == []
    assert places > 50
    assert not any(descriptors_module._open_now.values())
    kind.change(store, "a", 7)
    assert 7 in kind.items(kind.load(store, "a"))


@pytest.mark.parametrize("instructions", [False, True], ids=["lines", "instructions"])
def test_a_call_that_is_interrupted_while_it_waits_leaves_no_lock(
    instructions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits once, and then the other holder leaves."""
    store = PAUSED.open(tmp_path, "process")
    PAUSED.change(store, "a", 1)
    others: list[int] = []
    monkeypatch.setattr(time, "sleep", lambda _: os.close(others.pop()))

    def save() -> None:
        others.append(os.open(tmp_path, os.O_RDONLY))
        fcntl.flock(others[0], fcntl.LOCK_SH)
        store.save(samples.paused("a"))

    opened, leaks, places = descriptors(), [], 0
    for where, _error in interrupted(save, instructions=instructions):
        places += 1
        while others:
            os.close(others.pop())
        is_held = not is_free(tmp_path) or ((tmp_path / GATE).exists() and not is_free(tmp_path / GATE))
        if is_held or descriptors() != opened or not another_thread_can_fork():
            leaks.append(where)
            break

    assert leaks == []
    assert places > 50
    assert (tmp_path / GATE).exists()


@pytest.mark.parametrize("call", CALLS)
def test_a_signal_handler_may_use_the_store_in_the_middle_of_a_call(call: str, tmp_path: Path) -> None:
    """At every line that no lock on the folder is held at, since a handler would wait for that one."""
    kind, act = CALLS[call]
    store = kind.open(tmp_path, "process")
    kind.change(store, "a", 1)
    handled = 0

    def handler(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal handled
        if event == "line" and frame.f_code.co_filename.startswith(FILE_STORES):
            sys.settrace(None)
            assert kind.load(store, "a") is not None
            handled += 1
            sys.settrace(handler)
        return handler

    before = sys.gettrace()
    sys.settrace(handler)
    try:
        act(store)
    finally:
        sys.settrace(before)

    assert handled > 20
    assert another_thread_can_fork()
    kind.change(store, "a", 7)
    assert 7 in kind.items(kind.load(store, "a"))


def test_a_claim_that_is_interrupted_does_not_free_the_claim_of_another_worker(tmp_path: Path) -> None:
    mistaken, places = [], set[Any]()
    for number in range(1_000):
        home = tmp_path / str(number)
        first, second = FilePausedStore(home, "process"), FilePausedStore(home, "process")
        first.save(samples.paused("a"))
        tracer, before = Interrupting(places, instructions=False), sys.gettrace()
        sys.settrace(tracer)
        try:
            first.claim("a")
        except Interrupted:
            sys.settrace(before)
        else:
            break
        finally:
            sys.settrace(before)
        was_claimed = second.load("a") is None
        second.recover_orphaned()
        second.claim("a")
        first.complete("a")
        if was_claimed and not second.renew("a", second.token("a")):
            mistaken.append(tracer.where)

    assert number > 50
    assert mistaken == []
