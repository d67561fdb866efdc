"""The names of keys: no two ids share one, and what changes together is kept together on a cluster.

A cluster places a key by its hash tag, the text between its first brace and the next, so that no other brace may stand
in a name.
"""

from __future__ import annotations

import re
from typing import Any

_SPECIAL = re.compile("[%{}:]")


def check_prefix(prefix: Any) -> str:
    """Give `prefix` back if names of keys can begin with it.

    Raises:
        ValueError: it is not text, or holds a brace.
    """
    if not isinstance(prefix, str) or set(prefix) & set("{}"):
        raise ValueError(
            f"the prefix {prefix!r} cannot begin the name of a key. It is text without braces, which mark what a "
            "cluster keeps together. Leave them out."
        )
    return prefix


def tagged(*ids: str) -> str:
    """Make a hash tag of some ids."""
    return "{" + ":".join(map(_escaped, ids)) + "}"


def _escaped(one: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", one)
