"""Stores that break the paused contract."""

from pytest_wfstate.zoo.paused import claims, disk, records, recoveries

__all__ = ["claims", "disk", "records", "recoveries"]
