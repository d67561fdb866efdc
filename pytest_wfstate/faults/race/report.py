"""The report of a race: a table of who did what, a column for each client, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.race.schedule import ClientFailed, Killed, ScheduleRun, ScheduleStep, preemptions
from pytest_wfstate.faults.report_text import closing, disk_lines, error_lines, paragraph, short, shortened, shown

_WIDEST = 54  # characters of a column
_OFTEN = 4  # repetitions from which on they are shown once
_LONGEST = 30  # rows that can repeat


class RaceBug(Violation):
    """Concurrent clients can produce an outcome that fails the check. The text is the report."""


def report(
    schedule: ScheduleRun,
    error: BaseException,
    disk: tuple[Content, Mapping[str, str]] | None,
    counts: str,
    kept_at: str | None,
    replay: tuple[str, str] | None,
) -> str:
    """Format the report; `disk` is what is on the disk, if there is one, `replay` the command and the replay id."""
    lines = [_headline(schedule), "", *([*table(schedule), ""] if schedule.steps else [])]
    for client, result in sorted(schedule.results.items()):
        lines += paragraph(f"client {client + 1}", _describe_result(result))
    if disk:
        lines += paragraph("on the disk", disk_lines(*disk))
    if schedule.stuck:
        lines += paragraph("stuck", [schedule.stuck])
    else:
        lines += paragraph("the check said", error_lines(error))
    return "\n".join([*lines, *closing(counts, kept_at, replay)])


def table(schedule: ScheduleRun) -> list[str]:
    """Format who did what, in order, and below it the lines of code that did it."""
    clients = sorted({step.client for step in schedule.steps})
    formatter = _Cells(schedule)
    cells = [(step.client, formatter.cell(step)) for step in schedule.steps]
    titles = {client: f"client {client + 1}" for client in clients}
    widths = {
        client: max(len(titles[client]), *(len(cell) for owner, cell in cells if owner == client)) for client in clients
    }
    number = len(str(len(cells)))
    rows = ["  ".join([f"{'':{number}}", *(f"{titles[client]:{widths[client]}}" for client in clients)])]
    begin = 0
    while begin < len(cells):
        period, times = _repeated(cells, begin)
        for row, (owner, cell) in enumerate(cells[begin : begin + period], begin + 1):
            columns = (f"{cell if client == owner else '':{widths[client]}}" for client in clients)
            rows.append("  ".join([f"{row:{number}}", *columns]))
        rows += [f"... repeated {times - 1:,} more times"] if times > 1 else []
        begin += period * times
    return [*(f"  {row}".rstrip() for row in rows), *formatter.code()]


def _repeated(cells: list[tuple[int, str]], begin: int) -> tuple[int, int]:
    """Return how many of the cells from `begin` on repeat, and how often; one cell that is there once if none do."""
    for period in range(1, min(_LONGEST, (len(cells) - begin) // _OFTEN) + 1):
        times, repeated = 1, cells[begin : begin + period]
        while cells[begin + period * times : begin + period * (times + 1)] == repeated:
            times += 1
        if times >= _OFTEN:
            return period, times
    return 1, 1


def _headline(schedule: ScheduleRun) -> str:
    number = {2: "Two", 3: "Three", 4: "Four"}.get(len(schedule.results), "Several")
    switches = preemptions(schedule)
    how = [] if not switches else ["one preempted once"] if switches == 1 else [f"preempted {switches} times"]
    how += ["one stalled"] if any(step.outlasts for step in schedule.steps) else []
    how += ["one killed"] if any(isinstance(result, Killed) for result in schedule.results.values()) else []
    detail = f", {' and '.join(how)}," if how else ""
    if schedule.stuck:
        return f"Concurrent clients{detail} cannot all finish."
    return f"{number} concurrent clients{detail} produce an outcome that fails the check."


class _Cells:
    """Formats the cells of the table."""

    def __init__(self, schedule: ScheduleRun) -> None:
        self._lines = {short(step.access.line): step.access.line for step in schedule.steps if step.access.line}
        self._is_one_file = len({line.path for line in self._lines.values()}) == 1

    def cell(self, step: ScheduleStep) -> str:
        """Format what was done, how it failed if it did, and the line; the file only if there are several."""
        failed = f" ({step.access.error or 'blocked'})" if step.blocked or step.access.error else ""
        place = short(step.access.line) if step.access.line else ""
        place = "" if place and step.access.path.startswith(place) else place  # the path is the line itself
        where = f"  :{place.rpartition(':')[2]}" if self._is_one_file and place else f"  {place}" if place else ""
        what, room = shown(str(step.access)), _WIDEST - len(failed) - len(where)
        return (what if len(what) <= room else f"{what[: room - 3]}...") + failed + where

    def code(self) -> list[str]:
        """List the lines of code that the table points at."""
        code = {place: line.text for place, line in self._lines.items() if line.text}
        width = max(map(len, code), default=0)
        listed = [f"  {place:{width}}  {text}" for place, text in code.items()]
        return ["", *listed] if listed else []


def _describe_result(result: Any) -> list[str]:
    if isinstance(result, Killed):
        return ["was killed"]
    if isinstance(result, ClientFailed):
        return [f"raised {error_lines(result.error)[0]}"]
    return [f"returned {shortened(repr(result))}"]
