"""A forked child ends with the thread that forked it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from pytest_wfstate.faults.forking import die_with, fork

KILLED = """
import os, signal
from pytest_wfstate.faults.forking import fork
child = fork()
if child == 0:
    grandchild = fork()
    while True:
        signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


def child_that_waits() -> int:
    """Fork a child, and return once it is ready: its thread may end only then."""
    ready, tell = os.pipe()
    pid = fork()
    if pid == 0:
        os.write(tell, b"1")
        while True:
            signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(tell)
    return pid


def test_the_children_of_a_killed_process_end() -> None:
    # It would not return while a child still has the pipe.
    result = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, timeout=60)
    assert result.returncode == -signal.SIGKILL


def test_a_child_ends_with_the_thread_that_forked_it() -> None:
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(child_that_waits()))
    thread.start()
    thread.join()
    _, status = os.waitpid(pids[0], 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_a_child_survives_the_end_of_another_thread() -> None:
    pid = child_that_waits()
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("parent", [os.getpid, os.getppid], ids=["alive", "ended"])
def test_a_child_whose_parent_has_already_ended_ends(parent: Callable[[], int]) -> None:
    expected = parent()
    pid = fork()
    if pid == 0:
        die_with(expected)
        os._exit(7)
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == (7 if parent is os.getpid else -signal.SIGKILL)
