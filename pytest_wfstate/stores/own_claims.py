"""The claims that one handle of a paused store has made: their tokens, and which runs it ever claimed.

A handle that ever claimed a run must not release another's claim on it, so it remembers each for good. That has to be
small: a worker may claim millions. So only the token of a claim that is not finished is kept, and of all others a
digest of 16 bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator

from pytest_wfstate.contracts.paused import no_token

_FINISHED = "finished"  # no token: those are hexadecimal
_SIZE = 16  # bytes of a digest: no two ids share one
_PREFIX = 3  # hexadecimal digits that choose a bucket


class OwnClaims:
    """What one handle has claimed."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._ever = _IdSet()

    @staticmethod
    def new_token() -> str:
        """Return a token for a claim: a new one each time, so that workers forked from one handle do not share it."""
        return uuid.uuid4().hex

    def made(self, run_id: str, token: str) -> None:
        """Remember that this handle has claimed a run, or may have."""
        self._ever.add(run_id)
        self._tokens[run_id] = token

    @contextlib.contextmanager
    def making(self, run_id: str, token: str, undone: Callable[[], bool]) -> Iterator[None]:
        """Make a claim in a block: it is remembered before, so that a signal that raises cannot come in between.

        If the block raises and the claim is `undone`, the one before is remembered again.
        """
        before = self._tokens.get(run_id)
        self.made(run_id, token)
        try:
            yield
        except BaseException:
            if before is not None and undone():
                self._tokens[run_id] = before
            raise

    def token(self, run_id: str) -> str:
        """Return the token of this handle's claim on a run.

        Raises:
            NotFound: it has none that is not finished.
        """
        token = self._tokens.get(run_id)
        if token is None:
            raise no_token(run_id)
        return token

    def needed(self, run_id: str) -> str | None:
        """Return the token of the only claim that this handle may release without naming one.

        None means any: a handle that never claimed the run is a restarted worker that finishes up.
        """
        return self._tokens.get(run_id, _FINISHED) if run_id in self._ever else None

    def finished(self, run_id: str, token: str | None = None) -> None:
        """Forget the token of a claim that was completed, with `token` if it is not None, or removed."""
        if token is None or self._tokens.get(run_id) == token:
            self._tokens.pop(run_id, None)


class _IdSet:
    """A set of ids that takes about 20 bytes for each."""

    def __init__(self) -> None:
        self._buckets: dict[str, bytearray] = {}

    def add(self, id_: str) -> None:
        prefix, digest = _digest(id_)
        if id_ not in self:
            self._buckets.setdefault(prefix, bytearray()).extend(digest)

    def __contains__(self, id_: str) -> bool:
        prefix, digest = _digest(id_)
        bucket = self._buckets.get(prefix, b"")
        place = bucket.find(digest)
        while place % _SIZE and place != -1:  # it spans two others
            place = bucket.find(digest, place + 1)
        return place != -1


def _digest(id_: str) -> tuple[str, bytes]:
    digest = hashlib.sha256(id_.encode()).digest()
    return digest.hex()[:_PREFIX], digest[-_SIZE:]
