"""Scripts that the server runs: one that only reads, and one that changes something once even if it is sent twice."""

from __future__ import annotations

import hashlib

REMEMBERED = 60.0
"""Seconds for which the server remembers the result of a change: that long it can be resent."""

TOO_LATE = "TOOLATE"
"""How the server refuses a change whose receipt may have expired."""

BATCH = 1000
"""How many items a script handles at most, or takes from a key: a server answers nobody while it runs a script, and Lua
takes long to hold many texts that look alike."""

_MILLISECONDS = """
local function milliseconds()
    local now = redis.call('TIME')
    return now[1] * 1000 + math.floor(now[2] / 1000)
end
"""

# A change that is resent because its answer was lost must not be made again: another client may have undone it since,
# as a claim undoes a save. So it leaves a receipt with its result, for a while. A change that had nothing to do leaves
# an empty one: otherwise the first request, if it is delayed past the second, could find something to change, such as
# a record saved in between.
#
# A request that finds the receipt changes its expiry: then a WAIT on the same connection waits until the replicas have
# what precedes that, too.
#
# The second request says when that receipt expires. After that it is refused, however long it was on its way or its
# worker was suspended before sending it: the first may have been made, and its receipt be gone.
_ONCE = """{milliseconds}
local receipt = redis.call('GET', KEYS[1])
if receipt then
    redis.call('PEXPIRE', KEYS[1], {remembered})
    return receipt ~= '' and receipt
end
local deadline = tonumber(ARGV[#ARGV])
if deadline and milliseconds() >= deadline then
    return redis.error_reply('{too_late} the change was resent after its receipt may have expired')
end
local function change()
{body}
end
local result = change()
redis.call('SET', KEYS[1], result or '', 'PX', {remembered})
return result
"""


class Script:
    """A Lua script that changes nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class ChangeScript(Script):
    """A script that changes something: its body returns text, or false if there was nothing to change.

    A script that fails halfway is not undone, so it reads what it needs before it writes. `KEYS[1]` is its receipt. Its
    last argument is the server time from which on it is refused, or empty if it is sent for the first time.
    """

    def __init__(self, body: str) -> None:
        once = {"milliseconds": _MILLISECONDS, "too_late": TOO_LATE, "remembered": int(REMEMBERED * 1000)}
        super().__init__(_ONCE.format(body=body.strip("\n"), **once))


NOW = Script(f"{_MILLISECONDS}return milliseconds()")
"""Returns the time of the server, in milliseconds."""
