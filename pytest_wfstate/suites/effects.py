"""The effects contract: which tool calls of a task are done, so that a restart does not repeat them."""

from __future__ import annotations

import itertools
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts import WorkflowCheckpoint
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.script import RESTART, Tick, ViaHandle, second_handle
from pytest_wfstate.specs.effects import DELETE, EFFECTS, LOAD, MARK, SAVE, checkpoint, save
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import clause, script, timed
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized
from pytest_wfstate.suites.faults.corruption import corrupted, must_raise


def mark(task_id: str, tool_use_id: str, **fields: Any) -> Call:
    """Return a call that marks a tool call as done."""
    return MARK(task_id, tool_use_id, samples.effect(tool_use_id, **fields))


def _saved_before(task_id: str, number: int) -> list[Call]:
    return [save(task_id, number)]


def third(call: Call) -> ViaHandle:
    """Return a call through a third handle."""
    return ViaHandle("third", call)


def _invalid(task_id: str) -> WorkflowCheckpoint:
    """Return a checkpoint that became invalid after it was created."""
    invalid = checkpoint(task_id, 2)
    invalid.side_effects_log.append("a note")  # type: ignore[arg-type]
    return invalid


A = save("a", 1)
B = save("b", 1)
LOOK_A = LOAD("a")
LOOK_B = LOAD("b")
LOOKS = [LOOK_A, LOOK_B]
DELETE_A = DELETE("a")
MARKS_A = [mark("a", f"m{number}") for number in range(1, 151)]
M1, M2, M3, M4 = MARKS_A[:4]
LONG_MARK = mark("a", "long", target="y" * 600)
# Records that end shortly before a page of 4,096 bytes does: a power cut can tear the write that crosses it.
PAGE_A, FULLER_PAGE_A = save("a", agent_id="x" * 3600), save("a", agent_id="x" * 3750)
WRONG_EFFECT = MARK("a", "m1", samples.effect("m2"))
NO_TARGET = samples.effect("none", target=None)


