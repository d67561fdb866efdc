"""Progress: one line for each store with a counter, written over and over on a terminal, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TextIO

from pytest_wfstate.faults.real_clock import now

_PACE = 0.1


class Progress:
    """Lines that say how far each of several things is."""

    def __init__(self, names: Mapping[str, str], out: TextIO) -> None:
        self._names = names
        self._out = out
        self._is_shown = out.isatty()
        self._all: dict[str, int] = dict.fromkeys(names.values(), 0)
        self._done: dict[str, int] = dict.fromkeys(names.values(), 0)
        self._failed: dict[str, int] = dict.fromkeys(names.values(), 0)
        self._last: dict[str, str] = dict.fromkeys(names.values(), "")
        self._height = 0
        self._time = 0.0
        self._lock = threading.Lock()

    def heard(self, what: str, value: Any) -> None:
        """Take in what is heard from a session."""
        with self._lock:
            if what == "collected":
                for suite, number in value.items():
                    self._all[self._names[suite]] += number
            elif what == "item":
                name = self._names[value["suite"]]
                self._done[name] += 1
                self._failed[name] += value["result"] in ("failed", "not measured")
                self._last[name] = value["clause"]
            if self._is_shown and now() - self._time >= _PACE:
                self._time = now()
                self._show()

    def say(self, text: str) -> None:
        """Write something that stays, above the lines."""
        with self._lock:
            self._clear()
            self._out.write(f"{text}\n")
            self._out.flush()

    def clear(self) -> None:
        """Take the lines away."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._height:
            self._out.write(f"\x1b[{self._height}F\x1b[J")
            self._out.flush()
            self._height = 0

    def _show(self) -> None:
        up = f"\x1b[{self._height}F" if self._height else ""
        width = max(map(len, self._all))
        lines = [f"\x1b[2K{self._line(name, width)}\n" for name in self._all]
        self._out.write(up + "".join(lines))
        self._out.flush()
        self._height = len(lines)

    def _line(self, name: str, width: int) -> str:
        number, done = self._all[name], self._done[name]
        if not number:
            return f"{name:{width}}  waiting"
        failed = f"  {self._failed[name]} failed" if self._failed[name] else ""
        last = f"  {self._last[name]}" if done < number else ""
        return f"{name:{width}}  {done:>{len(str(number))}}/{number}{failed}{last}"
