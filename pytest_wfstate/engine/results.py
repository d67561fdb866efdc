"""Results: what calls returned that later calls need, such as a fencing token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from pytest_wfstate.contracts.base import Call, ResultOf
from pytest_wfstate.oracle.history import Outcome, token_of

NOTHING = "nothing was returned"
"""Passed for a result that there is not: of a call that was refused, or not yet made."""


class Results:
    """The ids and tokens that the calls of a script, a scenario or a worker have returned so far, by method."""

    def __init__(self, made: Iterable[tuple[Call, Outcome]] = ()) -> None:
        self._tokens: dict[str, list[tuple[tuple[Any, ...], str | int]]] = {}
        for call, outcome in made:
            self.add(call, outcome)

    def add(self, call: Call, outcome: Outcome) -> None:
        """Remember what a call returned, if it may be an id or a token."""
        token = token_of(outcome)
        if token is not None:
            self._tokens.setdefault(call.name, []).append((call.args, token))

    def tokens(self, name: str, of: tuple[Any, ...] = ()) -> list[str | int]:
        """Return what calls of a method, whose arguments begin with these, have returned, oldest first.

        That is texts, numbers, and the tokens of records.
        """
        return [token for args, token in self._tokens.get(name, []) if args[: len(of)] == of]

    def resolve(self, call: Call) -> Call:
        """Return the call to make: with results of earlier calls as arguments."""
        return dataclasses.replace(call, args=tuple(map(self._resolve, call.args))) if call.needs_results else call

    def _resolve(self, arg: object) -> object:
        if not isinstance(arg, ResultOf):
            return arg
        tokens = self.tokens(arg.name, arg.of)
        return tokens[arg.nth] if -len(tokens) <= arg.nth < len(tokens) else NOTHING
