"""The oracle: tells whether some order of the calls that were made, on the reference, explains what came of them."""

from pytest_wfstate.oracle.history import Entry, Errored, Forgotten, History, NeverReturned, Outcome, Refused, Returned
from pytest_wfstate.oracle.linearize import Reference, Unexplained, check

__all__ = [
    "Entry",
    "Errored",
    "Forgotten",
    "History",
    "NeverReturned",
    "Outcome",
    "Reference",
    "Refused",
    "Returned",
    "Unexplained",
    "check",
]
