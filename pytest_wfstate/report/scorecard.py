"""The scorecard: how many clauses of each level a store keeps, and what became of all others."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LEVELS = ("core", "safe", "hardened")
SKIPPED = ("not offered", "not applicable", "skipped")
_HEAD = ("store", *LEVELS, "failed", "skipped", "not measured", "not asked")


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """What became of one test of a suite."""

    suite: str
    clause: str
    level: str
    """Empty for a test that is no clause."""
    result: str
    """passed, failed, known, not measured, or one of `SKIPPED`."""
    text: str = ""
    """What a failure says, or why it was skipped."""
    left_out: tuple[str, ...] = ()
    """What the store does not offer, and the test went without."""
    forgets: tuple[str, ...] = ()
    """Fields of records that the suite does not compare."""
    limits: tuple[str, ...] = ()
    """What is not shown by it, though it pass."""
    is_bounded: bool = False
    """Whether an exploration was cut off."""

    @classmethod
    def of(cls, suite: str, name: str, outcome: str, text: str, properties: Iterable[tuple[str, Any]]) -> Item:
        """Read it from the properties of a test."""
        pairs = list(properties)
        last = dict(pairs)

        def all_of(key: str) -> tuple[str, ...]:
            return tuple(str(value) for found, value in pairs if found == key)

        return cls(
            suite,
            str(last.get("wfstate_clause", name)),
            str(last.get("wfstate_level", "")),
            str(last.get("wfstate_result", outcome)),
            text,
            all_of("wfstate_left_out"),
            all_of("wfstate_forgets"),
            all_of("wfstate_limit"),
            "wfstate_bounded" in last,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One store: its name, its tests, and how many clauses were not asked for."""

    name: str
    items: Sequence[Item]
    not_asked: int = 0

    def level(self, level: str) -> str:
        """Give `passed/asked`, or a dash if nothing was asked. What does not apply was not asked."""
        asked = [item for item in self.items if item.level == level and item.result != "not applicable"]
        return f"{sum(item.result == 'passed' for item in asked)}/{len(asked)}" if asked else "-"

    def count(self, *results: str) -> int:
        """Count the tests that came to one of these."""
        return sum(item.result in results for item in self.items)

    @property
    def is_clean(self) -> bool:
        """Whether every clause that was asked for and applies was seen to hold, and there was one."""
        return not self.count("failed", "not measured") and self.count("passed", "known") > 0

    def cells(self) -> tuple[str, ...]:
        """Give the row as it stands in the scorecard."""
        skipped = self.count("not offered", "skipped")
        counts = (self.count("failed"), skipped, self.count("not measured"), self.not_asked)
        return (self.name, *map(self.level, LEVELS), *map(str, counts))

    def in_a_line(self) -> str:
        """Say it in one line, without what there is none of."""
        levels = ", ".join(f"{level} {self.level(level)}" for level in LEVELS if self.level(level) != "-")
        kinds = ("failed", "known", "not measured", *SKIPPED)
        counts = [f"{self.count(kind)} {_NAMES.get(kind, kind)}" for kind in kinds if self.count(kind)]
        counts += [f"{self.not_asked} not asked"] if self.not_asked else []
        forgotten = f"not compared: {', '.join(self.forgets())}" if self.forgets() else ""
        parts = [levels or "no clause", ", ".join(counts), forgotten, *self.limits()]
        return f"{self.name}: {'; '.join(filter(None, parts))}"

    def forgets(self) -> list[str]:
        """Name the fields that were not compared."""
        return list(dict.fromkeys(name for item in self.items for name in item.forgets))

    def limits(self) -> list[str]:
        """Say what the tests that passed do not show."""
        return list(dict.fromkeys(limit for item in self.items if item.result == "passed" for limit in item.limits))

    def notes(self) -> list[str]:
        """Say what the numbers do not: why clauses were skipped, and what a pass went without."""
        skipped = Counter(item.text for item in self.items if item.result in ("not offered", "skipped"))
        left_out = Counter(reason for item in self.items if item.result == "passed" for reason in item.left_out)
        known = [item for item in self.items if item.result == "known"]
        bounded = sum(item.is_bounded for item in self.items)
        return [
            *(f"{number} skipped: {reason}" for reason, number in skipped.items()),
            *(f"{number} passed without a part: {reason}" for reason, number in left_out.items()),
            *(f"{item.clause} is known to fail: {item.text}" for item in known),
            *([f"not compared: {', '.join(self.forgets())}"] if self.forgets() else []),
            *self.limits(),
            *([f"{bounded} explorations were cut off by a bound: a larger --profile goes on"] if bounded else []),
        ]


_NAMES = {"known": "known to fail"}


def scorecard(rows: Sequence[Row]) -> str:
    """Show all stores in a table, and below it what the numbers do not say."""
    cells = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = [_line(row, widths) for row in cells]
    notes = [f"{row.name}: {note}" for row in rows for note in row.notes()]
    return "\n".join([*table, *([""] if notes else []), *notes])


def violations(rows: Sequence[Row]) -> str:
    """Show all that failed or could not be measured, in full."""
    found = [
        f"--- {row.name}: {item.clause} {'was not measured' if item.result == 'not measured' else 'fails'} ---\n"
        f"{item.text.strip()}\n"
        for row in rows
        for item in row.items
        if item.result in ("failed", "not measured")
    ]
    return "\n".join(found)


def rows_of(items: Iterable[Item], not_asked: Mapping[str, int]) -> list[Row]:
    """Sort the tests of a session by suite."""
    by_suite: dict[str, list[Item]] = {name: [] for name in not_asked}
    for item in items:
        by_suite.setdefault(item.suite, []).append(item)
    return [Row(name, found, not_asked.get(name, 0)) for name, found in by_suite.items()]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = [
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *rest]).rstrip()
