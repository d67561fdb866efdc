"""The claims that one handle of a paused store has made: their tokens, and which runs it ever claimed.

A handle that ever claimed a run must not release another's claim on it, so it remembers each for good. That has to be
small: a worker may claim millions, and others may finish them. So of each run a digest of 16 bytes is kept, and another
with each token of a claim that this handle has not seen finished.

A claim that failed may have been made, so its token is kept beside the one that the handle had before. Whichever is in
the store is the handle's own; tokens are unique, so the others match nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Collection, Iterator

from pytest_wfstate.contracts.paused import no_token

MOST_TOKENS = 4
"""How many tokens of one run are kept at most: the first, and the latest ones."""
_SIZE = 16  # bytes of a digest: no two ids share one
_TOKEN = 16  # bytes of a token
_PREFIX = 3  # hexadecimal digits that choose a bucket


class OwnClaims:
    """What one handle has claimed. Threads may share it."""

    def __init__(self) -> None:
        self._tokens = _Pairs(_TOKEN)
        self._ever = _Pairs(0)

    @staticmethod
    def new_token() -> str:
        """Return a token for a claim: a new one each time, so that workers forked from one handle do not share it."""
        return uuid.uuid4().hex

    def made(self, run_id: str, token: str, instead_of: Collection[str] = ()) -> None:
        """Remember that this handle has claimed a run, or may have, with a `new_token()`.

        If it certainly has, the tokens that it had before the claim began are obsolete: `instead_of`.
        """
        if not self._ever.of(run_id):
            self._ever.append(run_id)
        tokens = self.tokens(run_id)
        if token not in tokens:
            self._tokens.append(run_id, bytes.fromhex(token))
            tokens += (token,)
        kept = [one for one in tokens if one == token or one not in instead_of]
        del kept[1 : 1 - MOST_TOKENS]
        for dropped in set(tokens) - set(kept):
            self._tokens.discard(run_id, bytes.fromhex(dropped))

    @contextlib.contextmanager
    def making(self, run_id: str, token: str, undone: Callable[[], bool]) -> Iterator[None]:
        """Make a claim in a block: it is remembered before, so that a signal that raises cannot come in between.

        If the block raises and the claim is `undone`, it is forgotten.
        """
        is_first, before = self.needed(run_id) is None, self.tokens(run_id)
        self.made(run_id, token)
        try:
            yield
        except BaseException:
            if undone():
                self.finished(run_id, [token])
                if is_first:
                    self._ever.discard(run_id)
            raise
        self.made(run_id, token, instead_of=before)

    def tokens(self, run_id: str) -> tuple[str, ...]:
        """Return the tokens of claims on a run that are not finished: one, or more if a claim failed."""
        return tuple(token.hex() for token in self._tokens.of(run_id))

    def token(self, run_id: str, present: Callable[[], str | None] = lambda: None) -> str:
        """Return the token of this handle's claim on a run. `present` returns the one in the store, if it matters.

        Raises:
            NotFound: it has none that is not finished.
        """
        tokens = self.tokens(run_id)
        if not tokens:
            raise no_token(run_id)
        if len(tokens) == 1:
            return tokens[0]
        found = present()
        return found if found in tokens else tokens[-1]

    def needed(self, run_id: str) -> tuple[str, ...] | None:
        """Return the tokens of the only claims that this handle may release without naming one.

        None means any: a handle that never claimed the run is a restarted worker that finishes up.
        """
        return self.tokens(run_id) if self._ever.of(run_id) else None

    def finished(self, run_id: str, tokens: Collection[str]) -> None:
        """Forget the tokens of claims that were completed or removed, but no other that a thread has just made."""
        for token in self.tokens(run_id):
            if token in tokens:
                self._tokens.discard(run_id, bytes.fromhex(token))


class _Pairs:
    """Pairs of an id and some bytes, in the order in which they were appended.

    A pair takes about 20 bytes more than its own. No lock is needed: each change is made between two moments at which
    CPython may switch to another thread or run a signal handler.
    """

    def __init__(self, size: int) -> None:
        self._step = _SIZE + size
        self._buckets: dict[str, bytearray] = {}

    def append(self, id_: str, value: bytes = b"") -> None:
        prefix, digest = _digest(id_)
        self._buckets.setdefault(prefix, bytearray()).extend(digest + value)

    def discard(self, id_: str, value: bytes = b"") -> None:
        prefix, digest = _digest(id_)
        pair, step = digest + value, self._step
        bucket = self._buckets.get(prefix, bytearray())
        while (place := _find(bucket, pair, step)) != -1:
            if bucket[place : place + step] == pair:  # another thread may have removed one before it
                del bucket[place : place + step]
                return

    def of(self, id_: str) -> list[bytes]:
        """Return what is paired with an id."""
        prefix, digest = _digest(id_)
        bucket = bytes(self._buckets.get(prefix, b""))  # a copy, from which no thread removes anything
        found, place = [], _find(bucket, digest, self._step)
        while place != -1:
            found.append(bucket[place + _SIZE : place + self._step])
            place = _find(bucket, digest, self._step, place + 1)
        return found


def _find(bucket: bytes | bytearray, pair: bytes, step: int, start: int = 0) -> int:
    place = bucket.find(pair, start)
    while place % step and place != -1:  # it spans two others
        place = bucket.find(pair, place + 1)
    return place


def _digest(id_: str) -> tuple[str, bytes]:
    digest = hashlib.sha256(id_.encode()).digest()
    return digest.hex()[:_PREFIX], digest[-_SIZE:]
