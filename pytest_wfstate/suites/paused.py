"""The paused contract: which runs wait for a human, and which worker has claimed one to resume it."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import pytest

from pytest_wfstate.contracts.base import Call, ResultOf
from pytest_wfstate.contracts.paused import Workflow
from pytest_wfstate.engine.driver import NOT_OFFERED
from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.script import RESTART, Step, Tick, second_handle
from pytest_wfstate.errors import Violation
from pytest_wfstate.specs.paused import (
    CLAIM,
    COMPLETE,
    LIST,
    LOAD,
    PAUSED,
    RECOVER,
    REMOVE,
    RENEW,
    TOKEN,
    reads,
    save,
)
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import clause, script, timed
from pytest_wfstate.suites.faults import RaceRole, Scenario, sized
from pytest_wfstate.suites.faults.corruption import corrupted, must_raise


def _saved_before(run_id: str, number: int) -> list[Call]:
    return [save(run_id, sized(number))]


def _steps(*steps: Step | Tick) -> tuple[Any, ...]:
    """Return the steps, so that a script can have several in a line."""
    return steps  # mypy cannot type a plain tuple of them


def _newer(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow as a newer framework would write it."""
    fields = workflow.model_dump(mode="json", by_alias=True)
    for part in (fields, *fields["stages"], *fields["edges"]):
        part["added"] = {"later": [1, None]}
    return fields


A = save("a", 1)
A2 = save("a", 2)
B = save("b", 1)
CLAIM_A = CLAIM("a")
TOKEN_A = TOKEN("a")
FIRST_TOKEN, NEXT_TOKEN, LAST_TOKEN = ResultOf("token", 0), ResultOf("token", 1), ResultOf("token")
COMPLETE_A = COMPLETE("a", FIRST_TOKEN)
RENEW_A = RENEW("a", FIRST_TOKEN)
INVALID = save("a", 2)
INVALID.args[0].wf_state["rate"] = math.nan  # a record that was valid when it was created
NEWER = save("a", workflow=_newer(A.args[0].workflow))
LOOK_A = [LIST(), LOAD("a")]
OBSERVE = PAUSED.observe(["a", "b"])


