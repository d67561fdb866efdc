"""A process that was forked before the workload ran, so that nothing the workload left in memory can help a check.

Checks run in the test's own process, for speed. A sample of them is run here again: if the two disagree, the check
lives on something that no crash would have left.
"""

from __future__ import annotations

import os
import pickle
import struct
import warnings
from collections.abc import Callable
from typing import Any

Verdict = str | None
"""None if the check passed, else what it said."""


class FreshProcess:
    """Runs `check` with the memory that this process had when it was made."""

    def __init__(self, check: Callable[[Any], Verdict]) -> None:
        ours, theirs = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads: it only runs checks
            self._pid = os.fork()
        if self._pid == 0:
            os.close(ours[1])
            os.close(theirs[0])
            _serve(check, ours[0], theirs[1])
        os.close(ours[0])
        os.close(theirs[1])
        self._asks, self._answers = ours[1], theirs[0]

    def check(self, subject: Any) -> Verdict:
        """Run the check there.

        Raises:
            Exception: `subject` cannot be pickled.
        """
        _send(self._asks, pickle.dumps(subject))
        answer = _receive(self._answers)
        if answer is None:
            return "the process died"
        verdict: Verdict = pickle.loads(answer)
        return verdict

    def close(self) -> None:
        """End the process."""
        os.close(self._asks)
        os.close(self._answers)
        os.waitpid(self._pid, 0)


def _serve(check: Callable[[Any], Verdict], asks: int, answers: int) -> None:
    status = 1
    try:
        while (asked := _receive(asks)) is not None:
            _send(answers, pickle.dumps(check(pickle.loads(asked))))
        status = 0
    finally:
        os._exit(status)


def _send(fd: int, data: bytes) -> None:
    rest = memoryview(struct.pack("!Q", len(data)) + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _receive(fd: int) -> bytes | None:
    head = _exactly(fd, 8)
    return None if head is None else _exactly(fd, struct.unpack("!Q", head)[0])


def _exactly(fd: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
