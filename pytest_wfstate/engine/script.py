"""Play: a script of calls, made on a store and on the reference, line by line; the first that differs is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.render import call_in_words, difference, outcome_in_words
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.report_text import said
from pytest_wfstate.oracle.history import Entry, Outcome, Refused, Returned
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState

__tracebackhide__ = True

Memory = dict[Any, tuple[ReferenceState, ...]]
"""What judging came to before: the same calls are judged on every disk that a crash can leave."""

RESTART = "restart"


@dataclasses.dataclass(frozen=True, slots=True)
class ViaHandle:
    """A call through a handle of its own."""

    handle: str
    call: Call


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """Time goes by."""

    seconds: float


Step = Call | ViaHandle | str
"""A call through the first handle, one through another, or a restart of everything."""

Later = Callable[[Sequence[str]], Iterable[Step]]
"""Lines about ids that the store has made up: given those, from the first on."""


def second_handle(call: Call) -> ViaHandle:
    """Make a call through a second handle, as another worker would."""
    return ViaHandle("second", call)


class ScriptRun:
    """A script as it goes on, and what the reference has come to. There may be several worlds that explain it all."""

    def __init__(
        self,
        model: ReferenceModel,
        worlds: Iterable[ReferenceState],
        *,
        title: str = "",
        memory: Memory | None = None,
        is_aside: Callable[[Call], bool] = lambda _: False,
    ) -> None:
        self._model = model
        self._memory = memory
        self._is_aside = is_aside
        self._title = title
        self._told: list[str] = [title, ""] if title else []
        self.worlds = tuple(worlds)
        self.made: list[str] = []
        """The ids that the store has made up."""
        self.left_out: list[str] = []
        """Why calls were left out that only look at what the others did: the store does not offer them."""
        self.has_looked = False

    def all(self, handles: Handles, lines: Iterable[Step | Later]) -> None:
        """Make all calls.

        Raises:
            Violation: the store gave a result that the reference does not.
        """
        for line in lines:
            if isinstance(line, str):
                try:
                    handles.restart()
                except Exception as error:
                    self._note(error, "close()")
                    raise
                self.restart()
            elif callable(line):
                self.all(handles, line(self.made))
            else:
                handle, call = (line.handle, line.call) if isinstance(line, ViaHandle) else (FIRST, line)
                self._make(handles, handle, call)

    def offers(self, handles: Handles, call: Call) -> bool:
        """Make a call, and tell whether the store offers it."""
        try:
            self.all(handles, [call])
        except pytest.skip.Exception:
            return False
        return True

    def _make(self, handles: Handles, handle: str, call: Call) -> None:
        try:
            outcome = handles.outcome(handle, call)
        except pytest.skip.Exception as not_offered:
            if not self._is_aside(call):
                raise
            self.left_out.append(str(not_offered))
            return
        except Exception as error:
            self._note(error, f"{handle}.{call_in_words(call)}")
            raise
        self.has_looked |= not self._model.mutates(call)
        self.judge(handle, call, outcome, handles.driver.refusal)

    def _note(self, error: Exception, what: str) -> None:
        """Have an error that is no refusal tell after which calls it came."""
        if self._title:
            error.add_note("\n".join(["", *self._told, f"{what} raised {type(error).__name__}"]))

    def restart(self) -> None:
        """Go on with what is stored, and new handles."""
        self._told.append("-- restart --")
        self.worlds = tuple(self._model.restart(world) for world in self.worlds)

    def judge(self, handle: str, call: Call, outcome: Outcome, refusal: BaseException | None = None) -> None:
        """Go on to the worlds in which a call comes to this; `refusal` is what the store said if it refused it.

        Raises:
            Violation: there is none.
        """
        entry = Entry(handle, call.name, call.args, 0, 0, outcome)
        after = self._after(entry, call)
        if not after:
            why = [f"    it said: {said(refusal)[0]}"] if isinstance(outcome, Refused) and refusal else []
            raise Violation("\n".join([*self._told, _told(entry, call), *self._wanted(entry, call), *why]))
        if self._model.mutates(call):  # what only looks, and saw the right thing, need not be read again
            self._told.append(_told(entry, call) if outcome != Returned(None) else f"{handle}.{call_in_words(call)}")
        self.worlds = after
        if isinstance(outcome, Returned) and self._model.generates_id(call):
            self.made.append(outcome.value)

    def shows(self, look: Call) -> bool:
        """Tell whether there is something to see for a call that only looks, in the first of the worlds."""
        expected = self._model.expected(self.worlds[0], Entry(FIRST, look.name, look.args, 0, 0, Returned(None)))
        return isinstance(expected, Returned) and expected.value not in (None, [])

    def _after(self, entry: Entry, call: Call) -> tuple[ReferenceState, ...]:
        if self._memory is None:
            return self._stepped(entry)
        key = (self.worlds, entry.client, id(call), repr(entry.outcome))
        if key not in self._memory:
            self._memory[key] = self._stepped(entry)
        return self._memory[key]

    def _stepped(self, entry: Entry) -> tuple[ReferenceState, ...]:
        found = [after for world in self.worlds for after in self._model.step(world, entry)]
        return tuple(dict.fromkeys(found) if len(found) > 1 else found)

    def _wanted(self, entry: Entry, call: Call) -> list[str]:
        expected = [self._model.expected(world, entry) for world in self.worlds]
        if self._model.generates_id(call) and isinstance(expected[0], Returned):
            return ["    expected: an id that is new"]
        wanted = dict.fromkeys(outcome_in_words(one) for one in expected)
        return [f"    expected: {' or '.join(wanted)}", *_difference(expected, entry.outcome)]


def _told(entry: Entry, call: Call) -> str:
    sign = "" if isinstance(entry.outcome, Refused) else "-> "
    return f"{entry.client}.{call_in_words(call)} {sign}{outcome_in_words(entry.outcome)}"


def _difference(expected: Sequence[Outcome], seen: Outcome) -> list[str]:
    """Say where two records differ: what is shown of them may not reach so far."""
    if len(expected) != 1 or not isinstance(expected[0], Returned) or not isinstance(seen, Returned):
        return []
    values = (expected[0].value, seen.value)
    return [f"    {difference(*values)}"] if all(isinstance(one, (dict, list)) for one in values) else []
