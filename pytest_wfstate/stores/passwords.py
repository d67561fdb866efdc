"""Passwords: no text that is shown, stored or printed has one in it."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"//[^/@:\s]*:")  # of user:password@host
_QUOTED = r"'(?:[^'\\]|\\.)*(?:'|\\?$)"  # as libpq reads it; its end may be missing
_UNQUOTED = r"(?:[^&\s'\"\\]|\\.)+"
_VALUE = re.compile(
    rf"((?:password|passwd|pwd|secret|token)\s*=\s*)(?:{_QUOTED}|{_UNQUOTED})", re.IGNORECASE | re.DOTALL
)


def hide_passwords(text: str) -> str:
    """Return a URL, a connection string or a message about one with `***` in place of what may be a password."""
    login, end = _LOGIN.search(text), text.rfind("@")  # the password may hold anything, an @ too
    if login and login.end() < end:
        text = f"{text[: login.end()]}***{text[end:]}"
    return _VALUE.sub(r"\1***", text)
