"""The store fixtures under every way to run an async test, and event loops under a frozen clock."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import ALONE, NO_PLUGINS_OF_DEPENDENCIES

STORES = """
import pytest
from pytest_wfstate import samples

{mark}
async def test_effects(effect_store):
    await effect_store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
    assert (await effect_store.load_checkpoint("task-1")).is_completed("use-1")

{mark}
async def test_snapshots(snapshot_store):
    await snapshot_store.save(samples.snapshot("run-1", 2))
    assert await snapshot_store.latest("wf", "run-1") == samples.snapshot("run-1", 2)

{mark}
async def test_runs(run_store):
    await run_store.upsert_step("run-1", samples.step("fetch"))
    assert await run_store.list_steps("run-1") == [samples.step("fetch")]

{mark}
async def test_paused(paused_store):
    paused_store.save(samples.paused("run-1"))
    assert paused_store.claim("run-1") == samples.paused("run-1")

{mark}
async def test_resume(resume_store):
    resume_store.save(samples.resume_point("run-1"))
    assert resume_store.load("run-1") == samples.resume_point("run-1")
"""

ASYNCIO_INI = "[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function"

# Run in a process of its own, with a real deadline: an event loop that stops would hang forever.
FROZEN = """
import asyncio
import pytest
from pytest_wfstate import FileEffectStore, samples

async def sleep_and_mark(frozen_clock, tmp_path):
    before = frozen_clock.now
    await asyncio.sleep(0.01)
    assert frozen_clock.now == before
    frozen_clock.tick(60)
    store = FileEffectStore(tmp_path)
    await store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
    assert (await store.load_checkpoint("task-1")).updated_at == before.timestamp() + 60
"""


def test_stores_work_with_pytest_asyncio_in_strict_mode(pytester: pytest.Pytester) -> None:
    pytester.makeini(ASYNCIO_INI)
    pytester.makepyfile(STORES.format(mark="@pytest.mark.asyncio"))
    pytester.runpytest_inprocess("-p", "no:anyio").assert_outcomes(passed=10)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_stores_work_with_anyio(pytester: pytest.Pytester, backend: str) -> None:
    mark = f'@pytest.mark.anyio\n@pytest.mark.parametrize("anyio_backend", ["{backend}"])'
    pytester.makepyfile(STORES.replace("_store)", "_store, anyio_backend)").format(mark=mark))
    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=10)


def test_a_store_needs_no_plugin_and_may_be_used_from_one_loop_after_another(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import trio
        from pytest_wfstate import as_sync, samples

        def test_runs(run_store):
            asyncio.run(run_store.upsert_step("run-1", samples.step("one")))
            asyncio.run(run_store.upsert_step("run-1", samples.step("two")))
            trio.run(run_store.upsert_step, "run-1", samples.step("three"))
            steps = as_sync(run_store).list_steps("run-1")
            assert [step.step_id for step in steps] == ["one", "two", "three"]
        """
    )
    pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:anyio").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("test", "options"),
    [
        (
            "@pytest.mark.asyncio\nasync def test_it(frozen_clock, tmp_path):\n    await ",
            ("-p", "no:anyio", "-p", "no:xdist", *NO_PLUGINS_OF_DEPENDENCIES),
        ),
        ("def test_it(frozen_clock, tmp_path):\n    asyncio.run", ALONE),
    ],
    ids=["pytest-asyncio", "asyncio.run"],
)
def test_a_frozen_clock_does_not_stop_the_loop(pytester: pytest.Pytester, test: str, options: tuple[str, ...]) -> None:
    if "mark" in test:
        pytester.makeini(ASYNCIO_INI)
    pytester.makepyfile(f"{FROZEN}\n{test}(sleep_and_mark(frozen_clock, tmp_path))\n")
    pytester.runpytest_subprocess(*options, timeout=60).assert_outcomes(passed=1)


def test_a_frozen_clock_stamps_records_under_trio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import trio
        from pytest_wfstate import samples

        def test_it(frozen_clock, effect_store):
            trio.run(effect_store.mark_step_complete, "task-1", "use-1", samples.effect("use-1"))
            checkpoint = trio.run(effect_store.load_checkpoint, "task-1")
            assert checkpoint.updated_at == frozen_clock.now.timestamp()
        """
    )
    pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:anyio").assert_outcomes(passed=2)
