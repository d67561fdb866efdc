"""Lock stores that let two workers in, or nobody."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_generic_stores import JsonLock


@known_bad("lock", "acquire.held")
class ItsOwnAgain(JsonLock):
    """A handle that holds a lock acquires it again, as if it were reentrant. Two of its threads are let in."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._own: dict[str, Any] = {}

    def acquire(self, name: str, ttl: float) -> Any:
        own = self._own.get(str(name))
        if own is not None and self.renew(name, own, ttl):
            return own
        token = super().acquire(name, ttl)
        if token is not None:
            self._own[name] = token
        return token


@known_bad("lock", "acquire.free ids.never-collide held.elsewhere renew.free acquire.bad-time")
class HeldFromTheStart(JsonLock):
    """A lock that nobody has ever held counts as held, as its state is unknown. A new deployment waits for ever."""

    def held(self, name: str) -> bool:
        return super().held(name) or not self.fields(name)


@known_bad(
    "lock",
    "acquire.survives-restart ids.any-text ids.never-collide corrupt.stays-local",
    "token.grows-after-restart release.once release.others renew.holds renew.free token.wrong",
    "ids.refused-by-all acquire.bad-time acquire.expired release.late renew.extends",
)
class HandleFreesItsLocks(JsonLock):
    """A handle that is closed frees its locks. While a worker restarts, its work is done by another."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._own: dict[str, Any] = {}

    def acquire(self, name: str, ttl: float) -> Any:
        token = super().acquire(name, ttl)
        if token is not None:
            self._own[name] = token
        return token

    def close(self) -> None:
        """Release everything."""
        for name, token in self._own.items():
            self.release(name, token)


@known_bad(
    "lock",
    "release.frees acquire.survives-restart token.grows token.grows-after-restart",
    "release.once release.any-handle release.others held.elsewhere renew.holds renew.free",
    "release.late",
)
class HeldUntilItExpires(JsonLock):
    """A release only notes that the holder is done. The lock is held until its time is over."""

    def end(self, lock: dict[str, Any]) -> None:
        lock["released"] = True


@known_bad(
    "lock",
    "token.grows token.grows-after-restart release.frees release.once release.any-handle",
    "held.elsewhere renew.free acquire.expired release.late release.expired renew.extends",
    "renew.expired renew.late",
)
class HashedTokens(JsonLock):
    """Tokens are hashes. What receives two of them cannot tell which worker is late."""

    def next_token(self, last: Any) -> Any:
        return zlib.crc32(str(last).encode())


@known_bad("lock", "token.grows token.grows-after-restart acquire.expired renew.late")
class TokensAsText(JsonLock):
    """Tokens are numbers as text, which sort as text: after the ninth comes "10", which is smaller."""

    def next_token(self, last: Any) -> Any:
        return str(int(last or 7) + 1)


@known_bad(
    "lock",
    "token.grows token.grows-after-restart release.frees release.once release.any-handle",
    "held.elsewhere renew.free",
)
class TokensStartAgain(JsonLock):
    """The record of a lock is deleted when it is released. The next holder has the same token."""

    def end(self, lock: dict[str, Any]) -> None:
        lock.clear()


@known_bad("lock", "token.grows renew.late")
class TokensCountInMemory(JsonLock):
    """A handle reads the last token once and then counts in memory. Those of two handles are the same."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._last: Any = None

    def next_token(self, last: Any) -> Any:
        self._last = super().next_token(last if self._last is None else self._last)
        return self._last


@known_bad(
    "lock",
    "release.once token.wrong release.late release.expired race.acquire-release",
    "race.renew-renew race.renew-release race.release-release kill.release power.release",
    "race.acquire-renew",
)
class ReleasedByName(JsonLock):
    """A release does not compare tokens. A worker that comes late frees the lock of another."""

    def may_release(self, lock: dict[str, Any], token: Any) -> bool:  # noqa: ARG002 - the bug
        return self.is_held(lock)


@known_bad(
    "lock",
    "token.wrong renew.late renew.free kill.renew power.renew race.acquire-renew",
    "race.renew-renew race.renew-release",
)
class RenewedByName(JsonLock):
    """A renewal does not compare tokens. A worker that lost its lock believes that it still has it."""

    def may_renew(self, lock: dict[str, Any], token: Any) -> bool:  # noqa: ARG002 - the bug
        return self.is_held(lock)


