"""The oracle: judges what a store did by whether some order of its calls, on the reference, explains every result."""

from pytest_wfstate.oracle.history import Entry, Errored, Forgotten, NeverReturned, Outcome, Refused, Returned
from pytest_wfstate.oracle.judge import Judge, Timeline
from pytest_wfstate.oracle.linearize import check
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.rounds import Rounds, TooManyOrders

__all__ = [
    "Entry",
    "Errored",
    "Forgotten",
    "Judge",
    "NeverReturned",
    "Outcome",
    "ReferenceModel",
    "Refused",
    "Returned",
    "Rounds",
    "Timeline",
    "TooManyOrders",
    "check",
]