class PausedSuite(Suite):
    """Checks a store against the paused contract."""

    contract = PAUSED
    values = {
        "falsy": [
            save("a", 0, prompt="", fields=[], wf_state={}, stage_results=[], completed_stage_ids=[]),
            save("a", wf_state={"zero": 0, "no": False, "none": None, "empty": "", "list": [], "dict": {}}),
        ],
        "unicode": [save("a", prompt="Ünïcödé 漢字 🙂 \u2028 \x7f", wf_state={"ключ": "значение\n"})],
        "large": [save("a", wf_state={"text": "x" * 300_000}, stage_results=[{"n": n} for n in range(3000)])],
    }
    scenarios = {
        "save": [
            Scenario([A]),
            Scenario([A2], before=[A, B]),
            Scenario([A2], before=[A, CLAIM_A]),
            Scenario([A], before=[A, CLAIM_A, A2], faults=["power"], then=[CLAIM_A, REMOVE("a")]),
        ],
        "claim": [
            Scenario([CLAIM_A], before=[A, B]),
            Scenario([CLAIM_A], before=[A, CLAIM_A, A2]),
            Scenario([CLAIM_A], before=[A, CLAIM_A, A2], faults=["power"], then=[A, REMOVE("a")]),
        ],
        "complete": [
            Scenario([CLAIM_A, COMPLETE("a")], before=[A]),
            Scenario([COMPLETE("a")], before=[A, CLAIM_A, A2]),
        ],
        "recover": [
            Scenario([RECOVER()], before=[A, CLAIM_A, B, CLAIM("b")]),
            Scenario([RECOVER()], before=[A, CLAIM_A, B, CLAIM("b"), save("b", 2)]),
        ],
        "remove": [
            Scenario([REMOVE("a")], before=[A, B]),
            Scenario([REMOVE("a")], before=[A, CLAIM_A, A2]),
            Scenario([REMOVE("a")], before=[A, CLAIM_A], faults=["kill", "power"]),
            Scenario([REMOVE("a")], before=[A, CLAIM_A, A2], faults=["power"], then=[A, CLAIM_A]),
        ],
        "fenced_complete": [
            Scenario([CLAIM_A, TOKEN_A, COMPLETE_A], before=[A], first=[COMPLETE_A]),
            Scenario([CLAIM_A, TOKEN_A, A2, COMPLETE_A], before=[A], faults=["power"], first=[COMPLETE_A]),
            Scenario([CLAIM_A, TOKEN_A, COMPLETE_A, A2, CLAIM_A], before=[A], faults=["power"], first=[COMPLETE_A]),
        ],
        "renew": [
            Scenario([CLAIM_A, TOKEN_A, RENEW_A], before=[A], first=[RENEW_A, COMPLETE_A]),
        ],
        # The claim is lost to another: its token must not end that one, however little of it is on the disk.
        "takeover": [
            Scenario([CLAIM_A, TOKEN_A, RECOVER(), CLAIM_A], before=[A], first=[COMPLETE_A]),
            Scenario([CLAIM_A, TOKEN_A, A2, CLAIM_A], before=[A], faults=["kill", "power"], first=[COMPLETE_A]),
            Scenario(
                [CLAIM_A, TOKEN_A, A2, CLAIM_A, TOKEN_A, A],
                before=[A],
                faults=["power"],
                first=[COMPLETE_A, COMPLETE("a", NEXT_TOKEN)],
            ),
            Scenario([CLAIM_A, TOKEN_A, REMOVE("a"), A2, CLAIM_A], before=[A], faults=["power"], first=[COMPLETE_A]),
        ],
    }
    lists = (Scenario([LIST()], before=[A, B], then=[A2, save("aa"), REMOVE("b")]),)
    race_roles = {
        "save": RaceRole(lambda run_id, number: [save(run_id, sized(number))]),
        "claim": RaceRole(lambda run_id, _: [CLAIM(run_id)], _saved_before),
        "complete": RaceRole(lambda run_id, _: [CLAIM(run_id), COMPLETE(run_id)], _saved_before),
        # The worker that recovers a run claims it: the one that had it before must not complete it any more.
        "recover": RaceRole(
            lambda run_id, _: [RECOVER(), CLAIM(run_id)],
            lambda run_id, number: [save(run_id, sized(number)), CLAIM(run_id)],
        ),
        "remove": RaceRole(lambda run_id, _: [REMOVE(run_id)], _saved_before),
        "renew": RaceRole(
            lambda run_id, _: [CLAIM(run_id), TOKEN(run_id), RENEW(run_id, LAST_TOKEN), COMPLETE(run_id, LAST_TOKEN)],
            _saved_before,
        ),
        "load": RaceRole(lambda run_id, _: [LOAD(run_id), LOAD(run_id)]),
        "list": RaceRole(lambda *_: [LIST(), LIST()]),
    }
    kills_racers = True
    heals = [save("a", 2), REMOVE("a")]
    afterwards = [save("b", 9), LOAD("b"), CLAIM("b")]

    test_list_sorted = script(
        "core",
        "All paused runs are listed in sorted order.",
        *_steps(*(save(run_id) for run_id in "mfatcxbgzkeq"), LIST(), RESTART, LIST()),
        needs="order",
    )
    test_claim_takes = script(
        "core", "Claiming a run returns its record, and the run is no longer paused.", A, B, CLAIM_A, *LOOK_A, LOAD("b")
    )
    test_claim_missing = script("core", "Claiming a run that is not paused returns nothing.", CLAIM_A, A, CLAIM("b"))
    test_complete_ends = script(
        "core",
        "A completed run is gone; recovery does not bring it back.",
        *_steps(A, CLAIM_A, COMPLETE("a"), RESTART, *OBSERVE),
    )
    test_recover_rearms = script(
        "core", "Recovery pauses a claimed run again when its worker is gone.", A, CLAIM_A, RESTART, *OBSERVE
    )
    test_recover_nothing = script("core", "Recovery with nothing to recover returns 0.", RECOVER(), A, RECOVER())
    test_remove_paused = script("core", "A removed run is gone.", A, B, REMOVE("a"), *LOOK_A, RESTART, *OBSERVE)
    test_remove_idempotent = script(
        "core", "Removing a missing run is not an error.", REMOVE("a"), A, REMOVE("a"), REMOVE("a"), *LOOK_A
    )

    test_claim_one_winner = script(
        "safe",
        "Of several claims on a run, exactly one wins.",
        *_steps(A, CLAIM_A, second_handle(CLAIM_A), CLAIM_A, RESTART, CLAIM_A),
    )
    test_claim_leaves_winner = script(
        "safe", "A losing claim leaves the winner's alone.", A, CLAIM_A, second_handle(CLAIM_A), RESTART, *OBSERVE
    )
    test_claim_keeps_record = script(
        "safe", "A claim keeps the record for recovery.", A, CLAIM_A, RESTART, RECOVER(), LOAD("a"), CLAIM_A
    )
    test_claim_replaces = script(
        "safe",
        "Claiming a run that has paused again replaces the older claim.",
        *_steps(A, CLAIM_A, A2, second_handle(CLAIM_A), RESTART, *OBSERVE),
    )
    test_claim_others = script(
        "safe",
        "A claim affects no other run.",
        *_steps(A, B, save("aa"), CLAIM_A, LIST(), LOAD("b"), LOAD("aa"), RECOVER(), LIST()),
    )
    test_save_after_end = script(
        "safe",
        "A run that was completed or removed can be paused again.",
        *_steps(A, CLAIM_A, COMPLETE("a"), A2, *LOOK_A, CLAIM_A, REMOVE("a"), A, *LOOK_A, CLAIM_A, RESTART, *OBSERVE),
    )
    test_save_refused = script(
        "safe",
        "A record that cannot be stored is refused, and the previous one stays.",
        *_steps(A, INVALID, *LOOK_A, RESTART, *OBSERVE),
        fault="input",
    )
    test_save_while_claimed = script(
        "safe", "A run that pauses again while claimed counts as paused.", A, CLAIM_A, A2, *LOOK_A, RESTART, *LOOK_A
    )
    test_recover_paused_again = script(
        "safe",
        "Recovery does not roll back a run that has paused again.",
        *_steps(A, CLAIM_A, A2, RECOVER(), *LOOK_A, CLAIM_A, RESTART, *OBSERVE),
    )

    @clause("safe", "What is claimed can be recovered: a store with `claim` has `recover_orphaned`.", needs="recover")
    def test_recover_offered(self) -> None:
        with self.context.handles(self.context.home()) as handles:
            handles.outcome(FIRST, A)
            handles.outcome(FIRST, CLAIM_A)
            try:
                with contextlib.suppress(Exception):  # other clauses are about what it does
                    handles.outcome(FIRST, RECOVER())
            except pytest.skip.Exception as skipped:
                raise Violation(
                    f"{str(skipped).removeprefix(NOT_OFFERED)[2:]}, but it has claim. If a worker dies after a claim, "
                    "nothing brings its run back. Write recover_orphaned; or, if runs are brought back in another way, "
                    'declare unsupported = {"recover": "how they are"}.'
                ) from None

    test_recover_once = script(
        "safe",
        "A recovered run is not recovered a second time.",
        *_steps(A, CLAIM_A, RECOVER(), RECOVER(), *LOOK_A, RESTART, *OBSERVE),
    )
    test_recover_all = script(
        "safe",
        "Recovery brings back every claimed run and returns how many there were.",
        *_steps(A, B, save("c"), CLAIM_A, CLAIM("c"), RESTART, RECOVER(), LIST(), LOAD("a"), LOAD("b"), LOAD("c")),
    )
    test_complete_idempotent = script(
        "safe",
        "Completing a run twice, or one that was never claimed, is not an error.",
        *_steps(COMPLETE("a"), A, CLAIM_A, COMPLETE("a"), COMPLETE("a"), *LOOK_A, RESTART, *OBSERVE),
    )
    test_complete_leaves_paused = script(
        "safe", "Completing a paused run leaves it paused.", A, COMPLETE("a"), *LOOK_A, RESTART, *OBSERVE
    )
    test_complete_paused_again = script(
        "safe",
        "Completing a run that has paused again in the meantime leaves it paused.",
        *_steps(A, CLAIM_A, A2, COMPLETE("a"), *LOOK_A, RESTART, *OBSERVE),
    )
    test_complete_after_restart = script(
        "safe",
        "A restarted worker can complete a run that it claimed before.",
        *_steps(A, CLAIM_A, RESTART, COMPLETE("a"), *OBSERVE),
    )
    test_complete_others = script(
        "safe",
        "Completing a run affects no other.",
        *_steps(A, B, save("aa"), CLAIM_A, CLAIM("b"), CLAIM("aa"), COMPLETE("a"), RESTART, RECOVER(), LIST()),
        *_steps(LOAD("a"), LOAD("b"), LOAD("aa")),
    )
    test_complete_own_again = script(
        "safe",
        "A worker that claims a run a second time can complete it.",
        *_steps(A, CLAIM_A, RECOVER(), CLAIM_A, COMPLETE("a"), *LOOK_A, A2, CLAIM_A, COMPLETE("a"), RESTART, *OBSERVE),
    )
    test_remove_claimed = script(
        "safe",
        "A claimed run that is removed is gone; recovery does not bring it back.",
        *_steps(A, CLAIM_A, REMOVE("a"), RESTART, *OBSERVE),
    )
    test_remove_both = script(
        "safe",
        "Removing a run that has paused again while claimed removes its claim too.",
        *_steps(A, CLAIM_A, A2, REMOVE("a"), *LOOK_A, RESTART, *OBSERVE),
    )
    test_remove_others = script(
        "safe",
        "Removing a run affects no other.",
        *_steps(A, B, save("aa"), REMOVE("a*"), REMOVE("_"), REMOVE("%"), REMOVE("A"), LIST(), REMOVE("a"), LIST()),
        *_steps(LOAD("b"), LOAD("aa")),
    )
    test_values_unknown = script(
        "safe", "Unknown fields of a workflow are kept untouched.", NEWER, LOAD("a"), CLAIM_A, RESTART, *OBSERVE
    )
    test_list_only_paused = script(
        "safe",
        "Claimed and completed runs are not listed.",
        *_steps(A, B, save("c"), CLAIM_A, CLAIM("b"), COMPLETE("b"), LIST(), RESTART, LIST()),
    )

    test_ids_refused_by_all = script(
        "safe",
        "Every method refuses an invalid id and changes nothing.",
        *_steps(
            A,
            B,
            CLAIM("b"),
            *(method(run_id) for run_id in inputs.BAD_IDS for method in (CLAIM, COMPLETE, REMOVE)),
            *(save(run_id) for run_id in inputs.BAD_IDS[:-1]),  # the last is not valid in a record
            RESTART,
            *OBSERVE,
        ),
        fault="input",
    )

    @clause("safe", "A run with any text as its id can be claimed, recovered, completed and removed.", "input")
    def test_ids_claimed(self) -> None:
        def steps(run_id: str) -> list[Step]:
            looks = PAUSED.observe([run_id])
            claimed: list[Step] = [save(run_id), CLAIM(run_id), RESTART, *looks]
            return [*claimed, CLAIM(run_id), COMPLETE(run_id), *looks, save(run_id), REMOVE(run_id), *looks]

        self.context.play_each(map(steps, inputs.GOOD_IDS))

    @clause("safe", "Two ids never share a claim, whatever characters they hold.", "input")
    def test_ids_claims_never_collide(self) -> None:
        def steps(first: str, second: str) -> list[Step]:
            claimed = [save(first), save(second, 2), CLAIM(first), *reads([first, second])]
            return [*claimed, COMPLETE(second), CLAIM(second), RESTART, *PAUSED.observe([first, second])]

        self.context.play_each(itertools.starmap(steps, [*inputs.PAIRS, ("run", "run.inflight")]))

    @clause("safe", "Claiming an unreadable record is an error and leaves it where it is.", "input")
    def test_corrupt_claim(self) -> None:
        with corrupted(self.context) as (handles, _):
            must_raise(handles, CLAIM_A)
            must_raise(handles, LOAD("a"))

    test_complete_not_anothers = script(
        "hardened",
        "A late `complete` does not release another worker's claim.",
        *_steps(A, CLAIM_A, second_handle(RECOVER()), second_handle(CLAIM_A), COMPLETE("a"), RESTART, *OBSERVE),
    )
    test_complete_not_anothers_after_save = script(
        "hardened",
        "A late `complete` does not release another worker's claim on a run that has paused again.",
        *_steps(A, CLAIM_A, A2, second_handle(CLAIM_A), COMPLETE("a"), RESTART, *OBSERVE),
    )
    test_recover_older_than = timed(
        "hardened",
        "Recovering old claims leaves younger ones alone.",
        *_steps(A, B, CLAIM_A, Tick(50), CLAIM("b"), Tick(20), second_handle(RECOVER(60)), second_handle(LIST())),
        *_steps(RESTART, LIST(), LOAD("a"), LOAD("b"), RECOVER(60), Tick(60), RECOVER(60), *LOOK_A, LOAD("b")),
    )
    test_recover_older_than_limit = timed(
        "hardened",
        "A claim exactly as old as the limit is recovered.",
        *_steps(A, CLAIM_A, Tick(59.9), second_handle(RECOVER(60)), Tick(0.1), second_handle(RECOVER(60)), *LOOK_A),
    )
    test_recover_older_than_paused_again = timed(
        "hardened",
        "Recovery leaves a young claim alone, even if the run has paused again.",
        *_steps(A, CLAIM_A, A2, Tick(30), second_handle(RECOVER(60)), *LOOK_A, REMOVE("b"), CLAIM_A, Tick(61)),
        *_steps(second_handle(RECOVER(60)), *LOOK_A),
    )
    test_recover_age_of_last_claim = timed(
        "hardened",
        "A claim's age counts from the latest claim.",
        *_steps(A, CLAIM_A, Tick(100), RECOVER(), CLAIM_A, Tick(30), second_handle(RECOVER(60)), *LOOK_A),
    )
    test_recover_bad_age = script(
        "hardened",
        "An age that is negative or not a number is refused and changes nothing.",
        *_steps(A, CLAIM_A, RECOVER(-1), RECOVER("soon"), RECOVER(math.nan), RECOVER(True), RESTART, *OBSERVE),
        fault="input",
    )

    test_token_kept = script(
        "hardened",
        "A claim has one token, until it is completed or removed.",
        *_steps(A, B, CLAIM_A, TOKEN_A, TOKEN_A, CLAIM("b"), TOKEN("b"), TOKEN_A, COMPLETE("a"), TOKEN_A, TOKEN("b")),
        *_steps(REMOVE("b"), TOKEN("b")),
    )
    test_token_own = script(
        "hardened",
        "Only the handle that claimed a run has the token: asking another is an error.",
        *_steps(TOKEN_A, A, TOKEN_A, CLAIM_A, second_handle(TOKEN_A), second_handle(CLAIM_A), second_handle(TOKEN_A)),
        *_steps(TOKEN_A, RESTART, TOKEN_A),
    )

    @clause("hardened", "Every claim has a new token.")
    def test_token_new(self) -> None:
        first, second = CLAIM_A, second_handle(CLAIM_A)
        with self.context.handles(self.context.home()) as handles:
            script = self.context.begin()
            script.run(handles, [A, first, TOKEN_A, RECOVER(), first, TOKEN_A, RECOVER(), second])
            script.run(handles, [second_handle(TOKEN_A), RECOVER(), RESTART, first, TOKEN_A])
        tokens = script.results.tokens("token")
        if len(set(tokens)) < len(tokens):
            raise Violation(f"{len(tokens)} claims of run 'a', one after the other, have the tokens {tokens}.")

    test_complete_token = script(
        "hardened",
        "A worker completes its run with the token of its claim, after a restart too.",
        *_steps(A, CLAIM_A, TOKEN_A, COMPLETE_A, *OBSERVE, A2, CLAIM_A, TOKEN_A, RESTART),
        *_steps(COMPLETE("a", NEXT_TOKEN), *OBSERVE),
    )
    test_complete_token_lost = script(
        "hardened",
        "A worker that restarts after it lost its run to another completes nothing: its token no longer matches.",
        *_steps(A, CLAIM_A, TOKEN_A, second_handle(RECOVER()), second_handle(CLAIM_A), second_handle(TOKEN_A)),
        *_steps(RESTART, COMPLETE_A, LIST(), COMPLETE_A, COMPLETE("a", NEXT_TOKEN), *OBSERVE),
    )
    test_complete_token_not_handle = script(
        "hardened",
        "A token decides, not the handle: an old token does not end a later claim of the same handle.",
        *_steps(A, CLAIM_A, TOKEN_A, RECOVER(), CLAIM_A, TOKEN_A, COMPLETE_A, RESTART, RECOVER(), *LOOK_A),
        *_steps(CLAIM_A, TOKEN_A, second_handle(COMPLETE("a", LAST_TOKEN)), *OBSERVE),
    )
    test_complete_token_paused_again = script(
        "hardened",
        "Completing with a token leaves a run that has paused again paused, and another's claim on it alone.",
        *_steps(A, CLAIM_A, TOKEN_A, A2, COMPLETE_A, *LOOK_A, CLAIM_A, TOKEN_A, A, second_handle(CLAIM_A)),
        *_steps(COMPLETE("a", NEXT_TOKEN), RESTART, *OBSERVE),
    )
    test_complete_token_once = script(
        "hardened",
        "A token completes its claim once, and nothing that comes after it.",
        *_steps(A, CLAIM_A, TOKEN_A, COMPLETE_A, COMPLETE_A, A2, COMPLETE_A, *LOOK_A, CLAIM_A, COMPLETE_A),
        *_steps(RESTART, COMPLETE_A, *OBSERVE),
    )
    test_token_others = script(
        "hardened",
        "The token of one run neither completes nor renews another.",
        *_steps(A, B, CLAIM_A, TOKEN_A, CLAIM("b"), COMPLETE("b", FIRST_TOKEN), RENEW("b", FIRST_TOKEN)),
        *_steps(RESTART, *OBSERVE),
    )
    test_token_refused = script(
        "hardened",
        "Invalid ids and tokens are refused, and change nothing.",
        *_steps(A, CLAIM_A, TOKEN_A, *(TOKEN(run_id) for run_id in inputs.BAD_IDS)),
        *(COMPLETE(run_id, FIRST_TOKEN) for run_id in inputs.BAD_IDS),
        *(RENEW(run_id, FIRST_TOKEN) for run_id in inputs.BAD_IDS),
        *(method("a", token) for token in [*inputs.BAD_IDS, 17] for method in (COMPLETE, RENEW)),
        *_steps(RENEW("a", None), RENEW_A, RESTART, *OBSERVE),
        fault="input",
    )
    test_renew_extends = timed(
        "hardened",
        "A renewed claim is as young as a new one, after a restart too.",
        *_steps(A, CLAIM_A, TOKEN_A, Tick(50), RENEW_A, Tick(50), second_handle(RECOVER(60)), RESTART, RECOVER(60)),
        *_steps(LIST(), RENEW_A, Tick(59.9), RECOVER(60), Tick(0.1), RECOVER(60), *LOOK_A),
    )
    test_renew_lost = timed(
        "hardened",
        "A worker that lost its run cannot renew its claim, and the claim of the other is not made younger.",
        *_steps(A, CLAIM_A, TOKEN_A, second_handle(RECOVER()), RENEW_A, second_handle(CLAIM_A), Tick(50), RENEW_A),
        *_steps(Tick(10), RESTART, RECOVER(60), *LOOK_A),
    )
    test_renew_ended = script(
        "hardened",
        "Renewing a claim that was completed or removed returns False, and does not bring it back.",
        *_steps(RENEW_A, A, RENEW_A, CLAIM_A, TOKEN_A, COMPLETE("a"), RENEW_A, *OBSERVE),
        *_steps(A2, CLAIM_A, TOKEN_A, REMOVE("a"), RENEW("a", NEXT_TOKEN), RESTART, *OBSERVE),
    )
    test_renew_paused_again = timed(
        "hardened",
        "Renewing the claim on a run that has paused again changes the claim alone.",
        *_steps(A, CLAIM_A, TOKEN_A, A2, Tick(50), RENEW_A, *LOOK_A, Tick(20), second_handle(RECOVER(60)), COMPLETE_A),
        *_steps(*LOOK_A, RESTART, *OBSERVE),
    )
