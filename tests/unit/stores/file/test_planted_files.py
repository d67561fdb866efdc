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


PARTS = "there is a folder where the store keeps a regular file.* may belong to others. Find out who put it there"


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
        with pytest.raises(UnsafeFile, match=PARTS) as error:
            kind.change(store, "a", 1)
        assert error.value.filename == str(home / f"{kind.file}.tmp")
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
        with pytest.raises(UnsafeFile, match=PARTS) as error:
            kind.save(store, "a", 1)
        assert error.value.filename == str(home / kind.file)
        assert os.listdir(home / kind.file) == []
    else:
        kind.save(store, "a", 1)
        assert kind.items(kind.load(store, "a")) == [1]
        assert not (home / kind.file).is_symlink()

    assert untouched(home)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.delete], ids=str)
@pytest.mark.parametrize("suffix", ["", ".tmp"])
def test_deleting_what_is_a_folder_is_an_error(kind: Kind, suffix: str, home: Path) -> None:
    assert kind.delete is not None
    store = kind.open(home)
    kind.change(store, "b", 1)
    (home / f"{kind.file}{suffix}").mkdir()

    with pytest.raises(UnsafeFile, match=PARTS) as error:
        kind.delete(store, "a")

    assert error.value.filename == str(home / f"{kind.file}{suffix}")
    assert (home / f"{kind.file}{suffix}").is_dir()


@pytest.mark.parametrize("kind", [PAUSED, EFFECTS], ids=str)
@pytest.mark.parametrize("name", [".wfstate", ".wfstate.tmp"])
@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_is_written_through_a_planted_marker(
    kind: Kind, name: str, plant: tuple[Any, str], home: Path, is_new: bool
) -> None:
    store = kind.open(home)
    if is_new:
        home.mkdir()
    else:
        kind.change(store, "b", 1)
        (home / name).unlink(missing_ok=True)
    make, what = plant
    make(home / name)
    before = {path.name for path in home.iterdir()}

    if name == ".wfstate" or (what == "folder" and is_new):
        with pytest.raises(UnsafeFile, match=f"there is a {what} where the store keeps a regular file") as error:
            kind.change(kind.open(home), "a", 1)
        assert error.value.filename == str(home / name)
        assert {path.name for path in home.iterdir()} == before
    else:
        kind.change(kind.open(home), "a", 1)
        assert kind.items(kind.load(kind.open(home), "a")) == [1]
        assert (home / ".wfstate").is_file()

    assert untouched(home)


CLAIM_CALLS: dict[str, Callable[[FilePausedStore], Any]] = {
    "claim": lambda store: store.claim("a"),
    "complete": lambda store: store.complete("a"),
    "remove": lambda store: store.remove("a"),
    "renew": lambda store: store.renew("a", token="x"),
    "save": lambda store: store.save(samples.paused("a")),
    "recover": lambda store: store.recover_orphaned(),
}


@pytest.mark.parametrize("act", CLAIM_CALLS.values(), ids=list(CLAIM_CALLS))
@pytest.mark.parametrize("suffix", [".json", ".inflight", ".lease", ".lease.next", ".json.tmp"])
@pytest.mark.parametrize("beside", ["paused", "claimed", "both"])
def test_a_folder_at_any_name_of_a_run_is_refused_or_left_alone(
    act: Callable[[FilePausedStore], Any], suffix: str, beside: str, home: Path
) -> None:
    store = FilePausedStore(home, "process")
    for run in ("a", "b"):
        store.save(samples.paused(run))
        if beside != "paused":
            store.claim(run)
        if beside == "both":
            store.save(samples.paused(run))
    planted = home / f"a{suffix}"
    planted.unlink(missing_ok=True)
    planted.mkdir()
    records = [path for path in (home / "a.json", home / "a.inflight") if path.is_file()]

    refusal = None
    try:
        act(FilePausedStore(home, "process"))
    except UnsafeFile as error:
        refusal = str(error)

    if refusal is not None:
        assert "there is a folder where the store keeps a regular file" in refusal
        assert any(path.is_file() for path in (home / "a.json", home / "a.inflight")) or not records
    assert sum(path.is_dir() for path in home.iterdir()) == 1


@pytest.mark.parametrize("suffix", [".json", ".inflight", ".lease", ".lease.next"])
def test_a_planted_file_of_one_run_keeps_no_other_from_recovery(
    suffix: str, plant: tuple[Any, str], home: Path
) -> None:
    store = FilePausedStore(home, "process")
    for run in ("a", "b", "c"):
        store.save(samples.paused(run))
        store.claim(run)
    store.save(samples.paused("c"))
    (home / f"a{suffix}").unlink(missing_ok=True)
    plant[0](home / f"a{suffix}")

    store.recover_orphaned()

    assert {"b", "c"} <= set(store.list())
    assert not (home / "c.inflight").exists()
    assert suffix == ".inflight" or any((home / name).is_file() for name in ("a.json", "a.inflight"))
    assert untouched(home)


class TestAHardLink:
    """Another name of somebody else's file, which is a regular file like ours."""

    @pytest.fixture(autouse=True)
    def victim(self, tmp_path: Path) -> Path:
        (tmp_path / "victim").write_bytes(VICTIM)
        return tmp_path / "victim"

    @pytest.mark.parametrize("name", ["a.lease", "a.lease.next"])
    def test_at_a_lease_is_not_written_through(self, name: str, victim: Path, home: Path) -> None:
        store = FilePausedStore(home, "process")
        store.save(samples.paused("a"))
        if name == "a.lease.next":
            store.claim("a")
            store.save(samples.paused("a"))
        os.link(victim, home / name)

        if name == "a.lease":
            with pytest.raises(UnsafeFile, match=r"has 2 names.* writes into it.* Find out who put it there") as error:
                store.claim("a")
            assert error.value.filename == str(home / name)
        else:  # a leftover, which the next claim removes
            assert store.claim("a") is not None

        assert untouched(home)
        assert store.list() == (["a"] if name == "a.lease" else [])

    @pytest.mark.parametrize("kind", JOURNALS, ids=str)
    def test_to_a_journal_keeps_what_it_was(self, kind: Kind, home: Path, tmp_path: Path) -> None:
        """Such as a backup by `cp -al`. The next change replaces the file by one with a single name."""
        store = kind.open(home)
        for n in (1, 2):
            kind.change(store, "a", n)
        os.link(home / kind.file, tmp_path / "backup")
        before = (tmp_path / "backup").read_bytes()

        for n, handle in ((3, store), (4, kind.open(home)), (5, store)):
            kind.change(handle, "a", n)

        assert (tmp_path / "backup").read_bytes() == before
        assert (home / kind.file).stat().st_nlink == 1
        assert kind.items(kind.load(kind.open(home), "a")) == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize("kind", JOURNALS, ids=str)
    def test_to_a_journal_with_a_torn_line_keeps_what_it_was(self, kind: Kind, home: Path, tmp_path: Path) -> None:
        kind.change(kind.open(home), "a", 1)
        with (home / kind.file).open("ab") as file:
            file.write(b"0123")
        os.link(home / kind.file, tmp_path / "backup")
        before = (tmp_path / "backup").read_bytes()

        kind.change(kind.open(home), "a", 2)

        assert (tmp_path / "backup").read_bytes() == before
        assert kind.items(kind.load(kind.open(home), "a")) == [1, 2]

    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_at_a_temporary_name_is_not_written_through(self, kind: Kind, victim: Path, home: Path) -> None:
        store = kind.open(home)
        kind.change(store, "b", 1)
        os.link(victim, home / f"{kind.file}.tmp")

        kind.change(store, "a", 1)

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
