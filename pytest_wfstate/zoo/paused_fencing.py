"""Paused stores whose fencing tokens let a worker through that has lost its run, or stop the one that has it."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import PausedWorkflow, no_token
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, lease_of, run_stem
from pytest_wfstate.stores.own_claims import OwnClaims
from pytest_wfstate.zoo.base import known_bad


class _SameToken(OwnClaims):
    def __init__(self) -> None:
        super().__init__()
        self._own = OwnClaims.new_token()

    def new_token(self) -> str:  # type: ignore[override] # a bug needs the handle
        return self._own


@known_bad(
    "paused",
    "token.new token.kept complete.token-once token.others power.takeover",
)
class TokenOfTheHandle(FilePausedStore):
    """A handle has one token for all its claims.

    If it loses a run and claims it again, its first attempt, which was only slow, completes the second.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._claims = _SameToken()


@known_bad(
    "paused",
    "token.own",
    "race.complete-renew race.renew-renew",
    "race.remove-renew",
)
class TokenForEveryone(FilePausedStore):
    """Any handle returns the token of the present claim.

    A worker that asks for its token after a restart receives that of the worker which took over.
    """

    def token(self, run_id: str) -> str:
        lease = self.directory / (run_stem(run_id) + LEASE)
        token: str | None = json.loads(lease.read_text()).get("token") if lease.exists() else None
        if token is None:
            raise no_token(run_id)
        return token


@known_bad("paused", "token.kept")
class TokenNeverForgotten(FilePausedStore):
    """A handle keeps the token of each claim for good. A worker that claims a million runs runs out of memory."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._tokens: dict[str, str] = {}

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed:
            self._tokens[run_id] = super().token(run_id)
        return claimed

    def token(self, run_id: str) -> str:
        return self._tokens.get(run_id) or super().token(run_id)


@known_bad(
    "paused",
    "complete.token-lost complete.token-not-handle complete.token-paused-again complete.token-once token.others",
    "race.complete-renew race.recover-renew race.renew-renew",
)
class TokenIsNotCompared(FilePausedStore):
    """`complete` accepts a token but does not compare it.

    A worker that was presumed dead restarts and completes the run of the worker that took over.
    """

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        if token is not None:
            check_id("token", token)
            self._claims = OwnClaims()
        held = (self.directory / (run_stem(run_id) + INFLIGHT)).exists()
        super().complete(run_id)
        return None if token is None else held


@known_bad(
    "paused",
    "complete.token-not-handle complete.token-once token.others token.refused",
)
class HandleBeforeToken(FilePausedStore):
    """A handle that has claimed the run completes it, whatever token is passed.

    Its first attempt at a run, which was only slow, completes its second.
    """

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        own = self._claims.needed(run_id)
        return super().complete(run_id, token and own[-1] if own else token)


@known_bad(
    "paused",
    "complete.token complete.token-lost complete.token-not-handle",
)
class TokenInMemory(FilePausedStore):
    """Tokens are compared with those that the handle knows. A restarted worker cannot complete its run."""

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        if token is not None and self._claims.needed(run_id) is None:
            run_stem(run_id)
            check_id("token", token)
            return False
        return super().complete(run_id, token)


@known_bad(
    "paused",
    "complete.token-once race.recover-renew",
)
class CompletedTwiceIsTrue(FilePausedStore):
    """Completing with a token returns True if the run is not in flight: it is done, after all.

    A worker whose run was recovered and not claimed yet believes that it has completed it.
    """

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        is_claimed = (self.directory / (run_stem(run_id) + INFLIGHT)).exists()
        ended = super().complete(run_id, token)
        return None if token is None else ended or not is_claimed


@known_bad(
    "paused",
    "complete.token-paused-again renew.paused-again race.save-renew",
)
class TokenEndsTheRun(FilePausedStore):
    """Completing with a token removes the run altogether. A run that has paused again at its next stage is lost."""

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        ended = super().complete(run_id, token)
        if ended:
            self.remove(run_id)
        return ended


@known_bad("paused", "token.refused")
class AnyTokenWillDo(FilePausedStore):
    """A token that is empty or not text counts as none.

    A worker that has lost its token completes the run of whoever has it.
    """

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        is_token = isinstance(token, str) and token
        return super().complete(run_id, token if is_token else None)


@known_bad(
    "paused",
    "token.others errors.renew kill.takeover power.takeover errors.takeover kill.fenced-complete",
    "power.fenced-complete errors.fenced-complete kill.renew power.renew race.remove-renew race.complete-renew",
    "race.recover-renew",
)
class TokenOfAnyRun(FilePausedStore):
    """A token completes whichever run it is passed with, if it is the token of some claim."""

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        run_stem(run_id)
        known = {json.loads(lease.read_text()).get("token") for lease in self.directory.glob(f"*{LEASE}")}
        if token in known and (self.directory / (run_stem(run_id) + INFLIGHT)).exists():
            self._claims = OwnClaims()
            super().complete(run_id)
            return True
        return super().complete(run_id, token)


@known_bad(
    "paused",
    "renew.extends renew.paused-again race.complete-renew race.remove-renew",
)
class RenewOnlyChecks(FilePausedStore):
    """Renewing says whether the claim is still the worker's, and leaves its time alone. Live work is stolen."""

    def renew(self, run_id: str, token: str) -> bool:
        lease = self.directory / (run_stem(run_id) + LEASE)
        check_id("token", token)
        if not (self.directory / (run_stem(run_id) + INFLIGHT)).exists() or not lease.exists():
            return False
        return bool(json.loads(lease.read_text()).get("token") == token)


