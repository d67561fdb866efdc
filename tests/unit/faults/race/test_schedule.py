"""Every way in which processes take turns at their file operations: what is found, and what is left out."""

from __future__ import annotations

import fcntl
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FilePausedStore, samples
from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.schedule import (
    Access,
    ClientFailed,
    Killed,
    ScheduleRun,
    TraceKeys,
    Turn,
    preemptions,
    turns_taken,
)
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.replay_id import death_of

Client = Callable[[Path], Any]


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as made:
        (made.path / "n").write_text("0")
        yield made


def explored(
    home: Home,
    *clients: Client,
    preemptions: int = 2,
    prune: bool = True,
    timeout: float = 20,
    mortal: bool = False,
) -> list[tuple[ScheduleRun, dict[str, Any]]]:
    """Run all schedules; give each with what it left."""
    start, all_of_them = home.content(), ClientProcesses(home, clients, timeout, mortal=mortal)
    try:
        return [(run, home.content()) for run in ScheduleSearch(all_of_them, preemptions, prune)]
    finally:
        all_of_them.close()
        home.build(start, {})


def left(found: list[tuple[ScheduleRun, dict[str, Any]]]) -> set[Any]:
    return {content["n"] for _, content in found}


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
    def test_without_preemption_one_client_comes_after_the_other(self, home: Home) -> None:
        found = explored(home, add_one, add_one, preemptions=0)
        assert left(found) == {b"2"}
        assert sorted(run.results[0] for run, _ in found) == [0, 1]

    def test_a_lost_update_takes_one(self, home: Home) -> None:
        assert left(explored(home, add_one, add_one, preemptions=1)) >= {b"1", b"2"}

    @pytest.mark.parametrize("client", [add_one_under_lock, add_one_under_record_lock])
    def test_a_lock_prevents_it(self, home: Home, client: Client) -> None:
        assert left(explored(home, client, client)) == {b"2"}

    @pytest.mark.parametrize("client", [add_one_under_lock, add_one_under_record_lock])
    def test_who_has_to_wait_for_a_lock_is_blocked(self, home: Home, client: Client) -> None:
        found = explored(home, client, client, preemptions=1, prune=False)
        assert left(found) == {b"2"}
        assert any(turn.blocked for run, _ in found for turn in run.turns)

    def test_a_lock_that_each_has_for_itself_does_not(self, home: Home) -> None:
        lock = threading.Lock()

        def locked(home: Path) -> int:
            with lock:
                return add_one(home)

        assert b"1" in left(explored(home, locked, locked, preemptions=1))

    def test_three_clients_take_turns(self, home: Home) -> None:
        found = explored(home, add_one, add_one, add_one, preemptions=1)
        assert left(found) == {b"1", b"2", b"3"}

    def test_the_fewest_preemptions_come_first(self, home: Home) -> None:
        costs = [preemptions(run) for run, _ in explored(home, add_one, add_one)]
        assert costs == sorted(costs)
        assert costs[-1] == 2

    def test_an_async_client_takes_turns_too(self, home: Home) -> None:
        async def client(home: Path) -> int:
            return add_one(home)

        assert left(explored(home, client, client, preemptions=1)) >= {b"1", b"2"}

    def test_what_a_client_raises_is_its_result(self, home: Home) -> None:
        def remove(home: Path) -> None:
            (home / "n").unlink()

        found = explored(home, remove, remove)
        errors = [run.results[number] for run, _ in found for number in (0, 1) if run.results[number] is not None]
        assert errors
        assert all(isinstance(one, ClientFailed) and isinstance(one.error, FileNotFoundError) for one in errors)

    def test_each_turn_has_the_line_that_asked_for_it(self, home: Home) -> None:
        clients = ClientProcesses(home, [add_one, add_one])
        run = clients.run((), lines=True)
        clients.close()
        assert [str(turn.access) for turn in run.turns[:4]] == ["open n", "read n", "open n", "write n"]
        assert {Path(turn.access.line.path).name for turn in run.turns if turn.access.line} == {"test_schedule.py"}


class TestDeaths:
    def test_one_client_dies_wherever_it_has_changed_something(self, home: Home) -> None:
        def twice(home: Path) -> None:
            add_one(home)
            add_one(home)

        found = explored(home, twice, preemptions=0, mortal=True)
        died = {len(run.turns) - 1: content["n"] for run, content in found if run.results[0] == Killed()}
        assert died == {3: b"", 4: b"1", 7: b""}  # opened anew, which cut it; written; opened anew

    def test_the_other_goes_on(self, home: Home) -> None:
        found = explored(home, add_one, add_one, preemptions=0, mortal=True)
        assert all(not isinstance(run.results[1], Killed) or not isinstance(run.results[0], Killed) for run, _ in found)
        died = {type(run.results[1]) for run, _ in found if run.results[0] == Killed() and run.choices[0] == 0}
        assert died == {ClientFailed}  # of int(""), what the dead one has left

    def test_a_death_frees_the_lock(self, home: Home) -> None:
        found = explored(home, add_one_under_lock, add_one_under_lock, preemptions=1, prune=False, mortal=True)
        waited = [
            run
            for run, _ in found
            if run.results[0] == Killed() and any(turn.blocked and turn.client == 1 for turn in run.turns)
        ]
        assert waited
        assert not any(run.stuck for run, _ in found)

    def test_a_schedule_with_a_death_can_be_run_again(self, home: Home) -> None:
        clients = ClientProcesses(home, [add_one, add_one], mortal=True)
        try:
            first, again = (clients.run((0, 0, death_of(0))) for _ in range(2))
        finally:
            clients.close()
        assert first.choices == again.choices == [0, 0, death_of(0), 1, 1, 1, 1]
        assert first.results == again.results == {0: Killed(), 1: 0}


