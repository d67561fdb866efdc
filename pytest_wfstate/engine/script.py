"""Scripts: calls made on a store one by one, each judged as it returns; the first wrong result is the violation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.results import Results
from pytest_wfstate.errors import blamed
from pytest_wfstate.faults.report_text import error_lines
from pytest_wfstate.oracle.history import Outcome, Refused
from pytest_wfstate.oracle.judge import Timeline
from pytest_wfstate.oracle.render import call_in_words

__tracebackhide__ = True

RESTART = "restart"


@dataclasses.dataclass(frozen=True, slots=True)
class ViaHandle:
    """A call through a handle of its own."""

    handle: str
    call: Call


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """Advances the frozen clock."""

    seconds: float


Step = Call | ViaHandle | str
"""A call through the first handle, one through another, or a restart of everything."""

Later = Callable[[Sequence[str]], Iterable[Step]]
"""Steps about ids that the store generates: called with those, oldest first."""


def second_handle(call: Call) -> ViaHandle:
    """Make a call through a second handle, as another worker would."""
    return ViaHandle("second", call)


class ScriptRun:
    """A script in progress.

    A call that `may_skip` is left out if the store does not offer it, and noted in `left_out`.
    """

    def __init__(self, timeline: Timeline, *, may_skip: Callable[[Call], bool] = lambda _: False) -> None:
        self.timeline = timeline
        self.results = Results()
        self._may_skip = may_skip
        self.left_out: list[str] = []
        """Why calls were left out."""
        self.has_read = False
        self.could_not_replace = False
        """Whether a save was refused where there is a record, as the store does not support more."""

    def run(self, handles: Handles, steps: Iterable[Step | Later]) -> None:
        """Make all calls.

        Raises:
            Violation: the store returned what the reference does not.
        """
        for step in steps:
            if isinstance(step, str):
                try:
                    handles.restart()
                except Exception as error:
                    self._note(error, "close()", "close() ")
                    raise
                self.timeline.restart()
            elif callable(step):
                self.run(handles, step(self.timeline.generated_ids))
            else:
                handle, call = (step.handle, step.call) if isinstance(step, ViaHandle) else (FIRST, step)
                self._make(handles, handle, call)

    def offers(self, handles: Handles, call: Call) -> bool:
        """Make a call, and return whether the store offers it."""
        try:
            self.run(handles, [call])
        except pytest.skip.Exception:
            return False
        return True

    def judge(self, handles: Handles, handle: str, call: Call, outcome: Outcome) -> None:
        """Judge a call that was just made.

        Raises:
            Violation: the reference does not allow this outcome.
        """
        error = handles.driver.refusal if isinstance(outcome, Refused) else None
        self.results.add(call, outcome)
        if isinstance(outcome, Refused) and self.timeline.would_replace(call):
            self.could_not_replace = True
        self.timeline.call(handle, call, outcome, lambda: f"the store said: {error_lines(error)[0]}" if error else "")

    def _make(self, handles: Handles, handle: str, call: Call) -> None:
        call = self.results.resolve(call)
        try:
            outcome = handles.outcome(handle, call)
        except pytest.skip.Exception as not_offered:
            if not self._may_skip(call):
                raise
            self.left_out.append(str(not_offered))
            return
        except Exception as error:
            self._note(error, f"{handle}.{call_in_words(call)}", self.timeline.named(call))
            raise
        self.has_read |= not self.timeline.model.mutates(call)
        self.judge(handles, handle, call, outcome)

    def _note(self, error: Exception, call: str, method: str) -> None:
        """Have an error that is not a refusal list the calls before it."""
        error.add_note("\n".join([*self.timeline.lines, f"{call} raised {type(error).__name__}"]))
        blamed(error, f"{method}raises {type(error).__name__}")
