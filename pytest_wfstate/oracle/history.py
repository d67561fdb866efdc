"""A history: which client called what, when, and with which outcome."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Returned:
    """The call returned a value."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The call was rejected: it had no effect. Two refusals are alike if their class is, or one is `declared`."""

    error: type[BaseException]
    declared: bool = False
    """Whether the suite of a store declares that this error refuses a call, whatever the reference raises."""

    def __str__(self) -> str:
        return f"refused: {self.error.__name__}"


@dataclasses.dataclass(frozen=True, slots=True)
class Errored:
    """The call ended in an error that leaves open whether it took effect: a full disk, a lost connection."""

    error: str

    def __str__(self) -> str:
        return f"failed: {self.error}"


@dataclasses.dataclass(frozen=True, slots=True)
class NeverReturned:
    """The process died before the call returned. It took effect before the death, or never."""

    def __str__(self) -> str:
        return "died"


@dataclasses.dataclass(frozen=True, slots=True)
class Forgotten:
    """The call returned, and its result is left out of account."""

    def __str__(self) -> str:
        return "-> anything"


Outcome = Returned | Refused | Errored | NeverReturned | Forgotten


def token_of(outcome: Outcome) -> str | int | None:
    """Return the id or token in an outcome: a text or a number, or the `token` of a record, which is plain here."""
    value = outcome.value if isinstance(outcome, Returned) else None
    if isinstance(value, dict):
        value = value.get("token")
    return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One call in a history.

    A call that failed may still take effect later, up to `until`; one that died, up to the death.
    """

    client: str
    name: str
    args: tuple[Any, ...]
    begin: float
    end: float
    outcome: Outcome

    @property
    def has_result(self) -> bool:
        """Whether there is a result to explain."""
        return isinstance(self.outcome, Returned | Refused)

    @property
    def token(self) -> str | int | None:
        """The id or token that it returned, if it did: one that a store may have generated."""
        return token_of(self.outcome)

    @property
    def must_have_happened(self) -> bool:
        """Whether the call is part of every order that explains the history."""
        return not isinstance(self.outcome, Errored | NeverReturned)

    @property
    def until(self) -> float:
        """The last moment at which it can have taken effect."""
        return math.inf if isinstance(self.outcome, Errored) else self.end
