"""The settings of a suite, checked when its class is made: one that means nothing would fail every test, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.suites.clauses import LEVELS, MEDIA


def check_settings(suite: Any) -> None:
    """Refuse what means nothing.

    Raises:
        InvalidSetting: an attribute has such a value.
    """
    for name, known in (("medium", MEDIA), ("level", LEVELS)):
        value = getattr(suite, name)
        if value not in known:
            raise InvalidSetting(
                f"{name} of {suite.__name__} is {value!r}, which is unknown. Choose among: {', '.join(known)}"
            )
    entries = suite.known_failures
    if not isinstance(entries, Mapping) or not all(isinstance(one, str) for pair in entries.items() for one in pair):
        raise InvalidSetting(
            f"known_failures of {suite.__name__} is {entries!r}. It maps ids of clauses to reasons. "
            'Write known_failures = {"CLAUSE": "why it fails"}.'
        )