@known_bad("paused", "renew.lost")
class RenewsForAnyone(FilePausedStore):
    """A worker that has lost its run renews the claim of the one that took over. If that dies, nobody notices."""

    def renew(self, run_id: str, token: str) -> bool:
        renewed = super().renew(run_id, token)
        lease = self.directory / (run_stem(run_id) + LEASE)
        if not renewed and lease.exists() and (self.directory / (run_stem(run_id) + INFLIGHT)).exists():
            with self._folder.exclusive() as held:
                held.replace(lease.name, lease_of(json.loads(lease.read_text())["token"]))
        return renewed


@known_bad(
    "paused",
    "renew.ended race.complete-renew race.remove-renew",
)
class RenewBringsBack(FilePausedStore):
    """A worker that renews its claim writes the marker again if it is gone. A removed run is recovered, and runs."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._records: dict[str, PausedWorkflow] = {}

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed:
            self._records[super().token(run_id)] = claimed
        return claimed

    def renew(self, run_id: str, token: str) -> bool:
        run = run_stem(run_id)
        if super().renew(run_id, token):
            return True
        if token not in self._records or any((self.directory / (run + name)).exists() for name in (INFLIGHT, PAUSED)):
            return False
        with self._folder.exclusive() as held:
            held.replace(run + LEASE, lease_of(token))
            held.replace(run + INFLIGHT, self._records[token].to_json().encode())
        return True


@known_bad(
    "paused",
    "renew.paused-again race.save-renew race.recover-renew",
)
class RenewDropsThePause(FilePausedStore):
    """A worker that renews its claim is at work, so the run cannot be paused: the record is dropped as stale."""

    def renew(self, run_id: str, token: str) -> bool:
        renewed = super().renew(run_id, token)
        if renewed:
            with self._folder.exclusive() as held:
                held.unlink(run_stem(run_id) + PAUSED)
                held.sync()
        return renewed


@known_bad(
    "paused",
    "power.fenced-complete errors.fenced-complete power.renew errors.renew power.takeover errors.takeover",
)
class LeaseIsAdvice(FilePausedStore):
    """The lease of a claim is written after it, without fsync, since it is only advice.

    After a power cut the worker's token matches nothing, and it cannot complete what it has done.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed:
            with self._folder.exclusive() as held:
                held.write(run_stem(run_id) + LEASE, lease_of(self.token(run_id)), durable=False)
        return claimed


@known_bad(
    "paused",
    "kill.renew power.renew errors.renew race.recover-renew",
)
class RenewsInPlace(FilePausedStore):
    """Renewing overwrites the lease in place.

    A crash in between leaves an empty one: the claim is nobody's, and expired.
    """

    def renew(self, run_id: str, token: str) -> bool:
        renewed = super().renew(run_id, token)
        if renewed:
            with self._folder.exclusive() as held:
                held.write(run_stem(run_id) + LEASE, lease_of(token), durable=True)
        return renewed


@known_bad(
    "paused",
    "power.takeover kill.takeover errors.takeover race.recover-renew",
)
class LeaseGoesWithTheClaim(FilePausedStore):
    """Recovery renames the claim and unlinks its lease with a single fsync.

    A power cut may keep the claim and lose the lease: the worker that still has the run cannot complete it.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        for lease in self.directory.glob(f"*{LEASE}") if older_than is None else []:
            lease.unlink()
        return super().recover_orphaned(older_than)


@known_bad(
    "paused",
    "kill.takeover power.takeover",
)
class LeaseBeforeTheClaim(FilePausedStore):
    """A claim on a run that has paused again overwrites the lease of the older claim before it takes the run.

    If it dies in between, the older claim stands and its worker cannot complete it.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        run = run_stem(run_id)
        if (self.directory / (run + PAUSED)).exists():
            with self._folder.exclusive() as held:
                held.write(run + LEASE, lease_of(OwnClaims.new_token()), durable=True)
        return super().claim(run_id)
