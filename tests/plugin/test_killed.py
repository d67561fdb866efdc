"""Tests that are killed leave nothing behind: no process, no folder."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.conftest import ALONE
from tests.unit.faults.conftest import until

MODULE = """
import asyncio, os, threading
from pytest_wfstate import FileResumeStore

TEST = os.getpid()

def block(home):
    with open(os.environ["READY"], "w") as pipe:
        pipe.write(f"{home}\\n")
    threading.Event().wait()

def block_in_child(home):
    if os.getpid() != TEST:
        block(home)

def save(home):
    (home / "note").write_text("1")

class Blocks(FileResumeStore):
    def save(self, *args, **kwargs):
        block(self._home)

def factory(home):
    store = Blocks(home)
    store._home = home
    return store
"""
TESTS = """
from blocking import *

def test_check(crash):
    crash.explore(save, lambda disk: block(disk.home))

def test_check_in_a_clean_process(crash):
    crash.explore(save, lambda disk: block_in_child(disk.home))

def test_child_to_be_killed(crash):
    crash.kill(block, at=crash.before("rename"))

def test_child_of_a_thread(crash):
    asyncio.run(crash.akill(block, at=crash.before("rename")))

def test_client(race):
    race.explore(None, [block, block], print)

def test_worker_of_a_storm(race):
    race.storm(factory, "resume")

def test_child_beside_a_server(crash, redis_server):
    crash.kill(block, at=crash.before("rename"))
"""
NAMES = [line[len("def ") :].partition("(")[0] for line in TESTS.splitlines() if line.startswith("def test_")]
CASES = [(name, signal.SIGKILL) for name in NAMES] + [(name, signal.SIGTERM) for name in NAMES[:2]]

Run = Callable[[list[str], signal.Signals], int]


def marked(mark: str) -> set[int]:
    """Return the processes that have a variable in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue  # it has ended, or is not ours
    return found


@pytest.fixture
def kill_when_blocked(pytester: pytest.Pytester) -> Run:
    """Run a command until it blocks, send it a signal, and wait until nothing is left. Return its exit status."""

    def run(command: list[str], sign: signal.Signals) -> int:
        pytester.makepyfile(blocking=MODULE)
        ready, mark = pytester.path / "ready", f"WFSTATE_KILLED={uuid.uuid4()}"
        os.mkfifo(ready)
        pipe = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
        env = dict(os.environ, READY=str(ready), **dict([mark.split("=")]))
        with subprocess.Popen(
            [sys.executable, "-m", *command],
            env=env,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
        ) as process:
            assert select.select([pipe], [], [], 60)[0]
            home = Path(os.read(pipe, 10_000).decode().split()[0])
            os.close(pipe)
            assert home.exists()
            process.send_signal(sign)
            process.wait()
        try:
            until(lambda: not marked(mark))
        finally:
            for pid in marked(mark):
                os.kill(pid, signal.SIGKILL)
        assert not home.exists()
        assert not list(home.parents[1].glob(f"*-{process.pid}-*"))
        return process.returncode

    return run


@pytest.mark.parametrize(("name", "sign"), CASES)
def test_killed_tests_leave_no_process_and_no_folder(
    name: str, sign: signal.Signals, pytester: pytest.Pytester, kill_when_blocked: Run
) -> None:
    pytester.makepyfile(TESTS)
    command = ["pytest", *ALONE, "-k", f"{name}", "-p", "no:cacheprovider"]
    assert kill_when_blocked(command, sign) == -sign


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_check_from_the_command_line_leaves_no_session_behind(sign: signal.Signals, kill_when_blocked: Run) -> None:
    command = ["pytest_wfstate", "check", "blocking:factory", "--contract", "resume", "-k", "resume.power.save"]
    assert kill_when_blocked(command, sign) == (130 if sign == signal.SIGINT else -sign)
