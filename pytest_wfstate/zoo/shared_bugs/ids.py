"""Stores that mix up ids, because they turn them into file names."""

from __future__ import annotations

import re
from urllib.parse import quote

from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import shared_bug
from pytest_wfstate.zoo.correct_stores import JsonFiles


@shared_bug(
    effects="ids.never-collide",
    paused="ids.never-collide ids.claims-never-collide",
    history="ids.never-collide",
    lock="ids.never-collide",
)
class SanitisedIds(JsonFiles):
    """In file names, everything but letters, digits, `-` and `_` becomes `_`.

    `a/b` and `a_b` share a file, and the last save wins.
    """

    def name(self, *ids: str) -> str:
        return super().name(*(re.sub(r"[^\w-]", "_", value) for value in ids))


@shared_bug(runs="ids.never-collide delete.others")
class CaseFoldedIds(JsonFiles):
    """File names are lowercased, to be safe on every file system. `run` and `Run` share a file."""

    def name(self, *ids: str) -> str:
        return super().name(*(value.lower() for value in ids))


@shared_bug(snapshots="ids.never-collide")
class IdsCutShort(JsonFiles):
    """File names use the first 64 characters of an id. The long ids that a scheduler generates share a file."""

    def name(self, *ids: str) -> str:
        return super().name(*(value[:64] for value in ids))


@shared_bug(
    effects="ids.any-text ids.stay-inside",
    paused="ids.any-text ids.stay-inside ids.claimed ids.claims-never-collide",
    resume="ids.any-text ids.stay-inside",
    runs="ids.any-text ids.stay-inside",
    snapshots="ids.any-text ids.stay-inside ids.any-workflow ids.never-joined",
    history="ids.any-text ids.stay-inside",
    lock="ids.any-text ids.stay-inside",
)
class IdsAsPaths(JsonFiles):
    """Ids are put into paths unchanged. `../outside` ends up in the folder above, and `a/b` in a folder `a`."""

    def name(self, *ids: str) -> str:
        return ".".join([*ids, "json"])

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.path(name).parent.mkdir(parents=True, exist_ok=True)
        super().write(held, name, data)


@shared_bug(effects="ids.any-text")
class NoRoomForTmp(JsonFiles):
    """An id may be as long as a file name, ignoring the `.tmp` that is added while writing.

    A run whose id is slightly shorter can be loaded but never saved.
    """

    def name(self, *ids: str) -> str:
        return ".".join([*(quote(value, safe="") for value in ids), "json"])


@shared_bug(
    effects="ids.refused mark.bad-id save.bad-id",
    paused="ids.refused ids.refused-by-all token.refused",
    resume="ids.refused save.bad-id",
    runs="ids.refused ids.refused-everywhere",
    snapshots="ids.refused ids.refused-everywhere",
    history="ids.refused ids.refused-by-all",
    queue="ids.refused token.refused",
    lock="ids.refused ids.refused-by-all",
)
class TakesAnyId(JsonFiles):
    """Ids are not checked. An unset variable becomes a run that is shared by everyone who forgot to set it."""

    def check(self, *ids: str) -> None:
        pass
