"""Work that is written once as steps: workloads and checks may be sync or async, with or without a running loop."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, Disk, NeverReached
from tests.unit.faults.conftest import accept, note_is_kept, saving
from tests.unit.faults.crash.killed import names
from tests.unit.faults.disk.notes import read, save, save_without_fsync


class TestCallables:
    def test_may_be_plain(self, crash: Crash) -> None:
        assert crash.explore(saving(crash, save), note_is_kept).verdict == "CLEAN"

    @pytest.mark.parametrize(("call", "options"), [("explore", {}), ("errors", {"errors": ["EIO"]})])
    def test_may_be_async(self, crash: Crash, call: str, options: dict[str, Any]) -> None:
        async def setup(home: Path) -> None:
            await asyncio.to_thread(save, home, "old")

        async def workload(home: Path) -> None:
            await asyncio.to_thread(save, home, "new")
            crash.ack("new")

        async def check(disk: Disk) -> None:
            text = await asyncio.to_thread(read, disk.home)
            assert text == "new" or (text == "old" and not disk.acked)

        assert getattr(crash, call)(workload, check, setup=setup, **options).verdict == "CLEAN"

    def test_an_async_check_that_fails_is_a_violation(self, crash: Crash) -> None:
        async def check(disk: Disk) -> None:
            await asyncio.sleep(0)
            note_is_kept(disk)

        with pytest.raises(CrashBug, match="acknowledged    'text'"):
            crash.explore(saving(crash, save_without_fsync), check)

    def test_tasks_that_a_call_leaves_behind_are_cancelled(self, crash: Crash) -> None:
        async def later(home: Path) -> None:
            await asyncio.sleep(0)
            (home / "late").touch()

        async def workload(home: Path) -> None:
            (home / "note").touch()
            task = asyncio.get_running_loop().create_task(later(home))
            tasks.append(task)

        async def check(disk: Disk) -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not (disk.home / "late").exists()

        tasks: list[asyncio.Task[None]] = []
        crash.explore(workload, check)
        assert tasks[0].cancelled()

    def test_a_sync_exploration_leaves_the_event_loop_of_the_thread_alone(self, crash: Crash) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            crash.explore(lambda home: save(home, "text"), accept)
            assert asyncio.get_event_loop_policy().get_event_loop() is loop
        finally:
            asyncio.set_event_loop(None)
            loop.close()


class TestRunningLoop:
    @pytest.mark.parametrize("name", ["aexplore", "aerrors"])
    def test_async_calls_run_on_it(self, crash: Crash, name: str) -> None:
        loops = set()

        async def workload(home: Path) -> None:
            loops.add(asyncio.get_running_loop())
            save(home, "text")

        async def check(_: Disk) -> None:
            loops.add(asyncio.get_running_loop())

        async def main() -> None:
            loops.add(asyncio.get_running_loop())
            explored = await getattr(crash, name)(workload, check)
            assert explored.verdict == "CLEAN"
            assert explored.tried > 1

        asyncio.run(main())
        assert len(loops) == 1

    def test_aexplore_takes_plain_callables_and_finds_violations(self, crash: Crash) -> None:
        with pytest.raises(CrashBug):
            asyncio.run(crash.aexplore(saving(crash, save_without_fsync), note_is_kept))

    @pytest.mark.parametrize("call", ["explore", "errors", "kill", "points"])
    def test_blocking_calls_name_their_async_twin(self, crash: Crash, call: str) -> None:
        async def main() -> None:
            arguments: dict[str, Any] = {"at": crash.before("write")} if call == "kill" else {}
            getattr(crash, call)(accept, *([accept] if call in ("explore", "errors") else []), **arguments)

        with pytest.raises(RuntimeError, match=rf"event loop, .* Use `await crash\.a{call}\(\.\.\.\)` there"):
            asyncio.run(main())

    @pytest.mark.parametrize("name", ["explore", "errors", "kill", "points"])
    def test_twins_have_the_same_signature(self, name: str) -> None:
        blocking, twin = getattr(Crash, name), getattr(Crash, f"a{name}")
        assert inspect.signature(blocking) == inspect.signature(twin)
        assert "Steps" not in str(inspect.signature(blocking))
        assert twin.__qualname__ == f"Crash.a{name}"
        assert twin.__doc__.startswith(f"Do what `{name}` does")

    def test_apoints_runs_on_it(self, crash: Crash) -> None:
        async def workload(home: Path) -> None:
            save(home, "text")

        lines = asyncio.run(crash.apoints(workload))
        assert [line.split()[0] for line in lines] == ["create", "write", "fsync", "rename", "fsync"]


class TestKillOnALoop:
    def test_setup_runs_on_it_and_the_workload_dies_elsewhere(self, crash: Crash) -> None:
        loops = set()

        async def setup(home: Path) -> None:
            loops.add(asyncio.get_running_loop())
            (home / "old").touch()

        async def workload(home: Path) -> None:
            await asyncio.sleep(0)
            crash.ack("begun")
            (home / "a").touch()
            (home / "b").touch()

        async def main() -> Disk:
            loops.add(asyncio.get_running_loop())
            return await crash.akill(workload, at=crash.after("create", "a"), setup=setup)

        disk = asyncio.run(main())
        assert names(disk.home) == ["a", "old"]
        assert disk.acked == ["begun"]
        assert len(loops) == 1

    def test_worlds_may_be_async(self, crash: Crash) -> None:
        class Bank:
            def __init__(self) -> None:
                self.charged = 0

            async def charge(self) -> None:
                await asyncio.sleep(0)
                self.charged += 1

        bank = crash.world(Bank())

        async def workload(home: Path) -> None:
            await bank.charge()
            (home / "charged").touch()

        disk = asyncio.run(crash.akill(workload, at=crash.after(bank.charge)))
        assert disk.effects == ["charge()"]
        assert bank.charged == 1
        assert names(disk.home) == []

    def test_a_point_that_is_not_reached_is_an_error(self, crash: Crash) -> None:
        with pytest.raises(NeverReached, match="The workload ended without reaching before write"):
            asyncio.run(crash.akill(lambda _: None, at=crash.before("write")))
