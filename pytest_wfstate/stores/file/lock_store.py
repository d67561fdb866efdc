"""The lock contract, in a folder: one file per lock, replaced as a whole.

The file of a lock that was released stays, for its token: the next one has to be greater.
"""

from __future__ import annotations

import datetime
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.lock import LockStore, check_ttl
from pytest_wfstate.contracts.moments import Moment
from pytest_wfstate.contracts.records import U64, Record, Text, left_out
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file.base import FileStore
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.stores.file.names import stem

_SUFFIX = ".json"


class _Holder(Record):
    """The last holder of a lock: its token, and until when it holds the lock, unless it has released it."""

    name: Text
    token: U64
    until: Moment | None = left_out()

    def holds(self, moment: datetime.datetime) -> bool:
        """Whether it holds the lock at a moment."""
        return self.until is not None and moment < self.until


class FileLockStore(FileStore, LockStore):
    """Keeps the lock `deploy` in `deploy.json`."""

    contract = "lock"

    def acquire(self, name: str, ttl: float) -> int | None:
        check_id("lock name", name)
        time = check_ttl(ttl)
        with self._folder.exclusive(name) as held:
            moment, last = now(), self._last(name)
            if last is not None and last.holds(moment):
                held.sync()  # whoever acquired it may have died before its fsync
                return None
            holder = _Holder(name=name, token=last.token + 1 if last else 1, until=moment + time)
            self._write(held, holder)
        return holder.token

    def renew(self, name: str, token: int, ttl: float) -> bool:
        return self._change(name, token, check_ttl(ttl))

    def release(self, name: str, token: int) -> bool:
        return self._change(name, token, None)

    def held(self, name: str) -> bool:
        last = self._last(check_id("lock name", name))
        return last is not None and last.holds(now())

    def _change(self, name: str, token: Any, time: datetime.timedelta | None) -> bool:
        """Have the holder with this token hold the lock for some time from now, or no longer."""
        check_id("lock name", name)
        if not self._folder.exists():
            return False
        with self._folder.exclusive(name) as held:
            moment, last = now(), self._last(name)
            if last is None or not last.holds(moment) or type(token) is not int or token != last.token:
                held.sync()  # whoever took or released it may have died before its fsync
                return False
            self._write(held, _Holder(name=name, token=token, until=None if time is None else moment + time))
        return True

    def _write(self, held: LockedFolder, holder: _Holder) -> None:
        held.replace(stem(holder.name) + _SUFFIX, holder.to_json().encode())

    def _last(self, name: str) -> _Holder | None:
        """Return the last holder of a lock, if it was ever held."""
        found = self._folder.read_record(name, _SUFFIX)
        if found is None:
            return None
        path = self._folder.path(found[0])
        holder = _Holder.from_json(found[1], path)
        if holder.name != name:
            raise CorruptRecord(path, f"it is the lock {holder.name!r}, not {name!r}")
        return holder
