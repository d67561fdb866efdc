"""Journals: files that hold a whole document, then one checksummed line per change to it.

A mark, a step or a snapshot costs one appended line and one fsync, however long the run is. The first line holds the
document as it was when the file was written, with a random `generation`. A bare document, as other programs write it,
is read as well.

A crash may leave a torn last line, whose writer died before it acknowledged the change. Readers skip it and the next
writer truncates it. Any other bad line is damage: `CorruptRecord`, with file and offset.

A handle caches what it has read, and reads only what is new. The cache is valid while the file's generation and the
checksum of the last line read are still where they were.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from pydantic import ValidationError

from pytest_wfstate.contracts.records import Record, explain
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file.cache import ByteBoundCache
from pytest_wfstate.stores.file.descriptors import opened_file, opened_file_if_any
from pytest_wfstate.stores.file.folder import Folder, LockedFolder, read_all, write_all
from pytest_wfstate.stores.file.lines import LINE_HEAD, body_of, is_torn, line_of
from pytest_wfstate.stores.file.names import stem
from pytest_wfstate.stores.file.scope import scope

_CACHED_BYTES = 16 << 20  # of the files whose documents one handle keeps parsed, which take several times as much
_DURABLE_BYTES = 16 << 20  # for what is known to be durable, enough for 40,000 files
_REACH_BYTES = 400
_LEAST_CHANGES = 64  # below this, compaction is not worth its two fsyncs
_OPENING = b'{"generation":"'
_HEAD = LINE_HEAD + len(_OPENING) + 16  # enough of the first line to distinguish generations


class Document(Protocol):
    """What a journal holds: a record that changes can be applied to."""

    @classmethod
    def blank(cls, *ids: str) -> Self:
        """Return the document that the first change starts from."""

    @classmethod
    def from_json(cls, text: str | bytes, where: object) -> Self:
        """Parse a document."""

    def to_json(self) -> str:
        """Return the whole document as JSON."""

    def ids(self) -> tuple[str, ...]:
        """Return the ids that the document belongs to."""

    def apply(self, change: bytes | str) -> None:
        """Apply one change, given as JSON."""

    def size(self) -> int:
        """Return the number of items, which decides when to compact."""


D = TypeVar("D", bound=Document)


@dataclass(slots=True)
class _CachedDocument(Generic[D]):
    """What a handle has read of one file: the document, and how far it read."""

    document: D
    head: bytes  # of the first line; empty if the file is a bare document
    items: int  # in the document of the first line
    changes: int = 0
    last: int = 0  # where the last good line starts
    last_head: bytes = b""
    end: int = 0  # where it ends

    def reach(self) -> Reach:
        """Return how far the file was read."""
        return Reach(self.head, self.last_head, self.end)


class Reach(NamedTuple):
    """A state of one file, identified by its generation, the checksum of its last line, and its length."""

    head: bytes
    last_head: bytes
    end: int


class Journal(Generic[D]):
    """All journals of one kind in a folder."""

    def __init__(self, folder: Folder, suffix: str, document: type[D], *, accept_bare: bool = False) -> None:
        self._folder = folder
        self._suffix = suffix
        self._document = document
        self._accept_bare = accept_bare  # a document without a first line, as another program wrote it
        # An entry is taken out while in use, so that no two threads share one: the other thread reads the file.
        self._cache: ByteBoundCache[_CachedDocument[D]] = ByteBoundCache(_CACHED_BYTES)
        # What this handle knows to be durable of each file, its name included. Readers neither use nor extend it.
        self._durable: ByteBoundCache[Reach] = ByteBoundCache(_DURABLE_BYTES)

    def forget(self) -> None:
        """Drop everything cached."""
        self._cache.clear()
        self._durable.clear()

    @scope
    def view(self, *ids: str) -> Generator[D | None]:
        """Yield a document, or None if there is none. Copy from it; do not change it."""
        name = self._name(ids)
        self._folder.check()
        try:
            entry = self._read(name, ids)
        except CorruptRecord:
            # A reader takes no lock, so a writer may have truncated and appended meanwhile. Read again under the lock.
            with self._folder.shared():
                entry = self._read(name, ids)
        yield None if entry is None else entry.document
        if entry is not None:
            self._cache.put(name, entry, entry.end)

    @scope
    def edit(self, *ids: str) -> Generator[Edit[D]]:
        """Yield a document to change, under the lock; a blank one if there is none."""
        name = self._name(ids)
        with self._folder.exclusive(self._unadopted(name, ids)) as held:
            entry = self._read(name, ids)
            document = self._document.blank(*ids) if entry is None else entry.document
            edit = Edit(held, name, entry, document, self._durable.pop(name))
            try:
                yield edit
                edit.acknowledge()
            finally:
                if edit.entry is not None:
                    self._cache.put(name, edit.entry, edit.entry.end)
                    if edit.durable is not None:
                        self._durable.put(name, edit.durable, _REACH_BYTES)

    def write(self, document: D) -> None:
        """Replace the file with a whole document, whatever was there."""
        name = self._name(document.ids())
        with self._folder.exclusive(self._unadopted(name, document.ids())) as held:
            entry = _write(held, name, document)
            self._cache.put(name, entry, entry.end)
            self._durable.put(name, entry.reach(), _REACH_BYTES)

    def delete(self, *ids: str) -> None:
        """Delete the file, whatever is in it."""
        name = self._name(ids)
        self._cache.pop(name)
        self._durable.pop(name)
        if self._folder.exists():
            with self._folder.exclusive(self._unadopted(name, ids)) as held:
                damaged = self._theirs(ids)
                if damaged:
                    # In one step a power cut could keep it and lose ours, and a task that can be read would be damaged.
                    held.unlink(*damaged)
                    held.sync()
                held.unlink(name + ".tmp", name)
                held.sync()

    def _theirs(self, ids: tuple[str, ...]) -> list[str]:
        """Return the names of another program's files that may belong to `ids`."""
        seeds = self._folder.seeds
        return [] if seeds is None else [file.name for file in seeds.files(self._folder, ids[0], self._suffix)]

    def _name(self, ids: tuple[str, ...]) -> str:
        return stem(*ids) + self._suffix

    def _unadopted(self, name: str, ids: tuple[str, ...]) -> str | None:
        """Return the id whose file another program may have written: not if this handle has written it."""
        return None if name in self._durable or len(ids) > 1 else ids[0]

    def _read(self, name: str, ids: tuple[str, ...]) -> _CachedDocument[D] | None:
        entry = self._read_ours(name, ids)
        seeds = self._folder.seeds
        if entry is None and seeds is not None and seeds.has_names(ids[0]):
            theirs = self._folder.read_record(ids[0], self._suffix)
            if theirs is not None and theirs[0] != name:
                return self._first(theirs[1], self._folder.path(theirs[0]))
            if theirs is not None:  # it may just have been given our name
                return self._read_ours(name, ids)
        return entry

    def _read_ours(self, name: str, ids: tuple[str, ...]) -> _CachedDocument[D] | None:
        entry = self._cache.pop(name)
        where = self._folder.path(name)
        with opened_file_if_any(where, os.O_RDONLY) as fd:
            if fd is None:
                return None
            if entry is None or not _still_holds(entry, fd):
                entry = self._first(_read_at(fd, 0), where)
            else:
                _follow(entry, _read_at(fd, entry.end), where)
        if entry.document.ids() != ids:
            seeds = self._folder.seeds
            if not entry.head and seeds is not None and seeds.is_anothers(name, entry.document.ids()[0]):
                return None  # another program's file of another id
            raise CorruptRecord(
                where, f"it is the record of {'/'.join(entry.document.ids())!r}, not of {'/'.join(ids)!r}"
            )
        return entry

    def _first(self, data: bytes, where: object) -> _CachedDocument[D]:
        """Read a file from its start."""
        if self._accept_bare and data.startswith(b"{"):
            document = self._document.from_json(data, where)
            return _CachedDocument(document, b"", document.size(), end=len(data))
        length = data.find(b"\n") + 1
        body = body_of(data[:length])
        if body is None or not body.startswith(_OPENING):
            raise CorruptRecord(where, "its first line, which holds the document, is damaged or truncated")
        start = _HEAD - LINE_HEAD + len(b'","document":')
        document = self._document.from_json(body[start:-1], where)
        entry = _CachedDocument(document, data[:_HEAD], document.size(), end=length, last_head=data[:LINE_HEAD])
        _follow(entry, data[length:], where)
        return entry


