"""Scripts that the server runs: one that looks, and one that changes something once, though it be sent twice."""

from __future__ import annotations

import hashlib

REMEMBERED = 60.0
"""Seconds for which the server knows what came of a change: as long it can be sent again."""

# A change that is sent again, because its answer was lost, must not be made again: what it did may have been undone
# by somebody else since, as a save is by a claim. So it leaves a receipt, for a while, with what it came to. One that
# changed nothing leaves one too, of no text: else the first sending, if it is late and comes after the second, would
# find something to change, such as what was saved in between.
_ONCE = """
local receipt = redis.call('GET', KEYS[1])
if receipt then
    return receipt ~= '' and receipt
end
local function change()
{body}
end
local result = change()
redis.call('SET', KEYS[1], result or '', 'PX', {milliseconds})
return result
"""


class Script:
    """A script in Lua. It changes nothing."""

    changes = False

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Change(Script):
    """A script that changes something: its body gives text, or false if there was nothing to change.

    A script that fails halfway is not undone, so it reads what it needs before it writes. `KEYS[1]` is its receipt.
    """

    changes = True

    def __init__(self, body: str) -> None:
        super().__init__(_ONCE.format(body=body.strip("\n"), milliseconds=int(REMEMBERED * 1000)))