@known_bad("lock", "token.wrong")
class GreaterWillDo(JsonLock):
    """A token at least as great as that of the holder counts as newer. One that was mixed up frees any lock."""

    def is_its(self, lock: dict[str, Any], token: Any) -> bool:
        return isinstance(token, int) and token >= lock.get("token", 0)


@known_bad(
    "lock",
    "release.any-handle acquire.survives-restart token.grows-after-restart held.elsewhere",
    "renew.holds renew.free token.wrong acquire.bad-time release.late",
)
class OnlyItsOwnHandle(JsonLock):
    """Only the handle that acquired a lock can release it. A worker that hands its work on leaves the lock behind."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._own: set[Any] = set()

    def next_token(self, last: Any) -> Any:
        token = super().next_token(last)
        self._own.add(token)
        return token

    def may_release(self, lock: dict[str, Any], token: Any) -> bool:
        return super().may_release(lock, token) and token in self._own


@known_bad("lock", "release.others")
class ReleasesAllThatBeginAlike(JsonLock):
    """A release frees every lock whose name begins alike, as its parts. `shard-10` is freed with `shard-1`."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        super().write(held, name, data)
        if self.parse(data).get("until") is None:
            stem = name.removesuffix(".json")
            held.unlink(*(other for other in held.names() if other.startswith(stem) and other != name))


@known_bad("lock", "renew.holds renew.extends")
class RenewalHasANewToken(JsonLock):
    """A renewal gives the lock a new token. The holder that passes on the old one is refused."""

    def renewed(self, lock: dict[str, Any], time: float) -> float:
        lock["token"] = self.next_token(lock["token"])
        return super().renewed(lock, time)


@known_bad("lock", "renew.free")
class RenewsWhatIsFree(JsonLock):
    """Renewing a lock that nobody holds acquires it again. A worker that has finished blocks all others."""

    def may_renew(self, lock: dict[str, Any], token: Any) -> bool:
        return self.is_its(lock, token) and (self.is_held(lock) or not lock["until"])


@known_bad("lock", "acquire.bad-time")
class AnyTimeWillDo(JsonLock):
    """A time is not checked. One that was computed wrongly, and is 0 or less, lets everybody in."""

    def checked_time(self, ttl: float) -> float:
        return ttl


@known_bad("lock", "acquire.expired release.late release.expired renew.extends renew.expired renew.late")
class NeverExpires(JsonLock):
    """A lock is held until it is released. A worker that dies keeps all others out."""

    def is_held(self, lock: dict[str, Any]) -> bool:
        return bool(lock.get("until"))


@known_bad("lock", "acquire.expired release.late release.expired renew.extends renew.expired renew.late")
class HeldAtItsEnd(JsonLock):
    """A lock is still held at the very moment at which its time is over, and its holder has stopped."""

    def is_held(self, lock: dict[str, Any]) -> bool:
        return bool(lock.get("until") and self.after(0) <= lock["until"])


@known_bad("lock", "acquire.expired renew.extends")
class WholeSeconds(JsonLock):
    """Times are cut to whole seconds. A lock ends almost a second early, and two workers are let in."""

    def after(self, time: float) -> float:
        return int(now().timestamp()) + int(time) - (0 if time == 0 else 1)


@known_bad("lock", "release.expired")
class ReleasesWhatIsOver(JsonLock):
    """A release returns True for a lock whose time is over. Its holder takes its work for done alone."""

    def may_release(self, lock: dict[str, Any], token: Any) -> bool:
        return bool(lock.get("until")) and self.is_its(lock, token)


@known_bad("lock", "renew.expired")
class RenewsWhatIsOver(JsonLock):
    """A lock whose time is over can be renewed. Another worker may have been let in and have left meanwhile."""

    def may_renew(self, lock: dict[str, Any], token: Any) -> bool:
        return bool(lock.get("until")) and self.is_its(lock, token)


@known_bad("lock", "renew.extends")
class RenewalAddsUp(JsonLock):
    """A renewal adds its time to what is left. A worker that renews often holds its lock for hours after its death."""

    def renewed(self, lock: dict[str, Any], time: float) -> float:
        return float(round(lock["until"] + time, 6))
