"""Replay ids: printed at the end of a violation's report, to reproduce it in another run.

- `posix-4-0.1.1-83dea0de` is a crash: the model, the crash point, what was lost (part, axis, position) and the
  fingerprint of the run. `1.1.1.2048` is the same position of 2,048 axes in a row. A `+` joins the crash of a run and
  that of its recovery.
- `EIO-3-83dea0de` is an I/O error: its name, which op failed, and the fingerprint of the run. A `+` joins it and a
  later crash.
- `race-0.5_1.12_k0-83dea0de` is a schedule: client 0 takes 5 steps, then client 1 takes 12, then client 0 is killed;
  and the fingerprint of what they did. `0.2_1.3_r2x99` repeats the last 2 of these another 99 times.

A leading `2:` means the second exploration of the test. `late:`, `early:` and `mix3:` are orders of the threads and
tasks of a run, and `t0.5_1.12:` is what its threads did in turn: 5 items by the main one, then 12 by the first other.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Self, cast

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.bounds import MODELS, Model

_LOSS = r"\d+\.\d+\.\d+(?:\.[1-9]\d*)?"
_CRASH = rf"(?:{'|'.join(MODELS)})-\d+-(?:0|{_LOSS}(?:_{_LOSS})*)-[0-9a-f]{{8}}"
_FAILED = r"(?:short(?:_E[0-9A-Z]+)?|E[0-9A-Z]+)-[1-9]\d*-[0-9a-f]{8}"
_STRETCH = r"(?:\d+\.[1-9]\d*|k\d+|r[1-9]\d*x[1-9]\d*)"
_RACE = rf"(?:race|line|opcode|await)-{_STRETCH}(?:_{_STRETCH})*-[0-9a-f]{{8}}"
_LONGEST_PERIOD = 16  # of stretches that are repeated
_TURN = r"(?:\d+|[a-z]+)\.[1-9]\d*"
_TURNS = rf"t{_TURN}(?:_{_TURN})*"
LATE, EARLY = "late", "early"
"""Orders of a run: all but its main strand are held back, or go first."""
_ID = re.compile(
    rf"(?:(?P<ordinal>[1-9]\d*):)?(?:(?P<order>{LATE}|{EARLY}|mix[1-9]\d*|{_TURNS}):)?"
    rf"(?:(?P<crashes>{_CRASH}(?:\+{_CRASH})?)|(?P<failed>{_FAILED})(?:\+(?P<later>{_CRASH}))?|(?P<race>{_RACE}))"
)


def read_turns(order: str) -> list[str]:
    """Return the name of the strand that does each item, from what `_TURNS` matches."""
    turns: list[str] = []
    for stretch in order[1:].split("_"):
        name, _, items = stretch.partition(".")
        turns += [name] * int(items)
    return turns


def turns_text(turns: Sequence[str]) -> str:
    """Format turns as the order of a replay id."""
    stretches = [f"{name}.{len(list(items))}" for name, items in itertools.groupby(turns)]
    return f"t{'_'.join(stretches)}" if stretches else ""


Choices = tuple[int, ...]
"""Which client takes each step of a schedule; `death_of(client)` instead means that it is killed."""


def death_of(client: int) -> int:
    """Return what stands for the death of a client in a schedule. It is its own inverse."""
    return -1 - client


class NoReplayId(WfstateError, ValueError, public=False):
    """A text is not a replay id."""


class TraceChanged(WfstateError, LookupError):
    """The run differs from the one that the replay id was made for."""


@dataclasses.dataclass(frozen=True, slots=True)
class CrashId:
    """One crash of a replay id."""

    model: Model
    point: int
    losses: tuple[tuple[int, int, int], ...]
    """Axes that are not at 0: the part, the axis, its position."""
    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse what `_CRASH` matches."""
        model, point, losses, fingerprint = text.split("-")
        parsed: list[tuple[int, int, int]] = []
        for loss in losses.split("_") if losses != "0" else ():
            part, first, position, *count = map(int, loss.split("."))
            parsed += [(part, axis, position) for axis in range(first, first + sum(count or [1]))]
        return cls(cast(Model, model), int(point), tuple(parsed), fingerprint)

    def __str__(self) -> str:
        losses = "_".join(
            f"{part}.{first}.{position}" + (f".{count}" if count > 1 else "")
            for part, first, position, count in _runs(self.losses)
        )
        return f"{self.model}-{self.point}-{losses or 0}-{self.fingerprint}"


