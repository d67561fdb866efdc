"""Bugs that stores of every contract can have: each is written once, and makes an animal of every contract it names."""

from pytest_wfstate.zoo.traits import deletes, disk, handles, ids, races, servers, values

__all__ = ["deletes", "disk", "handles", "ids", "races", "servers", "values"]
