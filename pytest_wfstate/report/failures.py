"""Failures of a suite, grouped by what they are due to: one deviation can fail many clauses.

The first failure of each group is shown in full, as far as a screen goes, and each other one in a line. The plugin
imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pytest

from pytest_wfstate.labs.options import CAUSE

BRIEF = "wfstate_brief"
"""The status of a failure that is shown in a line."""

_MOST_LINES = 32
"""Of a suite's failures in full, with a fault injected and without. The first of each is always shown."""
_MOST_GROUPS = 12


class Failure(Protocol):
    """A clause that fails."""

    @property
    def clause(self) -> str:
        """Its id."""

    @property
    def cause(self) -> str:
        """What its failure is due to; empty if that is not known."""

    @property
    def is_injected(self) -> bool:
        """Whether a fault was injected: then it finds more than deviations of the store by itself."""


F = TypeVar("F", bound=Failure)


class ShownFailures:
    """Decides which failures of a session are shown in full."""

    def __init__(self) -> None:
        self._causes: dict[tuple[str, str], str] = {}
        """The test that was first to fail, by suite and cause."""
        self._lines: Counter[tuple[str, bool]] = Counter()
        self._brief: dict[str, bool] = {}

    def is_brief(self, report: pytest.TestReport) -> bool:
        """Whether a failure is shown in a line. It is decided once for each test."""
        properties = dict(report.user_properties)
        if CAUSE not in properties:
            return False
        test = report.nodeid
        if test not in self._brief:
            suite = test.rpartition("::")[0]
            first = self._causes.setdefault((suite, str(properties[CAUSE]) or test), test)
            kind = (suite, is_injected(properties))
            lines = self._lines[kind] + report.longreprtext.count("\n") + 2
            self._brief[test] = first != test or (self._lines[kind] > 0 and lines > _MOST_LINES)
            self._lines[kind] = self._lines[kind] if self._brief[test] else lines
        return self._brief[test]


def is_injected(properties: Mapping[str, Any]) -> bool:
    """Whether a test of a suite injects a fault."""
    return properties.get("wfstate_fault", "none") not in ("none", "input")


def grouped(failures: Iterable[F]) -> list[list[F]]:
    """Group failures by cause: deviations of the store by itself come first, and then the largest groups."""
    groups: dict[str, list[F]] = {}
    for failure in failures:
        groups.setdefault(failure.cause or f"unknown {len(groups)}", []).append(failure)
    return sorted(groups.values(), key=lambda group: (group[0].is_injected, -len(group)))


def group_lines(failures: Sequence[Failure]) -> list[str]:
    """Return a line for each group of failures; none if no clause fails for the reason of another."""
    groups = grouped(failures)
    if len(groups) == len(failures):
        return []
    lines = [_line(group) for group in groups[:_MOST_GROUPS]]
    lines[0] += ": fix this first"
    hidden = len(groups) - len(lines)
    return [*lines, f"and {hidden} more cause{'s' if hidden > 1 else ''}"] if hidden else lines


def _line(group: Sequence[Failure]) -> str:
    first, *others = group
    more = f" and {len(others)} more" if others else ""
    return f"{first.clause}{more} fail{'' if others else 's'}{f' because {first.cause}' if first.cause else ''}"
