"""The resume contract: where a run continues after a restart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import samples
from pytest_wfstate.contracts import ResumePoint
from pytest_wfstate.engine.handles import Handles, OpenStore
from pytest_wfstate.engine.script import RESTART, second_handle
from pytest_wfstate.specs.resume import DELETE, LOAD, RESUME, SAVE, save
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import clause, script
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized


def _invalid(run_id: str) -> ResumePoint:
    """Return a point that became invalid after it was created: NaN has no JSON equivalent."""
    invalid = samples.resume_point(run_id, step=2)
    invalid.scope_snapshot["ratio"] = math.nan
    return invalid


A = save("a", 1)
A2 = save("a", 2, next_node_id="reply")
B = save("b", 1)
LOOK_A = LOAD("a")
LOOK_B = LOAD("b")
LOOKS = [LOOK_A, LOOK_B]
DELETE_A = DELETE("a")
FALSY: list[Any] = [[], 0, 0.0, False, "", None]
LONG = save("a", 1, scope_snapshot={"messages": ["word " * 20] * 100})


class ResumeSuite(Suite):
    """Checks a store against the resume contract."""

    contract = RESUME
    values = {
        "falsy": [
            save("a", 0, workflow_name="", next_node_id="", scope_snapshot={}),
            save("a", scope_snapshot={"zero": 0, "no": False, "none": None, "empty": "", "list": [], "dict": {}}),
            *(save("a", scope_snapshot=scope) for scope in FALSY),
        ],
        "unicode": [save("a", next_node_id="Ünïcödé 漢字 🙂 \u2028 \x7f", scope_snapshot={"ключ": "значение\r\n"})],
        "large": [save("a", scope_snapshot={"text": "x" * 300_000, "rows": [{"n": n} for n in range(3000)]})],
    }
    scenarios = {
        "save": [
            Scenario([A, A2]),
            Scenario([A2], before=[A, B]),
            Scenario([A2], before=[LONG, B]),
            Scenario([A2], before=[A], faults=["power"], then=[DELETE_A]),
        ],
        "delete": [
            Scenario([DELETE_A], before=[A, B]),
            Scenario([DELETE_A, A2], before=[A]),
            Scenario([DELETE_A], before=[A], faults=["power"], then=[A2]),
        ],
    }
    race_roles = {
        "save": RaceRole(lambda run_id, number: [save(run_id, sized(number))]),
        "delete": RaceRole(lambda run_id, _: [DELETE(run_id)], lambda run_id, number: [save(run_id, sized(number))]),
        "load": RaceRole(lambda run_id, _: [LOAD(run_id), LOAD(run_id)]),
    }
    heals = [A2, DELETE_A]
    afterwards = [save("b", 9), LOOK_B, DELETE("b"), save("b", 10)]

    test_delete_forgets = script("core", "A deleted run is gone.", A, B, A2, DELETE_A, *LOOKS, RESTART, *LOOKS)
    test_delete_idempotent = script(
        "core", "Deleting a missing run is not an error.", DELETE_A, A, DELETE_A, DELETE_A, LOOK_A, RESTART, LOOK_A
    )

    test_save_shorter = script(
        "safe",
        "A short point replaces a long one completely.",
        *(LONG, save("a", scope_snapshot={}), LOOK_A, RESTART, LOOK_A),
    )
    test_save_any_json = script(
        "safe",
        "A scope may be any JSON value, however deeply nested.",
        *(save("one", scope_snapshot="text"), save("two", scope_snapshot=[[[{"a": [None, [1]]}]]])),
        *(save("three", scope_snapshot=1.5), save("four", scope_snapshot=True)),
        *(save("five", scope_snapshot={"": {"a.b": 1}}), LOAD("one"), LOAD("two"), LOAD("three"), LOAD("four")),
        *(LOAD("five"), RESTART, LOAD("one"), LOAD("two"), LOAD("three"), LOAD("four"), LOAD("five")),
    )
    test_save_exact_numbers = script(
        "safe",
        "Numbers are kept exactly, and integers stay integers.",
        *(save("a", 2**64 - 1, scope_snapshot=[2**53 + 1, 10**30, 1, 1.0, -0.5, 0.1, 1e300]), LOOK_A, RESTART, LOOK_A),
    )
    test_save_others = script(
        "safe",
        "Saving a run again affects no other.",
        *(A, B, save("aa", 5), A2, LOOK_B, LOAD("aa"), RESTART, LOOK_A, LOOK_B, LOAD("aa")),
    )
    test_save_after_delete = script(
        "safe", "A deleted run can be saved again.", A, DELETE_A, LOOK_A, A2, LOOK_A, RESTART, LOOK_A
    )
    test_save_bad_id = script(
        "safe",
        "A point with an invalid id is refused and changes nothing.",
        *(A, save(""), save("nul\0byte"), save("x" * 1025), LOOK_A),
        fault="input",
    )
    test_save_elsewhere = script(
        "safe",
        "The last save wins, whichever handle made it, even if that handle repeats its previous save.",
        *(A, second_handle(A2), A, LOOK_A, second_handle(LOOK_A), second_handle(A2), LOOK_A, RESTART, LOOK_A),
    )
    test_delete_seen_at_once = script(
        "safe",
        "A run deleted through one handle is gone for every other until it is saved again.",
        *(A, second_handle(LOOK_A), DELETE_A, second_handle(LOOK_A), second_handle(A2), LOOK_A),
        *(second_handle(DELETE_A), LOOK_A, RESTART, LOOK_A),
    )
    test_delete_others = script(
        "safe",
        "Deleting a run affects no other.",
        *(A, B, save("aa"), save("a.b"), DELETE_A, LOOK_B, LOAD("aa"), LOAD("a.b"), DELETE("c")),
        *(RESTART, LOOK_A, LOOK_B, LOAD("aa"), LOAD("a.b")),
    )
    test_save_unsound = script(
        "hardened",
        "A point that became invalid after it was created is refused and changes nothing.",
        *(SAVE(_invalid("b")), A, SAVE(_invalid("a")), LOOK_A, LOOK_B, RESTART, LOOK_A, LOOK_B),
        fault="input",
    )

    @clause(
        "safe", "Without its folder a store loads nothing and deletes without error; the first save creates the folder."
    )
    def test_load_before_folder(self) -> None:
        self.context.need_files("it has no folder")
        home = self.context.unprepared_home()
        home.rmdir()
        with Handles(lambda: self._open_without(home), self.context.driver) as handles:
            self.context.begin().run(handles, [LOOK_A, DELETE_A, LOOK_A, RESTART, LOOK_A, A, LOOK_A, RESTART, LOOK_A])

    def _open_without(self, home: Path) -> OpenStore:
        try:
            return self.context.open(home)
        except Exception as error:
            if home.exists():
                raise
            pytest.skip(f"not offered: open() raises {type(error).__name__} before its folder is there")
