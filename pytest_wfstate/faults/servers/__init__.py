"""Servers that the tests own: PostgreSQL and Redis on loopback, killed and restarted at will.

Surviving a kill proves that a store survives the death of a process, not a power cut: the operating system keeps
running, and with it everything that was written.
"""

from pytest_wfstate.faults.servers.base import CannotStart, Server
from pytest_wfstate.faults.servers.given import GivenServer, NotOurs
from pytest_wfstate.faults.servers.places import NoServer

__all__ = ["CannotStart", "GivenServer", "NoServer", "NotOurs", "Server"]
