"""The report of a violation, for someone at 2 a.m.: smallest case first, in sentences, with the line that did it.

A crash, two crashes, and an I/O error that a crash may follow are all reported in the same order: what the outside
knows, what happened, what is on the disk, what the check did and said, what would help, how to see it again.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.disk.states import InjectedFailure, State
from pytest_wfstate.faults.report_text import at, closing, disk_lines, error_lines, paragraph, shortened
from pytest_wfstate.faults.source_lines import SourceLine
from pytest_wfstate.faults.trace.describe import OpDescriber
from pytest_wfstate.faults.trace.ops import Ack, Effect

_MOST_PROMISES = 8  # acknowledgements or effects
REPLAYED = "This is one disk, replayed."
REMEMBERED = "This disk failed in an earlier run of the test, so it was tried first."


class CrashBug(Violation):
    """A crash can leave a disk that fails the check. The text is the report."""


class ErrorBug(Violation):
    """An I/O error can leave a disk that fails the check. The text is the report."""


def report(
    state: State,
    after: Sequence[Effect],
    error: BaseException,
    advice: list[str],
    counts: str,
    kept_at: str | None,
    replay: tuple[str, str] | None,
) -> str:
    """Return the whole report. `after` is what the check did to the outside, `replay` the command and the id."""
    describer = OpDescriber(state.run.trace)
    items = state.run.trace.items[: state.point.index]
    effects = _by_phase(state, after)
    lines = [f"{_cause(state)} can leave a disk that fails the check.", ""]
    if order := (state.run.first or state).run.order_in_words:
        lines += paragraph("the order", [order])
    lines += paragraph("acknowledged", _last([describer.marker(item) for item in items if isinstance(item, Ack)]))
    lines += _story(state, describer, list(effects.values()))
    lines += paragraph("on the disk", disk_lines(state.tree().content(), state.tree().links()))
    if after:
        did = [*_last([describer.marker(effect) for effect in after]), *_repeated(effects)]
        lines += paragraph("the check did" if state.run.ended else "after restart", did)
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


def _by_phase(state: State, after: Sequence[Effect]) -> dict[str, list[Effect]]:
    """Return the effects in order, by when they happened."""
    run, index = state.run, state.point.index
    if run.ended:
        names = ["by the workload", "by the check"]
    elif run.first:
        names = ["before the first crash", "during recovery", "after the restart"]
    else:
        names = ["before the crash", "after the restart"]
    crashes = [0, run.since, index] if run.first else [0, index]
    before = [
        [item for item in run.trace.items[start:end] if isinstance(item, Effect)]
        for start, end in itertools.pairwise(crashes)
    ]
    return dict(zip(names, [*before, list(after)], strict=True))


def _repeated(effects: Mapping[str, Sequence[Effect]]) -> list[str]:
    """Name the effects that the check repeated."""
    counts = {
        phase: collections.Counter((effect.world, effect.call) for effect in done) for phase, done in effects.items()
    }
    *_, last = counts.values()
    lines = []
    for call in last:
        times = {phase: count[call] for phase, count in counts.items() if call in count}
        if len(times) > 1:
            *earlier, latest = (f"{_times(count)} {phase}" for phase, count in times.items())
            total = _times(sum(times.values()))
            lines.append(f"{shortened(call[1])} was done {total}: {', '.join(earlier)} and {latest}.")
    return lines[:_MOST_PROMISES]


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _story(state: State, describer: OpDescriber, effects: Sequence[Sequence[Effect]]) -> list[str]:
    """Return what happened before the check, in order."""
    run = state.run
    did = [paragraph("effects", _last(list(map(describer.marker, done)))) if done else [] for done in effects]
    if run.injected:
        died = [] if run.ended else _crash(state, describer, "then it died", _how(state))
        return [*did[0], *_failed(run.injected), *died]
    if run.first is None:
        return [*did[0], *_crash(state, describer, "it died")]
    first = _crash(run.first, OpDescriber(run.first.run.trace), "first crash", _how(run.first))
    return [*did[0], *first, *did[1], *_crash(state, describer, "second crash", _how(state))]


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
