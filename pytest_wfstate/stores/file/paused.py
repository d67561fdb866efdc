"""The paused contract, in a folder.

A paused run is `<id>.json`, a claimed one `<id>.inflight`, and `<id>.lease` holds the token and the time of the claim.
Claiming renames the first to the second, so at least one of them always exists. Its lease is on the disk before that,
so the token and the time are as durable as the claim. A claim whose lease is missing or unreadable, such as one that a
power cut interrupted or that a seed made, counts as expired, and no token matches it.

A lease without a claim means nothing, and the next claim overwrites it in place. It is never unlinked together with its
claim: a power cut could keep the claim and lose the lease. A run that is claimed again after it has paused again has
its old claim and lease until the rename, and the new lease waits in `<id>.lease.next`.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import math
import os
import stat
from collections.abc import Iterable
from typing import Any, Unpack

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import FencedPausedStore, PausedWorkflow, check_age
from pytest_wfstate.errors import CorruptRecord, UnsafeFile
from pytest_wfstate.stores.file.base import FileSettings, FileStore, load
from pytest_wfstate.stores.file.folder import Durability, Folder, LockedFolder
from pytest_wfstate.stores.file.names import is_shortened, only_id, stem
from pytest_wfstate.stores.file.seeds import SeedNames, raw_stem
from pytest_wfstate.stores.own_claims import OwnClaims

PAUSED, INFLIGHT, LEASE = ".json", ".inflight", ".lease"
NEXT_LEASE = LEASE + ".next"


class FilePausedStore(FileStore, FencedPausedStore):
    """Keeps run `run-1` in `run-1.json` while it is paused, and in `run-1.inflight` while it is claimed."""

    contract = "paused"
    seeds = SeedNames(raw_stem, PAUSED, INFLIGHT)

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        super().__init__(directory, durability, **settings)
        self._claims = OwnClaims()

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        run = run_stem(paused.run_id)
        with self._folder.exclusive(paused.run_id) as held:
            settle_lease(held, run)
            held.replace(run + PAUSED, paused.to_json(indent=2).encode())

    def load(self, run_id: str) -> PausedWorkflow | None:
        return load(self._folder, PausedWorkflow, check_id("run id", run_id), PAUSED)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        run = run_stem(run_id)
        if not self._folder.exists():
            return None
        with self._folder.exclusive(run_id) as held:
            settle_lease(held, run)
            paused = self.load(run_id)  # read before it is moved: an unreadable record stays paused
            if paused is not None:
                token = self._claims.new_token()
                write_lease(held, run, token)
                with self._claims.making(run_id, token, undone=lambda: held.exists(run + PAUSED)):
                    held.rename(run + PAUSED, run + INFLIGHT)
            held.sync()
            settle_lease(held, run)
        return paused

    def token(self, run_id: str) -> str:
        run = run_stem(run_id)
        return self._claims.token(run_id, lambda: self._present_token(run))

    def _present_token(self, run: str) -> str | None:
        with self._folder.exclusive() as held:
            settle_lease(held, run)
            return lease_token(held, run) if held.exists(run + INFLIGHT) else None

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = check_age(older_than)
        rearmed = 0
        if not self._folder.exists():
            return 0
        with self._folder.exclusive() as held:
            held.adopt_all()
            orphans = [run for run in sorted(stems(held.names(), INFLIGHT)) if is_orphan(held, run, age)]
            for run in orphans:
                with contextlib.suppress(UnsafeFile):  # the next call about that run reports it
                    settle_lease(held, run)
            again = {run for run in orphans if held.mode(run + PAUSED)}
            if again:
                # Whoever paused them again may have died before its fsync: the disk may hold nothing but the claim.
                held.sync()
            for run in orphans:
                if run in again:
                    held.unlink(run + INFLIGHT)
                else:
                    held.rename(run + INFLIGHT, run + PAUSED)
                    rearmed += 1
            held.sync()
        return rearmed

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        run = run_stem(run_id)
        needed = self._claims.needed(run_id) if token is None else (check_id("token", token),)
        ends = False
        if self._folder.exists():
            with self._folder.exclusive(run_id) as held:
                settle_lease(held, run)
                ends = held.exists(run + INFLIGHT) and (needed is None or lease_token(held, run) in needed)
                if ends:
                    drop_claim(held, run)
                held.sync()
                drop_lease(held, run)
        self._claims.finished(run_id, needed or ())
        return None if token is None else ends

    def renew(self, run_id: str, token: str) -> bool:
        run = run_stem(run_id)
        check_id("token", token)
        if not self._folder.exists():
            return False
        with self._folder.exclusive(run_id) as held:
            settle_lease(held, run)
            matches = held.exists(run + INFLIGHT) and lease_token(held, run) == token
            if matches:
                held.replace(run + LEASE, lease_of(token))
            else:
                held.sync()  # whoever took the run may have died before its fsync
        return matches

    def remove(self, run_id: str) -> None:
        run, own = run_stem(run_id), self._claims.tokens(run_id)
        if self._folder.exists():
            with self._folder.exclusive(run_id) as held:
                settle_lease(held, run)
                is_paused = held.exists(run + PAUSED)
                held.unlink(run + PAUSED + ".tmp")
                drop_claim(held, run)
                if is_paused:
                    # In one step a power cut could keep an old claim and lose the record, and recovery would re-arm
                    # that claim. Even if none is visible: whoever dropped it may have died before its fsync.
                    held.sync()
                held.unlink(run + PAUSED)
                held.sync()
                drop_lease(held, run)
        self._claims.finished(run_id, own)

    def list(self) -> builtins.list[str]:
        with self._folder.shared() as names:
            foreign = self._folder.foreign_ids(names, PAUSED)
            ids = [_id(self._folder, run) for run in stems(names, PAUSED) if run + PAUSED not in foreign]
        return sorted({*foreign.values(), *(run_id for run_id in ids if run_id is not None)})


def run_stem(run_id: str) -> str:
    """Return the file name of a run, without its suffix."""
    return stem(check_id("run id", run_id))


def stems(names: Iterable[str], suffix: str) -> Iterable[str]:
    """Return the names that end with `suffix`, without it."""
    return (name.removesuffix(suffix) for name in names if name.endswith(suffix))


def _id(folder: Folder, run: str) -> str | None:
    """Return the id that a file belongs to; None if it is not one of ours, or its id is inside and unreadable."""
    if not is_shortened(run):
        return only_id(run)
    path = folder.path(run + PAUSED)
    try:
        run_id = PausedWorkflow.from_json(folder.read(path.name) or b"", path).run_id
    except (CorruptRecord, OSError):
        return None
    return run_id if stem(run_id) == run else None


def lease_of(token: str) -> bytes:
    """Return the content of a lease that begins now."""
    return json.dumps({"token": token, "claimed_at": now().timestamp()}).encode()


def lease_token(held: LockedFolder, run: str) -> str | None:
    """Return the token of a claim, if its lease can be read."""
    token = _read_lease(held, run).get("token")
    return token if isinstance(token, str) else None


def write_lease(held: LockedFolder, run: str, token: str) -> None:
    """Write the lease of a claim that is about to be made."""
    if held.exists(run + INFLIGHT):
        held.write(run + NEXT_LEASE, lease_of(token), durable=True)
        held.sync()  # a claim without it would have the lease of the older one, and that one's token
    else:
        held.write(run + LEASE, lease_of(token), durable=True)


def settle_lease(held: LockedFolder, run: str) -> None:
    """Finish or undo a claim that replaced an older one and was interrupted: before its rename, or after it."""
    if held.exists(run + NEXT_LEASE):
        if held.exists(run + PAUSED):
            held.unlink(run + NEXT_LEASE)
        else:
            held.rename(run + NEXT_LEASE, run + LEASE)
            held.sync()  # before the run can pause again: the two could not be told apart then


def drop_claim(held: LockedFolder, run: str) -> None:
    """Remove a claim, if there is one, and its token in the same step."""
    if held.exists(run + INFLIGHT):
        held.rename(run + INFLIGHT, run + LEASE)


def drop_lease(held: LockedFolder, run: str) -> None:
    """Remove the lease of a run that is gone. It need not be durable: without a claim a lease means nothing."""
    with contextlib.suppress(UnsafeFile):
        if not held.exists(run + INFLIGHT) and not held.exists(run + PAUSED):
            held.unlink(run + LEASE, run + LEASE + ".tmp")


def _read_lease(held: LockedFolder, run: str) -> dict[str, Any]:
    try:
        is_next = held.exists(run + NEXT_LEASE) and not held.exists(run + PAUSED)
        lease = json.loads(held.folder.read(run + (NEXT_LEASE if is_next else LEASE)) or b"")
    except (ValueError, RecursionError, UnsafeFile):
        return {}
    return lease if isinstance(lease, dict) else {}


def is_orphan(held: LockedFolder, run: str, age: float) -> bool:
    """Whether a claim is one of ours and was made at least `age` seconds ago.

    A folder is nobody's claim, and only a regular file means that the run has paused again.
    """
    paused = held.mode(run + PAUSED)
    return (
        (only_id(run) is not None or is_shortened(run))
        and (not paused or stat.S_ISREG(paused))
        and not stat.S_ISDIR(held.mode(run + INFLIGHT))
        and claim_age(held, run) >= age
    )


def claim_age(held: LockedFolder, run: str) -> float:
    """Return for how many seconds the run has been claimed; infinity if its lease cannot be read."""
    claimed_at: Any = _read_lease(held, run).get("claimed_at")
    try:
        # Times are exact to the microsecond and their difference as floats is not: a lease ends when it should.
        age = round(now().timestamp() - float(claimed_at), 6)
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return age if math.isfinite(age) else math.inf
