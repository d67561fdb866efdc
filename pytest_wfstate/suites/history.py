"""The history contract: what was said in a session, oldest first."""

from __future__ import annotations

import math
from typing import Any

from pytest_wfstate.engine.script import RESTART, second_handle
from pytest_wfstate.specs.history import APPEND, CLEAR, HISTORY, POP, READ, append, message, say
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import NO_CLAUSE, clause, script
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized
from pytest_wfstate.suites.faults.corruption import corrupted, must_raise

A, A2, A3 = say("a", 1), say("a", 2), say("a", 3)
B = say("b", 1)
TWO = append("a", message(4), message(5, "tool"))
READ_A, READ_B = READ("a"), READ("b")
READS = [READ_A, READ_B]
POP_A, CLEAR_A = POP("a"), CLEAR("a")
FALSY: list[Any] = [None, 0, 0.0, False, "", [], {}]
MANY = [append("a", *range(100 * number, 100 * number + 100)) for number in range(12)]
POPS = [POP_A] * 6
LIMITS = [READ("a", limit) for limit in (0, 1, 2, 3, 4, 100, None)]


class HistorySuite(Suite):
    """Checks a store against the history contract."""

    contract = HISTORY
    values = {
        "falsy": [append("a", *FALSY), append("a", {"zero": 0, "no": False, "none": None, "empty": "", "list": []})],
        "unicode": [append("a", "Ünïcödé 漢字 🙂 \u2028 \x7f", {"ключ": "значение\r\n"}), append("a", "e\u0301\n\t")],
        "large": [append("a", {"text": "x" * 300_000}), append("a", *[{"n": n} for n in range(3000)])],
    }
    scenarios = {
        "append": [
            Scenario([A, A2]),
            Scenario([TWO], before=[A, B]),
            Scenario([TWO], before=[A], faults=["power"], then=[CLEAR_A]),
            Scenario([A2], before=[A], faults=["power"], then=[POP_A, A3]),
        ],
        "pop": [
            Scenario([POP_A], before=[TWO, B]),
            Scenario([POP_A, A2], before=[A]),
            Scenario([POP_A], before=[TWO], faults=["power"], then=[A3]),
        ],
        "clear": [
            Scenario([CLEAR_A], before=[TWO, B]),
            Scenario([CLEAR_A, A2], before=[A]),
            Scenario([CLEAR_A], before=[A], faults=["power"], then=[A2]),
        ],
    }
    race_roles = {
        "append": RaceRole(lambda session_id, number: [append(session_id, sized(number), message(number))]),
        "pop": RaceRole(
            lambda session_id, _: [POP(session_id)], lambda session_id, n: [append(session_id, n, sized(n))]
        ),
        "clear": RaceRole(
            lambda session_id, _: [CLEAR(session_id)], lambda session_id, number: [say(session_id, number)]
        ),
        "read": RaceRole(lambda session_id, _: [READ(session_id), READ(session_id)]),
    }
    heals = [CLEAR_A]
    afterwards = [say("b", 9), READ_B, POP("b"), say("a", 9), READ_A]

    test_save_replaces = NO_CLAUSE  # appending replaces nothing

    test_append_adds = script(
        "core",
        "Items are added at the end, in their order.",
        A,
        TWO,
        B,
        A2,
        *READS,
        RESTART,
        A3,
        *READS,
        RESTART,
        *READS,
    )
    test_read_limit = script(
        "core",
        "With a limit, the newest items are read, the oldest of them first.",
        A,
        TWO,
        A2,
        *LIMITS,
        RESTART,
        *LIMITS,
    )
    test_pop_newest = script(
        "core", "Pop removes the newest item and returns it.", A, TWO, POP_A, READ_A, POP_A, A2, READ_A, RESTART, READ_A
    )
    test_pop_empty = script(
        "core", "Popping from an empty history returns nothing.", POP_A, READ_A, A, POP_A, POP_A, READ_A, RESTART, POP_A
    )
    test_clear_forgets = script("core", "A cleared history is empty.", A, TWO, B, CLEAR_A, *READS, RESTART, *READS)
    test_clear_idempotent = script(
        "core", "Clearing an empty history is not an error.", CLEAR_A, A, CLEAR_A, CLEAR_A, READ_A, RESTART, READ_A
    )

    test_append_nothing = script(
        "safe",
        "Appending no items changes nothing.",
        *(append("a"), READ_A, POP_A, A, append("a"), append("b"), READ_A, READ_B, RESTART, READ_A, READ_B),
    )
    test_append_again = script(
        "safe", "An item that equals an earlier one is added all the same.", A, A, TWO, A, READ_A, RESTART, A, READ_A
    )
    test_append_any_json = script(
        "safe",
        "An item may be any JSON value, however deeply nested.",
        *(append("a", "text", 1.5, True, [[[{"a": [None, [1]]}]]], {"": {"a.b": 1}}), READ_A, RESTART, READ_A),
    )
    test_append_exact_numbers = script(
        "safe",
        "Numbers are kept exactly, and integers stay integers.",
        *(append("a", 2**53 + 1, 2**64, 10**30, 1, 1.0, -0.5, 0.1, 1e300), READ_A, RESTART, READ_A, POP_A),
    )
    test_append_many = script("safe", "A long history is kept in full.", *MANY, READ_A, RESTART, READ("a", 3), READ_A)
    test_append_elsewhere = script(
        "safe",
        "Items that are added through several handles are all kept, in the order in which they were.",
        *(A, second_handle(A2), A3, second_handle(READ_A), second_handle(TWO), READ_A, A, RESTART, READ_A),
    )
    test_append_after_clear = script(
        "safe",
        "A cleared history starts from scratch, whichever handle cleared it.",
        *(A, TWO, CLEAR_A, A2, READ_A, second_handle(CLEAR_A), A3, READ_A, RESTART, READ_A),
    )
    test_append_others = script(
        "safe",
        "Changing one history affects no other.",
        *(A, B, say("aa"), say("a.b"), TWO, POP_A, READ_B, READ("aa"), READ("a.b"), CLEAR_A),
        *(READ_B, READ("aa"), READ("a.b"), RESTART, READ_A, READ_B, READ("aa"), READ("a.b")),
    )
    test_ids_refused_by_all = script(
        "safe",
        "Every method refuses an invalid id and changes nothing.",
        *(A, *(method(id_) for id_ in inputs.BAD_IDS for method in (say, POP, CLEAR))),
        *(READ_A, RESTART, READ_A),
        fault="input",
    )
    test_append_all_or_none = script(
        "safe",
        "If one item cannot be stored, none is.",
        *(A, append("a", message(2), math.nan), append("b", math.inf, message(2)), READ_A, READ_B),
        *(RESTART, READ_A, READ_B),
        fault="input",
    )
    test_append_a_list = script(
        "safe",
        "Items that are not in a list are refused: neither a text nor a message is taken apart.",
        *(A, APPEND("a", "text"), APPEND("a", message(2)), APPEND("a", None), READ_A, RESTART, READ_A),
        fault="input",
    )
    test_read_bad_limit = script(
        "safe",
        "A negative limit is refused.",
        *(A, READ("a", -1), READ("b", -100), READ_A),
        fault="input",
    )
    test_pop_falsy = script(
        "safe", "A falsy item is popped as it is.", append("a", *FALSY), *POPS, READ_A, RESTART, POP_A, READ_A
    )
    test_pop_elsewhere = script(
        "safe",
        "An item that is popped through one handle is gone for every other at once.",
        *(A, TWO, second_handle(READ_A), POP_A, second_handle(READ_A), second_handle(POP_A), READ_A),
        *(POP_A, second_handle(POP_A), second_handle(A2), POP_A, RESTART, READ_A),
    )
    test_clear_elsewhere = script(
        "safe",
        "A history that is cleared through one handle is empty for every other at once.",
        *(A, second_handle(READ_A), CLEAR_A, second_handle(READ_A), second_handle(POP_A), second_handle(A2), READ_A),
    )

    @clause("safe", "Appending to an unreadable history is an error; it does not start from scratch.", "input")
    def test_corrupt_not_reset(self) -> None:
        with corrupted(self.context) as (handles, _):
            must_raise(handles, A2)
            must_raise(handles, POP_A)
            handles.restart()
            must_raise(handles, READ_A)
