"""Results: what calls returned that later calls need, such as a fencing token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pytest_wfstate.contracts.base import Call, ResultOf
from pytest_wfstate.oracle.history import Outcome, Returned

NOTHING = "nothing was returned"
"""Passed for a result that there is not: of a call that was refused, or not yet made."""


class Results:
    """The texts that the calls of a script, a scenario or a worker have returned so far, by method."""

    def __init__(self, made: Iterable[tuple[Call, Outcome]] = ()) -> None:
        self._texts: dict[str, list[str]] = {}
        for call, outcome in made:
            self.add(call, outcome)

    def add(self, call: Call, outcome: Outcome) -> None:
        """Remember what a call returned, if it is text."""
        if isinstance(outcome, Returned) and isinstance(outcome.value, str):
            self._texts.setdefault(call.name, []).append(outcome.value)

    def texts(self, name: str) -> list[str]:
        """Return the texts that a method has returned, oldest first."""
        return self._texts.get(name, [])

    def resolve(self, call: Call) -> Call:
        """Return the call to make: with results of earlier calls as arguments."""
        return dataclasses.replace(call, args=tuple(map(self._resolve, call.args))) if call.needs_results else call

    def _resolve(self, arg: object) -> object:
        if not isinstance(arg, ResultOf):
            return arg
        texts = self.texts(arg.name)
        return texts[arg.nth] if -len(texts) <= arg.nth < len(texts) else NOTHING
