"""What others put where a store keeps its files: links, pipes, sockets and folders are never followed or waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FilePausedStore, UnsafeFile, samples
from tests.unit.stores.file.kinds import EFFECTS, JOURNALS, KINDS, PAUSED, RUNS, SNAPSHOTS, Kind

VICTIM = b"of somebody else"


def _socket(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")  # the path itself may be too long
    finally:
        os.close(folder)
        listener.close()


PLANTED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "link": (lambda path: path.symlink_to(path.parent.parent / "victim"), "symbolic link"),
    "dangling link": (lambda path: path.symlink_to(path.parent.parent / "nothing"), "symbolic link"),
    "pipe": (os.mkfifo, "pipe"),
    "socket": (_socket, "socket"),
    "folder": (lambda path: path.mkdir(), "folder"),
}


@pytest.fixture(params=PLANTED.values(), ids=list(PLANTED))
def plant(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[Path], Any], str]:
    (tmp_path / "victim").write_bytes(VICTIM)
    planted: tuple[Callable[[Path], Any], str] = request.param
    return planted


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def untouched(home: Path) -> bool:
    return (home.parent / "victim").read_bytes() == VICTIM and not (home.parent / "nothing").exists()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_loading_what_is_no_file_is_an_error(kind: Kind, plant: tuple[Any, str], home: Path) -> None:
    store = kind.open(home)
    kind.change(store, "b", 1)
    make, what = plant
    make(home / kind.file)

    with pytest.raises(UnsafeFile, match=f"there is a {what} where the store keeps a regular file") as error:
        kind.load(store, "a")

    assert error.value.filename == str(home / kind.file)
    assert kind.items(kind.load(store, "b")) == [1]
    assert untouched(home)


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        *((kind, lambda store, kind=kind: kind.change(store, "a", 2)) for kind in JOURNALS),
        (PAUSED, lambda store: store.claim("a")),
        (SNAPSHOTS, lambda store: store.fork(samples.key("a", 1))),
        (RUNS, lambda store: store.update_context("a", {})),
    ],
    ids=["mark", "snapshot", "step", "claim", "fork", "context"],
)
def test_changing_what_is_no_file_is_an_error(kind: Kind, act: Any, plant: tuple[Any, str], home: Path) -> None:
    store = kind.open(home)
    kind.change(store, "b", 1)
    plant[0](home / kind.file)

    with pytest.raises(UnsafeFile):
        act(store)

    assert untouched(home)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_file_that_became_something_else_is_an_error(kind: Kind, plant: tuple[Any, str], home: Path) -> None:
    store = kind.open(home)
    kind.change(store, "a", 1)
    (home / kind.file).unlink()
    plant[0](home / kind.file)

    with pytest.raises(UnsafeFile):
        kind.load(store, "a")
    if kind in JOURNALS:
        with pytest.raises(UnsafeFile):
            kind.change(store, "a", 2)
    assert untouched(home)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_is_written_through_a_planted_temporary_file(kind: Kind, plant: tuple[Any, str], home: Path) -> None:
    store = kind.open(home)
    kind.change(store, "b", 1)
    make, what = plant
    make(home / f"{kind.file}.tmp")

    if what == "folder":
        with pytest.raises(OSError):
            kind.change(store, "a", 1)
    else:
        kind.change(store, "a", 1)
        assert kind.items(kind.load(store, "a")) == [1]
        assert (home / kind.file).is_file()

    assert untouched(home)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.save], ids=str)
def test_saving_replaces_what_is_no_file(kind: Kind, plant: tuple[Any, str], home: Path) -> None:
    assert kind.save is not None
    store = kind.open(home)
    kind.change(store, "b", 1)
    make, what = plant
    make(home / kind.file)

    if what == "folder":
        with pytest.raises(OSError):
            kind.save(store, "a", 1)
    else:
        kind.save(store, "a", 1)
        assert kind.items(kind.load(store, "a")) == [1]
        assert not (home / kind.file).is_symlink()

    assert untouched(home)


def test_a_planted_lease_is_not_written_through(plant: tuple[Any, str], home: Path) -> None:
    store = FilePausedStore(home, "process")
    store.save(samples.paused("a"))
    plant[0](home / "a.lease")

    with pytest.raises(UnsafeFile):
        store.claim("a")

    assert untouched(home)
    assert store.list() == ["a"]


def test_a_planted_lease_does_not_keep_others_from_recovery(plant: tuple[Any, str], home: Path) -> None:
    store = FilePausedStore(home, "process")
    for run in ("a", "b"):
        store.save(samples.paused(run))
        store.claim(run)
    (home / "a.lease").unlink()
    plant[0](home / "a.lease")

    store.recover_orphaned()

    assert store.list() == ["a", "b"]
    assert untouched(home)


def test_a_planted_run_does_not_hide_the_others(plant: tuple[Any, str], home: Path) -> None:
    store = FilePausedStore(home, "process")
    store.save(samples.paused("b"))
    plant[0](home / "a.json")

    assert store.list() == ["a", "b"]
    assert store.claim("b") == samples.paused("b")
    assert untouched(home)


def test_a_pipe_is_not_waited_for_when_a_handle_marks(home: Path) -> None:
    store = EFFECTS.open(home)
    EFFECTS.change(store, "a", 1)
    (home / "a.json").unlink()
    os.mkfifo(home / "a.json")

    with pytest.raises(UnsafeFile, match="there is a pipe"):
        EFFECTS.change(store, "a", 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
def test_a_device_is_not_read(home: Path) -> None:
    home.mkdir()
    try:
        os.mknod(home / "a.json", 0o20666, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        pytest.skip("devices cannot be made here")

    with pytest.raises(UnsafeFile, match="there is a device"):
        PAUSED.load(PAUSED.open(home), "a")
