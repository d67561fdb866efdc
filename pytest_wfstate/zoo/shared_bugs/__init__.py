"""Bugs that several contracts share: each is written once and makes a known-bad store for every contract it names."""

from pytest_wfstate.zoo.shared_bugs import (
    cancel,
    deletes,
    disk,
    documents_on_redis,
    handles,
    ids,
    races,
    servers,
    values,
)

__all__ = ["cancel", "deletes", "disk", "documents_on_redis", "handles", "ids", "races", "servers", "values"]
