"""Sessions: suites in a pytest of their own, several at once. Nothing that is configured around them gets in."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_wfstate.faults.disk.home import memory_home
from pytest_wfstate.report.scorecard import Item, Row, rows_of

Heard = Callable[[str, Any], None]
"""Is told what is heard from a session: `collected`, `item`, `not asked`."""

_ALONE = (
    *(f"--config-file={os.devnull}", "--noconftest", "-p", "no:cacheprovider", "-p", "pytest_wfstate.plugin"),
    "--assert=plain",  # there are no asserts in a suite, and to rewrite all modules takes seconds
)


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """Suites for one pytest."""

    source: str
    """A test module."""
    suites: tuple[str, ...]
    """The names of the suites in it."""
    tests: tuple[str, ...] | None = None
    """Which of its tests to run, such as `TestMine::test_save_load`. None means all."""


def run(sessions: Sequence[Session], options: Sequence[str], heard: Heard, jobs: int | None = None) -> list[Row]:
    """Run all of them, and give a row for each suite, in the order of the sessions.

    A session that ends before it has run all tests says so in its rows, and the others go on.
    """
    with (
        memory_home() as home,
        concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool,
        _SessionProcesses() as processes,
    ):
        folders = [home.path / str(number) for number in range(len(sessions))]
        running = [
            pool.submit(_run, session, folder, options, heard, processes)
            for session, folder in zip(sessions, folders, strict=True)
        ]
        return [row for one in running for row in one.result()]


class _SessionProcesses:
    """The processes that run. If something goes wrong, they end."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._is_over = False

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        if self._is_over:
            raise RuntimeError("all sessions are to end")
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
    session: Session, folder: Path, options: Sequence[str], heard: Heard, processes: _SessionProcesses
) -> list[Row]:
    if session.tests == ():
        return []
    folder.mkdir()
    module, log = folder / "test_suites.py", folder / "log.txt"
    module.write_text(session.source)
    read, write = os.pipe()
    chosen = [str(module)] if session.tests is None else [f"{module}::{test}" for test in session.tests]
    command = [
        *(sys.executable, "-m", "pytest", *chosen),
        *(*_ALONE, f"--rootdir={folder}", f"--basetemp={folder / 'homes'}"),
        *("-p", "pytest_wfstate.cli.stream", f"--wfstate-stream={write}", *options),
    ]
    with log.open("wb") as output:
        process = processes.start(command, env=_environment(folder), stdout=output, stderr=output, pass_fds=[write])
    os.close(write)
    items, not_asked, errors = [], {}, []
    with os.fdopen(read) as lines:
        for line in lines:
            what, value = json.loads(line).values()
            match what:
                case "item":
                    items.append(_item(value))
                case "not asked":
                    not_asked = value
                case "error":
                    errors.append(value)
            heard(what, value)
    if process.wait() not in _ENDS or errors:
        text = errors[0] if errors else _last_words(process, log)
        items += [Item(suite, "the session", "", "not measured", text) for suite in session.suites]
    return rows_of(items, not_asked)


_ENDS = (0, 1, 5)
"""Exit codes of a pytest that came to its end: all is well, something failed, nothing was chosen."""


def _item(value: dict[str, Any]) -> Item:
    return Item(**{**value, "left_out": tuple(value["left_out"]), "forgets": tuple(value["forgets"])})


def _environment(folder: Path) -> dict[str, str]:
    """Give the environment of a session: it imports what this process can import, and is told nothing else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }


def _last_words(process: subprocess.Popen[bytes], log: Path) -> str:
    end = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
    return f"the process that ran the suite ended with {end}. What it wrote last:\n{log.read_text()[-4000:]}"
