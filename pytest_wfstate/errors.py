"""The errors of this package.

Every error is a `WfstateError` and also the builtin exception that fits it, so that code which does not know this
package can still catch it.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = [
    "AdapterError",
    "CannotCompare",
    "CannotLock",
    "CorruptRecord",
    "InvalidId",
    "InvalidSetting",
    "LockTimeout",
    "LoopDeadlock",
    "LostConnection",
    "MissingExtra",
    "NewerSchema",
    "NotFound",
    "StoreTimeout",
    "UnsafeFile",
    "UnusableDatabase",
    "Violation",
    "WfstateError",
    "WrongContract",
]


class WfstateError(Exception):
    """Base class of every error that this package raises on purpose."""

    __module__ = "pytest_wfstate"

    def __init_subclass__(cls, *, public: bool = True) -> None:
        """Have a public error of this package shown, and pickled, by the name that users import it by."""
        super().__init_subclass__()
        if public and cls.__module__.startswith("pytest_wfstate."):
            cls.__module__ = "pytest_wfstate"


class InvalidId(WfstateError, ValueError):
    """An id that every store rejects: empty, too long, not text, or text that cannot be encoded."""


class NotFound(WfstateError, LookupError):
    """The call needs a record that does not exist."""


class CorruptRecord(WfstateError, ValueError):
    """A record exists but cannot be read.

    `where` names the file, row or key that holds it.
    """

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(
            f"the record in {where} cannot be read: {reason}. It was left unchanged. "
            "Restore it from a backup, or delete it to start over."
        )
        self.where = str(where)
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptRecord], tuple[str, str]]:
        return type(self), (self.where, self.reason)


class CannotLock(WfstateError, OSError):
    """The file system or the operating system cannot lock a folder."""


class LockTimeout(WfstateError, TimeoutError):
    """A folder stayed locked by another call or process for longer than the store waits. Nothing was changed."""


class UnsafeFile(WfstateError, OSError):
    """Where a store keeps a file is a symbolic link, a pipe, a device or a folder, or a file that has other names too.

    Nothing was read from it or written to it.
    """


class LoopDeadlock(WfstateError, RuntimeError):
    """A blocking call would wait for the thread that makes it."""


class MissingExtra(WfstateError, ImportError):
    """A store needs a package that only an extra of pytest-wfstate installs."""


class LostConnection(WfstateError, ConnectionError):
    """The server of a store cannot be reached, or was lost during a call; the message says what changed."""


class UnusableDatabase(WfstateError, ValueError):
    """A database that cannot hold a store."""


class NewerSchema(WfstateError, RuntimeError):
    """The tables, files or keys of a store were written by a later release, and this one might misread them."""


class WrongContract(WfstateError, ValueError):
    """What was opened as a store of one contract holds a store of another."""


class Violation(WfstateError, AssertionError):
    """A store breaks its contract, or a disk or a schedule fails the check. The text is the report."""

    cause = ""
    """What is wrong in few words, the same for all violations that one deviation leads to."""

    def __init__(self, text: str, replay_id: str = "") -> None:
        super().__init__(text)
        self.replay_id = replay_id


class StoreTimeout(WfstateError, TimeoutError):
    """A store's method did not return in time."""


class AdapterError(WfstateError, RuntimeError):
    """`encode`, `decode` or `adapt` of a suite, or a function of its contract, does not work: nothing can be judged."""


class CannotCompare(WfstateError, RuntimeError):
    """A reference keeps, or a call returned, an object whose type hides what it holds."""


class InvalidSetting(WfstateError, ValueError):
    """An attribute of a suite has an invalid value."""


E = TypeVar("E", bound=BaseException)


def blamed(error: E, cause: str) -> E:
    """Return an error after noting what it is due to, in few words, unless that is noted already."""
    error.__dict__.setdefault("cause", cause)
    return error


def cause_of(error: BaseException | None) -> str:
    """Return what an error is due to, if that was noted on it or on one that led to it."""
    while error is not None:
        if cause := error.__dict__.get("cause"):
            return str(cause)
        error = error.__cause__
    return ""
