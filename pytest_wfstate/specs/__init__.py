"""Each contract as data: its operations, and the reference that defines what they do."""

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.specs.effects import EFFECTS
from pytest_wfstate.specs.history import HISTORY
from pytest_wfstate.specs.lock import LOCK
from pytest_wfstate.specs.paused import PAUSED
from pytest_wfstate.specs.queue import QUEUE
from pytest_wfstate.specs.resume import RESUME
from pytest_wfstate.specs.runs import RUNS
from pytest_wfstate.specs.snapshots import SNAPSHOTS

__all__ = ["CONTRACTS", "EFFECTS", "HISTORY", "LOCK", "PAUSED", "QUEUE", "RESUME", "RUNS", "SNAPSHOTS"]

CONTRACTS: dict[str, Contract] = {
    contract.name: contract for contract in (EFFECTS, PAUSED, RESUME, SNAPSHOTS, RUNS, HISTORY, QUEUE, LOCK)
}
"""The contracts of this package, by name."""
