"""A race, told: a table of who did what, a column a client, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.race.schedule import ClientFailed, Killed, ScheduleRun, Turn, preemptions
from pytest_wfstate.faults.report_text import held, paragraph, said, short, shortened, shown

_WIDEST = 54  # of a column
_OFTEN = 4  # times that something comes in a row before it is shown once


class RaceBug(Violation):
    """Clients can take turns so that the check does not accept what they come to. The text is the report."""

    __module__ = "pytest_wfstate"


def report(
    schedule: ScheduleRun,
    error: BaseException,
    disk: tuple[Content, Mapping[str, str]] | None,
    counts: str,
    kept_at: str | None,
    replay: tuple[str, str] | None,
) -> str:
    """Write the whole report; `disk` is what is on it, if there is one, `replay` the test and the replay id."""
    lines = [_headline(schedule), "", *table(schedule), ""]
    for client, result in sorted(schedule.results.items()):
        lines += paragraph(f"client {client + 1}", _came_to(result))
    if disk:
        lines += paragraph("on the disk", held(*disk))
    if schedule.stuck:
        lines += paragraph("it came to", [schedule.stuck])
    else:
        lines += paragraph("the check said", said(error))
    lines += ["", counts]
    if kept_at:
        lines += [f"The disk was kept in {kept_at}"]
    if replay:
        lines += ['Replay it:  pytest "{}" --wfstate-replay={}'.format(*replay)]
    return "\n".join(lines)


def table(schedule: ScheduleRun) -> list[str]:
    """Show who did what, in order: a column a client, and below it the lines of code that did it."""
    clients = sorted({turn.client for turn in schedule.turns})
    told = _Cells(schedule)
    cells = [told.cell(turn) for turn in schedule.turns]
    widths = {
        client: max(len(_title(client)), *(len(cell) for cell, turn in _zip(cells, schedule) if turn.client == client))
        for client in clients
    }
    number = len(str(len(schedule.turns)))
    rows = [[f"{'':{number}}", *(f"{_title(client):{widths[client]}}" for client in clients)]]
    for at, (cell, turn) in enumerate(_zip(cells, schedule), 1):
        columns = (f"{cell if client == turn.client else '':{widths[client]}}" for client in clients)
        rows.append([f"{at:{number}}", *columns])
    period, times = _repeated([str(turn) for turn in schedule.turns])
    shown = [f"  {'  '.join(row)}".rstrip() for row in rows[: len(rows) - period * (times - 1)]]
    return [*shown, *([f"  and so on, {times - 1:,} times more"] if period else []), *told.code()]


def _repeated(rows: list[str]) -> tuple[int, int]:
    """Find what all ends in that comes again and again: how many rows, and how often."""
    for period in range(1, len(rows) // _OFTEN + 1):
        times = 1
        while rows[-period * (times + 1) : len(rows) - period * times] == rows[-period:]:
            times += 1
        if times >= _OFTEN:
            return period, times
    return 0, 1


def _headline(schedule: ScheduleRun) -> str:
    some = {2: "two", 3: "three", 4: "four"}.get(len(schedule.results), "several")
    stopped = preemptions(schedule)
    how = {0: "", 1: ", one of which is stopped once,"}.get(stopped, f", stopped {stopped} times,")
    died = " and one of which is killed" if any(isinstance(one, Killed) for one in schedule.results.values()) else ""
    if schedule.stuck:
        return f"clients that run at the same time{how}{died} do not all come to their ends."
    return f"{some} clients that run at the same time{how}{died} come to what the check does not accept."


def _title(client: int) -> str:
    return f"client {client + 1}"


def _zip(cells: list[str], schedule: ScheduleRun) -> Iterable[tuple[str, Turn]]:
    return zip(cells, schedule.turns, strict=True)


class _Cells:
    """What the table says of each turn."""

    def __init__(self, schedule: ScheduleRun) -> None:
        self._lines = {short(turn.access.line): turn.access.line for turn in schedule.turns if turn.access.line}
        self._is_one_file = len({line.path for line in self._lines.values()}) == 1

    def cell(self, turn: Turn) -> str:
        """Say what was done, how it failed if it did, and at which line; the file is said once if it is one."""
        failed = f" ({turn.access.error or 'waits'})" if turn.blocked or turn.access.error else ""
        place = short(turn.access.line) if turn.access.line else ""
        place = "" if place and turn.access.path.startswith(place) else place  # the turn is at the line itself
        where = f"  :{place.rpartition(':')[2]}" if self._is_one_file and place else f"  {place}" if place else ""
        what, room = shown(str(turn.access)), _WIDEST - len(failed) - len(where)
        return (what if len(what) <= room else f"{what[: room - 3]}...") + failed + where

    def code(self) -> list[str]:
        """List the lines of code that the table points at."""
        found = {place: line.text for place, line in self._lines.items() if line.text}
        width = max(map(len, found), default=0)
        listed = [f"  {place:{width}}  {text}" for place, text in found.items()]
        return ["", *listed] if listed else []


def _came_to(result: Any) -> list[str]:
    if isinstance(result, Killed):
        return ["was killed"]
    if isinstance(result, ClientFailed):
        return [f"raised {said(result.error)[0]}" if isinstance(result.error, BaseException) else str(result.error)]
    return [f"gave {shortened(repr(result))}"]
