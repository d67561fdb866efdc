"""The lock contract: which worker may do what only one may do, until when, and with which fencing token."""

from __future__ import annotations

import math
from typing import Any

from pytest_wfstate.contracts.base import ResultOf
from pytest_wfstate.engine.script import RESTART, Step, Tick, second_handle
from pytest_wfstate.specs.lock import ACQUIRE, HELD, LOCK, LONG, RELEASE, RENEW, acquire
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import NO_CLAUSE, script, timed
from pytest_wfstate.suites.faults import RaceRole, Scenario


def _steps(*steps: Step | Tick) -> tuple[Any, ...]:
    """Return the steps, so that a script can have several in a line."""
    return steps  # mypy cannot type a plain tuple of them


A, B = acquire("a"), acquire("b")
MINUTE = ACQUIRE("a", 60)
HELD_A, HELD_B = HELD("a"), HELD("b")
FIRST_TOKEN, NEXT_TOKEN, LAST_TOKEN = (ResultOf("acquire", nth, of=("a",)) for nth in (0, 1, -1))
RELEASE_A, RELEASE_LAST = RELEASE("a", FIRST_TOKEN), RELEASE("a", LAST_TOKEN)
RENEW_A = RENEW("a", FIRST_TOKEN, 60)
NO_TOKENS = (0, -1, 10**12)
_YEARS = 10**7  # seconds: a worker that is stalled in a race sees long times go by
BAD_TIMES = (0, -1, math.nan, math.inf)


