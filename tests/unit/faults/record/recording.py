"""Helpers for tests of the recorder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_wfstate.faults.folders import read_content
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.trace.texts import in_words

Workload = Callable[[Path], Any]


def record(workload: Workload, home: Path) -> list[str]:
    """Record a workload, assert that nothing was missed, and return its ops."""
    with Recorder(home) as recorder:
        workload(home)
    assert recorder.unmeasured == []
    assert recorder.trace().end().content() == read_content(home)
    return in_words(recorder.trace())


def forked(call: Callable[[], Any]) -> int:
    """Make a call in a child, and return its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests have left idle threads
        pid = os.fork()
    if pid == 0:
        try:
            call()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]
