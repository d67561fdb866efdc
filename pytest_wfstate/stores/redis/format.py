"""The format of a store's keys: a marker says which contract they belong to, and in which version they are written."""

from __future__ import annotations

from pytest_wfstate.errors import CorruptRecord, NewerSchema
from pytest_wfstate.stores.redis.client import RedisClient

VERSION = 1
"""The version that this release writes. It reads all versions up to this one."""


class FormatMarker:
    """The marker of the keys of one contract, at `key`. A handle reads it before its first call.

    The first change writes it. Keys without one are of the first version.
    """

    def __init__(self, contract: str, key: str) -> None:
        self._contract = contract
        self._key = key
        self._is_read = False
        self._is_written = False

    def check(self, client: RedisClient, *, changes: bool) -> None:
        """Check that this release can read the keys, and before a change, that the marker exists.

        Raises:
            NewerSchema: a later release has written them.
            CorruptRecord: the marker cannot be read.
        """
        if changes and not self._is_written:
            client.get("SET", self._key, f"{self._contract} {VERSION}", "NX")
        if not self._is_read or (changes and not self._is_written):
            self._check(client.get("GET", self._key))
        self._is_read = True
        self._is_written |= changes

    def _check(self, marker: bytes | None) -> None:
        if marker is None:
            return
        contract, _, version = marker.decode(errors="replace").rpartition(" ")
        if contract != self._contract or not version.isascii() or not version.isdigit():
            raise CorruptRecord(f"Redis key {self._key!r}", f"it is {marker!r}, not {self._contract!r} and a version")
        if int(version) > VERSION:
            raise NewerSchema(
                f"the keys of the {self._contract} store to which {self._key!r} belongs have version {version}, but "
                f"this release of pytest-wfstate reads version {VERSION}. Nothing was changed. "
                "Upgrade it (pip install -U pytest-wfstate), or use another prefix."
            )
