"""Threads are followed however they are started, and whatever their class does."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.replay_id import EARLY, LATE
from tests.unit.faults.conftest import until

UNFINISHED = "Work that was handed to a thread is not finished: what it writes from now on cannot be seen."


def recorded(home: Path, workload: Callable[[], Any], order: str = "") -> tuple[list[str], list[str]]:
    """Return the names of what a workload created, and why it proves nothing."""
    with Recorder(home, order=order) as recorder:
        workload()
    return [getattr(item, "name", "") for item in recorder.trace().items], recorder.unmeasured


class TestClasses:
    def test_one_that_works_before_it_calls_run_does_not_delay_its_start(self, home: Path) -> None:
        stop = threading.Event()

        class Bare(threading.Thread):
            def _bootstrap_inner(self) -> None:
                self._started.set()  # type: ignore[attr-defined]
                stop.wait(20)
                (home / "a").touch()
                super()._bootstrap_inner()  # type: ignore[misc]

        took: list[float] = []

        def workload() -> None:
            bare = Bare()
            began = time.monotonic()
            bare.start()
            took.append(time.monotonic() - began)
            stop.set()
            until((home / "a").exists)
            until(lambda: bare.native_id is not None)
            bare.join()
            assert "run" not in vars(bare)

        assert recorded(home, workload) == (["a"], [])
        assert took[0] < 5

    @pytest.mark.parametrize("order", ["", LATE, EARLY])
    def test_one_whose_run_is_a_property(self, home: Path, order: str) -> None:
        class Fixed(threading.Thread):
            @property
            def run(self) -> Callable[[], None]:
                return (home / "a").touch

        def workload() -> None:
            thread = Fixed()
            thread.start()
            thread.join()
            assert "run" not in vars(thread)

        assert recorded(home, workload, order) == (["a"], [])

    def test_one_that_refuses_new_attributes(self, home: Path) -> None:
        class Frozen(threading.Thread):
            def __setattr__(self, name: str, value: Any) -> None:
                if name == "run":
                    raise AttributeError(name)
                super().__setattr__(name, value)

            def run(self) -> None:
                (home / "a").touch()

        def workload() -> None:
            thread = Frozen()
            thread.start()
            thread.join()

        assert recorded(home, workload) == (["a"], [])

    def test_one_whose_start_does_nothing(self, home: Path) -> None:
        class Lazy(threading.Thread):
            def start(self) -> None:
                (home / "a").touch()

        assert recorded(home, lambda: Lazy().start()) == (["a"], [])

    def test_one_that_cannot_be_started_twice(self, home: Path) -> None:
        def workload() -> None:
            thread = threading.Thread(target=(home / "a").touch)
            thread.start()
            thread.join()
            with pytest.raises(RuntimeError):
                thread.start()

        assert recorded(home, workload) == (["a"], [])


class TestWithoutClass:
    """Threads that `_thread.start_new_thread` starts."""

    @staticmethod
    def start(call: Callable[[], Any], order: Callable[[], Any] = lambda: None) -> Callable[[], None]:
        """Return a workload that starts a thread, does something else, and waits for the thread."""

        def workload() -> None:
            done = threading.Event()

            def run() -> None:
                threading.current_thread()  # this makes a dummy, which counts as alive for ever
                call()
                done.set()

            _thread.start_new_thread(run, ())
            order()
            done.wait()

        return workload

    def test_one_that_is_over_is_no_reason(self, home: Path) -> None:
        with Recorder(home) as recorder:
            self.start((home / "a").touch)()
            until(lambda: not any(recorder.work.unfinished()))
        assert recorder.unmeasured == []

    def test_one_that_is_not_over_is_a_reason(self, home: Path) -> None:
        stop, over = threading.Event(), threading.Event()

        def run() -> None:
            stop.wait()
            over.set()

        _, unmeasured = recorded(home, lambda: _thread.start_new_thread(run, ()))
        stop.set()
        over.wait()
        assert unmeasured == [UNFINISHED]

    def test_one_that_is_older_is_no_reason(self, home: Path) -> None:
        go, stop, over = threading.Event(), threading.Event(), threading.Event()
        done = threading.Event()

        def run() -> None:
            go.wait()
            (home / "a").touch()
            done.set()
            stop.wait()
            over.set()

        _thread.start_new_thread(run, ())

        def workload() -> None:
            go.set()
            done.wait()

        names, unmeasured = recorded(home, workload)
        stop.set()
        over.wait()
        assert (names, unmeasured) == (["a"], [])

    @pytest.mark.parametrize(("order", "names"), [(LATE, ["0", "1"]), (EARLY, ["1", "0"])])
    def test_one_has_its_turn(self, home: Path, order: str, names: list[str]) -> None:
        with Recorder(home, order=order) as recorder:
            self.start((home / "1").touch, (home / "0").touch)()
        assert recorder.keeps_order
        assert [getattr(item, "name", "") for item in recorder.trace().items] == names

    def test_its_arguments_are_passed_on(self, home: Path) -> None:
        done = threading.Event()

        def run(name: str, *, then: Callable[[], None]) -> None:
            (home / name).touch()
            then()

        def workload() -> None:
            _thread.start_new_thread(run, ("a",), {"then": done.set})
            done.wait()

        assert recorded(home, workload)[0] == ["a"]
