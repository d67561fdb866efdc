"""What the tests of the recorder share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.trace.texts import in_words

Workload = Callable[[Path], Any]


def record(workload: Workload, home: Path) -> list[str]:
    """Run a workload, make sure that nothing escaped, and say what it did."""
    with Recorder(home) as recorder:
        workload(home)
    assert recorder.unmeasured == []
    assert recorder.trace().end().content() == content(home)
    return in_words(recorder.trace())


def content(home: Path) -> dict[str, bytes | str | None]:
    return {
        str(path.relative_to(home)): os.readlink(path)
        if path.is_symlink()
        else None
        if path.is_dir()
        else path.read_bytes()
        for path in home.rglob("*")
    }


def forked(call: Callable[[], Any]) -> int:
    """Make a call in a child, and give the status that it ended with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests have left idle threads
        pid = os.fork()
    if pid == 0:
        try:
            call()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]