class Edit(Generic[D]):
    """A document under the lock, and the changes made to it."""

    def __init__(
        self, held: LockedFolder, name: str, entry: _CachedDocument[D] | None, document: D, durable: Reach | None
    ) -> None:
        self._held = held
        self.name = name
        self.entry = entry
        self.document = document
        self.durable = durable

    def apply(self, change: Record) -> None:
        """Change the document and the file, atomically for all other readers."""
        # If anything fails, memory and disk differ: the entry leaves the cache.
        entry, self.entry = self.entry, None
        line = change.to_json()
        self.document.apply(line)
        needs_file = entry is None or not entry.head or entry.changes >= max(_LEAST_CHANGES, entry.items)
        if entry is None or needs_file or not self._append(entry, line_of(line.encode())):
            entry = _write(self._held, self.name, self.document)
        self.entry, self.durable = entry, entry.reach()

    def _append(self, entry: _CachedDocument[D], line: bytes) -> bool:
        """Append a line; return False, without a change, if the file has other names, which would show it as well."""
        with opened_file(self._held.path(self.name), os.O_RDWR) as fd:
            found = os.fstat(fd)
            if found.st_nlink > 1:
                return False
            if found.st_size > entry.end:  # a torn line
                self._cut(fd, entry)
            elif self.durable != entry.reach():
                # Of two lines that share an fsync, a power cut may keep only the second, which is damage.
                self._sync(fd, entry)
            os.lseek(fd, entry.end, os.SEEK_SET)
            try:
                write_all(fd, line)
                self._sync(fd, entry)
            except BaseException:
                with contextlib.suppress(OSError):  # this line was not acknowledged
                    self._cut(fd, entry)
                raise
        self._sync_name(entry)
        entry.last, entry.last_head, entry.end = entry.end, line[:LINE_HEAD], entry.end + len(line)
        entry.changes += 1
        return True

    def acknowledge(self) -> None:
        """Make durable what this handle has read, even if it had nothing to add.

        The writer of that line or file may have died before its fsync.
        """
        if self.entry is None or self.durable == self.entry.reach():
            return
        with opened_file(self._held.path(self.name), os.O_RDONLY) as fd:
            self._sync(fd, self.entry)
        self._sync_name(self.entry)
        if self.entry.head:  # a bare document looks like any other of its length
            self.durable = self.entry.reach()

    def _cut(self, fd: int, entry: _CachedDocument[D]) -> None:
        """Truncate the file after its last good line, durably."""
        os.ftruncate(fd, entry.end)
        self._sync(fd, entry)

    def _sync(self, fd: int, entry: _CachedDocument[D]) -> None:
        """Flush the file to the disk; if that fails, replace it with a copy up to the last good line."""
        try:
            self._held.folder.sync(fd)
        except BaseException:
            # What could not be written counts as written from now on (fsync(2)): no later fsync would write it.
            with contextlib.suppress(OSError):
                self._held.replace(self.name, _renewed(_read_at(fd, 0, entry.end)))
            raise

    def _sync_name(self, entry: _CachedDocument[D]) -> None:
        """Flush the file's name to the disk, unless this handle has done so before."""
        if self.durable is None or self.durable.head != entry.head:
            self._held.sync()


