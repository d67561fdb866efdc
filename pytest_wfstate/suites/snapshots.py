"""The snapshots contract: the state of a graph after every super-step, to go back to or to fork from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.script import RESTART, Tick, second_handle
from pytest_wfstate.errors import Violation
from pytest_wfstate.oracle.render import call_in_words
from pytest_wfstate.specs.snapshots import (
    FORK,
    LATER,
    LATEST,
    LIST,
    LOAD,
    SAVE,
    SNAPSHOTS,
    STEP,
    WORKFLOW,
    key,
    look,
    reads,
    save,
)
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import clause, script, timed
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized

A = save("a", 1)
A2 = save("a", 2)
B = save("b", 1)
LATER_A = save("a", 3, LATER)
LOOK_A = look("a")
LOOK_ZERO = look("a", steps=[0])
LOOKS = reads(["a", "b"])
FORK_A = FORK(key("a"))
EDITS = [("n", 99), ("new", {"list": [1, {"x": None}]})]
NOT_FINITE = (math.nan, math.inf, -math.inf)
BIGGEST = 2**64 - 1

# Pairs of workflow, run and step that are the same when joined.
_ALIKE = [
    *(
        (("a" + mark + "b", "c", 2), ("a", "b" + mark + "c", 2))
        for mark in ("", "-", "_", ".", "/", ":", "#", "%", "~", "|")
    ),
    (("a", "b", 2), ("b", "a", 2)),
    (("wf", "a", 12), ("wf", "a1", 2)),
    (("wf", "a", 2), ("wf", "a-2", 2)),
]


def _invalid(number: float) -> Call:
    snapshot = samples.snapshot("a", STEP)
    snapshot.values["n"] = [number]
    return SAVE(snapshot)


def _last(made: Sequence[str]) -> list[Call]:
    """Return the calls that show the run that was forked last."""
    return look(made[-1])


class SnapshotSuite(Suite):
    """Checks a store against the snapshots contract."""

    contract = SNAPSHOTS
    values: ClassVar[Mapping[str, Sequence[Call]]] = {
        "falsy": [
            save("a", values={}, label="", timestamp_ms=0),
            save("a", values={"zero": 0, "no": False, "none": None, "empty": "", "list": [], "dict": {}, "": 0.0}),
        ],
        "unicode": [save("a", label="Ünïcödé 漢字 🙂 \u2028 \x7f", values={"ключ": "значение\r\n", "é": "e\u0301"})],
        "large": [save("a", values={"text": "x" * 300_000, "list": [{"n": n} for n in range(3000)]})],
    }
    scenarios: ClassVar[Mapping[str, Sequence[Scenario]]] = {
        "save": [
            Scenario([A]),
            Scenario([A2, LATER_A], before=[A, B]),
            Scenario([LATER_A], before=[A, A2, A], faults=["kill", "power"]),
        ],
        "fork": [
            Scenario([FORK_A], before=[A]),
            Scenario([FORK(key("a"), EDITS)], before=[A, LATER_A, FORK_A], faults=["kill", "power", "server"]),
            Scenario([LATER_A], before=[A], faults=["power"], then=[FORK(LATER_A.args[0].key)]),
        ],
    }
    lists = (Scenario([LIST(WORKFLOW, "a")], before=[A, LATER_A], then=[A2, save("a", 3, 1), B]),)
    race_roles: ClassVar[Mapping[str, RaceRole]] = {
        "save": RaceRole(
            lambda run_id, number: [save(run_id, sized(number)), save(run_id, sized(number), LATER + number)]
        ),
        "fork": RaceRole(lambda run_id, _: [FORK(key(run_id))], lambda run_id, number: [save(run_id, sized(number))]),
        "load": RaceRole(lambda run_id, _: [LOAD(key(run_id)), LOAD(key(run_id))]),
        "latest": RaceRole(lambda run_id, _: [LATEST(WORKFLOW, run_id), LATEST(WORKFLOW, run_id)]),
        "list": RaceRole(lambda run_id, _: [LIST(WORKFLOW, run_id), LIST(WORKFLOW, run_id)]),
    }
    afterwards = (save("b", 9), LOAD(key("b")))

    def add_listed(self, number: int) -> Call:
        """Return a call that adds to what is listed of `a`."""
        return save("a", 1, LATER + number)

    test_save_steps = script(
        "core", "A run keeps a snapshot of each of its super-steps.", A, LATER_A, *LOOK_A, RESTART, *LOOK_A
    )
    test_latest_highest = script(
        "core",
        "The latest snapshot is the one with the highest super-step.",
        *(save("a", 1, 0), *look("a", steps=[0]), A, *LOOK_A),
    )
    test_list_all = script(
        "core",
        "All snapshots of a run are listed.",
        *(*(save("a", step, step) for step in range(4)), LIST(WORKFLOW, "a")),
        *(RESTART, LIST(WORKFLOW, "a")),
    )
    test_fork_copies = script(
        "core",
        "A fork copies its source into a new run, labelled `fork-of:` and the source's run id.",
        *(A, FORK_A, _last),
    )
    test_fork_edits = script(
        "core", "A fork's edits replace existing values and add new ones.", A, FORK(key("a"), EDITS), _last, *LOOK_A
    )

    test_save_replaces_everywhere = script(
        "safe",
        "A snapshot with the key of an older one replaces it in every read, whatever its timestamp.",
        *(A, LATER_A, save("a", 4, LATER, timestamp_ms=9), *LOOK_A, save("a", 5, timestamp_ms=2_000), *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_save_others = script(
        "safe", "Saving a snapshot affects no other run.", A, B, save("aa"), LATER_A, A2, *reads(["b", "aa"])
    )
    test_save_step_zero = script(
        "safe",
        "Super-step 0 works like any other.",
        *(A, save("a", 2, 0), *LOOK_ZERO, save("a", 3, 0), *LOOK_ZERO),
        RESTART,
        *LOOK_ZERO,
    )
    test_save_any_step = script(
        "safe",
        "A super-step can be any number up to 2**64 - 1.",
        *(save("a", number, step) for number, step in enumerate([BIGGEST, 2**53, 2**63, BIGGEST - 1, 2**53 + 1], 1)),
        *look("a", steps=[BIGGEST, BIGGEST - 1, 2**53 + 1]),
        RESTART,
        *look("a", steps=[BIGGEST, BIGGEST - 1, 2**53 + 1]),
    )
    test_load_exact = script(
        "safe",
        "Loading a super-step that was not saved returns nothing.",
        *(A, LATER_A, *look("a", steps=[0, 1, 3, 9, 11])),
    )
    test_latest_not_last_saved = script(
        "safe",
        "The latest snapshot need not be the last one saved, nor the one with the latest timestamp.",
        *(LATER_A, A, *LOOK_A, save("a", 9), *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_list_ordered = script(
        "safe",
        "Snapshots are listed in the numeric order of their super-steps, whatever order they were saved in.",
        *(*(save("a", 100 - step, step) for step in (9, 100, 10, 1, 11, 0)), LIST(WORKFLOW, "a"), save("a", 2, 10)),
        LIST(WORKFLOW, "a"),
        needs="order",
    )
    test_list_ordered_after_restart = script(
        "safe",
        "Snapshots are listed in the order of their super-steps after a restart and after later saves.",
        *(LATER_A, save("a", 1, 9), A, RESTART, LIST(WORKFLOW, "a"), save("a", 1, 1), LIST(WORKFLOW, "a")),
        needs="order",
    )
    test_list_stamps = script(
        "safe",
        "A listing shows the timestamps that the snapshots were saved with.",
        *(save("a", 1, step, timestamp_ms=stamp) for step, stamp in enumerate([7, 2**63 - 1, 0, -5])),
        *(LIST(WORKFLOW, "a"), RESTART, LIST(WORKFLOW, "a")),
    )
    test_list_many = script(
        "safe",
        "A long run is kept in full.",
        *(*(save("a", 1, (step * 37) % 150) for step in range(150)), *look("a", steps=[0, 64, 149]), save("a", 2, 64)),
        RESTART,
        *look("a", steps=[0, 64, 149]),
    )
    test_workflows_apart = script(
        "safe",
        "Two workflows may have runs with the same id, independent of each other.",
        *(A, save("a", 2, STEP, "other"), save("a", 3, LATER, "other")),
        *(*LOOK_A, *look("a", "other"), *look("a", "third")),
        *(A2, RESTART),
        *(*LOOK_A, *look("a", "other")),
    )
    test_fork_one_snapshot = script(
        "safe", "A fork holds one snapshot, at its source's super-step.", A, LATER_A, FORK_A, _last, *LOOK_A
    )
    test_fork_any_step = script(
        "safe",
        "Any snapshot of a run can be forked.",
        *(A, LATER_A, save("a", 4, 0), FORK(key("a", LATER)), _last, FORK_A, _last, FORK(key("a", 0))),
        lambda made: look(made[-1], steps=[0, STEP]),
    )
    test_fork_source_untouched = script(
        "safe", "Forking changes nothing in the source.", A, LATER_A, FORK(key("a"), EDITS), *LOOKS, RESTART, *LOOKS
    )
    test_fork_apart = script(
        "safe",
        "Later changes to the source do not show in the fork, nor the other way round.",
        *(A, FORK_A, A2, LATER_A, _last, lambda made: [save(made[0], 8), save(made[0], 9, 11)]),
        *LOOK_A,
        *(_last, RESTART, _last),
    )
    test_fork_goes_on = script(
        "safe",
        "A forked run continues like any other.",
        *(A, FORK_A, lambda made: [save(made[0], 8, LATER)], _last, RESTART, _last),
    )
    test_fork_survives_restart = script(
        "safe", "Forks survive a restart.", A, FORK_A, FORK(key("a"), EDITS), RESTART, lambda made: reads(made)
    )
    test_fork_seen_by_others = script(
        "safe",
        "A fork made through one handle is visible through every other, which can fork it again.",
        *(A, FORK_A, lambda made: [second_handle(look) for look in _last(made)]),
        *(lambda made: [second_handle(FORK(key(made[0])))], _last),
    )
    test_fork_newest_source = script(
        "safe",
        "A fork copies what was saved last, whichever handle saved it.",
        *(A, FORK_A, second_handle(A2), FORK_A, _last),
    )
    test_fork_of_fork = script(
        "safe",
        "A fork of a fork is labelled with the run it was forked from.",
        *(A, FORK(key("a"), EDITS), lambda made: [FORK(key(made[0]), [("n", 7)])], _last, lambda made: look(made[0])),
    )
    test_fork_new_id = script(
        "safe",
        "Each fork gets an id that no run has had before.",
        *(A, B, FORK_A, FORK_A, second_handle(FORK_A), FORK(key("b")), FORK(key("a"), EDITS), lambda made: reads(made)),
    )
    test_fork_new_id_after_restart = script(
        "safe",
        "A fork after a restart gets an id that no run has had before.",
        *(A, FORK_A, RESTART, FORK_A, RESTART, FORK_A, lambda made: reads(made)),
    )
    test_fork_workflow = script(
        "safe",
        "A fork belongs to its source's workflow.",
        *(A, save("a", 2, workflow_id="other"), FORK(key("a", workflow_id="other"))),
        lambda made: [*look(made[0], "other"), *look(made[0])],
        *LOOK_A,
    )
    test_fork_missing = script(
        "safe",
        "Forking a missing snapshot is an error and changes nothing.",
        *(FORK_A, *LOOK_A, A, FORK(key("a", 3)), FORK(key("a", 0)), FORK(key("b"), EDITS), FORK(key("a", 2, "other"))),
        *(*LOOKS, *look("a", "other", [0, 2, 3])),
        RESTART,
        *LOOKS,
    )
    test_fork_edits_mapping = script(
        "safe",
        "Edits may be pairs or a mapping; the last edit of a value wins.",
        *(A, FORK(key("a"), dict(EDITS)), _last, FORK(key("a"), [("n", 1), ("m", 1), ("n", 2)]), _last),
    )
    test_fork_edits_falsy = script(
        "safe",
        "An edit may set a false or empty value.",
        *(A, FORK(key("a"), [("n", 0), ("messages", None), ("no", False), ("", ""), ("list", []), ("dict", {})])),
        *(_last, RESTART, _last),
    )
    test_fork_edits_refused = script(
        "safe",
        "Edits that no snapshot can hold are refused and change nothing.",
        *(A, *(FORK(key("a"), [("n", number)]) for number in NOT_FINITE), *LOOK_A),
        RESTART,
        *LOOK_A,
        fault="input",
    )
    test_values_refused = script(
        "safe",
        "NaN and infinities are refused and change nothing.",
        *(_invalid(math.nan), *LOOK_A, A, *(_invalid(number) for number in NOT_FINITE), *LOOK_A),
        RESTART,
        *LOOK_A,
        fault="input",
    )

    @clause("safe", "The error for a missing source names it as run#step.")
    def test_fork_missing_named(self) -> None:
        call = FORK(key("a", 7))
        with self.context.handles(self.context.home()) as handles:
            self.context.begin().run(handles, [A])
            try:
                outcome = f"-> {self.context.driver.call(handles[FIRST], call)!r}"
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
                if "a#7" in outcome:
                    return
        raise Violation(f"{call_in_words(call)} {outcome}\n    expected: an error that names 'a#7'")

    @clause("safe", "Changing the edits after forking does not change the fork.")
    def test_aliasing_edits(self) -> None:
        call = FORK(key("a"), [("n", {"list": [1]}), ("new", [{}])])
        with self.context.handles(self.context.home()) as handles:
            play = self.context.begin()
            play.run(handles, [A, call])
            inputs.disturb(call.args[1])
            looks = _last(play.timeline.generated_ids)
            play.run(handles, [*(second_handle(look) for look in looks), *looks])

    @clause("safe", "Changing a loaded fork does not change its source, nor the other way round.")
    def test_aliasing_forked(self) -> None:
        with self.context.handles(self.context.home()) as handles:
            play = self.context.begin()
            play.run(handles, [save("a", 1), FORK_A])
            looks = [*LOOK_A, *_last(play.timeline.generated_ids)]
            for look in looks:
                inputs.disturb(self.context.driver.call(handles[FIRST], look))
            play.run(handles, [*looks, *(second_handle(look) for look in looks)])

    @clause("safe", "Any text can be a workflow id.", "input")
    def test_ids_any_workflow(self) -> None:
        for workflow in inputs.GOOD_IDS:
            looks = look("a", workflow)
            self.context.play([save("a", 1, STEP, workflow), *looks, RESTART, *looks])

    @clause(
        "safe", "Two keys never share a snapshot, even if workflow, run and step are the same when joined.", "input"
    )
    def test_ids_never_joined(self) -> None:
        for (workflow, run, step), (other, another, last) in _ALIKE:
            looks = [*look(run, workflow, [step]), *look(another, other, [last])]
            first, second = save(run, 1, step, workflow), save(another, 2, last, other)
            self.context.play([first, *looks, second, *looks, RESTART, *looks])

    @clause("safe", "Every method refuses an invalid id and changes nothing.", "input")
    def test_ids_refused_everywhere(self) -> None:
        for bad_id in inputs.BAD_IDS[:-1]:  # the last is not valid in a key
            for bad in (key(bad_id), key("a", STEP, bad_id)):
                names = (bad.workflow_id, bad.run_id)
                refused = [
                    save(bad.run_id, 2, STEP, bad.workflow_id),
                    LOAD(bad),
                    LATEST(*names),
                    LIST(*names),
                    FORK(bad),
                ]
                self.context.play([A, *refused, *LOOK_A, RESTART, *LOOK_A])

    test_fork_stamp = timed(
        "hardened",
        "A fork's timestamp is the time it was made.",
        *(A, Tick(12.345), FORK_A, _last, Tick(100), _last, RESTART, _last, FORK_A, _last),
        *LOOK_A,
    )
