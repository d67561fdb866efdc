"""Signals in the middle of a call: a handler may raise an exception, or use the store."""

from __future__ import annotations

import asyncio
import datetime
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import MemoryEffectStore, MemoryPausedStore, samples
from pytest_wfstate.stores.memory import paused as paused_module
from tests.unit.stores.sql import interrupts

CALLS: dict[str, Callable[[MemoryPausedStore, str], Any]] = {
    "save": lambda store, _: store.save(samples.paused("a", iterations=3)),
    "claim": lambda store, _: store.claim("a"),
    "token": lambda store, _: store.token("a"),
    "recover": lambda store, _: store.recover_orphaned(),
    "complete": lambda store, _: store.complete("a"),
    "complete-with": lambda store, token: store.complete("a", token=token),
    "renew": lambda store, token: store.renew("a", token),
    "remove": lambda store, _: store.remove("a"),
}


class Clock:
    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now


def claimed(*, is_paused: bool, has_token: bool) -> tuple[MemoryPausedStore, str]:
    """Return a handle with a claim on a run, and its token; half an hour later the run may be paused again."""
    clock = Clock()
    store = MemoryPausedStore(clock=clock, new_token=lambda: "token")
    store.save(samples.paused("a", iterations=1))
    store.claim("a")
    token = store.token("a") if has_token else "none"
    if is_paused:
        store.save(samples.paused("a", iterations=2))
    clock.now += datetime.timedelta(minutes=30)
    return store, token


def state(store: MemoryPausedStore) -> Any:
    run = store._runs.get("a")
    return run and (run.paused, run.claim and (run.claim.record, run.claim.at, run.claim.token))


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize("has_token", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_interrupted_at_any_line_is_made_or_not(
    monkeypatch: pytest.MonkeyPatch, call: str, has_token: bool, is_paused: bool
) -> None:
    monkeypatch.setattr(interrupts, "FOLDER", str(Path(paused_module.__file__).parent))
    store, token = claimed(is_paused=is_paused, has_token=has_token)
    allowed = [state(store)]
    CALLS[call](store, token)
    allowed.append(state(store))

    def act() -> None:
        nonlocal store
        store, token = held.pop()
        CALLS[call](store, token)

    held = [claimed(is_paused=is_paused, has_token=has_token)]
    lines = 0
    for line in interrupts.interrupt_each_line(act, KeyboardInterrupt, callers=1, rounds=2):
        lines += 1
        assert state(store) in allowed, line
        assert not store._lock._is_owned(), line  # type: ignore[attr-defined]
        if store._runs.get("a", paused_module.Run()).claim:  # it is still this handle's own
            assert store.token("a") == "token"
            assert store.complete("a", token="token") is True
        held.append(claimed(is_paused=is_paused, has_token=has_token))
    assert lines > 3


def test_a_signal_handler_may_use_the_store_in_the_middle_of_a_call() -> None:
    """A plain lock would make it wait for itself."""

    def clock() -> datetime.datetime:
        signal.raise_signal(signal.SIGUSR1)
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    paused, effects = MemoryPausedStore(clock=clock), MemoryEffectStore(clock=clock)
    paused.save(samples.paused("a"))
    seen: list[Any] = []

    def handler(*_: Any) -> None:
        with paused._lock, effects._lock:
            seen.append(paused.list())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        assert paused.claim("a") is not None
        asyncio.run(effects.mark_step_complete("a", "use-1", samples.effect("use-1")))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [["a"], []]