class LockSuite(Suite):
    """Checks a store against the lock contract."""

    contract = LOCK
    scenarios = {
        "acquire": [
            Scenario([A, B]),
            Scenario([A, RELEASE_A, A], first=[RELEASE_A]),
            Scenario([A], before=[B], faults=["power"], then=[B, A]),
        ],
        "renew": [Scenario([A, RENEW("a", FIRST_TOKEN, LONG)], before=[B], first=[RENEW("a", FIRST_TOKEN, LONG)])],
        "release": [
            Scenario([A, RELEASE_A], before=[B], first=[RELEASE_A]),
            Scenario([A, RELEASE_A, A], faults=["power"], first=[RELEASE_A, A]),
        ],
    }
    race_roles = {
        "acquire": RaceRole(lambda name, number: [ACQUIRE(name, _YEARS * 10**number)]),
        "renew": RaceRole(
            lambda name, number: [
                ACQUIRE(name, 10 * _YEARS),
                RENEW(name, ResultOf("acquire", of=(name,)), _YEARS * 10**number),
                RELEASE(name, ResultOf("acquire", of=(name,))),
            ]
        ),
        "release": RaceRole(
            lambda name, _: [ACQUIRE(name, 10 * _YEARS), RELEASE(name, ResultOf("acquire", of=(name,)))]
        ),
        "held": RaceRole(lambda name, _: [HELD(name), HELD(name)]),
    }
    afterwards = [B, HELD_B, acquire("c"), HELD("c")]

    # A lock is no record, so these mean nothing.
    test_load_missing = test_save_load = test_save_replaces = test_save_survives_restart = NO_CLAUSE
    test_handles_see_each_other = test_aliasing_saved = test_aliasing_loaded = NO_CLAUSE
    test_values_falsy = test_values_unicode = test_values_large = test_values_any = NO_CLAUSE

    test_acquire_free = script(
        "core", "A lock is free until it is acquired.", HELD_A, A, HELD_A, HELD_B, B, HELD_B, RESTART, HELD("c")
    )
    test_acquire_held = script(
        "core", "A lock that is held is not acquired again, by its holder either.", A, A, second_handle(A), HELD_A, A
    )
    test_acquire_survives_restart = script(
        "core",
        "A restart frees no lock, and its token still releases it.",
        *_steps(A, RESTART, HELD_A, A, second_handle(A), RELEASE_A, HELD_A, RESTART, HELD_A),
    )
    test_release_frees = script(
        "core", "A lock that is released can be acquired.", A, RELEASE_A, HELD_A, second_handle(A), HELD_A, A
    )

    test_token_grows = script(
        "safe",
        "Each acquisition of a lock has a greater token than those before it, whichever handle makes it.",
        *[step for _ in range(6) for step in (A, RELEASE_LAST, second_handle(A), second_handle(RELEASE_LAST))],
    )
    test_token_grows_after_restart = script(
        "safe",
        "Tokens go on growing after a restart, also those of a lock that nobody holds.",
        *_steps(A, RELEASE_LAST, RESTART, A, RESTART, RELEASE_LAST, RESTART, A, HELD_A),
    )
    test_release_once = script(
        "safe",
        "A token releases its lock once, and none that is acquired later.",
        *_steps(A, RELEASE_A, RELEASE_A, HELD_A, second_handle(A), RELEASE_A, HELD_A, RESTART, RELEASE_A, HELD_A),
    )
    test_release_any_handle = script(
        "safe",
        "The token releases a lock, whichever handle has it.",
        *_steps(A, second_handle(RELEASE_A), HELD_A, second_handle(A), RELEASE_LAST, second_handle(HELD_A)),
    )
    test_release_others = script(
        "safe",
        "Releasing a lock affects no other.",
        *_steps(A, B, acquire("aa"), acquire("a.b"), RELEASE_A, HELD_A, HELD_B, HELD("aa"), HELD("a.b")),
        *_steps(RESTART, HELD_B, HELD("aa"), HELD("a.b")),
    )
    test_held_elsewhere = script(
        "safe",
        "A lock that is acquired or released through one handle is so for every other at once.",
        *_steps(HELD_A, second_handle(HELD_A), A, second_handle(HELD_A), HELD_A, second_handle(RELEASE_A), HELD_A, A),
        *_steps(second_handle(A), second_handle(HELD_A)),
    )
    test_renew_holds = script(
        "safe",
        "A renewed lock is held by the same token.",
        *_steps(A, RENEW_A, HELD_A, second_handle(A), RESTART, RENEW_A, HELD_A, A, RELEASE_A, HELD_A),
    )
    test_renew_free = script(
        "safe",
        "Renewing a lock that nobody holds returns False, and does not acquire it.",
        *_steps(RENEW("a", 1, 60), HELD_A, A, RELEASE_A, RENEW_A, HELD_A, A, RENEW_A, RESTART, HELD_A, RELEASE_LAST),
    )
    test_token_wrong = script(
        "safe",
        "A token that is not the holder's neither renews nor releases, however great it is.",
        *_steps(A, *(RELEASE("a", token) for token in NO_TOKENS), *(RENEW("a", token, 60) for token in NO_TOKENS)),
        *_steps(HELD_A, RESTART, HELD_A, RELEASE_A),
        fault="input",
    )
    test_ids_refused_by_all = script(
        "safe",
        "Every method refuses an invalid name and changes nothing.",
        *_steps(A, *(acquire(name) for name in inputs.BAD_IDS), *(RELEASE(name, 1) for name in inputs.BAD_IDS)),
        *_steps(*(RENEW(name, 1, 60) for name in inputs.BAD_IDS), HELD_A, RESTART, HELD_A),
        fault="input",
    )
    test_acquire_bad_time = script(
        "safe",
        "A time that is not a positive number of seconds is refused and changes nothing.",
        *_steps(*(ACQUIRE("a", ttl) for ttl in BAD_TIMES), HELD_A, A, *(RENEW("a", FIRST_TOKEN, t) for t in BAD_TIMES)),
        *_steps(HELD_A, RESTART, HELD_A, RELEASE_A),
        fault="input",
    )

    test_acquire_expired = timed(
        "hardened",
        "A lock is free once its time is over, to the moment, and the next token is greater.",
        *_steps(MINUTE, Tick(59.9), second_handle(MINUTE), HELD_A, Tick(0.1), HELD_A, second_handle(MINUTE), HELD_A),
        *_steps(Tick(59), RESTART, MINUTE, Tick(1), HELD_A, MINUTE, HELD_A),
    )
    test_release_late = timed(
        "hardened",
        "A late `release` changes nothing: the lock of another worker stays held.",
        *_steps(MINUTE, Tick(60), second_handle(MINUTE), RELEASE_A, HELD_A, MINUTE, RESTART, RELEASE_A, HELD_A),
        *_steps(RELEASE("a", NEXT_TOKEN), HELD_A),
    )
    test_release_expired = timed(
        "hardened",
        "Releasing a lock whose time is over returns False.",
        *_steps(MINUTE, Tick(60), RELEASE_A, HELD_A, MINUTE, RELEASE_A, HELD_A),
    )
    test_renew_extends = timed(
        "hardened",
        "A renewed lock is held for the new time from then on, be that longer or shorter.",
        *_steps(MINUTE, Tick(50), RENEW_A, Tick(59.9), HELD_A, second_handle(MINUTE), RENEW("a", FIRST_TOKEN, 10)),
        *_steps(RESTART, Tick(9.9), HELD_A, Tick(0.1), HELD_A, MINUTE),
    )
    test_renew_expired = timed(
        "hardened",
        "A lock whose time is over cannot be renewed, even if nobody else has acquired it.",
        *_steps(MINUTE, Tick(60), RENEW_A, HELD_A, RESTART, RENEW_A, second_handle(MINUTE), HELD_A),
    )
    test_renew_late = timed(
        "hardened",
        "A worker that lost its lock cannot renew it, and does not extend that of another.",
        *_steps(MINUTE, Tick(60), second_handle(MINUTE), RENEW("a", FIRST_TOKEN, 600), Tick(60), HELD_A, MINUTE),
    )
