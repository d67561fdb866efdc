"""The race lab as users see it: the fixture, the table of a violation, replay, storms and the summary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_wfstate.faults.race import processes
from tests.plugin.conftest import Run

GOLDEN = Path(__file__).parent / "golden"

QUEUE = """
import json


class Queue:
    def __init__(self, home):
        self.home = home

    def put(self, name):
        (self.home / f"{name}.json").write_text(json.dumps({"name": name}))

    def claim(self, name):
        paused, taken = self.home / f"{name}.json", self.home / f"{name}.inflight"
        if not paused.exists():
            return None
        taken.unlink(missing_ok=True)  # of a worker that died
        try:
            paused.rename(taken)
        except FileNotFoundError:
            return None
        return json.loads(taken.read_text())

    def is_known(self, name):
        return any((self.home / f"{name}.{kind}").exists() for kind in ("json", "inflight"))
"""

CLAIMS = """
from queue_of_runs import Queue


def test_a_run_is_never_lost(race):
    def worker(home):
        return Queue(home).claim("run-1")

    def check(outcome):
        known = Queue(outcome.home).is_known("run-1")
        assert known, "the run is gone"

    race.explore(lambda home: Queue(home).put("run-1"), [worker, worker], check)
"""


def violation(result: pytest.RunResult) -> str:
    """Return the text of the `RaceBug` that failed the test, with all times set to zero."""
    shown = "\n".join(line.removeprefix("E       ").rstrip("E ") for line in result.outlines)
    (text,) = re.findall(r"pytest_wfstate\.RaceBug: (.*?(?:--wfstate-replay=\S+|seed \d+\.))", shown, re.DOTALL)
    return re.sub(r" *\d+\.\d - +\d+\.\d ", " 0.0 - 0.0 ", re.sub(r"in \d+\.\d+ s", "in 0.00 s", text)) + "\n"


@pytest.fixture
def queue(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(queue_of_runs=QUEUE, test_claims=CLAIMS)


@pytest.mark.usefixtures("queue")
class TestViolation:
    def test_shows_a_table_of_who_did_what(self, run: Run) -> None:
        result = run("test_claims.py")
        result.assert_outcomes(failed=1)
        assert violation(result) == (GOLDEN / "race.txt").read_text()

    def test_points_at_the_line_of_the_test(self, run: Run) -> None:
        result = run("test_claims.py")
        result.stdout.fnmatch_lines([">       race.explore(*", "test_claims.py:12: RaceBug"])
        assert "pytest_wfstate/faults" not in result.stdout.str()

    def test_can_be_replayed(self, run: Run) -> None:
        (replay,) = re.findall(r"--wfstate-replay=(\S+)", run("test_claims.py").stdout.str())
        again = run("test_claims.py", f"--wfstate-replay={replay}")
        again.assert_outcomes(failed=1)
        again.stdout.fnmatch_lines(["*client 1*client 2*", "*This is one schedule, replayed.*"])

    def test_a_replay_of_other_code_fails(self, pytester: pytest.Pytester, run: Run) -> None:
        (replay,) = re.findall(r"--wfstate-replay=(\S+)", run("test_claims.py").stdout.str())
        pytester.makepyfile(queue_of_runs=QUEUE.replace("taken.unlink(missing_ok=True)", "pass"))
        again = run("test_claims.py", f"--wfstate-replay={replay}")
        again.assert_outcomes(failed=1)
        again.stdout.fnmatch_lines(["*TraceChanged: '*' belongs to another run*"])

    def test_the_disk_can_be_kept(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(
            queue_of_runs=QUEUE.replace("taken.unlink(", "taken.with_suffix('.old').touch(); taken.unlink(")
        )
        run("test_claims.py", "--wfstate-keep=kept").stdout.fnmatch_lines(["*The disk was kept in kept*"])
        assert (pytester.path / "kept" / "test_claims.py-test_a_run_is_never_lost" / "run-1.old").exists()


class TestFixture:
    @pytest.mark.usefixtures("queue")
    def test_a_correct_queue_passes(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(queue_of_runs=QUEUE.replace("taken.unlink(missing_ok=True)", "pass"))
        result = run("test_claims.py")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["wfstate: 1 race, * schedules, 0 violations, 0 not measured"])

    def test_async_clients_and_checks(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            import asyncio

            def test_it(race):
                async def add(home):
                    number = int((home / "n").read_text())
                    await asyncio.sleep(0)
                    (home / "n").write_text(str(number + 1))

                async def check(outcome):
                    assert (outcome.home / "n").read_text() == "2"

                race.explore(lambda home: (home / "n").write_text("0"), [add, add], check)
        """)
        result = run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*RaceBug: Two concurrent clients*"])

    def test_a_running_loop_needs_aexplore(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("""
            import pytest

            @pytest.mark.asyncio
            async def test_wrong(race):
                race.explore(None, [lambda home: None] * 2, lambda outcome: None)

            @pytest.mark.asyncio
            async def test_right(race):
                async def check(outcome):
                    assert outcome.results == (1, 1)

                await race.aexplore(None, [lambda home: (home / "x").write_text("x")] * 2, check)
        """)
        result = pytester.runpytest_inprocess("-p", "no:xdist", "-o", "asyncio_default_fixture_loop_scope=function")
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(["*Use `await race.aexplore(...)` there*"])

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ("race.explore(None, [lambda home: None], print)", "ValueError: A race needs at least two clients, not 1."),
            ("race.explore(None, [lambda home: None] * 2, print, preemptions=-1)", "ValueError: preemptions is -1.*"),
            ("race.explore(None, [lambda home: 1] * 2, lambda outcome: None)", "*no client did anything below home*"),
            (
                "race.explore(None, [lambda home: sqlite3.connect(home / 'db').close()] * 2, lambda outcome: None)",
                "*a client used something the scheduler cannot interleave: SQLite*",
            ),
            (
                "race.explore(None, [lambda home: (home / 'x').touch()] * 2, lambda outcome: 1 / 0)",
                "*CheckFails: Your check fails even without a race, with ZeroDivisionError*",
            ),
            (
                "race.explore(None, [KEEPING] * 2, lambda outcome: 1 / (outcome.results[0] < 2))",
                "*Clients must keep nothing in memory between two runs, such as in a variable of a module or class*",
            ),
            (
                "race.storm(print, 'payments')",
                "*InvalidSetting: 'payments' is not a contract. Use a Contract, or one of: effects, *",
            ),
        ],
    )
    def test_errors_name_the_cause(self, pytester: pytest.Pytester, run: Run, body: str, error: str) -> None:
        keeping = "KEEPING = lambda home, kept=[]: (home / 'x').touch() or kept.append(1) or len(kept)"
        pytester.makepyfile(f"import sqlite3\n\n{keeping}\n\ndef test_it(race):\n    {body}\n")
        result = run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"*{error}"])

    def test_a_deadlock_is_reported(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            import fcntl

            def taking(*names):
                def client(home):
                    files = [open(home / name, "w") for name in names]
                    for file in files:
                        fcntl.flock(file, fcntl.LOCK_EX)
                    for file in files:
                        file.close()

                return client

            def test_it(race):
                race.explore(None, [taking("a", "b"), taking("b", "a")], lambda outcome: None)
        """)
        run().stdout.fnmatch_lines(
            [
                "*RaceBug: Concurrent clients*cannot all finish.",
                "*stuck*deadlock: client 1 waits for the lock b; client 2 waits for the lock a",
            ]
        )

    def test_a_hang_is_reported_with_its_line(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            import threading

            def wait_for_door(home):
                if not (home / "door").exists():
                    threading.Event().wait()

            def open_door(home):
                (home / "door").mkdir()

            def test_it(race):
                race.explore(open_door, [wait_for_door, lambda home: (home / "door").rmdir()], lambda outcome: None)
        """)
        run().stdout.fnmatch_lines(
            [
                "*RaceBug: Concurrent clients*cannot all finish.",
                "*hangs*:5",
                "*stuck*client 1 hangs at *.py:5: threading.Event().wait()",
            ]
        )

    def test_a_livelock_can_be_replayed_by_a_short_id(
        self, pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "MAX_WAKEUPS", 100)
        pytester.makepyfile("""
            import asyncio

            async def poll(home):
                while not (home / "door").exists():
                    await asyncio.sleep(0.01)

            def test_it(race):
                race.explore(None, [poll, poll], lambda outcome: None)
        """)
        text = run().stdout.str()
        assert "livelock: client 1 keeps retrying (sleep); client 2 keeps retrying (sleep)" in text
        replay = text.partition("--wfstate-replay=")[2].split()[0]
        assert len(replay) < 60
        again = run(f"--wfstate-replay={replay}")
        assert "livelock: client 1 keeps retrying (sleep); client 2 keeps retrying (sleep)" in again.stdout.str()
        assert "This is one schedule, replayed." in again.stdout.str()

    def test_a_lock_beside_home_is_named(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            import fcntl

            def count(home):
                with open(home.parent / "lock", "w") as lock:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        return "busy"
                    (home / "n").write_text("1")
                    return "done"

            def test_it(race):
                def check(outcome):
                    assert "busy" not in outcome.results

                race.explore(None, [count, count], check)
        """)
        run().stdout.fnmatch_lines(
            ["*RaceBug: Two concurrent clients, one preempted once, *", "*try lock ../lock (EAGAIN)*"]
        )

    def test_a_death_is_reported(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            def test_it(race):
                def save(home):
                    (home / "note").write_text("new")
                    race.ack("saved")

                def look(home):
                    return (home / "note").read_text()

                def check(outcome):
                    assert outcome.results[1] in ("old", "new")

                def setup(home):
                    (home / "note").write_text("old")

                race.explore(setup, [save, look], check, preemptions=0, crash=True)
        """)
        run().stdout.fnmatch_lines(
            ["*RaceBug: Two concurrent clients, one killed, produce*", "*killed*", "*client 1*was killed"]
        )


class TestStorm:
    def test_a_correct_store_passes(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            from pytest_wfstate import FilePausedStore

            def test_it(race):
                result = race.storm(FilePausedStore, "paused", calls=200)
                assert result.calls > 100 and result.killed
        """)
        result = run()
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["wfstate: 1 storm, * calls, 0 violations, 0 not measured"])

    def test_a_violation_shows_the_calls_around_it(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("""
            from hypothesis import strategies as st
            from pytest_wfstate.suites import Contract, Operation

            class Tickets:
                number = 0

                def draw(self):
                    self.number += 1
                    return self.number

            class LastTicketTwice(Tickets):
                def draw(self):
                    return min(super().draw(), 6)

            DRAW = Operation("draw", lambda ids: st.just(()), mutates=True, positional=0, required=True)
            TICKETS = Contract(
                "tickets", [DRAW], reference=lambda _: Tickets(), write=lambda *_: DRAW(), reads=lambda _: []
            )

            def test_it(race):
                race.storm(lambda home: LastTicketTwice(), TICKETS, processes=1, medium="memory", seed=3)
        """)
        result = run()
        result.assert_outcomes(failed=1)
        assert violation(result) == (GOLDEN / "storm.txt").read_text()
