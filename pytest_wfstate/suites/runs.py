"""The runs contract: the definition, context and steps of one workflow execution."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.contracts.runs import TaskStatus
from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.script import RESTART, Tick, second_handle
from pytest_wfstate.specs.runs import (
    CREATE,
    DELETE,
    GET,
    RUNS,
    STEP,
    STEPS,
    UPDATE,
    UPSERT,
    create,
    look,
    reads,
    update,
    upsert,
)
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import clause, script, timed
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized


def _created_before(run_id: str, number: int) -> list[Call]:
    return [create(run_id, sized(number)), upsert(run_id, number=sized(number))]


A = create("a", 1)
A2 = create("a", 2)
B = create("b", 1)
FETCH = upsert("a", "fetch")
FETCH2 = upsert("a", "fetch", 2)
CHARGE = upsert("a", "charge")
FETCH_B = upsert("b", "fetch", 5)
UPDATE_A = update("a", 7)
DELETE_A = DELETE("a")
LOOK_A = look("a")
LOOK_FETCH = look("a", ["fetch"])
LOOKS = reads(["a", "b"])
FALSY: list[Any] = [{}, [], 0, 0.0, False, "", None]
NOT_FINITE = (math.nan, math.inf, -math.inf)
LONG_AGO = datetime.datetime(1999, 12, 31, 23, 59, 59, 999000, tzinfo=datetime.UTC)

_STEP_WITH_UNKNOWN_FIELDS = {
    "id": "fetch",
    "label": "Fetch",
    "kind": {"type": "api_call", "url": "https://example.org", "headers": {}},
    "on_error": [{"retry": False}],
}

# Pairs of run and step that are the same when joined.
_ALIKE = [
    *((("a" + mark + "b", "c"), ("a", "b" + mark + "c")) for mark in ("", "-", "_", ".", "/", ":", "#", "%", "~", "|")),
    (("a", "b"), ("b", "a")),
]


def _invalid(number: float) -> list[Call]:
    """Return calls with a number that has no JSON equivalent."""
    state, step = samples.run("a"), samples.step("fetch")
    state.input["n"] = step.result["docs"] = [number]
    return [CREATE(state), UPDATE("a", {"n": number}), UPSERT("a", step)]


class RunSuite(Suite):
    """Checks a store against the runs contract."""

    contract = RUNS
    values: ClassVar[Mapping[str, Sequence[Call]]] = {
        "falsy": [
            create("a", agent_id="", workspace_id="", entry_point="", input={}, context={}),
            create("a", workspace_id=None, entry_point=None, input=None, context=None),
            create("a", input={"zero": 0, "no": False, "none": None, "empty": "", "list": [], "dict": {}, "": 0.0}),
            *(upsert("a", result=value, error="", wait_task_id="") for value in FALSY),
            upsert("a", status="pending", result=None, started_at=None, completed_at=None),
        ],
        "unicode": [
            create("a", user_id="Ünïcödé 漢字 🙂 \u2028 \x7f", context={"ключ": "значение\r\n", "é": "e\u0301"}),
            upsert("a", error="Ünïcödé 漢字 🙂 \u2028 \x7f", result={"ключ": "значение\r\n"}),
        ],
        "large": [
            create("a", context={"text": "x" * 300_000, "list": [{"n": n} for n in range(3000)]}),
            upsert("a", result={"text": "x" * 300_000}),
        ],
    }
    scenarios: ClassVar[Mapping[str, Sequence[Scenario]]] = {
        "create": [
            Scenario([A]),
            Scenario([A2], before=[A, FETCH, B]),
            Scenario([A, FETCH], faults=["kill", "power"]),
        ],
        "update": [Scenario([UPDATE_A, update("a", 8)], before=[A, FETCH])],
        "delete": [
            Scenario([DELETE_A], before=[A, FETCH, B]),
            Scenario([DELETE_A, A2], before=[A, CHARGE], faults=["kill", "power", "server"]),
        ],
        "upsert": [
            Scenario([FETCH, CHARGE], before=[A]),
            Scenario([FETCH2], before=[A, FETCH, CHARGE, B, FETCH_B]),
        ],
    }
    heals = (DELETE_A,)
    lists = (Scenario([STEPS("a")], before=[A, FETCH, CHARGE], then=[FETCH2, FETCH_B, DELETE_A]),)
    race_roles: ClassVar[Mapping[str, RaceRole]] = {
        "create_run": RaceRole(lambda run_id, number: [create(run_id, sized(number))]),
        "update_context": RaceRole(lambda run_id, number: [update(run_id, sized(number))], _created_before),
        "delete_run": RaceRole(lambda run_id, _: [DELETE(run_id)], _created_before),
        # All workers save the second step.
        "upsert_step": RaceRole(
            lambda run_id, n: [upsert(run_id, f"s{sized(n)}"), upsert(run_id, number=sized(n))], _created_before
        ),
        "get_run": RaceRole(lambda run_id, _: [GET(run_id), GET(run_id)]),
        "get_step": RaceRole(lambda run_id, _: [STEP(run_id, "fetch"), STEP(run_id, "fetch")]),
        "list_steps": RaceRole(lambda run_id, _: [STEPS(run_id), STEPS(run_id)]),
    }
    afterwards = (create("b", 9), upsert("b", "fetch", 9), STEPS("b"), update("b", 9), GET("b"))

    def add_listed(self, number: int) -> Call:
        """Return a call that adds to what is listed of `a`."""
        return upsert("a", f"step-{number}")

    test_update_context = script("core", "An update replaces a run's context.", A, UPDATE_A, *LOOK_A, RESTART, *LOOK_A)
    test_upsert_adds = script("core", "A new step is added.", A, FETCH, *LOOK_FETCH, CHARGE, *LOOK_FETCH)
    test_upsert_replaces = script("core", "An existing step is replaced.", A, FETCH, FETCH2, *LOOK_FETCH)
    test_upsert_survives_restart = script(
        "core", "Steps survive a restart.", A, FETCH, CHARGE, RESTART, *LOOK_FETCH, FETCH2, RESTART, *LOOK_FETCH
    )
    test_steps_in_order = script(
        "core",
        "Steps are listed in the order they were added, separately for each run.",
        *(A, *(upsert("a", name) for name in "mcaz"), B, *(upsert("b", name) for name in "zx"), STEPS("a"), STEPS("b")),
        needs="order",
    )
    test_steps_missing = script(
        "core",
        "Getting a step that was never saved returns nothing.",
        *(A, *LOOK_FETCH, FETCH, STEP("a", "charge"), STEP("b", "fetch"), *look("b")),
    )
    test_delete_forgets = script(
        "core",
        "A deleted run is gone, and so are its steps.",
        *(A, FETCH, CHARGE, DELETE_A, *LOOK_FETCH),
        RESTART,
        *LOOK_FETCH,
    )
    test_delete_idempotent = script(
        "core", "Deleting a missing run is not an error.", DELETE_A, A, DELETE_A, DELETE_A, *LOOK_A
    )

    test_create_keeps_steps = script(
        "safe", "Creating a run again keeps its steps.", A, FETCH, CHARGE, A2, *LOOK_A, RESTART, *LOOK_A
    )
    test_create_replaces_all = script(
        "safe",
        "Creating a run again replaces its whole record; nothing of the old one is left.",
        *(A, UPDATE_A, create("a", 2, workspace_id=None, entry_point=None, input=None, context=None), *LOOK_A),
        *(create("a", 3, agent_id="other", created_at=LONG_AGO, definition=samples.definition(id="wf-2")), *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_create_keeps_times = script(
        "safe",
        "A run keeps the times it was created with.",
        *(create("a", created_at=LONG_AGO, updated_at=LONG_AGO), FETCH, *LOOK_A),
        *(create("a", created_at=samples.MOMENT, updated_at=LONG_AGO), *LOOK_A),
    )
    test_create_others = script(
        "safe", "Creating a run affects no other.", B, FETCH_B, create("aa"), A, A2, *reads(["b", "aa"])
    )
    test_create_framework_fields = script(
        "safe",
        "Unknown fields of a definition are kept untouched.",
        create(
            "a", definition=samples.definition(retries={"most": 3, "none": None}, steps=[_STEP_WITH_UNKNOWN_FIELDS])
        ),
        *LOOK_A,
        RESTART,
        *LOOK_A,
    )
    test_update_nothing_else = script(
        "safe",
        "An update changes only the context and `updated_at`.",
        *(create("a", created_at=LONG_AGO, entry_point=None), FETCH, CHARGE, UPDATE_A, *LOOK_A, UPDATE("a", {})),
        *LOOK_A,
        RESTART,
        *LOOK_A,
    )
    test_update_whole = script(
        "safe",
        "A context is replaced, not merged.",
        *(A, UPDATE("a", {"x": {"y": 1}, "z": 2}), UPDATE("a", {"x": {"w": 3}}), *LOOK_A, UPDATE("a", [1]), *LOOK_A),
    )
    test_update_falsy = script(
        "safe",
        "A context may be a false or empty value.",
        *(call for value in FALSY for call in (A, UPDATE("a", value), GET("a"))),
        *(RESTART, GET("a")),
    )
    test_update_unknown = script(
        "safe",
        "Updating a missing run is an error and changes nothing.",
        *(UPDATE_A, *LOOK_A, B, FETCH_B, UPDATE_A, *LOOKS),
        RESTART,
        *LOOKS,
    )
    test_update_steps_alone = script(
        "safe",
        "Updating a run that has steps but was never created is an error and changes nothing.",
        *(FETCH, UPDATE_A, *LOOK_A, CHARGE, *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_update_after_delete = script(
        "safe",
        "A late update does not bring back a deleted run.",
        *(A, FETCH, DELETE_A, UPDATE_A, *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_update_others = script(
        "safe", "An update affects no other run.", A, B, create("aa"), UPDATE_A, *reads(["b", "aa"])
    )
    test_update_newest = script(
        "safe",
        "An update applies to what was saved last, whichever handle saved it.",
        *(A, UPDATE_A, second_handle(create("a", 2, agent_id="other")), UPDATE_A),
        *LOOK_A,
        second_handle(GET("a")),
    )
    test_upsert_whole = script(
        "safe",
        "A step is replaced as a whole; nothing of the old one is left.",
        A,
        *(upsert("a", error="bad", wait_task_id="task-1"), upsert("a", status="pending", result=None, started_at=None)),
        *LOOK_FETCH,
        *(RESTART, STEP("a", "fetch")),
    )
    test_upsert_before_run = script(
        "safe",
        "Steps may be saved before their run is created; the run then has them.",
        *(FETCH, *LOOK_FETCH, CHARGE, A, *LOOK_FETCH),
        RESTART,
        *LOOK_FETCH,
    )
    test_upsert_leaves_run = script(
        "safe",
        "Saving a step changes nothing in its run, not even `updated_at`.",
        *(A, FETCH, FETCH2, CHARGE, GET("a"), UPDATE_A, GET("a"), upsert("a", "charge", 2), GET("a")),
        *(RESTART, GET("a")),
    )
    test_upsert_others = script(
        "safe",
        "A step belongs to one run; a step with the same id in another run is left alone.",
        *(A, B, create("aa"), FETCH, FETCH_B, upsert("aa", "fetch", 3), FETCH2, *reads(["a", "b", "aa"])),
        RESTART,
        *reads(["a", "b", "aa"]),
    )
    test_upsert_seen_at_once = script(
        "safe",
        "A step saved through one handle is visible through every other at once, in order.",
        *(A, FETCH, second_handle(CHARGE), FETCH2, STEPS("a"), second_handle(STEPS("a"))),
        second_handle(upsert("a", "charge", 3)),
        *LOOK_FETCH,
    )
    test_upsert_statuses = script(
        "safe",
        "A step may have any status.",
        *(A, *(upsert("a", status.value, status=status) for status in TaskStatus)),
        *(STEPS("a"), RESTART, STEPS("a")),
    )
    test_steps_replaced_in_place = script(
        "safe",
        "A replaced step keeps its position.",
        *(A, *(upsert("a", name) for name in "mcaz"), *(upsert("a", name, 2) for name in "cm"), STEPS("a")),
        *(upsert("a", "b"), upsert("a", "a", 3), STEPS("a")),
        needs="order",
    )
    test_steps_in_order_after_restart = script(
        "safe",
        "The order of the steps survives a restart.",
        *(A, *(upsert("a", name) for name in "mcaz")),
        *(RESTART, STEPS("a"), upsert("a", "c", 2), upsert("a", "b"), STEPS("a"), RESTART, STEPS("a")),
        needs="order",
    )
    test_steps_begin_anew = script(
        "safe",
        "After a run is deleted, its list of steps starts over.",
        *(A, FETCH, CHARGE, DELETE_A, A, CHARGE, *LOOK_FETCH, FETCH, *LOOK_FETCH),
        RESTART,
        *LOOK_FETCH,
    )
    test_steps_many = script(
        "safe",
        "A long run is kept in full and in order.",
        *(A, *(upsert("a", f"step-{(number * 37) % 150}") for number in range(150)), UPDATE_A, STEPS("a")),
        *(upsert("a", "step-74", 2), RESTART, STEPS("a"), GET("a")),
    )
    test_delete_steps_alone = script(
        "safe",
        "Steps are deleted even if their run was never created.",
        *(FETCH, CHARGE, DELETE_A, *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_delete_others = script(
        "safe",
        "Deleting a run affects no other.",
        *(call for run_id in ("a", "b", "aa", "a-b", "a.b", "A") for call in (create(run_id), upsert(run_id))),
        DELETE_A,
        *reads(["b", "aa", "a-b", "a.b", "A"]),
        RESTART,
        *reads(["b", "aa", "a-b", "a.b", "A"]),
    )
    test_delete_then_create = script(
        "safe",
        "A run that is created again after a delete has no steps.",
        *(A, FETCH, DELETE_A, A2, *LOOK_A),
        RESTART,
        *LOOK_A,
    )
    test_delete_seen_at_once = script(
        "safe",
        "A run deleted through one handle is gone for every other.",
        *(A, FETCH, second_handle(GET("a")), second_handle(STEPS("a")), DELETE_A),
        *(second_handle(look) for look in [*LOOK_A, A, CHARGE]),
        *LOOK_A,
    )
    test_values_refused = script(
        "safe",
        "NaN and infinities are refused and change nothing.",
        *(A, FETCH, *(call for number in NOT_FINITE for call in _invalid(number)), *LOOK_A),
        RESTART,
        *LOOK_A,
        fault="input",
    )

    @clause("safe", "Changing a step or a context after handing it over does not change what is stored.")
    def test_aliasing_handed_over(self) -> None:
        calls = [upsert("a"), update("a")]
        with self.context.handles(self.context.home()) as handles:
            play = self.context.begin()
            play.run(handles, [create("a"), *calls])
            for call in calls:
                inputs.disturb(call.args)
            play.run(handles, [*(second_handle(look) for look in LOOK_FETCH), *LOOK_FETCH])

    @clause("safe", "Changing a loaded step does not change what is stored.")
    def test_aliasing_steps(self) -> None:
        with self.context.handles(self.context.home()) as handles:
            play = self.context.begin()
            play.run(handles, [create("a"), upsert("a"), upsert("a", "charge")])
            for look in LOOK_FETCH:
                inputs.disturb(self.context.driver.call(handles[FIRST], look))
            play.run(handles, [*LOOK_FETCH, *(second_handle(look) for look in LOOK_FETCH)])

    @clause("safe", "Any text can be a step id.", "input")
    def test_ids_any_step(self) -> None:
        looks = [STEPS("a"), *(STEP("a", step_id) for step_id in inputs.GOOD_IDS)]
        self.context.play([A, *(upsert("a", step_id) for step_id in inputs.GOOD_IDS), *looks, RESTART, *looks])

    @clause("safe", "Two steps of a run are never confused, whatever characters their ids hold.", "input")
    def test_ids_steps_never_collide(self) -> None:
        self.context.play_each(
            [A, upsert("a", first, 1), *looks, upsert("a", second, 2), *looks, RESTART, *looks]
            for first, second in inputs.PAIRS
            for looks in [look("a", [first, second])]
        )

    @clause("safe", "Two steps never share a record, even if run and step are the same when joined.", "input")
    def test_ids_never_joined(self) -> None:
        for (run, step), (other, another) in _ALIKE:
            looks = [*look(run, [step]), *look(other, [another])]
            saved = [create(run), upsert(run, step, 1), *looks, create(other), upsert(other, another, 2), *looks]
            self.context.play([*saved, DELETE(run), *looks])

    @clause("safe", "Every method refuses an invalid id and changes nothing.", "input")
    def test_ids_refused_everywhere(self) -> None:
        for bad in inputs.BAD_IDS[:-1]:  # the last is not valid in a record
            refused = [create(bad), update(bad), DELETE(bad), upsert(bad), STEP(bad, "fetch"), STEPS(bad), GET(bad)]
            self.context.play([A, FETCH, *refused, upsert("a", bad), STEP("a", bad), *LOOK_A, RESTART, *LOOK_A])

    test_update_stamp = timed(
        "hardened",
        "An update sets `updated_at` exactly and leaves `created_at` alone.",
        *(A, Tick(12.345), UPDATE_A, GET("a"), Tick(100), GET("a"), UPDATE_A, GET("a"), RESTART, GET("a")),
    )
    test_update_stamp_alone = timed(
        "hardened",
        "Only an update sets `updated_at` to the current time.",
        *(A, UPDATE_A, Tick(50), FETCH, GET("a"), B, update("b"), DELETE("b"), Tick(50), RESTART, GET("a")),
        *(create("a", 2, updated_at=LONG_AGO), Tick(50), GET("a")),
    )
