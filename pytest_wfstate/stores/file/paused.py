"""The paused contract, in a folder.

A paused run is `<id>.json`, a claimed one `<id>.inflight`, and `<id>.lease` says who claimed it and when. Claiming
renames the first to the second, so at least one of them always exists. A lease is advice, never fsynced: if it is
missing or unreadable, its claim counts as expired.
"""

from __future__ import annotations

import builtins
import json
import math
import os
import uuid
from collections.abc import Iterable
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import PausedStore, PausedWorkflow, check_age
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file.base import FileStore, parse
from pytest_wfstate.stores.file.folder import Durability, Folder, LockedFolder
from pytest_wfstate.stores.file.names import is_shortened, only_id, stem

PAUSED, INFLIGHT, LEASE = ".json", ".inflight", ".lease"


class FilePausedStore(FileStore, PausedStore):
    """Keeps run `run-1` in `run-1.json` while it is paused, and in `run-1.inflight` while it is claimed."""

    def __init__(self, directory: str | os.PathLike[str], durability: Durability = "power") -> None:
        super().__init__(directory, durability)
        self._claimed: dict[str, str] = {}  # the token of this handle's last claim of each run

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        name = run_stem(paused.run_id) + PAUSED
        with self._folder.exclusive() as held:
            held.replace(name, paused.to_json(indent=2).encode())

    def load(self, run_id: str) -> PausedWorkflow | None:
        name = run_stem(run_id) + PAUSED
        data = self._folder.read(name)
        return None if data is None else parse(PausedWorkflow, data, self._folder.path(name), run_id)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        run = run_stem(run_id)
        if not self._folder.exists():
            return None
        with self._folder.exclusive() as held:
            paused = self.load(run_id)  # read before it is moved: an unreadable record stays paused
            if paused is not None:
                token = uuid.uuid4().hex  # a new one each time: workers forked from one handle do not share it
                held.write(run + LEASE, _lease(token), durable=False)
                held.rename(run + PAUSED, run + INFLIGHT)
                self._claimed[run_id] = token
            held.sync()
        return paused

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = check_age(older_than)
        rearmed = 0
        if not self._folder.exists():
            return 0
        with self._folder.exclusive() as held:
            orphans = [run for run in sorted(stems(held.names(), INFLIGHT)) if is_orphan(held, run, age)]
            again = {run for run in orphans if held.exists(run + PAUSED)}
            if again:
                # Whoever paused them again may have died before its fsync: the disk may hold nothing but the claim.
                held.sync()
            for run in orphans:
                if run in again:
                    held.unlink(run + INFLIGHT, run + LEASE)
                else:
                    held.rename(run + INFLIGHT, run + PAUSED)
                    held.unlink(run + LEASE)
                    rearmed += 1
            held.sync()
        return rearmed

    def complete(self, run_id: str) -> None:
        run = run_stem(run_id)
        if not self._folder.exists():
            return
        with self._folder.exclusive() as held:
            if run_id not in self._claimed or _read_lease(held, run).get("token") == self._claimed[run_id]:
                held.unlink(run + INFLIGHT, run + LEASE)
            held.sync()

    def remove(self, run_id: str) -> None:
        run = run_stem(run_id)
        if not self._folder.exists():
            return
        with self._folder.exclusive() as held:
            held.unlink(run + INFLIGHT, run + LEASE)
            if held.exists(run + PAUSED):
                # In one step a power cut could keep an old claim and lose the record, and recovery would re-arm that
                # claim. Even if none is visible: whoever dropped it may have died before its fsync.
                held.sync()
            held.unlink(run + PAUSED + ".tmp", run + PAUSED)
            held.sync()

    def list(self) -> builtins.list[str]:
        with self._folder.shared() as names:
            ids = [_id(self._folder, run) for run in stems(names, PAUSED)]
        return sorted(run_id for run_id in ids if run_id is not None)


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
        run_id = PausedWorkflow.from_json(path.read_bytes(), path).run_id
    except (CorruptRecord, OSError):
        return None
    return run_id if stem(run_id) == run else None


def _lease(token: str) -> bytes:
    return json.dumps({"token": token, "claimed_at": now().timestamp()}).encode()


def _read_lease(held: LockedFolder, run: str) -> dict[str, Any]:
    try:
        lease = json.loads(held.folder.read(run + LEASE) or b"")
    except (ValueError, RecursionError):
        return {}
    return lease if isinstance(lease, dict) else {}


def is_orphan(held: LockedFolder, run: str, age: float) -> bool:
    """Whether a claim is one of ours and was made at least `age` seconds ago."""
    return (only_id(run) is not None or is_shortened(run)) and claim_age(held, run) >= age


def claim_age(held: LockedFolder, run: str) -> float:
    """Return for how many seconds the run has been claimed; infinity if its lease cannot be read."""
    claimed_at: Any = _read_lease(held, run).get("claimed_at")
    try:
        # Times are exact to the microsecond and their difference as floats is not: a lease ends when it should.
        age = round(now().timestamp() - float(claimed_at), 6)
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return age if math.isfinite(age) else math.inf
