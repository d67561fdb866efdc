"""Stores that break the resume contract."""

from pytest_wfstate.zoo.resume import disk, records

__all__ = ["disk", "records"]
