"""What a store refuses, and how it says so; and what a suite says of a store.

Every error is a `WfstateError` and also the builtin that it stands for, so that code which knows nothing of
this package can still catch it. Its `__module__` is the package, which is where users import it from.
"""

from __future__ import annotations

__all__ = [
    "AdapterError",
    "CannotLock",
    "CorruptRecord",
    "InvalidId",
    "InvalidSetting",
    "LoopDeadlock",
    "LostConnection",
    "MissingExtra",
    "NewerSchema",
    "NotFound",
    "StoreTimeout",
    "UnusableDatabase",
    "Violation",
    "WfstateError",
]


class WfstateError(Exception):
    """Base of every error that this package raises on purpose."""

    __module__ = "pytest_wfstate"


class InvalidId(WfstateError, ValueError):
    """An id that no store accepts: empty, too long, not text, or text that cannot be written down."""

    __module__ = "pytest_wfstate"


class NotFound(WfstateError, LookupError):
    """The call needs a record that is not there."""

    __module__ = "pytest_wfstate"


class CorruptRecord(WfstateError, ValueError):
    """A record is there and cannot be read.

    `where` names the file (or row, or key) that holds it.
    """

    __module__ = "pytest_wfstate"

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(
            f"the record in {where} cannot be read: {reason}. It was left as it is. "
            "Restore it from a backup, or remove it to start afresh."
        )
        self.where = str(where)
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptRecord], tuple[str, str]]:
        return type(self), (self.where, self.reason)


class CannotLock(WfstateError, OSError):
    """The file system, or the operating system, offers no lock on a folder."""

    __module__ = "pytest_wfstate"


class LoopDeadlock(WfstateError, RuntimeError):
    """A blocking call that would wait for the very thread it is made in."""

    __module__ = "pytest_wfstate"


class MissingExtra(WfstateError, ImportError):
    """A store needs a package that is not installed with this one, but with one of its extras."""

    __module__ = "pytest_wfstate"


class LostConnection(WfstateError, ConnectionError):
    """The server of a store cannot be reached, or was lost in the middle of a call; it says what came of that."""

    __module__ = "pytest_wfstate"


class UnusableDatabase(WfstateError, ValueError):
    """A database that no store can be in."""

    __module__ = "pytest_wfstate"


class NewerSchema(WfstateError, RuntimeError):
    """The tables of a store were made by a later release, and may mean what this one does not know."""

    __module__ = "pytest_wfstate"


class Violation(WfstateError, AssertionError):
    """A store breaks its contract, or a disk or a schedule fails the check. The text is the report."""

    __module__ = "pytest_wfstate"

    def __init__(self, text: str, replay_id: str = "") -> None:
        super().__init__(text)
        self.replay_id = replay_id


class StoreTimeout(WfstateError, TimeoutError):
    """A store's method did not come back."""

    __module__ = "pytest_wfstate"


class AdapterError(WfstateError, RuntimeError):
    """`encode` or `decode` of a suite raised an error: nothing can be said of the store."""

    __module__ = "pytest_wfstate"


class InvalidSetting(WfstateError, ValueError):
    """An attribute of a suite has a value that means nothing."""

    __module__ = "pytest_wfstate"
