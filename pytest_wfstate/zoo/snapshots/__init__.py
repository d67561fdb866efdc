"""Stores that break the snapshots contract."""

from pytest_wfstate.zoo.snapshots import disk, forks, listings, records

__all__ = ["disk", "forks", "listings", "records"]
