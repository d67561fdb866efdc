"""`frozen_clock`: what it freezes, what it leaves running, and when it may first be used."""

from __future__ import annotations

import time

import pytest

from tests.plugin.conftest import ALONE, OTHERS, Run
from tests.plugin.suite_module import write_suite


def test_the_clock_stands_still_until_it_ticks(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import datetime
        import time

        def test_it(frozen_clock):
            start = frozen_clock.now
            assert start == datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
            assert time.time() == start.timestamp()

            frozen_clock.tick(90)
            assert datetime.datetime.now(datetime.UTC) == start + datetime.timedelta(seconds=90)

            frozen_clock.tick()
            assert time.time() == start.timestamp() + 91
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "when",
    ['"2030-05-05 06:07"', "datetime.datetime(2030, 5, 5, 6, 7)", "datetime.datetime(2030, 5, 5, 8, 7, tzinfo=CET)"],
)
def test_the_clock_moves_to_any_time_and_starts_at_any_by_indirect_parametrize(
    pytester: pytest.Pytester, run: Run, when: str
) -> None:
    pytester.makepyfile(
        f"""
        import datetime
        import pytest

        CET = datetime.timezone(datetime.timedelta(hours=2))
        WHEN = datetime.datetime(2030, 5, 5, 6, 7, tzinfo=datetime.UTC)

        def test_moves(frozen_clock):
            frozen_clock.move_to({when})
            assert frozen_clock.now == WHEN
            frozen_clock.move_to("1999-12-31")
            assert frozen_clock.now.year == 1999

        @pytest.mark.parametrize("frozen_clock", [{when}], indirect=True)
        def test_starts(frozen_clock):
            assert frozen_clock.now == WHEN
        """
    )
    run().assert_outcomes(passed=2)


def test_time_runs_again_after_the_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import datetime
        import time

        START = time.time()

        def test_passes(frozen_clock): pass

        def test_runs(): assert START <= time.time() <= datetime.datetime.now().timestamp()

        def test_fails(frozen_clock): assert False

        def test_runs_again(): assert START <= time.time() <= datetime.datetime.now().timestamp()
        """
    )
    before = time.time()
    run().assert_outcomes(passed=3, failed=1)
    assert before <= time.time()


def test_a_frozen_clock_does_not_falsify_how_long_a_test_took(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(frozen_clock): frozen_clock.tick(100_000)")
    record = pytester.inline_run(*OTHERS)
    durations = [report.duration for report in record.getreports("pytest_runtest_logreport")]
    assert len(durations) == 3
    assert min(durations) >= 0
    assert max(durations) < 1_000


def test_time_stamps_of_every_store_are_frozen_in_its_threads_too(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        from pytest_wfstate import as_sync, samples

        def test_effects(frozen_clock, effect_store):
            store = as_sync(effect_store)
            frozen_clock.tick(5)
            store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
            assert store.load_checkpoint("task-1").updated_at == frozen_clock.now.timestamp()

        def test_runs(frozen_clock, run_store):
            store = as_sync(run_store)
            store.create_run(samples.run("run-1"))
            frozen_clock.tick(5)
            store.update_context("run-1", {})
            assert store.get_run("run-1").updated_at == frozen_clock.now

        def test_snapshots(frozen_clock, snapshot_store):
            store = as_sync(snapshot_store)
            store.save(samples.snapshot("run-1", 1))
            frozen_clock.tick(5)
            fork = store.fork(samples.key("run-1", 1))
            assert store.latest("wf", fork).timestamp_ms == frozen_clock.now.timestamp() * 1000
        """
    )
    run().assert_outcomes(passed=6)


@pytest.mark.parametrize("where", ["call", "in_thread"])
def test_leases_are_frozen(pytester: pytest.Pytester, run: Run, where: str) -> None:
    pytester.makepyfile(
        f"""
        import concurrent.futures
        from pytest_wfstate import samples

        def call(function, *args, **options):
            return function(*args, **options)

        def in_thread(function, *args, **options):
            with concurrent.futures.ThreadPoolExecutor() as pool:
                return pool.submit(function, *args, **options).result()

        def test_it(frozen_clock, paused_store):
            paused_store.save(samples.paused("run-1"))
            assert {where}(paused_store.claim, "run-1") is not None
            frozen_clock.tick(59)
            assert {where}(paused_store.recover_orphaned, older_than=60) == 0
            frozen_clock.tick(2)
            assert {where}(paused_store.recover_orphaned, older_than=60) == 1
        """
    )
    run().assert_outcomes(passed=2)


