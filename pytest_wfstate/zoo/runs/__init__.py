"""Stores that break the runs contract."""

from pytest_wfstate.zoo.runs import disk, lives, records, steps

__all__ = ["disk", "lives", "records", "steps"]
