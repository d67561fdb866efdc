"""The scorecard: how many clauses of each level a store keeps, and what happened to all the others."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pytest_wfstate.labs.options import CAUSE
from pytest_wfstate.report.failures import grouped, is_injected
from pytest_wfstate.report.terminal import counted, cut_off
from pytest_wfstate.suites.clauses import LEVELS, NOT_APPLICABLE, NOT_SUPPORTED

SKIPPED = ("not offered", NOT_SUPPORTED, NOT_APPLICABLE, "skipped")
_KNOWN = {"known": "known to fail", "not seen": "known to fail but not seen to"}
"""Results of clauses that are known to fail, in words."""
_HEAD = ("store", *LEVELS, "failed", "skipped", "not measured", "not asked")


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """The result of one test of a suite."""

    suite: str
    clause: str
    level: str
    """Empty for a test that is not a clause."""
    result: str
    """passed, failed, known, not seen, not measured, or one of `SKIPPED`."""
    text: str = ""
    """The report of a failure, or why the test was skipped."""
    left_out: tuple[str, ...] = ()
    """What the store does not offer, so that the test did without it."""
    forgets: tuple[str, ...] = ()
    """Fields of records that the suite does not compare."""
    limits: tuple[str, ...] = ()
    """What a pass does not prove."""
    bounded_to: tuple[str, ...] = ()
    """How much each exploration covered that a bound cut off."""
    is_replay: bool = False
    """Whether it replayed a violation, and nothing else."""
    cause: str = ""
    """What its failure is due to, if that is known."""
    is_injected: bool = False
    """Whether a fault was injected."""
    own_runs: tuple[str, ...] = ()
    """Deviations from the contract for which the store was judged by its own runs."""

    @property
    def has_failed(self) -> bool:
        """Whether it fails a run."""
        return self.result in ("failed", "not measured")

    @classmethod
    def of(cls, suite: str, name: str, outcome: str, text: str, properties: Iterable[tuple[str, Any]]) -> Self:
        """Read the result from the properties of a test."""
        pairs = list(properties)
        last = dict(pairs)

        def all_of(key: str) -> tuple[str, ...]:
            return tuple(str(value) for name, value in pairs if name == key)

        return cls(
            suite,
            str(last.get("wfstate_clause", name)),
            str(last.get("wfstate_level", "")),
            str(last.get("wfstate_result", outcome)),
            text,
            all_of("wfstate_left_out"),
            all_of("wfstate_forgets"),
            all_of("wfstate_limit"),
            all_of("wfstate_bounded_to"),
            "wfstate_replayed" in last,
            str(last.get(CAUSE, "")),
            is_injected(last),
            all_of("wfstate_own_runs"),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote as JSON, which has no tuples."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**fields)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One store: its name, its tests, and how many clauses were not asked for."""

    name: str
    items: Sequence[Item]
    not_asked: int = 0

    def level(self, level: str) -> str:
        """Return `passed/asked`, or a dash if nothing was asked, as of what is not applicable or not supported."""
        not_asked = (NOT_APPLICABLE, NOT_SUPPORTED)
        asked = [item for item in self.items if item.level == level and item.result not in not_asked]
        return f"{sum(item.result == 'passed' for item in asked)}/{len(asked)}" if asked else "-"

    def count(self, *results: str) -> int:
        """Return how many tests have one of these results."""
        return sum(item.result in results for item in self.items)

    @property
    def is_clean(self) -> bool:
        """Whether every clause that was asked and is applicable was seen to hold, and there was at least one."""
        seen = self.count("passed", "known", "not seen") > 0
        return seen and not self.count("failed", "not measured") and not self.unreported()

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row in the scorecard."""
        skipped = self.count("not offered", NOT_SUPPORTED, "skipped")
        counts = (self.count("failed"), skipped, self.count("not measured"), self.not_asked)
        return (self.name, *map(self.level, LEVELS), *map(str, counts))

    def in_a_line(self) -> str:
        """Format the row as one line, without the counts that are 0."""
        levels = ", ".join(f"{level} {self.level(level)}" for level in LEVELS if self.level(level) != "-")
        kinds = ("failed", *_KNOWN, "not measured", *SKIPPED)
        counts = [f"{self.count(kind)} {_KNOWN.get(kind, kind)}" for kind in kinds if self.count(kind)]
        counts += [f"{self.not_asked} not asked"] if self.not_asked else []
        forgotten = f"not compared: {', '.join(self.forgets())}" if self.forgets() else ""
        number = sum(len(item.bounded_to) for item in self.items)
        bounded = f"{counted(number, 'exploration')} cut off by a bound" if number else ""
        own_runs = "; ".join(self.judged_by_own_runs())
        parts = [levels or "no clause", ", ".join(counts), forgotten, own_runs, bounded, *self.limits()]
        return f"{self.name}: {'; '.join(filter(None, parts))}"

    def forgets(self) -> list[str]:
        """Return the fields that were not compared."""
        return list(dict.fromkeys(name for item in self.items for name in item.forgets))

    def limits(self) -> list[str]:
        """Return what the tests that passed do not prove."""
        return list(dict.fromkeys(limit for item in self.items if item.result == "passed" for limit in item.limits))

    def unreported(self) -> str:
        """Return a deviation from the contract if clauses were judged by own runs for it, and none reports any."""
        deviations = [deviation for item in self.items for deviation in item.own_runs]
        reported = any(item.has_failed or item.result in _KNOWN for item in self.items if not item.is_injected)
        return "" if reported or not deviations else deviations[0]

    def judged_by_own_runs(self) -> list[str]:
        """Return how many clauses judged the store by its own runs, and why."""
        deviations = [deviation for item in self.items for deviation in item.own_runs[:1]]
        if not deviations:
            return []
        reasons = list(dict.fromkeys(deviations))
        others = f" and for {counted(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
        number = counted(len(deviations), "clause")
        return [f"{number} judged against the store's own uninterrupted runs, since {reasons[0]}{others}"]

    def notes(self) -> list[str]:
        """Return what the numbers do not show: why clauses were skipped, and what a pass did without."""
        skipped = Counter(item.text for item in self.items if item.result in ("not offered", NOT_SUPPORTED, "skipped"))
        left_out = Counter(reason for item in self.items if item.result == "passed" for reason in item.left_out)
        known = [item for item in self.items if item.result in _KNOWN]
        return [
            *(f"{number} skipped: {reason}" for reason, number in skipped.items()),
            *(f"{number} passed in part: {reason}" for reason, number in left_out.items()),
            *(f"{item.clause} is known to fail: {item.text}" for item in known),
            *([f"not compared: {', '.join(self.forgets())}"] if self.forgets() else []),
            *self.judged_by_own_runs(),
            *([f"no clause reports that {self.unreported()}"] if self.unreported() else []),
            *self.limits(),
            *self._cut_off(),
        ]

    def _cut_off(self) -> list[str]:
        bounded = {item.clause: item.bounded_to for item in self.items if item.bounded_to}
        number = sum(map(len, bounded.values()))
        what = f"a bound cut off {counted(number, 'exploration')}: a larger profile tries more"
        return [what, *cut_off(bounded)] if bounded else []


def scorecard(rows: Sequence[Row]) -> str:
    """Format all stores as a table, followed by what the numbers do not show."""
    cells = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = [_line(row, widths) for row in cells]
    notes = [f"{row.name}: {note}" for row in rows for note in row.notes()]
    return "\n".join([*table, *([""] if notes else []), *notes])


def violations(rows: Sequence[Row]) -> str:
    """Format everything that failed or was not measured.

    The first for each reason is in full, or in a line if there is no more to it; each other one is in a line.
    """
    texts: list[str] = []
    for row in rows:
        for first, *others in grouped(item for item in row.items if item.has_failed):
            texts.append(_in_full(row, first))
            texts += [f"{_title(row, item)}, as {first.clause} does, because {item.cause}" for item in others]
    return "\n".join(texts)


def _title(row: Row, item: Item) -> str:
    return f"{row.name}: {item.clause} {'was not measured' if item.result == 'not measured' else 'fails'}"


def _in_full(row: Row, item: Item) -> str:
    title, text = _title(row, item), item.text.strip()
    return f"--- {title} ---\n{text}\n" if "\n" in text else f"{title}: {text}"


def rows_of(items: Iterable[Item], not_asked: Mapping[str, int]) -> list[Row]:
    """Group the tests of a session by suite."""
    by_suite: dict[str, list[Item]] = {name: [] for name in not_asked}
    for item in items:
        by_suite.setdefault(item.suite, []).append(item)
    return [Row(name, tests, not_asked.get(name, 0)) for name, tests in by_suite.items()]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = [
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *rest]).rstrip()
