"""Replay ids: printed at the end of a violation's report, to reproduce it in another run.

- `posix-4-0.1.1-83dea0de` is a crash: the model, the crash point, what was lost (part, axis, position) and the
  fingerprint of the run. A `+` joins the crash of a run and that of its recovery.
- `EIO-3-83dea0de` is an I/O error: its name, which op failed, and the fingerprint of the run. A `+` joins it and a
  later crash.
- `race-0.5_1.12_k0-83dea0de` is a schedule: client 0 takes 5 steps, then client 1 takes 12, then client 0 is killed;
  and the fingerprint of what they did.

A leading `2:` means the second exploration of the test.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Self, cast

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.bounds import MODELS, Model

_LOSS = r"\d+\.\d+\.\d+"
_CRASH = rf"(?:{'|'.join(MODELS)})-\d+-(?:0|{_LOSS}(?:_{_LOSS})*)-[0-9a-f]{{8}}"
_FAILED = r"(?:short|E[0-9A-Z]+)-[1-9]\d*-[0-9a-f]{8}"
_STRETCH = r"(?:\d+\.[1-9]\d*|k\d+)"
_RACE = rf"(?:race|line|opcode|await)-{_STRETCH}(?:_{_STRETCH})*-[0-9a-f]{{8}}"
_ID = re.compile(
    rf"(?:(?P<ordinal>[1-9]\d*):)?"
    rf"(?:(?P<crashes>{_CRASH}(?:\+{_CRASH})?)|(?P<failed>{_FAILED})(?:\+(?P<later>{_CRASH}))?|(?P<race>{_RACE}))"
)


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
        axes = [] if losses == "0" else [tuple(map(int, loss.split("."))) for loss in losses.split("_")]
        parsed = tuple((part, axis, position) for part, axis, position in axes)
        return cls(cast(Model, model), int(point), parsed, fingerprint)

    def __str__(self) -> str:
        losses = "_".join(f"{part}.{axis}.{position}" for part, axis, position in self.losses)
        return f"{self.model}-{self.point}-{losses or 0}-{self.fingerprint}"


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
        for stretch in stretches.split("_"):
            client, _, steps = stretch.removeprefix("k").partition(".")
            choices += [int(client)] * int(steps) if steps else [death_of(int(client))]
        return cls(by, tuple(choices), fingerprint)

    def __str__(self) -> str:
        stretches = [
            f"{client}.{len(list(steps))}" if client >= 0 else f"k{death_of(client)}"
            for client, steps in itertools.groupby(self.choices)
        ]
        return f"{self.by}-{'_'.join(stretches)}-{self.fingerprint}"


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayId:
    """A violation: which exploration of its test found it, and its I/O error and crashes, or its schedule."""

    ordinal: int
    crashes: tuple[CrashId, ...] = ()
    failed: FailedId | None = None
    race: RaceId | None = None

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
        )

    def __str__(self) -> str:
        ordinal = f"{self.ordinal}:" if self.ordinal > 1 else ""
        return ordinal + "+".join(str(part) for part in (self.failed, *self.crashes, self.race) if part)
