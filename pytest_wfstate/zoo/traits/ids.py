"""Stores that mix up ids, since they make file names of them."""

from __future__ import annotations

import re
from urllib.parse import quote

from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import trait
from pytest_wfstate.zoo.json_stores import JsonFiles


@trait(effects="ids.never-collide", paused="ids.never-collide ids.claims-never-collide")
class SanitisedIds(JsonFiles):
    """Whatever is not a letter, a digit, `-` or `_` becomes `_` in the file's name.

    `a/b` and `a_b` share a file, and the last to save has it.
    """

    def name(self, *ids: str) -> str:
        return super().name(*(re.sub(r"[^\w-]", "_", one) for one in ids))


@trait(runs="ids.never-collide delete.others")
class CaseFoldedIds(JsonFiles):
    """File names are in lower case, to be safe on every disk. `run` and `Run` are one."""

    def name(self, *ids: str) -> str:
        return super().name(*(one.lower() for one in ids))


@trait(snapshots="ids.never-collide")
class IdsCutShort(JsonFiles):
    """An id is cut to 64 characters to make a file's name. Runs that a scheduler named at length are all the same."""

    def name(self, *ids: str) -> str:
        return super().name(*(one[:64] for one in ids))


@trait(
    effects="ids.any-text ids.never-collide ids.stay-inside",
    paused="ids.any-text ids.never-collide ids.stay-inside ids.claimed ids.claims-never-collide",
    resume="ids.any-text ids.never-collide ids.stay-inside",
    runs="ids.any-text ids.never-collide ids.stay-inside ids.never-joined",
    snapshots="ids.any-text ids.never-collide ids.stay-inside ids.any-workflow ids.never-joined",
)
class IdsAsPaths(JsonFiles):
    """An id is put into the path as it is. `../outside` is in the folder above, and `a/b` in a folder `a`."""

    def name(self, *ids: str) -> str:
        return ".".join([*ids, "json"])

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.path(name).parent.mkdir(parents=True, exist_ok=True)
        super().write(held, name, data)


@trait(effects="ids.any-text ids.never-collide")
class NoRoomForTmp(JsonFiles):
    """An id may be as long as a file's name, and nobody thought of the `.tmp` that is added while it is written.

    A run whose id is a little shorter can be asked for, and never be saved.
    """

    def name(self, *ids: str) -> str:
        return ".".join([*(quote(one, safe="") for one in ids), "json"])


@trait(
    effects="ids.refused mark.bad-id save.bad-id",
    paused="ids.refused ids.refused-by-all",
    resume="ids.refused save.bad-id",
    runs="ids.refused ids.refused-everywhere",
    snapshots="ids.refused ids.refused-everywhere",
)
class TakesAnyId(JsonFiles):
    """Ids are not looked at. A variable that was never set is a run that all who forgot to set it share."""

    def check(self, *ids: str) -> None:
        pass
