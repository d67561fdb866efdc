"""Folders that other programs wrote: those whose stores the contracts come from, and whose ids are file names.

Where an id holds more than `a-z 0-9 _ -`, their name for its file is not ours. Such a file is read where it is, and
the first change of its id gives it our name, under the lock: deleted or claimed, it does not come back.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from pytest_wfstate.stores.file.names import is_shortened, only_id, stem

if TYPE_CHECKING:
    from pytest_wfstate.stores.file.folder import Folder, LockedFolder

Stems = Callable[[str], Iterable[str]]


class ForeignFile(UserWarning):
    """A file in a store's folder looks like a record, but belongs to no id that the store could be asked for."""

    __module__ = "pytest_wfstate"


class _Ids(BaseModel):
    run_id: str = ""
    task_id: str = ""


class SeedNames:
    """The names that another program gives to the files of a store."""

    def __init__(self, stems: Stems, *suffixes: str, has_shared_names: bool = False) -> None:
        self._stems = stems
        self._suffixes = suffixes
        self._has_shared_names = has_shared_names  # "_" in a name may stand for another character

    def names(self, id_: str, suffix: str) -> list[str]:
        """Return the names of an id that are not ours. A name with a separator leads elsewhere, and is none."""
        names = dict.fromkeys(theirs + suffix for theirs in self._stems(id_) if "/" not in theirs)
        return [name for name in names if name != stem(id_) + suffix and len(name.encode()) <= 255]

    def read(self, folder: Folder, id_: str, suffix: str) -> tuple[str, bytes] | None:
        """Return the name and the content of another program's file for an id, if there is one."""
        for name in self.names(id_, suffix):
            data = _read(folder, name)
            if data is not None and _id_in(data) == id_:
                return name, data
        return None

    def is_anothers(self, name: str, id_: str) -> bool:
        """Whether a file of this name may hold the record of `id_`, though it is not our name for it."""
        return any(name in self.names(id_, suffix) for suffix in self._suffixes)

    def adopt(self, held: LockedFolder, id_: str) -> None:
        """Rename the files of an id to our names, and a file of another id that occupies one of them."""
        moved = False
        for suffix in self._suffixes:
            ours = stem(id_) + suffix
            if self._has_shared_names and "_" in ours:
                data = _read(held.folder, ours)
                other = None if data is None else _id_in(data)
                if other and other != id_ and self.is_anothers(ours, other):
                    moved |= _move(held, ours, stem(other) + suffix)
            theirs = self.read(held.folder, id_, suffix)
            if theirs is not None:
                moved |= _move(held, theirs[0], ours)
        if moved:
            held.sync()

    def adopt_all(self, held: LockedFolder) -> None:
        """Rename all files of another program to our names."""
        names = held.names()
        for suffix in self._suffixes:
            for id_, _ in self.ids(held.folder, names, suffix):
                self.adopt(held, id_)

    def ids(self, folder: Folder, names: Iterable[str], suffix: str) -> Iterator[tuple[str, str]]:
        """Yield the id and the name of each file that another program wrote."""
        foreign = []
        for name in names:
            theirs = name.removesuffix(suffix)
            if theirs == name or only_id(theirs) is not None or is_shortened(theirs):
                continue
            data = _read(folder, name)
            id_ = None if data is None else _id_in(data)
            if id_ and name in self.names(id_, suffix):
                yield id_, name
            elif not name.startswith("."):
                foreign.append(name)
        folder.warn_of(foreign)


def raw_stem(id_: str) -> list[str]:
    """Return the name of an id where it is used as it is."""
    return [id_]


def alphanumeric_stems(id_: str) -> list[str]:
    """Return the names of an id where all but letters, digits, `-` and `_` becomes `_`.

    Rust's letters include some marks that are none in Python, such as the vowel signs of Devanagari.
    """
    return ["".join(c if c in "-_" or kept(c) else "_" for c in id_) for kept in (str.isalnum, _is_alphabetic_in_rust)]


def _is_alphabetic_in_rust(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) in ("Mn", "Mc")


def _move(held: LockedFolder, old: str, new: str) -> bool:
    if held.exists(new):  # it was changed since
        held.unlink(old)
    else:
        held.rename(old, new)
    return True


def _read(folder: Folder, name: str) -> bytes | None:
    """Read a file that may be another program's; None if it cannot be read: then it is no record of ours."""
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
