"""Folders that other programs wrote: those whose stores the contracts come from, and whose ids are file names.

Where an id holds more than `a-z 0-9 _ -`, their name for its file is not ours. Such a file is read where it is, and
the first change of its id gives it our name, under the lock: deleted or claimed, it does not come back.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ValidationError

from pytest_wfstate.contracts.ids import is_id
from pytest_wfstate.stores.file.lines import is_line_head
from pytest_wfstate.stores.file.names import is_shortened, only_id, stem

if TYPE_CHECKING:
    from pytest_wfstate.stores.file.folder import Folder, LockedFolder

Names = Callable[[], Iterable[str]]
Stems = Callable[[str, Names], Iterable[str]]
"""Given an id, and how to list the stems in the folder, return the stems that the file of the id may have."""


class ForeignFile(UserWarning):
    """A file in a store's folder looks like a record, but belongs to no id that the store could be asked for."""

    __module__ = "pytest_wfstate"


class _Ids(BaseModel):
    run_id: str = ""
    task_id: str = ""


class SeedFile(NamedTuple):
    """Another program's file of an id; a damaged one may be that of another id with the same name."""

    name: str
    data: bytes
    is_damaged: bool


class SeedNames:
    """The names that another program gives to the files of a store."""

    def __init__(self, stems: Stems, *suffixes: str, has_shared_names: bool = False) -> None:
        self._stems = stems
        self._suffixes = suffixes
        self._has_shared_names = has_shared_names  # "_" in a name may stand for another character

    @staticmethod
    def has_names(id_: str) -> bool:
        """Whether an id may have names that are not ours."""
        return stem(id_) != id_

    def files(self, folder: Folder, id_: str, suffix: str) -> list[SeedFile]:
        """Return another program's files of an id, damaged ones last.

        Raises:
            OSError: such a file cannot be read.

        """
        files = []
        for name in self._names(id_, suffix, folder.names):
            data = folder.read(name)
            found = None if data is None else _id_in(data)
            if data is not None and (found == id_ or (found is None and self._is_damaged(folder, name, data))):
                files.append(SeedFile(name, data, found is None))
        return sorted(files, key=lambda file: file.is_damaged)

    def other_id(self, name: str, data: bytes, id_: str) -> str | None:
        """Return the other id whose record another program keeps under our name for `id_`, if it does."""
        may_be_shared = "_" in name if self._has_shared_names else self.has_names(id_)
        other = _id_in(data) if may_be_shared else None
        return other if other is not None and other != id_ and self.is_anothers(name, other) else None

    def is_anothers(self, name: str, id_: str) -> bool:
        """Whether a file of this name may hold the record of `id_`, though it is not our name for it."""
        return any(name in self._names(id_, suffix, lambda: [name]) for suffix in self._suffixes)

    def adopt(self, held: LockedFolder, id_: str) -> None:
        """Rename the files of an id to our names, and a file of another id that occupies one of them.

        A damaged file keeps a name that other ids share.
        """
        moved = False
        for suffix in self._suffixes:
            ours = stem(id_) + suffix
            other = self.other_id(ours, _read(held.folder, ours) or b"", id_)
            if other is not None:
                moved |= _move(held, ours, stem(other) + suffix)
            for file in self.files(held.folder, id_, suffix):
                if not (file.is_damaged and self._has_shared_names):
                    moved |= _move(held, file.name, ours)
        if moved:
            held.sync()

    def adopt_all(self, held: LockedFolder) -> None:
        """Rename all files of another program to our names, except what is not safe to read."""
        names = held.names()
        for suffix in self._suffixes:
            for id_ in self.ids(held.folder, names, suffix).values():
                with contextlib.suppress(OSError):  # the next call about that id reports it
                    self.adopt(held, id_)

    def ids(self, folder: Folder, names: Iterable[str], suffix: str) -> dict[str, str]:
        """Return the id of each file that another program wrote, by name: a damaged one is named after its id."""
        ids, foreign = {}, []
        for name in names:
            theirs = name.removesuffix(suffix)
            if theirs == name or only_id(theirs) == theirs:
                continue
            data = _read(folder, name)
            id_ = None if data is None else _id_in(data)
            if id_ is not None and self.is_anothers(name, id_):
                ids[name] = id_
            elif _is_ours(theirs):
                continue
            elif id_ is None and is_id(theirs) and not name.startswith("."):
                ids[name] = theirs
            elif not name.startswith("."):
                foreign.append(name)
        folder.warn_of(foreign)
        return ids

    def _names(self, id_: str, suffix: str, existing: Names) -> list[str]:
        """Return the names of an id that are not ours. A name with a separator leads elsewhere, and is none."""
        if not self.has_names(id_):
            return []
        stems = self._stems(id_, lambda: (name.removesuffix(suffix) for name in existing() if name.endswith(suffix)))
        names = dict.fromkeys(theirs + suffix for theirs in stems if "/" not in theirs)
        return [name for name in names if name != stem(id_) + suffix and len(name.encode()) <= 255]

    def _is_damaged(self, folder: Folder, name: str, data: bytes) -> bool:
        """Whether a file that holds no id is another program's record, and not a damaged one of ours.

        On a disk that ignores case, the folder has no such name if it is ours.
        """
        is_ours = is_line_head(data) if self._has_shared_names else _is_ours(name.rpartition(".")[0])
        return not is_ours and name in folder.names()


def raw_stem(id_: str, _: Names) -> list[str]:
    """Return the name of an id where it is used as it is."""
    return [id_]


def alphanumeric_stems(id_: str, existing: Names) -> list[str]:
    """Return the names that an id may have where all but letters, digits, `-` and `_` becomes `_`.

    Rust's letters (the property Alphabetic) include marks and symbols that are none in Python, such as the vowel signs
    of Devanagari and circled letters. Python does not know which, so each of them may have been kept or replaced.
    """
    if all(map(_is_sure, id_)):
        return ["".join(map(_sanitized, id_))]
    pattern = re.compile("".join(_sanitized(c) if _is_sure(c) else f"[{c}_]" for c in id_))
    return [theirs for theirs in existing() if pattern.fullmatch(theirs)]


def _is_sure(character: str) -> bool:
    return character.isascii() or character.isalnum()


def _sanitized(character: str) -> str:
    return character if character.isalnum() or character in "-_" else "_"


def _move(held: LockedFolder, old: str, new: str) -> bool:
    if held.exists(new):  # it was changed since
        held.unlink(old)
    else:
        held.rename(old, new)
    return True


def _is_ours(stem_: str) -> bool:
    return only_id(stem_) is not None or is_shortened(stem_)


def _read(folder: Folder, name: str) -> bytes | None:
    """Read a file that may be another program's; None if it does not exist or cannot be read."""
    try:
        return folder.read(name)
    except OSError:
        return None


def _id_in(data: bytes) -> str | None:
    """Return the id of a record, or None if the file holds none."""
    try:
        ids = _Ids.model_validate_json(data)
    except ValidationError:
        return None
    return ids.run_id or ids.task_id or None


def warn_of(home: object, names: list[str]) -> None:
    """Warn about files that no id leads to."""
    shown = ", ".join(ascii(name) for name in sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
    warnings.warn(
        f"the folder {home} holds {len(names):,} file(s) that no id of this store leads to: {shown}. They are ignored. "
        "Move them elsewhere, or save what they hold through the store.",
        ForeignFile,
        stacklevel=2,
    )