class TestSleep:
    def test_who_sleeps_lets_others_go_on(self, home: Home) -> None:
        def patient(home: Path) -> str:
            while not (home / "door").exists():
                time.sleep(60)
            return "in"

        def opener(home: Path) -> None:
            (home / "door").touch()

        found = explored(home, patient, opener)
        assert {run.results[0] for run, _ in found} == {"in"}

    def test_time_goes_by_when_all_sleep(self, home: Home) -> None:
        def tired(home: Path) -> bool:
            time.sleep(60)
            return (home / "n").exists()

        assert {tuple(run.results.values()) for run, _ in explored(home, tired, tired)} == {(True, True)}

    def test_who_waits_for_ever_is_told(self, home: Home) -> None:
        def waiting(home: Path) -> None:
            while not (home / "door").exists():
                time.sleep(60)

        (run, _), *_ = explored(home, waiting, preemptions=0)
        assert run.stuck == "nobody goes on: client 1 waits in sleep, again and again"


class TestStrayed:
    def test_a_schedule_that_cannot_be_followed_is_told(self, home: Home) -> None:
        clients = ClientProcesses(home, [add_one, add_one])
        followed, diverged = clients.run((0, 0, 1)), clients.run((0, 0, 0, 0, 0))
        clients.close()
        assert not followed.diverged
        assert diverged.diverged

    def test_a_client_knows_its_turns(self, home: Home) -> None:
        def counting(home: Path) -> list[int]:
            counts = [turns_taken()]
            for _ in range(2):
                add_one(home)
                counts.append(turns_taken())
            return counts

        assert turns_taken() == 0
        assert explored(home, counting, preemptions=0)[0][0].results[0] == [0, 4, 8]


class TestStuck:
    def test_a_deadlock_is_told(self, home: Home) -> None:
        def locking(*names: str) -> Client:
            def client(home: Path) -> None:
                with open(home / names[0], "w") as first, open(home / names[1], "w") as second:
                    fcntl.flock(first, fcntl.LOCK_EX)
                    fcntl.flock(second, fcntl.LOCK_EX)

            return client

        stuck = {run.stuck for run, _ in explored(home, locking("a", "b"), locking("b", "a"), preemptions=1)}
        assert "a deadlock: client 1 waits for the lock b; client 2 waits for the lock a" in stuck

    def test_a_client_that_never_comes_back_is_told(self, home: Home) -> None:
        def waiting(home: Path) -> None:  # noqa: ARG001 - every client gets it
            threading.Event().wait()

        found = explored(home, add_one, waiting, timeout=0.3)
        assert {run.stuck for run, _ in found} == {
            "client 2 did not come to its next file operation, or to its end, in time"
        }

    def test_a_client_that_ends_its_process_is_told(self, home: Home) -> None:
        def dying(home: Path) -> None:  # noqa: ARG001 - every client gets it
            os._exit(3)

        assert {run.stuck for run, _ in explored(home, dying)} == {"the process of client 1 has ended"}

    def test_what_cannot_be_seen_is_told(self, home: Home) -> None:
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
        def outcomes(prune: bool) -> tuple[set[str], int]:
            found = explored(home, *clients, prune=prune)
            return {str((sorted(run.results.items()), content)) for run, content in found}, len(found)

        pruned, few = outcomes(prune=True)
        whole, all_of_them = outcomes(prune=False)
        assert pruned == whole
        assert few <= all_of_them

    def test_leaves_out_orders_that_come_to_the_same(self, home: Home) -> None:
        clients = [lambda home: (home / "a").write_text("1"), lambda home: (home / "b").write_text("2")]
        whole = explored(home, *clients, prune=False)
        assert len(explored(home, *clients)) < len(whole)

    def test_the_word_for_a_trace_is_that_of_all_its_orders(self) -> None:
        def access(key: int) -> Access:
            return Access("write", str(key), writes=frozenset({("inode", key, "")}))

        apart = [Turn(0, access(1)), Turn(1, access(2)), Turn(0, access(3)), Turn(1, access(4))]
        words = TraceKeys()
        assert len({_word(words, order) for order in _orders(apart)}) == 1
        shared = [Turn(0, access(1)), Turn(1, access(1))]
        assert _word(words, shared) != _word(words, shared[::-1])


class TestFileStores:
    def test_a_claim_has_one_winner(self, home: Home) -> None:
        FilePausedStore(home.path).save(samples.paused("a"))

        def claim(home: Path) -> bool:
            return FilePausedStore(home).claim("a") is not None

        found = explored(home, claim, claim, preemptions=1)
        assert {tuple(sorted(run.results.values())) for run, _ in found} == {(False, True)}


def _word(words: TraceKeys, turns: list[Turn]) -> Any:
    """Give the word for all of it."""
    *_, last = words.of([*turns, Turn(0, Access("end", ""))])
    return last


def _orders(turns: list[Turn]) -> Iterator[list[Turn]]:
    """Give all orders in which each client's turns come as they were."""
    for order in itertools.permutations(turns):
        if all(
            [turn for turn in order if turn.client == client] == [turn for turn in turns if turn.client == client]
            for client in (0, 1)
        ):
            yield list(order)
