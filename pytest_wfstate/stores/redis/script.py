"""Scripts that the server runs: one that looks, and one that changes something once, though it be sent twice."""

from __future__ import annotations

import hashlib

REMEMBERED = 60.0
"""Seconds for which the server knows what came of a change: as long it can be sent again."""

TOO_LATE = "TOOLATE"
"""What the answer to a change begins with that was not made because its receipt may be gone."""

_MILLISECONDS = """
local function milliseconds()
    local now = redis.call('TIME')
    return now[1] * 1000 + math.floor(now[2] / 1000)
end
"""

# A change that is sent again, because its answer was lost, must not be made again: what it did may have been undone
# by somebody else since, as a save is by a claim. So it leaves a receipt, for a while, with what it came to. One that
# changed nothing leaves one too, of no text: else the first sending, if it is late and comes after the second, would
# find something to change, such as what was saved in between.
#
# The second sending says how long such a receipt lasts. Past that it is not made, however long it was on its way, or
# its worker stood still before it sent it: the first may have been made, and its receipt be gone.
_ONCE = """{milliseconds}
local receipt = redis.call('GET', KEYS[1])
if receipt then
    return receipt ~= '' and receipt
end
local deadline = tonumber(ARGV[#ARGV])
if deadline and milliseconds() >= deadline then
    return redis.error_reply('{too_late} a change was sent again, and what came of it before is not known any more')
end
local function change()
{body}
end
local result = change()
redis.call('SET', KEYS[1], result or '', 'PX', {remembered})
return result
"""


class Script:
    """A script in Lua. It changes nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class ChangeScript(Script):
    """A script that changes something: its body gives text, or false if there was nothing to change.

    A script that fails halfway is not undone, so it reads what it needs before it writes. `KEYS[1]` is its receipt, and
    its last argument the time of the server from which on it is not made, or nothing if it is sent for the first time.
    """

    def __init__(self, body: str) -> None:
        once = {"milliseconds": _MILLISECONDS, "too_late": TOO_LATE, "remembered": int(REMEMBERED * 1000)}
        super().__init__(_ONCE.format(body=body.strip("\n"), **once))


NOW = Script(f"{_MILLISECONDS}return milliseconds()")
"""Tells the time of the server, in milliseconds."""
