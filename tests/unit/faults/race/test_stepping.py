"""Stepping: where threads stop, and that Python is left as it was."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.race.schedule import ClientFailed
from pytest_wfstate.faults.race.stop_points import Granularity
from pytest_wfstate.faults.race.threads import Threads
from tests.unit.faults.race import racing
from tests.unit.faults.race.racing import Client, Counter, LockedCounter, counted, explored


class TestSteps:
    def test_a_line_is_a_step(self) -> None:
        assert counted(Counter, Counter.add_in_two_lines, "line", 1) == {1, 2}

    def test_lines_miss_an_update_lost_within_one_line(self) -> None:
        assert counted(Counter, Counter.add, "line", 2) == {2}

    def test_opcodes_find_it(self) -> None:
        assert counted(Counter, Counter.add, "opcode", 1) == {1, 2}

    def test_opcodes_with_a_long_argument_are_steps(self) -> None:
        def client(line: str) -> Client:
            many = "    if counter is None:\n" + "".join(f"        counter.x{number}\n" for number in range(300))
            names: dict[str, Any] = {}
            exec(compile(f"def client(counter):\n{many}    {line}\n", racing.__file__, "exec"), names)
            return names["client"]  # type: ignore[no-any-return]

        def setup() -> Counter:
            counter = Counter()
            counter.n = 1
            return counter

        clients = client("counter.m = counter.n"), client("counter.n = counter.m")
        runs = explored(setup, *clients, by="opcode", seen=lambda counter: (counter.n, counter.m))
        assert {numbers for _, numbers in runs} == {(1, 1), (0, 0), (0, 1)}

    def test_a_variable_of_a_closure_is_shared(self) -> None:
        def setup() -> Callable[[], int]:
            n = 0

            def add() -> int:
                nonlocal n
                n += 1
                return n

            return add

        runs = explored(setup, lambda add: add(), lambda add: add(), by="opcode", seen=lambda add: add())
        assert {n for _, n in runs} == {2, 3}

    def test_opcodes_find_a_dictionary_changed_during_iteration(self) -> None:
        def listing(shared: dict[str, int]) -> list[str]:
            return [key for key in shared]  # noqa: C416 - iterates in Python

        def adding(shared: dict[str, int]) -> None:
            shared["c"] = 3

        runs = explored(lambda: {"a": 1, "b": 2}, listing, adding, by="opcode")
        errors = {str(run.results[0].error) for run, _ in runs if isinstance(run.results[0], ClientFailed)}
        assert errors == {"dictionary changed size during iteration"}

    def test_each_call_of_a_one_line_function_is_a_step(self) -> None:
        one_line: Client = lambda counter: (counter.n, counter.m)  # noqa: E731 - a lambda is one line
        with contextlib.closing(Threads(Counter, [one_line, one_line])) as threads:
            runs = [threads.run(()) for _ in range(2)]
        assert [[step.access.kind for step in run.steps] for run in runs] == [["line", "line"]] * 2

    def test_a_step_has_its_place_in_the_code(self) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add, Counter.add], by="opcode")) as threads:
            run = threads.run(())
        (step, *_) = run.steps
        assert step.access.line is not None
        assert step.access.line.text == "self.n += 1"
        assert step.access.path.startswith(f"racing.py:{step.access.line.number} LOAD_ATTR")
        assert step.access.writes == {("memory", 0, "")}

    def test_neither_the_standard_library_nor_the_lab_is_interleaved(self) -> None:
        def client(shared: LockedCounter) -> str:
            shared.add()
            return Path("a/b").with_suffix(".json").name

        with contextlib.closing(Threads(LockedCounter, [client, client])) as threads:
            run = threads.run(())
        assert {step.access.line.path for step in run.steps if step.access.line} == {__file__, racing.__file__}

    def test_an_installed_store_is_interleaved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "site-packages" / "installed_counter"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            "import threading\n"
            "_lock = threading.Lock()\n"
            "class Installed:\n"
            "    def __init__(self):\n        self.n = 0\n"
            "    def add(self):\n        n = self.n\n        self.n = n + 1\n"
            "    def add_under_lock(self):\n        with _lock:\n            self.add()\n"
        )
        monkeypatch.syspath_prepend(str(package.parent))
        from installed_counter import Installed  # type: ignore[import-not-found]

        assert counted(Installed, lambda counter: counter.add(), "line", 1) == {1, 2}
        assert counted(Installed, lambda counter: counter.add_under_lock(), "line", 1) == {2}


@pytest.fixture
def tracing() -> Iterator[list[str]]:
    """The events that a trace function of this thread and of new threads has seen."""
    events: list[str] = []

    def trace(frame: Any, event: str, _: object) -> Any:
        if frame.f_code is Counter.add.__code__:
            events.append(event)
        return trace

    before = sys.gettrace(), threading.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)
    yield events
    assert sys.gettrace() is trace
    assert threading.gettrace() is trace
    sys.settrace(before[0])
    threading.settrace(before[1])


class TestLeftAsItWas:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    def test_a_trace_function_sees_the_same_events(self, tracing: list[str], by: Granularity) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add, Counter.add], by=by)) as threads:
            threads.run(())
            tracing.clear()
            threads.run(())
        assert tracing == ["call", "line", "return"] * 2

    def test_everything_replaced_is_put_back(self) -> None:
        def replaced() -> list[Any]:
            return [
                *(threading.Lock, threading.RLock, threading._allocate_lock),  # type: ignore[attr-defined]
                *(time.sleep, time.monotonic, queue.SimpleQueue, fcntl.flock, fcntl.lockf),
                *(threading.Thread.start, ThreadPoolExecutor.submit, asyncio.BaseEventLoop.run_in_executor),
            ]

        before = replaced()
        threads = Threads(Counter, [Counter.add])
        threads.run(())
        assert replaced() != before
        threads.close()
        assert replaced() == before

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring needs Python 3.12")
    def test_the_monitoring_tool_is_freed(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        before = [monitoring.get_tool(number) for number in range(6)]
        with contextlib.closing(Threads(Counter, [Counter.add])) as threads:
            threads.run(())
            assert "wfstate" in [monitoring.get_tool(number) for number in range(6)]
        assert [monitoring.get_tool(number) for number in range(6)] == before

    @pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
    def test_coverage_sees_the_lines_of_clients(self, tmp_path: Path, core: str) -> None:
        pytest.importorskip("coverage", reason="coverage is not installed")
        if core == "sysmon" and sys.version_info < (3, 12):
            pytest.skip("sys.monitoring needs Python 3.12")
        (tmp_path / "counter.py").write_text(
            "import contextlib\n"
            "from pytest_wfstate.faults.race.threads import Threads\n"
            "class Counter:\n"
            "    n = 0\n"
            "    def add(self):\n"
            "        self.n += 1\n"
            "for by in ('line', 'opcode'):\n"
            "    with contextlib.closing(Threads(Counter, [Counter.add, Counter.add], by=by)) as threads:\n"
            "        threads.run(())\n"
            "print('after')\n"
        )
        script = (
            "import coverage, sys\n"
            "measured = coverage.Coverage(data_file=None, include=['*/counter.py'])\n"
            "measured.start()\n"
            "import counter\n"
            "measured.stop()\n"
            "print(measured.analysis2('counter.py')[3])\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"COVERAGE_CORE": core, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            check=False,
        )
        assert (done.stderr, done.stdout) == ("", "after\n[]\n")
