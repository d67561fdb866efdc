"""The parts that reports of crashes, races and scripts share: titled paragraphs, errors, the files on a disk."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.source_lines import SourceLine, is_installed, is_users

_MOST_FILES = 12
_MOST_CHARACTERS = 200  # of one value


def paragraph(title: str, lines: list[str]) -> list[str]:
    """Return lines set beside a title."""
    return [f"  {title if not number else '':16}{line}" for number, line in enumerate(lines)]


def error_lines(error: BaseException) -> list[str]:
    """Return the message of an error, a few lines of it, and the line of the user's code that raised it."""
    text = [shortened(line) for line in "".join(traceback.format_exception_only(error)).strip().splitlines()]
    return [text[0] + at(_raised_at(error)), *text[1:12]]


def failure_lines(error: BaseException) -> list[str]:
    """Return what an error says: a violation all that it does, which is its own report."""
    return str(error).splitlines() if isinstance(error, Violation) else error_lines(error)


def error_name(error: BaseException) -> str:
    """Return the class of an error and where it was raised, for a report that shows its message elsewhere."""
    where = _raised_at(error)
    return f"{type(error).__name__}{f' at {short(where)}' if where else ''}"


def _raised_at(error: BaseException) -> SourceLine | None:
    """Return the innermost frame in the user's code, or else in an installed package."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    frames = [frame for frame in frames if not is_installed(frame.filename)] or frames
    return SourceLine(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name) if frames else None


def disk_lines(content: Content, links: Mapping[str, str]) -> list[str]:
    """Return what a disk holds, a line per file."""
    lines = []
    for name, data in content.items():
        path = shown(name)
        if name in links:
            lines.append(f"{path}: the same file as {shown(links[name])}")
        elif data is None:
            lines.append(f"{path}/")
        elif isinstance(data, str):
            lines.append(f"{path} -> {shown(data)}")
        else:
            zeros = ", all zeros" if data and not data.strip(b"\0") else ""
            lines.append(f"{path}: {len(data):,} byte{'' if len(data) == 1 else 's'}{zeros}")
    hidden = len(lines) - _MOST_FILES
    return [*lines[:_MOST_FILES], f"and {hidden} more"] if hidden > 0 else lines or ["nothing"]


def closing(counts: str, kept_at: str | None, replay: tuple[str, str] | None) -> list[str]:
    """Return the last lines of a report: what was checked, where the disk is, and the command that replays it.

    `replay` is the command up to the replay id, and the id.
    """
    lines = ["", counts]
    if kept_at:
        lines += [f"The disk was kept in {kept_at}"]
    if replay:
        lines += ["Replay it:  " + "".join(replay)]
    return lines


def shown(path: str) -> str:
    """Return a path in printable characters: names may hold anything."""
    return path if path.isprintable() else path.encode("unicode_escape", "surrogatepass").decode()


def shortened(text: str) -> str:
    """Cut a long text, and add how much was cut."""
    more = len(text) - _MOST_CHARACTERS
    return text if more <= 0 else f"{text[:_MOST_CHARACTERS]}... ({more:,} more characters)"


def at(where: SourceLine | None) -> str:
    """Format a line of code, if there is one, for the end of a line of a report."""
    return f"   {short(where)}" if where else ""


def short(where: SourceLine) -> str:
    """Format a line of code, with its path relative to the current folder if it is below that."""
    path = os.path.relpath(where.path)
    return f"{path if not path.startswith('..') else where.path}:{where.number}"
