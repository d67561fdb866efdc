"""Replay ids: a word at the end of a violation's report, by which the same disk is found again in another run.

`posix-4-0.1.1-83dea0de` is the model, the cut, the dials that are not at 0 (part, dial, position) and the fingerprint
of the run. `2:` before it says that it is of the second exploration of the test; a `+` joins the crash of a run and
that of its recovery. `EIO-3-83dea0de` is an I/O error: its name, which op failed, and the fingerprint of that run. A
`+` joins it and a later crash. `race-0.5_1.12_k0-83dea0de` is a schedule: the client and how many turns it took, again
and again, `k0` where client 0 was killed, and the fingerprint of what they did.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Self, cast

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.race.schedule import Choices, death_of

_DIAL = r"\d+\.\d+\.\d+"
_CRASH = rf"(?:kill|ext4|xfs|posix)-\d+-(?:0|{_DIAL}(?:_{_DIAL})*)-[0-9a-f]{{8}}"
_FAILED = r"(?:short|E[0-9A-Z]+)-[1-9]\d*-[0-9a-f]{8}"
_SPELL = r"(?:\d+\.[1-9]\d*|k\d+)"
_RACE = rf"(?:race|line|opcode|await)-{_SPELL}(?:_{_SPELL})*-[0-9a-f]{{8}}"
_ID = re.compile(
    rf"(?:(?P<ordinal>[1-9]\d*):)?"
    rf"(?:(?P<crashes>{_CRASH}(?:\+{_CRASH})?)|(?P<failed>{_FAILED})(?:\+(?P<later>{_CRASH}))?|(?P<race>{_RACE}))"
)


class NoReplayId(WfstateError, ValueError):
    """What was given as a replay id is none."""


class TraceChanged(WfstateError, LookupError):
    """A replay id is of another run than this one."""

    __module__ = "pytest_wfstate"


@dataclasses.dataclass(frozen=True, slots=True)
class CrashId:
    """One crash of a replay id."""

    model: Model
    point: int
    turned: tuple[tuple[int, int, int], ...]
    """Dials that are not at 0: the part, the dial, its position."""
    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `_CRASH` matches."""
        model, point, turned, fingerprint = text.split("-")
        axes = [] if turned == "0" else [tuple(map(int, axis.split("."))) for axis in turned.split("_")]
        return cls(cast(Model, model), int(point), tuple((part, axis, at) for part, axis, at in axes), fingerprint)

    def __str__(self) -> str:
        turned = "_".join(f"{part}.{axis}.{position}" for part, axis, position in self.turned)
        return f"{self.model}-{self.point}-{turned or 0}-{self.fingerprint}"


@dataclasses.dataclass(frozen=True, slots=True)
class FailedId:
    """An I/O error of a replay id."""

    error: str
    number: int
    """Which op failed, counted from 1."""
    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `_FAILED` matches."""
        error, number, fingerprint = text.split("-")
        return cls(error, int(number), fingerprint)

    def __str__(self) -> str:
        return f"{self.error}-{self.number}-{self.fingerprint}"


@dataclasses.dataclass(frozen=True, slots=True)
class RaceId:
    """A schedule of a replay id."""

    by: str
    """What clients took turns at: `race` is at file operations."""
    choices: Choices
    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `_RACE` matches."""
        by, spells, fingerprint = text.split("-")
        choices: list[int] = []
        for spell in spells.split("_"):
            client, _, turns = spell.removeprefix("k").partition(".")
            choices += [int(client)] * int(turns) if turns else [death_of(int(client))]
        return cls(by, tuple(choices), fingerprint)

    def __str__(self) -> str:
        spells = [
            f"{client}.{len(list(turns))}" if client >= 0 else f"k{death_of(client)}"
            for client, turns in itertools.groupby(self.choices)
        ]
        return f"{self.by}-{'_'.join(spells)}-{self.fingerprint}"


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayId:
    """A violation: which exploration of its test found it, its crashes and the I/O error before them, or its race."""

    ordinal: int
    crashes: tuple[CrashId, ...] = ()
    failed: FailedId | None = None
    race: RaceId | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Read an id as a report shows it.

        Raises:
            NoReplayId: it is none.
        """
        found = _ID.fullmatch(text)
        if found is None:
            raise NoReplayId(f"{text!r} is no replay id. Copy it from the end of a violation's report.")
        crashes = found["crashes"] or found["later"]
        return cls(
            int(found["ordinal"] or 1),
            tuple(map(CrashId.read, crashes.split("+"))) if crashes else (),
            FailedId.read(found["failed"]) if found["failed"] else None,
            RaceId.read(found["race"]) if found["race"] else None,
        )

    def __str__(self) -> str:
        ordinal = f"{self.ordinal}:" if self.ordinal > 1 else ""
        return ordinal + "+".join(str(one) for one in (self.failed, *self.crashes, self.race) if one)
