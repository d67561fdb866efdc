"""Passwords: no text that is shown, stored or printed has one in it."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"(//[^/@:\s]*:)\S+@")  # user:password@host
_VALUE = re.compile(r"((?:password|passwd|pwd|secret|token)\s*=\s*)(?:'[^']*'|[^&\s'\"]+)", re.IGNORECASE)


def hide_passwords(text: str) -> str:
    """Return a URL, a connection string or a message about one with `***` in place of what may be a password."""
    return _VALUE.sub(r"\1***", _LOGIN.sub(r"\1***@", text))
