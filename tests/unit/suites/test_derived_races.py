"""A contract that names no race roles has races all the same: they find lost updates and double claims."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st

from pytest_wfstate.suites import Contract, Operation, Suite, race_roles_of
from pytest_wfstate.suites.clauses import clauses
from tests.unit.suites.only import only


class Jobs:
    """The reference: a job counts its runs, and the first who claims it has it."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        self.owners: dict[str, str] = {}

    def put(self, job: str, runs: int) -> None:
        self.runs[job] = runs

    def get(self, job: str) -> int | None:
        return self.runs.get(job)

    def add(self, job: str) -> int | None:
        if job in self.runs:
            self.runs[job] += 1
        return self.runs.get(job)

    def claim(self, job: str, worker: str) -> bool:
        return self.owners.setdefault(job, worker) == worker

    def owner(self, job: str) -> str | None:
        return self.owners.get(job)


def _jobs(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids))


def _first(job: str, *_: Any) -> list[str]:
    return [job]


PUT = Operation(
    "put", lambda ids: st.tuples(st.sampled_from(ids), st.integers(0, 9)), mutates=True, positional=2, keys=_first
)
GET = Operation("get", _jobs, keys=_first)
ADD = Operation("add", _jobs, mutates=True, keys=_first)
CLAIM = Operation(
    "claim",
    lambda ids: st.tuples(st.sampled_from(ids), st.sampled_from(["red", "green"])),
    mutates=True,
    positional=2,
    keys=_first,
)
OWNER = Operation("owner", _jobs, keys=_first)
JOBS = Contract(
    "jobs",
    [PUT, GET, ADD, CLAIM, OWNER],
    reference=lambda _: Jobs(),
    write=PUT,
    reads=lambda ids: [call for job in ids for call in (GET(job), OWNER(job))],
)
RACES = ("test_race_add_add", "test_race_claim_claim", "test_race_get", "test_race_storm", "test_race_killed_add")


class JobSuite(Suite):
    contract = JOBS


class FileJobs:
    """A file for each job and one for its owner."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def put(self, job: str, runs: int) -> None:
        temporary = self.home / f"{job}.{os.getpid()}.tmp"
        temporary.write_text(str(runs))
        temporary.rename(self.home / job)

    def get(self, job: str) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return int((self.home / job).read_text())
        return None

    def add(self, job: str) -> int | None:
        runs = self.get(job)
        if runs is not None:
            self.put(job, runs + 1)
        return self.get(job)

    def claim(self, job: str, worker: str) -> bool:
        if self.owner(job) is None:
            (self.home / f"{job}.owner").write_text(worker)
        return self.owner(job) == worker

    def owner(self, job: str) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            return (self.home / f"{job}.owner").read_text()
        return None


@only(*RACES)
class TestOnFiles(JobSuite):
    known_failures: ClassVar = {
        "jobs.race.add-add": "a lost update",
        "jobs.race.claim-claim": "both read that it is free",
        "jobs.race.storm": "both",
        "jobs.race.killed-add": "an update between its parts",
    }

    def open(self, home: Path) -> FileJobs:
        return FileJobs(home)


class SqliteJobs:
    """A row for each job; `atomic` changes it in one statement."""

    atomic = True

    def __init__(self, home: Path) -> None:
        self.connection = sqlite3.connect(home / "jobs.db", isolation_level=None, timeout=30)

    def make(self) -> None:
        # SQLite waits for no other connection while it changes the journal, so no worker does so at each start.
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("CREATE TABLE IF NOT EXISTS jobs (job TEXT PRIMARY KEY, runs INTEGER, owner TEXT)")

    def put(self, job: str, runs: int) -> None:
        self._execute("INSERT INTO jobs VALUES (?, ?, NULL) ON CONFLICT DO UPDATE SET runs = excluded.runs", job, runs)

    def get(self, job: str) -> int | None:
        return next((runs for (runs,) in self._execute("SELECT runs FROM jobs WHERE job = ?", job)), None)

    def add(self, job: str) -> int | None:
        if self.atomic:
            rows = self._execute("UPDATE jobs SET runs = runs + 1 WHERE job = ? RETURNING runs", job)
            return next((runs for (runs,) in rows), None)
        runs = self.get(job)
        time.sleep(0.002)
        if runs is not None:
            self.put(job, runs + 1)
        return None if runs is None else runs + 1

    def claim(self, job: str, worker: str) -> bool:
        claim = "INSERT INTO jobs VALUES (?, NULL, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner"
        if self.atomic:
            self._execute(f"{claim} WHERE owner IS NULL", job, worker)
            return self.owner(job) == worker
        owner = self.owner(job)
        time.sleep(0.002)
        if owner is None:
            self._execute(claim, job, worker)
        return owner in (None, worker)

    def owner(self, job: str) -> str | None:
        return next((owner for (owner,) in self._execute("SELECT owner FROM jobs WHERE job = ?", job)), None)

    def close(self) -> None:
        self.connection.close()

    def _execute(self, text: str, *values: Any) -> list[Any]:
        return self.connection.execute(text, values).fetchall()


class SqliteJobSuite(JobSuite):
    def prepare(self, home: Path) -> None:
        with contextlib.closing(SqliteJobs(home)) as jobs:
            jobs.make()


@only(*RACES)
class TestAtomic(SqliteJobSuite):
    def open(self, home: Path) -> SqliteJobs:
        return SqliteJobs(home)


class ReadsThenWrites(SqliteJobs):
    atomic = False


@only("test_race_add_add", "test_race_claim_claim", "test_race_storm", "test_race_get")
class TestReadsThenWrites(SqliteJobSuite):
    """Processes race for real, as nothing can be interleaved in SQLite: the longer a change takes, the surer it is."""

    known_failures: ClassVar = {
        "jobs.race.add-add": "a lost update",
        "jobs.race.claim-claim": "two workers have it",
        "jobs.race.storm": "both",
    }

    def open(self, home: Path) -> SqliteJobs:
        return ReadsThenWrites(home)


def test_each_pair_of_changes_and_each_read_is_raced() -> None:
    ids = [clause.id.removeprefix("jobs.race.") for clause in clauses(JobSuite) if clause.fault == "race"]
    pairs = ["put-put", "put-add", "put-claim", "add-add", "add-claim", "claim-claim"]
    killed = ["killed-put", "killed-add", "killed-claim"]
    assert sorted(ids) == sorted([*pairs, *killed, "get", "owner", "first-use", "storm"])


def test_a_role_can_be_refined() -> None:
    roles = race_roles_of(JOBS)
    refined = type("Refined", (Suite,), {"contract": JOBS, "race_roles": {"add": roles["add"]}})
    assert [clause.id for clause in clauses(refined) if clause.fault == "race"] == [
        "jobs.race.add-add",
        "jobs.race.first-use",
    ]
