"""The result of an exploration or a storm: the part that all kinds share."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal


@dataclasses.dataclass(slots=True, kw_only=True)
class Result:
    """What was seen, and how it ended."""

    tried: int = 0
    """How many disks were checked, or schedules run and checked."""
    skipped: int = 0
    """How much was known but not tried, because a bound was reached or a violation found."""
    seconds: float = 0.0
    verdict: Literal["CLEAN", "VIOLATED", "NOT_MEASURED", "INCOMPLETE"] = "NOT_MEASURED"
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Why it is NOT_MEASURED."""
    out_of_time: float | None = None
    """The seconds of the safety net, if it stopped the exploration, which is then INCOMPLETE."""
    incomplete: list[str] = dataclasses.field(default_factory=list)
    """Why else it is INCOMPLETE: what was done but not judged."""
    replay: str = ""
    """The id of the violation."""
    replayed: bool = False
    """Whether it only replayed one disk or schedule."""

    def conclude(self) -> None:
        """Set the verdict of an exploration that found no violation."""
        if not self.reasons:
            self.verdict = "INCOMPLETE" if self.out_of_time is not None or self.incomplete else "CLEAN"

    def unmeasured(self) -> list[str]:
        """Return why there is no verdict about the code, each a sentence without its period."""
        if self.reasons or self.out_of_time is None:
            return self.reasons or self.incomplete
        reason = (
            f"the safety net of {self.out_of_time:g} s stopped it before the bounds of the profile did. Not tried: "
            f"{self.not_tried()}. Make the workload smaller or the check faster, or choose a smaller profile"
        )
        return [reason, *self.incomplete]

    def not_tried(self) -> str:
        """Describe what the safety net left out."""
        raise NotImplementedError

    def bounded_to(self) -> str:
        """Describe how much a clean exploration covered, if a bound cut it off; else return ""."""
        return self.covered() if self.verdict == "CLEAN" and self.skipped else ""

    def covered(self) -> str:
        """Describe how much was tried of what is possible."""
        raise NotImplementedError

    def used(self) -> dict[str, int]:
        """Return how much of each shared bound it used, by name."""
        return {}

    def numbers(self) -> dict[str, Any]:
        """Return what can be counted, by name."""
        raise NotImplementedError

    def progress(self) -> str:
        """Return a short text for the live line."""
        raise NotImplementedError


def count(number: int) -> str:
    """Format a number; there may be more combinations than Python prints digits."""
    return f"{number:,}" if number < 10**12 else f"about 10^{int(number.bit_length() * math.log10(2))}"
