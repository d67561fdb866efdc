"""A history: who called what, when, and what came of it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Returned:
    """The call came back with a value."""

    value: Any

    def __str__(self) -> str:
        return f"-> {self.value!r}"


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The call was rejected: it had no effect. Two refusals are alike if their class is."""

    error: type[BaseException]

    def __str__(self) -> str:
        return f"refused: {self.error.__name__}"


@dataclasses.dataclass(frozen=True, slots=True)
class Errored:
    """The call ended in an error that leaves open whether it happened: a full disk, a lost connection."""

    error: str

    def __str__(self) -> str:
        return f"failed: {self.error}"


@dataclasses.dataclass(frozen=True, slots=True)
class NeverReturned:
    """The process died before the call came back. It happened before the death, or never."""

    def __str__(self) -> str:
        return "died"


@dataclasses.dataclass(frozen=True, slots=True)
class Forgotten:
    """The call came back, and what it came back with is left out of account."""

    def __str__(self) -> str:
        return "-> whatever"


Outcome = Returned | Refused | Errored | NeverReturned | Forgotten


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One call: by whom, of what, from when to when, and what came of it.

    A call that failed may still happen later, up to `until`; a call that died, up to the death.
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
    def must_have_happened(self) -> bool:
        """Whether an order that leaves this call out explains nothing."""
        return not isinstance(self.outcome, Errored | NeverReturned)

    @property
    def until(self) -> float:
        """The last moment at which it can have happened."""
        return math.inf if isinstance(self.outcome, Errored) else self.end

    def __str__(self) -> str:
        args = ", ".join(repr(arg) for arg in self.args)
        return f"{self.client}: {self.name}({args}) {self.outcome}"


class History:
    """Calls of several clients, as they come in."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._open: dict[str, tuple[str, tuple[Any, ...], float]] = {}

    def call(self, client: str, name: str, args: tuple[Any, ...], at: float) -> None:
        """Note that a call began. A client makes one call at a time."""
        if client in self._open:
            raise ValueError(f"{client} calls {name} at {at} while its call of {self._open[client][0]} is open.")
        self._open[client] = (name, args, at)

    def end(self, client: str, outcome: Outcome, at: float) -> None:
        """Note how the open call of a client ended."""
        if client not in self._open:
            raise ValueError(f"{client} ends a call at {at} and has none open.")
        name, args, begin = self._open.pop(client)
        self.entries.append(Entry(client, name, args, begin, at, outcome))

    def died(self, client: str, at: float) -> None:
        """Note that a client died; the call that it had open, if any, has no result."""
        if client in self._open:
            self.end(client, NeverReturned(), at)