def _runs(losses: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the losses of axes in a row as one, with their number: a large file has thousands of sectors."""
    # In a row, the axis and the number of the loss grow alike.
    for (part, _, position), row in itertools.groupby(
        enumerate(losses), key=lambda loss: (loss[1][0], loss[1][1] - loss[0], loss[1][2])
    ):
        axes = [axis for _, (_, axis, _) in row]
        yield part, axes[0], position, len(axes)


@dataclasses.dataclass(frozen=True, slots=True)
class FailedId:
    """An I/O error of a replay id."""

    error: str
    number: int
    """Which op failed, counted from 1."""
    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse what `_FAILED` matches."""
        error, number, fingerprint = text.split("-")
        return cls(error, int(number), fingerprint)

    def __str__(self) -> str:
        return f"{self.error}-{self.number}-{self.fingerprint}"


@dataclasses.dataclass(frozen=True, slots=True)
class RaceId:
    """A schedule of a replay id."""

    by: str
    """Where clients can be preempted: `race` means at file operations."""
    choices: Choices
    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse what `_RACE` matches."""
        by, stretches, fingerprint = text.split("-")
        choices: list[int] = []
        for stretch in _unfold(stretches.split("_")):
            client, _, steps = stretch.removeprefix("k").partition(".")
            choices += [int(client)] * int(steps) if steps else [death_of(int(client))]
        return cls(by, tuple(choices), fingerprint)

    def __str__(self) -> str:
        stretches = [
            f"{client}.{len(list(steps))}" if client >= 0 else f"k{death_of(client)}"
            for client, steps in itertools.groupby(self.choices)
        ]
        return f"{self.by}-{'_'.join(_fold(stretches))}-{self.fingerprint}"


def _fold(stretches: list[str]) -> Iterator[str]:
    """Yield stretches, with repetitions folded: clients that poll repeat themselves a thousand times."""
    begin = 0
    while begin < len(stretches):
        period, times = max(
            ((period, _repetitions(stretches, begin, period)) for period in range(1, _LONGEST_PERIOD + 1)),
            key=lambda found: found[0] * found[1],
        )
        yield from stretches[begin : begin + (period if times else 1)]
        if times:
            yield f"r{period}x{times}"
        begin += period * (times + 1) if times else 1


def _repetitions(stretches: list[str], begin: int, period: int) -> int:
    """Count how often the `period` stretches from `begin` on are repeated, if that is more than once."""
    repeated, times = stretches[begin : begin + period], 0
    while stretches[begin + period * (times + 1) : begin + period * (times + 2)] == repeated:
        times += 1
    return times if times > 1 else 0


def _unfold(stretches: list[str]) -> list[str]:
    unfolded: list[str] = []
    for stretch in stretches:
        if stretch.startswith("r"):
            period, times = map(int, stretch.removeprefix("r").split("x"))
            unfolded += unfolded[-period:] * times
        else:
            unfolded.append(stretch)
    return unfolded


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayId:
    """A violation: which exploration of its test found it, and its I/O error and crashes, or its schedule."""

    ordinal: int
    crashes: tuple[CrashId, ...] = ()
    failed: FailedId | None = None
    race: RaceId | None = None
    order: str = ""
    """In which order the threads and tasks of the run went on; empty if it does not matter."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse an id as a report shows it.

        Raises:
            NoReplayId: it is not a replay id.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise NoReplayId(f"{text!r} is not a replay id. Copy one from the end of a violation's report.")
        crashes = match["crashes"] or match["later"]
        return cls(
            int(match["ordinal"] or 1),
            tuple(map(CrashId.read, crashes.split("+"))) if crashes else (),
            FailedId.read(match["failed"]) if match["failed"] else None,
            RaceId.read(match["race"]) if match["race"] else None,
            match["order"] or "",
        )

    def __str__(self) -> str:
        ordinal = f"{self.ordinal}:" if self.ordinal > 1 else ""
        order = f"{self.order}:" if self.order else ""
        return ordinal + order + "+".join(str(part) for part in (self.failed, *self.crashes, self.race) if part)
