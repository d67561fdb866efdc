"""The names of keys: no two ids share one, and keys that change together are on the same node of a cluster.

A cluster places a key by its hash tag, the text between its first brace and the next, so a name may have no other
brace.
"""

from __future__ import annotations

import re
from typing import Any

_SPECIAL = re.compile("[%{}:]")


def check_prefix(prefix: Any) -> str:
    """Return `prefix` if names of keys can begin with it.

    Raises:
        ValueError: it is not text, or holds a brace.
    """
    if not isinstance(prefix, str) or set(prefix) & set("{}"):
        raise ValueError(
            f"{prefix!r} is not a valid prefix. The names of keys begin with it, and braces would change where a "
            "cluster places them. Use text without braces."
        )
    return prefix


def tagged(*ids: str) -> str:
    """Return the hash tag of some ids."""
    return "{" + ":".join(map(_escaped, ids)) + "}"


def _escaped(id_: str) -> str:
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", id_)
