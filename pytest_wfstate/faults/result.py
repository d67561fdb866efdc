"""What an exploration of disks or of schedules, or a storm, came to: what is the same for all of them."""

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
    """How much was known and not tried, because a bound was reached or a violation found."""
    seconds: float = 0.0
    verdict: Literal["CLEAN", "VIOLATED", "NOT_MEASURED"] = "NOT_MEASURED"
    reasons: list[str] = dataclasses.field(default_factory=list)
    """Why it is NOT_MEASURED."""
    replay: str = ""
    """The id of the violation."""
    replayed: bool = False
    """Whether it was the one to be replayed, and nothing else was tried."""

    def numbers(self) -> dict[str, Any]:
        """Give what there is to count, each by its name."""
        raise NotImplementedError

    def progress(self) -> str:
        """Say how far it has come."""
        raise NotImplementedError


def count(number: int) -> str:
    """Say a number; of combinations there may be more than Python prints."""
    return f"{number:,}" if number < 10**12 else f"about 10^{int(number.bit_length() * math.log10(2))}"