class EffectSuite(Suite):
    """Checks a store against the effects contract."""

    contract = EFFECTS
    values = {
        "falsy": [
            save("a", 0, agent_id="", updated_at=0),
            save("a", completed_tool_ids=[], updated_at=-1),
            save("a", side_effects_log=[samples.effect("", tool_name="", target="", completed_at=0), NO_TARGET]),
        ],
        "unicode": [
            save("a", agent_id="Ünïcödé 漢字 🙂 \u2028 \x7f", completed_tool_ids=["ключ", "\n"]),
            save("a", side_effects_log=[samples.effect("é", tool_name="送金", target="e\u0301\r\n\t")]),
        ],
        "large": [save("a", 2000), save("a", agent_id="x" * 300_000)],
    }
    scenarios = {
        "save": [Scenario([A]), Scenario([save("a", 2)], before=[A, B]), Scenario([save("a", 2)], before=[M1, M2])],
        "mark": [
            Scenario([M1, M2]),
            Scenario([M1], before=[A, B]),
            Scenario([M2, M1], before=[M1]),
            # Long enough for a store to compact the log.
            Scenario(MARKS_A[65:66], before=MARKS_A[:65], faults=["kill", "power"]),
            Scenario([M1, M2], before=[PAGE_A], faults=["power", "errors"]),
            Scenario([M1], before=[FULLER_PAGE_A], faults=["power"], then=[LONG_MARK]),
            Scenario([LONG_MARK], before=[FULLER_PAGE_A], faults=["power"], then=[M1]),
            Scenario([M2], before=[M1], faults=["power"], then=[DELETE_A]),
        ],
        "delete": [
            Scenario([DELETE_A], before=[A, B]),
            Scenario([DELETE_A, M1], before=[M1, M2]),
            Scenario([DELETE_A], before=[M1], faults=["power"], then=[M2]),
        ],
    }
    race_roles = {
        "save": RaceRole(lambda task_id, number: [save(task_id, number)]),
        # All workers make the second mark, as if they retried the same call.
        "mark": RaceRole(
            lambda task_id, number: [mark(task_id, f"m{sized(number)}"), mark(task_id, "m")], _saved_before
        ),
        "delete": RaceRole(lambda task_id, _: [DELETE(task_id)], _saved_before),
        "load": RaceRole(lambda task_id, _: [LOAD(task_id), LOAD(task_id)]),
    }
    heals = [save("a", 2), DELETE_A]
    afterwards = [mark("b", "after"), LOOK_B, mark("a", "after"), LOOK_A]

    test_mark_creates = script(
        "core", 'The first mark of a task creates a checkpoint for it, with agent "unknown".', M1, *LOOKS
    )
    test_mark_adds = script(
        "core",
        "A mark adds its id and its effect, increments the step index, and keeps the rest.",
        *(A, M1, LOOK_A, M2, LOOK_A),
    )
    test_mark_in_order = script(
        "core", "Effects are logged in the order they were marked.", M3, M1, M4, M2, LOOK_A, RESTART, LOOK_A
    )
    test_mark_survives_restart = script(
        "core", "Marks survive a restart.", A, M1, mark("b", "m1"), RESTART, *LOOKS, M2, M3, RESTART, *LOOKS
    )
    test_delete_forgets = script(
        "core", "A deleted task is gone.", A, B, M1, DELETE_A, *LOOKS, DELETE("b"), LOOK_B, RESTART, *LOOKS
    )
    test_delete_idempotent = script(
        "core", "Deleting a missing task is not an error.", DELETE_A, A, DELETE_A, DELETE_A, LOOK_A, RESTART, LOOK_A
    )

    test_mark_idempotent = script(
        "safe", "Marking the same id again changes nothing.", M1, M2, M1, mark("a", "m1", target="other"), LOOK_A
    )
    test_mark_idempotent_after_restart = script(
        "safe",
        "Marking the same id again after a restart changes nothing.",
        *(A, M1, RESTART, M1, LOOK_A, RESTART, LOOK_A),
    )
    test_mark_idempotent_elsewhere = script(
        "safe",
        "Marking an id that another handle has already marked changes nothing.",
        *(M1, second_handle(M1), second_handle(M2), M2, third(M1), LOOK_A, RESTART, LOOK_A),
    )
    test_mark_idempotent_saved = script(
        "safe",
        "Marking an id that was saved as done changes nothing, whether or not its effect is in the log.",
        *(save("a", completed_tool_ids=["use-0", "m1"]), mark("a", "use-0"), M1, LOOK_A, RESTART, LOOK_A),
    )
    test_mark_counts_on = script(
        "safe",
        "The step index continues from the saved one, whatever is in the log.",
        *(save("a", step_index=41), M1, LOOK_A, RESTART, M2, LOOK_A),
    )
    test_mark_keeps_agent = script(
        "safe", "A mark keeps the task's agent, even an empty one.", save("a", agent_id=""), M1, LOOK_A, RESTART, LOOK_A
    )
    test_mark_seen_at_once = script(
        "safe",
        "A mark made through one handle is visible through every other at once.",
        *(M1, second_handle(LOOK_A), second_handle(M2), LOOK_A, third(LOOK_A), M3, second_handle(LOOK_A)),
        third(LOOK_A),
    )
    test_mark_not_lost = script(
        "safe",
        "Marks made through several handles are all kept.",
        *(A, M1, second_handle(M2), third(M3), M4, second_handle(MARKS_A[5]), LOOK_A, third(LOOK_A), RESTART, LOOK_A),
    )
    test_mark_after_save = script(
        "safe",
        "A mark adds to what another handle has saved in the meantime.",
        *(A, M1, second_handle(save("a", 3)), M2, LOOK_A, second_handle(LOOK_A), RESTART, LOOK_A),
    )
    test_mark_after_delete = script(
        "safe",
        "A mark after a delete starts from scratch, whichever handle deleted the task.",
        *(A, M1, DELETE_A, M1, LOOK_A, second_handle(M2), second_handle(DELETE_A), M2, LOOK_A, RESTART, LOOK_A),
    )
    test_mark_others = script(
        "safe",
        "A mark affects no other task, even one with the same tool call id.",
        *(A, B, save("aa"), M1, mark("b", "m1"), LOOK_A, LOOK_B, LOAD("aa"), RESTART, LOOK_A, LOOK_B, LOAD("aa")),
    )
    test_mark_long_log = script(
        "safe", "A long log is kept in full.", *MARKS_A, LOOK_A, *MARKS_A[:3], LOOK_A, RESTART, LOOK_A
    )
    test_mark_values = script(
        "safe",
        "An effect is logged unchanged, whether its text is empty, long or not ASCII.",
        *(mark("a", "m1", target=None), mark("a", "m2", target="", tool_name="", completed_at=0, reversible=True)),
        *(mark("a", "m3", target="Ünïcödé 漢字 🙂 \u2028\n"), mark("a", "m4", target="x" * 100_000, completed_at=-5)),
        *(LOOK_A, RESTART, LOOK_A),
    )
    test_mark_any_id = script(
        "safe",
        "Any text can be a tool call id.",
        *(mark("a", use_id) for use_id in inputs.GOOD_IDS),
        *(LOOK_A, RESTART, LOOK_A),
        fault="input",
    )
    test_mark_ids_differ = script(
        "safe",
        "Two tool calls are the same only if their ids match character for character.",
        *(mark("a", use_id) for use_id in dict.fromkeys(itertools.chain(*inputs.PAIRS))),
        *(LOOK_A, RESTART, LOOK_A),
        fault="input",
    )
    test_mark_wrong_effect = script(
        "safe",
        "The effect of another tool call is refused and changes nothing.",
        *(WRONG_EFFECT, LOOK_A, A, WRONG_EFFECT, LOOK_A, RESTART, LOOK_A),
        fault="input",
    )
    test_mark_bad_id = script(
        "safe",
        "A mark with an invalid id is refused and changes nothing.",
        *(A, mark("a", ""), mark("a", "nul\0byte"), mark("a", "x" * 1025), mark("", "m1"), LOOK_A, RESTART, LOOK_A),
        fault="input",
    )
    test_save_after_marks = script(
        "safe",
        "Saving a checkpoint replaces all marks: a tool call it does not list is not done.",
        *(M1, M2, A, LOOK_A, second_handle(LOOK_A), M1, LOOK_A, RESTART, LOOK_A),
    )
    test_save_after_delete = script(
        "safe", "A deleted task can be saved again.", A, DELETE_A, LOOK_A, save("a", 2), LOOK_A, RESTART, LOOK_A
    )
    test_save_bad_id = script(
        "safe",
        "A checkpoint with an invalid id is refused and changes nothing.",
        *(A, save(""), save("nul\0byte"), save("x" * 1025), LOOK_A),
        fault="input",
    )
    test_delete_seen_at_once = script(
        "safe",
        "A task deleted through one handle is gone for every other.",
        *(A, second_handle(LOOK_A), DELETE_A, second_handle(LOOK_A), second_handle(M1), LOOK_A),
        *(second_handle(DELETE_A), LOOK_A),
    )
    test_delete_others = script(
        "safe",
        "Deleting a task affects no other.",
        *(A, B, save("aa"), save("a.b"), mark("aa", "m1"), DELETE_A, LOAD("aa"), LOAD("a.b"), LOOK_B),
        *(RESTART, LOOK_A, LOAD("aa"), LOAD("a.b"), LOOK_B),
    )

    test_mark_sets_time = timed(
        "hardened",
        "A mark sets the checkpoint's time, in whole seconds.",
        *(A, Tick(10), M1, LOOK_A, Tick(0.9), M2, LOOK_A, Tick(3600), second_handle(M3), LOOK_A, RESTART, LOOK_A),
        *(mark("b", "m1"), LOOK_B),
    )
    test_mark_again_keeps_time = timed(
        "hardened",
        "Marking the same id again leaves the checkpoint's time alone.",
        *(A, M1, Tick(100), M1, mark("a", "use-0"), LOOK_A, Tick(100), second_handle(M1), LOOK_A, RESTART, LOOK_A),
    )
    test_mark_too_many = script(
        "hardened",
        "A mark that would overflow the step index is refused and changes nothing.",
        *(save("a", step_index=2**32 - 2), M1, M2, LOOK_A, RESTART, LOOK_A, M1, LOOK_A),
        fault="input",
    )
    test_save_unsound = script(
        "hardened",
        "A checkpoint that became invalid after it was created is refused and changes nothing.",
        *(SAVE(_invalid("b")), A, SAVE(_invalid("a")), LOOK_A, LOOK_B, RESTART, LOOK_A, LOOK_B),
        fault="input",
    )

    @clause("safe", "Changing an effect after marking it does not change what is stored.")
    def test_aliasing_marked(self) -> None:
        with self.context.handles(self.context.home()) as handles:
            play, call = self.context.begin(), mark("a", "m1")
            play.run(handles, [call])
            call.args[2].target = "changed"
            play.run(handles, [LOOK_A, second_handle(LOOK_A)])

    @clause("safe", "A mark on an unreadable checkpoint is an error; it does not start from scratch.", "input")
    def test_corrupt_not_reset(self) -> None:
        with corrupted(self.context) as (handles, _):
            must_raise(handles, M1)
            handles.restart()
            must_raise(handles, LOOK_A)
