"""File names for ids: readable where possible, and never the same for two ids.

Lower-case letters, digits, `_` and `-` stand for themselves and everything else is percent-encoded, upper case
included: two ids do not share a name even on a case-insensitive disk, and no id reaches outside its folder.
"""

from __future__ import annotations

import hashlib
import re
import string
import urllib.parse

_PLAIN = frozenset((string.ascii_lowercase + string.digits + "_-").encode())
_ENCODED = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256)]

# Windows reserves these with any suffix, so `con.json` too.
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"} | {device + digit for device in ("com", "lpt") for digit in string.digits}
)

# A name may have 255 bytes; the longest suffixes that follow a stem are `.inflight` and `.journal.tmp`.
_LONGEST = 230
_KEPT = 100
_SHORTENED = re.compile(rf"[a-z0-9_%A-F.-]{{{_KEPT}}}~[0-9a-f]{{64}}")


def stem(*ids: str) -> str:
    """Return the name of the file that belongs to `ids`, without its suffix."""
    name = ".".join(map(_encode, ids))
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_KEPT]}~{hashlib.sha256(name.encode()).hexdigest()}"


def only_id(stem_: str) -> str | None:
    """Decode the only id in a stem; None if the stem was shortened or no store wrote it."""
    try:
        decoded = urllib.parse.unquote(stem_, errors="strict")
        return decoded if decoded and "\0" not in decoded and stem(decoded) == stem_ else None
    except UnicodeError:  # not a file of ours
        return None


def is_shortened(stem_: str) -> bool:
    """Whether the id has to be read from inside the file."""
    return _SHORTENED.fullmatch(stem_) is not None


def _encode(id_: str) -> str:
    name = "".join(_ENCODED[byte] for byte in id_.encode())
    return f"%{ord(name[0]):02X}{name[1:]}" if name in _RESERVED else name
