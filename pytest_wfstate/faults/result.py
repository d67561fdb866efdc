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
    verdict: Literal["CLEAN", "VIOLATED", "NOT_MEASURED"] = "NOT_MEASURED"
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Why it is NOT_MEASURED."""
    replay: str = ""
    """The id of the violation."""
    replayed: bool = False
    """Whether it only replayed one disk or schedule."""

    def numbers(self) -> dict[str, Any]:
        """Return what can be counted, by name."""
        raise NotImplementedError

    def progress(self) -> str:
        """Return a short text for the live line."""
        raise NotImplementedError


def count(number: int) -> str:
    """Format a number; there may be more combinations than Python prints digits."""
    return f"{number:,}" if number < 10**12 else f"about 10^{int(number.bit_length() * math.log10(2))}"
