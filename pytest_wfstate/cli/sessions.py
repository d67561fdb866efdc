"""Sessions: suites in separate pytest processes, several at once. Your own pytest configuration is ignored."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.cli import collected, stream
from pytest_wfstate.cli.collected import SuiteSource
from pytest_wfstate.faults.disk.home import memory_home
from pytest_wfstate.report.scorecard import Item, Row, rows_of

Listener = Callable[[stream.Event], None]

_OPTIONS = (
    *(f"--config-file={os.devnull}", "--noconftest", "-p", "no:cacheprovider", "-p", "pytest_wfstate.plugin"),
    *("-p", collected.__name__, "-p", stream.__name__),
    "--assert=plain",  # suites have no asserts, and rewriting every module takes seconds
)
_COMPLETE = (0, 1, 5)
"""Exit codes of a pytest that ran to its end: all passed, some failed, nothing was selected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """Suites for one pytest process."""

    suites: tuple[SuiteSource, ...]
    tests: tuple[str, ...] | None = None
    """The tests to run, such as `TestMine::test_save_load`. None means all."""


def run(sessions: Sequence[Session], options: Sequence[str], listener: Listener, jobs: int | None = None) -> list[Row]:
    """Run all sessions, and return a row for each suite, in the order of the sessions.

    A session that ends before it has run all its tests is reported in its rows; the others continue.
    """
    with (
        memory_home() as home,
        concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool,
        _SessionProcesses() as processes,
    ):
        running = [
            pool.submit(_run, session, home.path / str(number), options, listener, processes)
            for number, session in enumerate(sessions)
        ]
        return [row for future in running for row in future.result()]


class _SessionProcesses:
    """The running processes. All are killed if there is an error."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._is_over = False

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        if self._is_over:
            raise RuntimeError("all sessions were asked to end")
        self._started.append(subprocess.Popen(command, **options))
        return self._started[-1]

    def __enter__(self) -> _SessionProcesses:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._is_over = True
        for process in self._started:
            if error and process.poll() is None:
                process.kill()


def _run(
    session: Session, folder: Path, options: Sequence[str], listener: Listener, processes: _SessionProcesses
) -> list[Row]:
    if session.tests == ():
        return []
    folder.mkdir()
    file, log = collected.write(folder, session.suites), folder / "log.txt"
    tests = [str(file)] if session.tests is None else [f"{file}::{test}" for test in session.tests]
    ours, theirs = os.pipe()
    command = [
        *(sys.executable, "-m", "pytest", *tests, *_OPTIONS),
        *(f"--rootdir={folder}", f"--basetemp={folder / 'homes'}"),
        *(f"--wfstate-stream={theirs}", f"--wfstate-command={os.getpid()}", *options),
    ]
    with log.open("wb") as output:
        process = processes.start(command, env=_environment(folder), stdout=output, stderr=output, pass_fds=[theirs])
    os.close(theirs)
    items, not_asked, errors = [], {}, []
    for event in stream.read(ours):
        match event:
            case "item", item:
                items.append(item)
            case "not asked", counts:
                not_asked = counts
            case "error", text:
                errors.append(text)
        listener(event)
    if process.wait() not in _COMPLETE or errors:
        text = errors[0] if errors else _how_it_ended(process.returncode, log)
        items += [Item(suite.name, "the session", "", "not measured", text) for suite in session.suites]
    return rows_of(items, not_asked)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a session: it imports what this process can import, and no variable configures it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }


def _how_it_ended(code: int, log: Path) -> str:
    end = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process that ran the suite ended with {end}. The end of its output:\n{log.read_text()[-4000:]}"
