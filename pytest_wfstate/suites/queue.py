"""The queue contract: work that waits for a worker, oldest first, and work that a worker has taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.base import Call, ResultOf
from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.script import RESTART, Step, Tick, second_handle
from pytest_wfstate.errors import Violation
from pytest_wfstate.specs.queue import DONE, LIST, PUT, QUEUE, RECOVER, RETRY, SIZE, TAKE, put
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import NO_CLAUSE, clause, script, timed
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized
from pytest_wfstate.suites.faults.corruption import block, damage_change, scribble


def _put_before(item_id: str, number: int) -> list[Call]:
    return [put(item_id, sized(number))]


def _steps(*steps: Step | Tick) -> tuple[Any, ...]:
    """Return the steps, so that a script can have several in a line."""
    return steps  # mypy cannot type a plain tuple of them


A, A2, B, C = put("a", 1), put("a", 2), put("b", 1), put("c", 1)
TOOK = TAKE()
LOOK = [LIST(), SIZE()]
FIRST_TOKEN, NEXT_TOKEN, LAST_TOKEN = ResultOf("take", 0), ResultOf("take", 1), ResultOf("take")
DONE_A, RETRY_A = DONE("a", FIRST_TOKEN), RETRY("a", FIRST_TOKEN)
OBSERVE = QUEUE.observe(["a", "b"])
FALSY: list[Any] = [None, 0, 0.0, False, "", [], {}]
MANY = [put(f"item {number}", number) for number in range(120)]


class QueueSuite(Suite):
    """Checks a store against the queue contract."""

    contract = QUEUE
    values = {
        "falsy": [*(PUT("a", value) for value in FALSY), PUT("a", {"zero": 0, "no": False, "none": None, "list": []})],
        "unicode": [PUT("a", "Ünïcödé 漢字 🙂 \u2028 \x7f"), PUT("a", {"ключ": "значение\r\n"})],
        "large": [PUT("a", {"text": "x" * 300_000, "rows": [{"n": n} for n in range(3000)]})],
    }
    scenarios = {
        "put": [
            Scenario([A, B]),
            Scenario([B], before=[A, TOOK]),
            Scenario([B], before=[A], faults=["power"], then=[TOOK, C]),
        ],
        "take": [
            Scenario([TOOK, TOOK], before=[A, B]),
            Scenario([TOOK], before=[A], faults=["power"], then=[B, TOOK]),
        ],
        "done": [
            Scenario([TOOK, DONE_A], before=[A, B], first=[DONE_A]),
            Scenario([TOOK, DONE_A, A2], before=[A], faults=["power"], first=[DONE_A]),
        ],
        "retry": [
            Scenario([TOOK, RETRY_A], before=[A, B], first=[DONE_A]),
            Scenario([TOOK, RETRY_A, TOOK], before=[A], faults=["power"], first=[DONE_A]),
        ],
        "recover": [Scenario([RECOVER()], before=[A, B, C, TOOK, TOOK])],
        # The item is lost to another worker: its first token must not end it, however little of that is on the disk.
        "takeover": [Scenario([TOOK, RECOVER(), TOOK], before=[A], first=[DONE_A])],
    }
    race_roles = {
        "put": RaceRole(_put_before),
        "take": RaceRole(lambda *_: [TAKE()], _put_before),
        "done": RaceRole(lambda item_id, _: [TAKE(), DONE(item_id, LAST_TOKEN)], _put_before),
        # The worker that recovers an item takes it: the one that had it before must not end it any more.
        "recover": RaceRole(
            lambda *_: [RECOVER(), TAKE()], lambda item_id, number: [*_put_before(item_id, number), TAKE()]
        ),
        "list": RaceRole(lambda *_: [LIST(), SIZE()]),
    }
    kills_racers = True
    afterwards = [put("c", 9), TAKE(), TAKE(), TAKE()]

    test_save_replaces = test_handles_see_each_other = NO_CLAUSE  # putting an id again changes nothing
    test_corrupt_stays_local = NO_CLAUSE  # a queue that lost an item must not go on with the next

    test_take_oldest = script(
        "core",
        "Items are taken whole, in the order in which they were put.",
        *_steps(C, A, RESTART, B, TOOK, TOOK, second_handle(put("d", 4)), RESTART, TOOK, TOOK, TOOK),
    )
    test_take_empty = script("core", "Taking from an empty queue returns nothing.", TOOK, A, TOOK, TOOK, RESTART, TOOK)
    test_take_hides = script("core", "A taken item no longer waits.", A, B, TOOK, *LOOK, RESTART, *LOOK, TOOK, *LOOK)
    test_done_ends = script(
        "core",
        "An item that is done is gone; recovery does not bring it back.",
        *_steps(A, TOOK, DONE_A, *LOOK, RESTART, *OBSERVE, TOOK),
    )
    test_retry_waits = script(
        "core", "An item that is to be retried waits again.", *_steps(A, TOOK, RETRY_A, *LOOK, RESTART, *LOOK, TOOK)
    )
    test_recover_waits = script(
        "core", "An item waits again once it is recovered from a worker that is gone.", A, TOOK, RESTART, *OBSERVE, TOOK
    )
    test_recover_nothing = script(
        "core", "Recovery with nothing to recover returns 0.", RECOVER(), A, RECOVER(), *LOOK, TOOK, DONE_A, RECOVER()
    )
    test_size_waiting = script(
        "core", "The size is the number of items that wait.", SIZE(), A, B, SIZE(), TOOK, SIZE(), DONE_A, SIZE()
    )

    test_put_again = script(
        "safe",
        "Putting an id that waits changes nothing, neither its value nor its place.",
        *_steps(A, B, A2, second_handle(A2), *LOOK, RESTART, A2, TOOK, TOOK, TOOK),
    )
    test_put_taken = script(
        "safe",
        "Putting an id that is taken changes nothing: it is at work already.",
        *_steps(A, TOOK, A2, second_handle(A2), *LOOK, TOOK, RESTART, A2, RETRY_A, *LOOK, TOOK),
    )
    test_put_after_done = script(
        "safe",
        "An id that is done can be put again, as a new item.",
        *_steps(A, TOOK, DONE_A, A2, *LOOK, TOOK, DONE("a", NEXT_TOKEN), RESTART, A, *LOOK),
    )
    test_put_any_json = script(
        "safe",
        "A value may be any JSON value, however deeply nested.",
        *_steps(PUT("one", "text"), PUT("two", [[[{"a": [None, [1]]}]]]), PUT("three", 1.5), PUT("four", True)),
        *_steps(PUT("five", {"": {"a.b": 1}}), LIST(), RESTART, LIST(), TOOK, TOOK, TOOK, TOOK, TOOK),
    )
    test_put_exact_numbers = script(
        "safe",
        "Numbers are kept exactly, and integers stay integers.",
        *_steps(PUT("a", [2**53 + 1, 2**64, 10**30, 1, 1.0, -0.5, 0.1, 1e300]), LIST(), RESTART, LIST(), TOOK),
    )
    test_put_refused = script(
        "safe",
        "A value that cannot be stored is refused and changes nothing.",
        *_steps(A, PUT("b", math.nan), PUT("c", {"rate": [math.inf]}), *LOOK, RESTART, *LOOK, B, TOOK, TOOK),
        fault="input",
    )
    test_take_one_winner = script(
        "safe",
        "An item is taken once, whichever handle asks.",
        *_steps(A, TOOK, second_handle(TOOK), TOOK, B, second_handle(TOOK), TOOK, RESTART, TOOK),
    )
    test_take_many = script(
        "safe", "A long queue keeps its order.", *MANY, SIZE(), RESTART, LIST(), *[TOOK] * 15, RESTART, LIST()
    )
    test_take_counts = script(
        "safe",
        "An item counts how often it was taken, however it came to wait again.",
        *_steps(A, LIST(), TOOK, RETRY_A, LIST(), TOOK, RECOVER(), LIST(), RESTART, second_handle(TOOK)),
    )
    test_take_elsewhere = script(
        "safe",
        "What is put, taken or done through one handle is so for every other at once.",
        *_steps(second_handle(LIST()), A, second_handle(LIST()), second_handle(TOOK), *LOOK, TOOK, DONE_A),
        *_steps(second_handle(LIST()), second_handle(RECOVER())),
        *_steps(A2, second_handle(TOOK), second_handle(RETRY("a", NEXT_TOKEN)), *LOOK, TOOK, RESTART, *OBSERVE),
    )
    test_done_after_restart = script(
        "safe",
        "A restarted worker can end an item that it took before.",
        *_steps(A, B, TOOK, TOOK, RESTART, DONE_A, RETRY("b", NEXT_TOKEN), *OBSERVE),
    )
    test_done_others = script(
        "safe",
        "Ending an item affects no other.",
        *_steps(A, B, put("aa"), put("a.b"), TOOK, TOOK, TOOK, DONE_A, *LOOK, RETRY("b", NEXT_TOKEN), *LOOK),
        *_steps(RESTART, *OBSERVE),
    )
    test_retry_keeps_place = script(
        "safe",
        "An item that is to be retried keeps its place.",
        *_steps(A, B, C, TOOK, RETRY_A, LIST(), TOOK, TOOK, TOOK, RETRY("b", ResultOf("take", 2)), RESTART, LIST()),
    )
    test_recover_keeps_place = script(
        "safe",
        "Recovered items keep their places.",
        *_steps(A, B, C, TOOK, TOOK, put("d"), RESTART, RECOVER(), LIST(), TOOK, RECOVER(), LIST()),
    )
    test_recover_all = script(
        "safe",
        "Recovery reaches every taken item, once, and returns how many there were.",
        *_steps(A, B, C, TOOK, TOOK, RESTART, RECOVER(), RECOVER(), *LOOK, TOOK, RECOVER(), *LOOK),
    )
    test_ids_refused = script(
        "safe",
        "Every method refuses an invalid id and changes nothing.",
        *_steps(A, TOOK, B, *(PUT(item_id, 1) for item_id in inputs.BAD_IDS)),
        *(method(item_id, FIRST_TOKEN) for item_id in inputs.BAD_IDS for method in (DONE, RETRY)),
        *_steps(*LOOK, RESTART, *OBSERVE),
        fault="input",
    )

    @clause("safe", "A damaged queue gives its items or an error: it is never taken to be empty.", "input")
    def test_corrupt_is_loud(self) -> None:
        for damage in (scribble, block):
            self._take_after(damage)

    test_done_token_lost = script(
        "hardened",
        "A late `done` changes nothing: the token no longer matches once another worker has taken the item.",
        *_steps(A, TOOK, second_handle(RECOVER()), DONE_A, *LOOK, second_handle(TOOK), DONE_A, RESTART, DONE_A),
        *_steps(*OBSERVE, DONE("a", NEXT_TOKEN), *OBSERVE),
    )
    test_done_token_once = script(
        "hardened",
        "A token ends its take once, and nothing that comes after it.",
        *_steps(A, TOOK, DONE_A, DONE_A, A2, DONE_A, RETRY_A, *LOOK, TOOK, DONE_A, RESTART, *OBSERVE),
    )
    test_retry_token_lost = script(
        "hardened",
        "A late `retry` changes nothing: an item that another worker has taken does not wait again.",
        *_steps(A, TOOK, second_handle(RECOVER()), RETRY_A, *LOOK, second_handle(TOOK), RETRY_A, *LOOK),
        *_steps(RESTART, RETRY_A, *LOOK, DONE("a", NEXT_TOKEN), RETRY_A, RETRY("a", NEXT_TOKEN), *OBSERVE),
    )
    test_retry_token_once = script(
        "hardened",
        "An item that waits again is not ended by the token of its last take.",
        *_steps(A, TOOK, RETRY_A, RETRY_A, DONE_A, *LOOK, TOOK, RETRY_A, *LOOK, RESTART, DONE_A, *OBSERVE),
    )
    test_token_others = script(
        "hardened",
        "The token of one item ends no other.",
        *_steps(A, B, TOOK, TOOK, DONE("b", FIRST_TOKEN), RETRY("b", FIRST_TOKEN), *LOOK, RESTART, *OBSERVE),
    )
    test_token_refused = script(
        "hardened",
        "Invalid tokens are refused, and change nothing.",
        *_steps(A, TOOK, *(method("a", token) for token in [*inputs.BAD_IDS, 17] for method in (DONE, RETRY))),
        *_steps(DONE("a", None), *LOOK, RESTART, *OBSERVE),
        fault="input",
    )

    @clause("hardened", "Every take has a new token.")
    def test_token_new(self) -> None:
        retry, done = RETRY("a", LAST_TOKEN), DONE("a", LAST_TOKEN)
        with self.context.handles(self.context.home()) as handles:
            script = self.context.begin()
            script.run(handles, [A, TOOK, retry, TOOK, RECOVER(), second_handle(TOOK), done, A, TOOK, RESTART])
            script.run(handles, [RECOVER(), TOOK])
        tokens = script.results.tokens("take")
        if len(set(tokens)) < len(tokens):
            raise Violation(f"{len(tokens)} takes of item 'a', one after the other, have the tokens {tokens}.")

    test_recover_older_than = timed(
        "hardened",
        "Recovering what was taken long ago leaves the rest alone.",
        *_steps(A, B, TOOK, Tick(50), TOOK, Tick(20), second_handle(RECOVER(60)), *LOOK, RESTART, RECOVER(60)),
        *_steps(Tick(60), RECOVER(60), *LOOK),
    )
    test_recover_older_than_limit = timed(
        "hardened",
        "An item that was taken exactly as long ago as the limit is recovered.",
        *_steps(A, TOOK, Tick(59.9), second_handle(RECOVER(60)), Tick(0.1), second_handle(RECOVER(60)), *LOOK),
    )
    test_recover_age_of_last_take = timed(
        "hardened",
        "The age of a take counts from the latest one.",
        *_steps(A, TOOK, Tick(100), RECOVER(), TOOK, Tick(30), second_handle(RECOVER(60)), *LOOK),
    )
    test_recover_bad_age = script(
        "hardened",
        "An age that is negative or not a number is refused and changes nothing.",
        *_steps(A, TOOK, RECOVER(-1), RECOVER("soon"), RECOVER(math.nan), RECOVER(True), *LOOK, RESTART, *OBSERVE),
        fault="input",
    )

    def _take_after(self, damage: Callable[[Path], None]) -> None:
        """Damage what putting an item has changed, and take it."""
        context, home = self.context, self.context.home()
        with context.handles(home) as handles:
            context.begin().run(handles, [B, TOOK, DONE("b", FIRST_TOKEN)])
        damage_change(context, home, damage, A)
        with context.handles(home) as handles:
            try:
                taken = context.driver.call(handles[FIRST], TOOK)
            except Exception:  # it says that the queue is damaged
                return
        if taken is None:
            raise Violation("take() -> None\n    expected: item 'a' or an error, because the queue is damaged")
