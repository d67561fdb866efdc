"""What a worker process does: `python -m tests.unit.stores.file.workers`.

Each line that it reads is a job. It says what it was acknowledged, a line each, and then `done`.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_wfstate import FilePausedStore
from tests.unit.stores.file.kinds import EFFECTS


def say(word: object) -> None:
    print(word, flush=True)  # noqa: T201


def mark(home: Path, durability: str, first: str, count: str) -> None:
    """Mark `count` effects of one task, or until killed if it is 0, and report each."""
    store = EFFECTS.open(home, durability)
    numbers = itertools.count(int(first))
    for n in itertools.islice(numbers, int(count) or None):
        EFFECTS.change(store, "a", n)
        say(n)


def claim(home: Path, runs: str) -> None:
    """Claim every run of run-0 to run-<runs>, and complete and report those that were claimed."""
    store = FilePausedStore(home, "process")
    for n in range(int(runs)):
        if store.claim(f"run-{n}") is not None:
            say(n)
            store.complete(f"run-{n}")


JOBS: dict[str, Callable[..., None]] = {"mark": mark, "claim": claim}

if __name__ == "__main__":
    say("done")
    for line in sys.stdin:
        job, home, *args = shlex.split(line)
        JOBS[job](Path(home), *args)
        say("done")