def _write(held: LockedFolder, name: str, document: D) -> _CachedDocument[D]:
    line = line_of(_opening() + b'","document":%s}' % document.to_json().encode())
    held.replace(name, line)
    return _CachedDocument(document, line[:_HEAD], document.size(), last_head=line[:LINE_HEAD], end=len(line))


def _renewed(data: bytes) -> bytes:
    """Return a file's content under a new generation: other handles may know the old one's name to be durable."""
    length = data.find(b"\n") + 1
    return line_of(_opening() + data[_HEAD : length - 1]) + data[length:] if body_of(data[:length]) else data


def _opening() -> bytes:
    return _OPENING + secrets.token_hex(8).encode()


def _follow(entry: _CachedDocument[D], data: bytes, where: object) -> None:
    """Apply the lines in `data`, which starts at the end of what was read before."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        body = body_of(data[start:end])
        if body is None:
            if not is_torn(data[start:], entry.end):
                raise CorruptRecord(where, f"the line at offset {entry.end} is damaged, and no crash leaves it so")
            return
        try:
            entry.document.apply(body)
        except ValidationError as error:
            raise CorruptRecord(
                where, f"the line at offset {entry.end} is not a valid change: {explain(error)}"
            ) from error
        entry.last, entry.last_head = entry.end, data[start : start + LINE_HEAD]
        entry.end += end - start
        entry.changes += 1
        start = end


def _still_holds(entry: _CachedDocument[D], fd: int) -> bool:
    return (
        entry.head != b""
        and _read_at(fd, 0, _HEAD) == entry.head
        and _read_at(fd, entry.last, LINE_HEAD) == entry.last_head
        and os.fstat(fd).st_size >= entry.end
    )


def _read_at(fd: int, offset: int, length: int | None = None) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return read_all(fd) if length is None else os.read(fd, length)
