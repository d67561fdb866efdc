"""What the tests of the command share."""

from __future__ import annotations

import re


def cells(line: str) -> list[str]:
    """Split a line of a table."""
    return re.split(r"\s{2,}", line.strip())