FIRST_USE = """
import datetime
import sys

from pydantic_is_not_loaded import check
check()

def test_records_are_first_built_under_a_frozen_clock(frozen_clock, effect_store, paused_store, run_store):
    from pytest_wfstate import as_sync, samples

    paused_store.save(samples.paused("run-1", created_at=frozen_clock.now))
    assert paused_store.load("run-1").created_at == frozen_clock.now

    store = as_sync(run_store)
    store.create_run(samples.run("run-1"))
    frozen_clock.tick(5)
    store.update_context("run-1", {})
    assert store.get_run("run-1").updated_at == frozen_clock.now

    store = as_sync(effect_store)
    store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
    assert store.load_checkpoint("task-1").updated_at == frozen_clock.now.timestamp()

def test_records_accept_real_times_afterwards(paused_store, run_store):
    from pytest_wfstate import as_sync, samples

    now = datetime.datetime.now(datetime.UTC)
    paused_store.save(samples.paused("run-1", created_at=now))
    assert paused_store.load("run-1").created_at == now
    assert type(samples.paused().created_at) is datetime.datetime

    store = as_sync(run_store)
    store.create_run(samples.run("run-1"))
    store.update_context("run-1", {})
    assert store.get_run("run-1").updated_at >= now

def test_a_users_models_accept_real_times_afterwards():
    import pydantic

    class Mine(pydantic.BaseModel):
        time: datetime.datetime

    assert Mine(time=datetime.datetime.now()).time <= datetime.datetime.now()
"""

CHECK = """
import sys

def check():
    assert not [name for name in sys.modules if name.split(".")[0] == "pydantic"]
"""


def test_time_may_be_frozen_before_anything_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FIRST_USE, pydantic_is_not_loaded=CHECK)
    result = pytester.runpytest_subprocess(*ALONE, "--wfstate-backends=file")
    result.assert_outcomes(passed=3)


def test_records_may_be_first_imported_while_a_user_has_frozen_time(pytester: pytest.Pytester) -> None:
    """What pydantic then makes of a user's own `datetime` fields is not ours to fix."""
    script = pytester.makepyfile(
        """
        import datetime
        from freezegun import freeze_time
        from pydantic_is_not_loaded import check
        check()

        def round_trip(directory):
            from pytest_wfstate import FilePausedStore, FileRunStore, as_sync, samples
            now = datetime.datetime.now(datetime.UTC)
            paused = FilePausedStore(directory + "/paused")
            paused.save(samples.paused("run-1", created_at=now))
            assert paused.claim("run-1").created_at == now
            assert paused.recover_orphaned(older_than=60) == 0
            runs = as_sync(FileRunStore(directory + "/runs"))
            runs.create_run(samples.run("run-1"))
            runs.update_context("run-1", {})
            assert runs.get_run("run-1").updated_at >= now

        with freeze_time("2026-01-01"):
            round_trip("frozen")
        round_trip("real")
        """,
        pydantic_is_not_loaded=CHECK,
    )
    assert pytester.runpython(script).ret == 0


LAZY_MODELS = """
import datetime
import pydantic
import pytest

class Deferred(pydantic.BaseModel, defer_build=True):
    day: "datetime.date"
    time: "datetime.datetime | None" = None

def models():
    class Defined(pydantic.BaseModel):
        day: datetime.date
        time: datetime.datetime
    adapter = pydantic.TypeAdapter(dict[str, datetime.datetime | datetime.date]).validate_python
    # Before 2.14, pydantic looks for the type of a field in the frozen module: a model deferred until then fails.
    is_old = tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 14)
    return [Defined, adapter] if is_old else [Deferred, Defined, adapter]

def look(kinds, now):
    for kind in kinds:
        made = kind(day=now.date(), time=now) if isinstance(kind, type) else kind({"time": now})
        assert (made["time"] if isinstance(made, dict) else made.time) == now
        if not isinstance(made, dict):
            assert type(made).model_validate_json(made.model_dump_json()) == made

KINDS = []

def test_models_are_built_while_the_clock_is_frozen(frozen_clock):
    KINDS.extend(models())
    look(KINDS, frozen_clock.now)

def test_they_accept_real_times_afterwards():
    look(KINDS, datetime.datetime.now(datetime.UTC))
"""


def test_pydantic_may_build_models_while_the_clock_is_frozen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LAZY_MODELS)
    pytester.runpytest_subprocess(*ALONE).assert_outcomes(passed=2)


def test_a_lease_clause_that_runs_alone_shows_its_violation_and_when_time_passed(pytester: pytest.Pytester) -> None:
    write_suite(pytester, "    def recover_orphaned(self, older_than=None): return super().recover_orphaned()")
    result = pytester.runpytest_subprocess(*ALONE, "-k", "paused.recover.older-than-limit")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "store.claim('a') -> *",
            "-- 59.9 s later --",
            "second.recover_orphaned(older_than=60) -> 1",
            "    expected: 0",
        ],
        consecutive=True,
    )


def test_clauses_that_freeze_time_are_not_applicable_to_a_foreign_clock(pytester: pytest.Pytester, run: Run) -> None:
    """Such a store may do as it likes in them, and the scorecard does not count them as passed."""
    body = "    def recover_orphaned(self, older_than=None): return super().recover_orphaned()"
    write_suite(pytester, body, suite='    clock = "foreign"')
    result = run("-k", "paused.recover.older-than or paused.recover.age or paused.recover.rearms", "-rs")
    result.assert_outcomes(passed=1, skipped=4)
    result.stdout.fnmatch_lines(
        [
            "wfstate: TestStore: core 1/1; 4 not applicable",
            "SKIPPED [[]4[]] test_store.py:*: not applicable: the store's clock cannot be frozen",
        ]
    )


def test_an_unknown_clock_is_an_invalid_setting(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, suite='    clock = "sundial"')
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E*InvalidSetting: clock of TestStore is 'sundial'. Choose one of: process, foreign."])
