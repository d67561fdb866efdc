"""Servers that the tests own: PostgreSQL and Redis on loopback, killed and started again at will.

What survives a kill has survived the death of a process. The operating system lives on and keeps what was written, so
nothing is shown of a power cut.
"""

from pytest_wfstate.faults.servers.base import CannotStart, Server
from pytest_wfstate.faults.servers.given import GivenServer, NotOurs
from pytest_wfstate.faults.servers.places import NoServer

__all__ = ["CannotStart", "GivenServer", "NoServer", "NotOurs", "Server"]
