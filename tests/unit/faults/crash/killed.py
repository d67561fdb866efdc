"""A worker whose functions and methods are points to die at."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.faults.disk.notes import sync, write


def step(home: Path, name: str) -> None:
    (home / name).touch()


async def astep(home: Path, name: str) -> None:
    (home / name).touch()


class Base:
    def __init__(self, home: Path) -> None:
        self.home = home

    def inherited(self) -> None:
        (self.home / "inherited").touch()


class Worker(Base):
    def claim(self, name: str = "claimed", *, mode: int = 0o600) -> str:
        os.close(os.open(self.home / name, os.O_CREAT, mode))
        return name

    def complete(self) -> None:
        (self.home / "completed").touch()

    async def aclaim(self) -> None:
        (self.home / "aclaimed").touch()

    @classmethod
    def made(cls, home: Path) -> Worker:
        (home / "made").touch()
        return cls(home)

    @staticmethod
    def helped(home: Path) -> None:
        (home / "helped").touch()

    def inherited(self) -> None:
        (self.home / "before").touch()
        super().inherited()

    def run(self) -> None:
        self.claim()
        write(self.home / "result.tmp", b"42")
        os.replace(self.home / "result.tmp", self.home / "result")
        self.complete()


def names(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def work(home: Path) -> None:
    for name in ("a.json", "b.json"):
        write(home / f"{name}.tmp", b"text")
        sync(home / f"{name}.tmp")
        os.replace(home / f"{name}.tmp", home / name)
        sync(home)
