"""Progress on a terminal, and nowhere else: one line of an exploration, or one line for each store being checked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, TextIO

import pytest

from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.result import Result

_FIRST = 1.0
"""Seconds before an exploration shows a line."""
_PACE = 0.2
"""Seconds between two updates."""


class ProgressLine:
    """How far an exploration inside a pytest run is. The line overwrites itself."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._updated = 0.0
        self._width = 0

    def __call__(self, result: Result) -> None:
        """Show the line, if the exploration takes long enough."""
        if result.seconds >= _FIRST and now() - self._updated >= _PACE:
            self._updated = now()
            self._write(f"wfstate: {result.progress()}, {result.seconds:.0f} s")

    def clear(self) -> None:
        """Remove the line."""
        if self._width:
            self._write("")

    def _write(self, line: str) -> None:
        reporter = self._plugins.getplugin("terminalreporter")
        if reporter is None or not reporter.isatty:
            return
        with self._plugins.getplugin("capturemanager").global_and_fixture_disabled():
            if not self._width:
                reporter.ensure_newline()
            reporter.write(f"\r{line:{self._width}}" + ("" if line else "\r"), flush=True)
        self._width = len(line)


class ProgressTable:
    """How far each store is: a line with a counter for each."""

    def __init__(self, names: Mapping[str, str], out: TextIO) -> None:
        """Show a line for each of `names`, which maps suites to the stores they check."""
        self._names = names
        self._stores = list(dict.fromkeys(names.values()))
        self._out = out
        self._is_shown = out.isatty()
        self._collected: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._clause: dict[str, str] = {}
        self._height = 0
        self._updated = 0.0
        self._lock = threading.Lock()

    def show(self, event: tuple[str, Any]) -> None:
        """Show an event of a session: the tests it collected, or one that has run."""
        with self._lock:
            match event:
                case "collected", counts:
                    for suite, number in counts.items():
                        self._collected[self._names[suite]] += number
                case "item", item:
                    store = self._names[item.suite]
                    self._done[store] += 1
                    self._failed[store] += item.result in ("failed", "not measured")
                    self._clause[store] = item.clause
            self._update()

    def write_above(self, text: str) -> None:
        """Write text that stays."""
        with self._lock:
            self._clear()
            self._out.write(f"{text}\n")
            self._out.flush()

    def clear(self) -> None:
        """Remove the lines."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._height:
            self._out.write(f"\x1b[{self._height}F\x1b[J")
            self._out.flush()
            self._height = 0

    def _update(self) -> None:
        if not self._is_shown or now() - self._updated < _PACE:
            return
        self._updated = now()
        up = f"\x1b[{self._height}F" if self._height else ""
        self._out.write(up + "".join(f"\x1b[2K{self._line(store)}\n" for store in self._stores))
        self._out.flush()
        self._height = len(self._stores)

    def _line(self, store: str) -> str:
        width = max(map(len, self._stores))
        number, done = self._collected[store], self._done[store]
        if not number:
            return f"{store:{width}}  waiting"
        failed = f"  {self._failed[store]} failed" if self._failed[store] else ""
        clause = f"  {self._clause.get(store, '')}" if done < number else ""
        return f"{store:{width}}  {done:>{len(str(number))}}/{number}{failed}{clause}"
