"""Failures to inject: which op fails and how, what fails because of it, and the gate that does it.

A disk or a quota that is full stays full: from then on everything that needs room fails, until something is deleted or
truncated. Any other error strikes once.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import os
from collections.abc import Sequence

from pytest_wfstate.faults.disk.states import InjectedFailure
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.report_text import shown
from pytest_wfstate.faults.source_lines import SourceLine, causing_line

ERRORS = ("ENOSPC", "EIO", "short", "short_ENOSPC", "EDQUOT")
_SHORT = "short"
_FULL = ("ENOSPC", "EDQUOT")
_OF_WRITES = (*_FULL, "EROFS", "EFBIG")
# Where the first error of a full disk can strike. An overwrite needs room where the file system copies on write, and a
# rename where the folder has to grow.
_MAY_NEED_ROOM = {"create", "write", "truncate", "allocate", "mkdir", "link", "symlink", "rename"}


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Which op fails, counted from 1, and how."""

    number: int
    error: str

    @property
    def errno_name(self) -> str:
        """The name of what is raised; "" for a short write that nothing follows."""
        return self.error.removeprefix(_SHORT).removeprefix("_")

    @property
    def is_short(self) -> bool:
        """Whether a write takes only part of its bytes."""
        return self.error.startswith(_SHORT)

    def applies(self, intent: Intent) -> bool:
        """Whether an op can fail like this."""
        if self.is_short:
            return intent.kind == "write" and intent.size > 1
        if intent.kind in ("read", "list"):
            return self.error not in _OF_WRITES
        return self.error not in _FULL or intent.kind in _MAY_NEED_ROOM or intent.room == "needs"


class FailingGate:
    """Makes one op fail, and then whatever fails because of it. It is the gate of a recorder."""

    injects_errors = True

    def __init__(self, failure: Failure | None) -> None:
        self._failure = failure
        self._is_full = False
        self._cut_file: str | None = None  # took part of a write; the next one fails
        self._later = 0
        self.intents: list[Intent] = []
        """All ops, as they were about to be done."""
        self.lines: list[SourceLine | None] = []
        """The line of code that caused each of them."""
        self.failed: Intent | None = None
        self.where: SourceLine | None = None

    def before(self, intent: Intent) -> int | None:
        """Fail, or cut a write short, if this is the op or if it fails because of that."""
        line = causing_line()
        self.intents.append(intent)
        self.lines.append(line)
        failure = self._failure
        if failure is not None and self.failed is not None:
            self._fail_later(failure, intent)
        elif failure is not None and len(self.intents) == failure.number and failure.applies(intent):
            self.failed, self.where = intent, line
            return self._fail(failure, intent)
        return None

    def after(self, *_: object) -> None:
        """Do nothing: only what is about to happen can fail."""

    def injected(self, raised: BaseException | None, returned: object) -> InjectedFailure | None:
        """Describe what failed, and how the workload reacted."""
        failure, intent = self._failure, self.failed
        if failure is None or intent is None:
            return None
        what = f"{intent.kind} {shown(intent.path)} (op {failure.number}) {self._how(failure, intent)}"
        reaction = returned if isinstance(returned, Reaction) else "returned as if nothing had failed"
        if raised is not None:
            reaction = f"raised {type(raised).__name__}: {raised}"
        return InjectedFailure(intent.kind, failure.error, failure.number, what, reaction, self.where)

    def _fail(self, failure: Failure, intent: Intent) -> int:
        self._is_full = failure.errno_name in _FULL
        if failure.is_short:
            self._cut_file = intent.path if failure.errno_name else None
            return intent.size // 2
        raise _error(failure.errno_name, intent)

    def _fail_later(self, failure: Failure, intent: Intent) -> None:
        if intent.kind == "write" and intent.path == self._cut_file:
            self._cut_file = None
        elif not self._is_full or intent.room != "needs" or intent.kind in self._spared(failure):
            if intent.room == "frees":
                self._is_full = False
            return
        self._later += 1
        raise _error(failure.errno_name, intent)

    def _spared(self, failure: Failure) -> Sequence[str]:
        """Return what does not fail on this full disk: another failure would hide how the first was handled."""
        # The part that a short write took has its room.
        return ("close", "fsync", "fdatasync") if failure.is_short else ("close",)

    def _how(self, failure: Failure, intent: Intent) -> str:
        later = f"{self._later} later operation{'' if self._later == 1 else 's'}"
        if failure.is_short:
            more = f"; {later} failed with {failure.errno_name}" if self._later else ""
            return f"took only half of its bytes{more}"
        lost = ", and what was written since the last fsync is lost" if intent.kind == "close" else ""
        more = f"; so did {later}, as the disk stayed full" if self._later else ""
        return f"failed with {failure.errno_name}{lost}{more}"


class Reaction(str):
    """What a workload may return to say how it handled an error: a retry, for instance."""

    __slots__ = ()


def all_failures(gate: FailingGate, errors: Sequence[str]) -> list[Failure]:
    """Return every failure of a run that its gate has seen, in the order in which to try them.

    First comes one op for each line of code, kind of op and file, with each error; then the second of each, and so on.
    A bound then cuts off repetitions.
    """
    seen: collections.Counter[tuple[SourceLine | None, str, str]] = collections.Counter()
    repeated: list[tuple[int, int, Failure]] = []
    for number, (intent, line) in enumerate(zip(gate.intents, gate.lines, strict=True), 1):
        alike = (line, intent.kind, intent.path)
        for rank, failure in enumerate(Failure(number, error) for error in errors):
            if failure.applies(intent):
                repeated.append((seen[alike], rank, failure))
        seen[alike] += 1
    return [failure for _, _, failure in sorted(repeated, key=lambda item: item[:2])]


def check_names(errors: Sequence[str]) -> None:
    """Raise TypeError or ValueError unless `errors` is a sequence of known names."""
    if isinstance(errors, str):
        raise TypeError(f"errors is {errors!r}, one string. Give a tuple of names: errors=({errors!r},).")
    if not errors:
        raise ValueError("errors is empty, so nothing would fail. Give names from errno, or 'short'.")
    for error in errors:
        if error != _SHORT and not _is_errno(error.removeprefix(f"{_SHORT}_") if isinstance(error, str) else error):
            raise ValueError(
                f"{error!r} is not a known error. Give names from errno, such as 'ENOSPC', or 'short', or both, such "
                "as 'short_ENOSPC'."
            )


def _is_errno(name: object) -> bool:
    return isinstance(name, str) and isinstance(getattr(errno, name, None), int)


def _error(name: str, intent: Intent) -> OSError:
    number: int = getattr(errno, name)
    return OSError(number, os.strerror(number), intent.path)
