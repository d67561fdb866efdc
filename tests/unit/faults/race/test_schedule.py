"""Schedules of processes: what they find, what they report, and what is pruned."""

from __future__ import annotations

import fcntl
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FilePausedStore, samples
from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race import processes
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.schedule import (
    Access,
    ClientFailed,
    Killed,
    ScheduleRun,
    ScheduleStep,
    preemptions,
    steps_taken,
    trace_keys,
)
from pytest_wfstate.faults.replay_id import death_of
from tests.unit.faults.race.file_racing import Client, explored, outcomes


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "n").write_text("0")
        yield home


def left(runs: list[tuple[ScheduleRun, dict[str, Any]]]) -> set[Any]:
    return {content["n"] for _, content in runs}


def add_one(home: Path) -> int:
    number = int((home / "n").read_text())
    (home / "n").write_text(str(number + 1))
    return number


def add_one_under_lock(home: Path) -> int:
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return add_one(home)


def add_one_under_record_lock(home: Path) -> int:
    with open(home / "lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        return add_one(home)


class TestSchedules:
    def test_without_preemptions_clients_run_one_after_the_other(self, home: Home) -> None:
        runs = explored(home, add_one, add_one, preemptions=0)
        assert left(runs) == {b"2"}
        assert sorted(run.results[0] for run, _ in runs) == [0, 1]

    def test_a_lost_update_takes_one_preemption(self, home: Home) -> None:
        assert left(explored(home, add_one, add_one, preemptions=1)) >= {b"1", b"2"}

    @pytest.mark.parametrize("client", [add_one_under_lock, add_one_under_record_lock])
    def test_a_file_lock_prevents_a_lost_update(self, home: Home, client: Client) -> None:
        assert left(explored(home, client, client)) == {b"2"}

    @pytest.mark.parametrize("client", [add_one_under_lock, add_one_under_record_lock])
    def test_a_client_that_waits_for_a_lock_is_blocked(self, home: Home, client: Client) -> None:
        runs = explored(home, client, client, preemptions=1, prune=False)
        assert left(runs) == {b"2"}
        assert any(step.blocked for run, _ in runs for step in run.steps)

    def test_a_lock_in_memory_does_not_exclude_processes(self, home: Home) -> None:
        lock = threading.Lock()

        def locked(home: Path) -> int:
            with lock:
                return add_one(home)

        assert b"1" in left(explored(home, locked, locked, preemptions=1))

    def test_three_clients_interleave(self, home: Home) -> None:
        runs = explored(home, add_one, add_one, add_one, preemptions=1)
        assert left(runs) == {b"1", b"2", b"3"}

    def test_the_fewest_preemptions_come_first(self, home: Home) -> None:
        costs = [preemptions(run) for run, _ in explored(home, add_one, add_one)]
        assert costs == sorted(costs)
        assert costs[-1] == 2

    def test_async_clients_interleave(self, home: Home) -> None:
        async def client(home: Path) -> int:
            return add_one(home)

        assert left(explored(home, client, client, preemptions=1)) >= {b"1", b"2"}

    def test_what_a_client_raises_is_its_result(self, home: Home) -> None:
        def remove(home: Path) -> None:
            (home / "n").unlink()

        runs = explored(home, remove, remove)
        errors = [run.results[number] for run, _ in runs for number in (0, 1) if run.results[number] is not None]
        assert {(type(failed), type(failed.error)) for failed in errors} == {(ClientFailed, FileNotFoundError)}

    def test_each_step_has_the_line_that_caused_it(self, home: Home) -> None:
        clients = ClientProcesses(home, [add_one, add_one])
        run = clients.run((), lines=True)
        clients.close()
        assert [str(step.access) for step in run.steps[:4]] == ["open n", "read n", "open n", "write n"]
        assert {Path(step.access.line.path).name for step in run.steps if step.access.line} == {"test_schedule.py"}


class TestDeaths:
    def test_a_client_dies_wherever_it_has_changed_something(self, home: Home) -> None:
        def twice(home: Path) -> None:
            add_one(home)
            add_one(home)

        runs = explored(home, twice, preemptions=0, killable=True)
        died = {len(run.steps) - 1: content["n"] for run, content in runs if run.results[0] == Killed()}
        assert died == {3: b"", 4: b"1", 7: b""}  # reopened, which truncates it; written; reopened

    def test_a_client_dies_where_it_found_nothing_to_change(self, home: Home) -> None:
        def removing(home: Path) -> None:
            (home / "missing").unlink(missing_ok=True)
            (home / "n").exists()

        runs = explored(home, removing, preemptions=0, killable=True)
        assert Killed() in [run.results[0] for run, _ in runs]

    def test_the_other_client_continues(self, home: Home) -> None:
        runs = explored(home, add_one, add_one, preemptions=0, killable=True)
        assert all(not isinstance(run.results[1], Killed) or not isinstance(run.results[0], Killed) for run, _ in runs)
        died = {type(run.results[1]) for run, _ in runs if run.results[0] == Killed() and run.choices[0] == 0}
        assert died == {ClientFailed}  # int("") of what the dead one left

    def test_a_death_frees_the_lock(self, home: Home) -> None:
        runs = explored(home, add_one_under_lock, add_one_under_lock, preemptions=1, prune=False, killable=True)
        waited = [
            run
            for run, _ in runs
            if run.results[0] == Killed() and any(step.blocked and step.client == 1 for step in run.steps)
        ]
        assert waited
        assert not any(run.stuck for run, _ in runs)

    def test_what_follows_a_death_is_not_what_follows_the_last_step(self, home: Home) -> None:
        def saving(home: Path) -> None:
            os.mkdir(home / "a")
            os.mkdir(home / "b")

        def claiming(home: Path) -> str:
            try:
                os.rename(home / "a", home / "claimed")
            except FileNotFoundError:
                return "too late" if (home / "claimed").exists() else "too early"
            return "claimed"

        def compared(prune: bool) -> set[str]:
            return outcomes(home, saving, claiming, claiming, preemptions=0, prune=prune, killable=True)

        assert compared(prune=True) == compared(prune=False)

    def test_a_schedule_with_a_death_can_be_repeated(self, home: Home) -> None:
        clients = ClientProcesses(home, [add_one, add_one], killable=True)
        try:
            first, again = (clients.run((0, 0, death_of(0))) for _ in range(2))
        finally:
            clients.close()
        assert first.choices == again.choices == [0, 0, death_of(0), 1, 1, 1, 1]
        assert first.results == again.results == {0: Killed(), 1: 0}


class TestSleep:
    def test_a_sleeping_client_lets_others_run(self, home: Home) -> None:
        def patient(home: Path) -> str:
            while not (home / "door").exists():
                time.sleep(60)
            return "in"

        def opener(home: Path) -> None:
            (home / "door").touch()

        runs = explored(home, patient, opener)
        assert {run.results[0] for run, _ in runs} == {"in"}

    def test_sleeps_end_when_all_sleep(self, home: Home) -> None:
        def tired(home: Path) -> bool:
            time.sleep(60)
            return (home / "n").exists()

        assert {tuple(run.results.values()) for run, _ in explored(home, tired, tired)} == {(True, True)}

    def test_a_client_that_only_sleeps_is_a_livelock(self, home: Home) -> None:
        def waiting(home: Path) -> None:
            while not (home / "door").exists():
                time.sleep(60)

        (run, _), *_ = explored(home, waiting, preemptions=0)
        assert run.stuck == "livelock: client 1 keeps retrying (sleep)"


class TestDiverged:
    def test_a_schedule_that_cannot_be_followed_diverges(self, home: Home) -> None:
        clients = ClientProcesses(home, [add_one, add_one])
        followed, diverged = clients.run((0, 0, 1)), clients.run((0, 0, 0, 0, 0))
        clients.close()
        assert not followed.diverged
        assert diverged.diverged

    def test_a_client_can_count_its_steps(self, home: Home) -> None:
        def counting(home: Path) -> list[int]:
            counts = [steps_taken()]
            for _ in range(2):
                add_one(home)
                counts.append(steps_taken())
            return counts

        assert steps_taken() == 0
        assert explored(home, counting, preemptions=0)[0][0].results[0] == [0, 4, 8]


class TestStuck:
    def test_a_deadlock_names_the_locks(self, home: Home) -> None:
        def locking(*names: str) -> Client:
            def client(home: Path) -> None:
                with open(home / names[0], "w") as first, open(home / names[1], "w") as second:
                    fcntl.flock(first, fcntl.LOCK_EX)
                    fcntl.flock(second, fcntl.LOCK_EX)

            return client

        stuck = {run.stuck for run, _ in explored(home, locking("a", "b"), locking("b", "a"), preemptions=1)}
        assert "deadlock: client 1 waits for the lock b; client 2 waits for the lock a" in stuck

    def test_a_client_that_never_finishes_is_reported(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "MAX_STEPS", 200)

        def busy(home: Path) -> None:
            while not (home / "door").exists():
                pass

        (run, _), *_ = explored(home, busy, preemptions=0)
        assert run.stuck == "client 1 made 200 file operations without finishing"

    def test_a_client_whose_process_exits_is_reported(self, home: Home) -> None:
        def dying(home: Path) -> None:  # noqa: ARG001 - every client gets it
            os._exit(3)

        assert {run.stuck for run, _ in explored(home, dying)} == {"the process of client 1 exited"}

    def test_what_cannot_be_interleaved_is_noted(self, home: Home) -> None:
        def native(home: Path) -> None:
            sqlite3.connect(home / "db").close()

        assert [run.unseen for run, _ in explored(home, native)] == [["SQLite"]]


class TestPruning:
    @pytest.mark.parametrize(
        "clients",
        [
            pytest.param([add_one, add_one], id="the same file"),
            pytest.param(
                [lambda home: os.listdir(home), lambda home: (home / "x").write_text("x")],
                id="a listing and a new file",
            ),
            pytest.param(
                [lambda home: os.rename(home / "n", home / "m"), lambda home: (home / "m").exists()], id="a new name"
            ),
            pytest.param(
                [lambda home: (home / "a").write_text("1"), lambda home: (home / "b").write_text("2")], id="two files"
            ),
        ],
    )
    def test_loses_no_outcome(self, home: Home, clients: list[Client]) -> None:
        assert outcomes(home, *clients) == outcomes(home, *clients, prune=False)

    def test_equivalent_orders_are_pruned(self, home: Home) -> None:
        clients = [lambda home: (home / "a").write_text("1"), lambda home: (home / "b").write_text("2")]
        whole = explored(home, *clients, prune=False)
        assert len(explored(home, *clients)) < len(whole)

    def test_equivalent_orders_have_the_same_key(self) -> None:
        def access(key: int) -> Access:
            return Access("write", str(key), writes=frozenset({("inode", key, "")}))

        apart = [
            ScheduleStep(0, access(1)),
            ScheduleStep(1, access(2)),
            ScheduleStep(0, access(3)),
            ScheduleStep(1, access(4)),
        ]
        assert len({_key(order) for order in _orders(apart)}) == 1
        shared = [ScheduleStep(0, access(1)), ScheduleStep(1, access(1))]
        assert _key(shared) != _key(shared[::-1])
        read = ScheduleStep(0, Access("read", "1", reads=frozenset({("inode", 1, "")})))
        assert _key([read, read, shared[1]]) != _key([read, shared[1], read])


class TestFileStores:
    def test_a_claim_has_one_winner(self, home: Home) -> None:
        FilePausedStore(home.path).save(samples.paused("a"))

        def claim(home: Path) -> bool:
            return FilePausedStore(home).claim("a") is not None

        runs = explored(home, claim, claim, preemptions=1)
        assert {tuple(sorted(run.results.values())) for run, _ in runs} == {(False, True)}


def _key(steps: list[ScheduleStep]) -> int:
    """Return the key for all steps."""
    *_, last = trace_keys([*steps, ScheduleStep(0, Access("end", ""))])
    return last


def _orders(steps: list[ScheduleStep]) -> Iterator[list[ScheduleStep]]:
    """Yield all orders that keep the order of each client's own steps."""
    for order in itertools.permutations(steps):
        if all(
            [step for step in order if step.client == client] == [step for step in steps if step.client == client]
            for client in (0, 1)
        ):
            yield list(order)
