"""Stores that break the effects contract."""

from pytest_wfstate.zoo.effects import disk, marks, records

__all__ = ["disk", "marks", "records"]
