"""The report of a violation, for someone at 2 a.m.: smallest case first, in sentences, with the line that did it.

A crash, two crashes, and an I/O error that a crash may follow are all reported in the same order: what the outside
knows, what happened, what is on the disk, what the check said, what would help, how to see it again.
"""

from __future__ import annotations

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.disk.states import InjectedFailure, State
from pytest_wfstate.faults.report_text import at, closing, disk_lines, error_lines, paragraph, shortened
from pytest_wfstate.faults.source_lines import SourceLine
from pytest_wfstate.faults.trace.describe import OpDescriber
from pytest_wfstate.faults.trace.ops import Ack, Effect

_MOST_PROMISES = 8  # acknowledgements or effects
REPLAYED = "This is one disk, replayed."


class CrashBug(Violation):
    """A crash can leave a disk that fails the check. The text is the report."""


class ErrorBug(Violation):
    """An I/O error can leave a disk that fails the check. The text is the report."""


def report(
    state: State,
    error: BaseException,
    advice: list[str],
    counts: str,
    kept_at: str | None,
    replay: tuple[str, str] | None,
) -> str:
    """Return the whole report; `replay` is the test and the replay id."""
    describer = OpDescriber(state.run.trace)
    items = state.run.trace.items[: state.point.index]
    lines = [f"{_cause(state)} can leave a disk that fails the check.", ""]
    lines += paragraph("acknowledged", _last([describer.marker(item) for item in items if isinstance(item, Ack)]))
    if effects := [describer.marker(item) for item in items if isinstance(item, Effect)]:
        lines += paragraph("effects", _last(effects))
    lines += _story(state, describer)
    lines += paragraph("on the disk", disk_lines(state.tree().content(), state.tree().links()))
    lines += paragraph("the check said", error_lines(error))
    lines += ["", *advice] if advice else []
    return "\n".join([*lines, *closing(counts, kept_at, replay)])


def where_it_died(state: State) -> str:
    """Return in a few words what happened: where the crash was, or what failed."""
    first, injected = state.run.first, state.run.injected
    if state.run.ended:
        return injected.what if injected else "nothing failed"
    died = _in_one_line(state)
    if injected:
        return f"{injected.what}; later {_how(state)}, {died}"
    return f"{_how(first)}, {_in_one_line(first)}; then {_how(state)}, {died}" if first else died


def _cause(state: State) -> str:
    run = state.run
    crash = "kill" if run.model == "kill" else f"power cut ({run.model} model)"
    if run.injected:
        return "An I/O error" if run.ended else f"An I/O error followed by a {crash}"
    if run.first:
        return f"A crash followed by a {crash} during recovery"
    return "A killed process" if run.model == "kill" else f"A {crash}"


def _story(state: State, describer: OpDescriber) -> list[str]:
    """Return what happened, in order."""
    run = state.run
    if run.injected:
        return [*_failed(run.injected), *([] if run.ended else _crash(state, describer, "then it died", _how(state)))]
    if run.first is None:
        return _crash(state, describer, "it died")
    first = _crash(run.first, OpDescriber(run.first.run.trace), "first crash", _how(run.first))
    return [*first, *_crash(state, describer, "second crash", _how(state))]


def _failed(injected: InjectedFailure) -> list[str]:
    return [
        *paragraph("what failed", [injected.what + at(injected.where), *_code(injected.where)]),
        *paragraph("the workload", [shortened(injected.reaction)]),
    ]


def _crash(state: State, describer: OpDescriber, title: str, how: str = "") -> list[str]:
    died, *code = _died(state, describer)
    lost = [describer.loss(index, state.torn()) for index in state.lost()]
    return [*paragraph(title, [f"{how}, {died}" if how else died, *code]), *(paragraph("lost", lost) if lost else [])]


def _how(state: State) -> str:
    """Return what kind of crash it was, for runs with more than one."""
    run = state.run
    # What survived the first of two crashes unflushed can still be lost in the second, as after a kill.
    killed = run.model == "kill" or (run.first is None and run.injected is None and not state.lost())
    return f"{'it was killed' if killed else 'the power was cut'}{' during recovery' if run.first else ''}"


def _died(state: State, describer: OpDescriber) -> list[str]:
    index = state.point.index
    if index == state.run.since and state.run.first:
        return ["before recovery did anything"]
    if index == 0:
        return ["before it did anything"]
    item = state.run.trace.items[index - 1]
    return [f"after {describer.op(index - 1)}", *_code(item.where)]


def _in_one_line(state: State) -> str:
    return " ".join(line.strip() for line in _died(state, OpDescriber(state.run.trace)))


def _code(where: SourceLine | None) -> list[str]:
    return [f"    {where.text}"] if where and where.text else []


def _last(lines: list[str]) -> list[str]:
    """Return the last of many lines, or one that says there are none."""
    hidden = len(lines) - _MOST_PROMISES
    return [f"{hidden} more before these:", *lines[-_MOST_PROMISES:]] if hidden > 0 else lines or ["nothing"]
