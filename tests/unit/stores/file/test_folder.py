from __future__ import annotations

import contextlib
import errno
import operator
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FileEffectStore, FilePausedStore, NotFound, as_sync, samples
from pytest_wfstate.stores.file import folder as folder_module
from pytest_wfstate.stores.file.folder import Durability, Folder, write_all
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.kinds import EFFECTS, KINDS, PAUSED, SNAPSHOTS, Kind, contents


def replace(folder: Folder, data: bytes, name: str = "a.json") -> None:
    with folder.exclusive() as held:
        held.replace(name, data)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def folder(home: Path) -> Folder:
    """A folder in which `a.json` holds "old"."""
    folder = Folder(home, "power")
    replace(folder, b"old")
    return folder


def test_replace_leaves_the_new_content_and_nothing_else(folder: Folder) -> None:
    replace(folder, b"new")

    assert contents(folder.home) == {"a.json": b"new"}


def test_replace_writes_over_what_a_dead_writer_left(folder: Folder) -> None:
    folder.path("a.json.tmp").write_bytes(b"longer than what is new")

    replace(folder, b"new")

    assert contents(folder.home) == {"a.json": b"new"}


def test_replace_syncs_the_file_before_its_name_and_then_the_folder(folder: Folder, calls: Calls) -> None:
    replace(folder, b"new")

    assert calls.all == ["create a.json.tmp", "write a.json.tmp", "fsync a.json.tmp", "rename a.json.tmp", "fsync home"]


@pytest.mark.parametrize("failing", ["create a.json.tmp", "write a.json.tmp", "fsync a.json.tmp", "rename a.json.tmp"])
def test_replace_that_fails_leaves_the_old_content_and_nothing_else(folder: Folder, calls: Calls, failing: str) -> None:
    calls.fail(failing, OSError(errno.EIO, "broken"))

    with pytest.raises(OSError, match="broken"):
        replace(folder, b"new")

    assert contents(folder.home) == {"a.json": b"old"}
    replace(folder, b"newer")
    assert contents(folder.home) == {"a.json": b"newer"}


def test_replace_whose_last_fsync_fails_says_so_and_leaves_whole_content(folder: Folder, calls: Calls) -> None:
    calls.fail("fsync home", OSError(errno.EIO, "broken"))

    with pytest.raises(OSError, match="broken"):
        replace(folder, b"new")

    assert contents(folder.home) == {"a.json": b"new"}


def test_a_write_that_takes_less_is_continued(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    sizes: list[int] = []

    def short(fd: int, data: memoryview) -> int:
        sizes.append(real(fd, data[:3]))
        return sizes[-1]

    monkeypatch.setattr(os, "write", short)

    replace(folder, b"12345678")

    assert sizes == [3, 3, 2]
    assert contents(folder.home) == {"a.json": b"12345678"}


def test_a_write_that_takes_nothing_is_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *_: 0)

    with pytest.raises(OSError) as error:
        write_all(1, b"x")

    assert error.value.errno == errno.ENOSPC


def test_unlink_skips_missing_files(folder: Folder) -> None:
    with folder.exclusive() as held:
        held.unlink("none", "a.json", "none either")

    assert contents(folder.home) == {}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_is_made_before_the_first_save(home: Path, kind: Kind) -> None:
    store = kind.open(home)
    assert kind.load(store, "a") is None
    if kind.delete is not None:
        kind.delete(store, "a")
    assert not home.exists()

    kind.change(store, "a", 1)

    assert list(contents(home)) == [kind.file]


def test_paused_calls_that_find_nothing_create_no_folder(home: Path) -> None:
    store = KINDS[1].open(home)

    assert (store.list(), store.claim("a"), store.recover_orphaned(), store.complete("a")) == ([], None, 0, None)
    assert not home.exists()


def test_every_new_folder_is_durable_before_anything_is_put_into_it(tmp_path: Path, calls: Calls) -> None:
    folder = Folder(tmp_path / "x" / "y" / "home", "power")
    calls.start()

    replace(folder, b"new")

    assert calls.of("mkdir", "fsync", "rename") == [
        f"fsync {tmp_path.parent.name}",
        "mkdir x",
        f"fsync {tmp_path.name}",
        "mkdir y",
        "fsync x",
        "mkdir home",
        "fsync y",
        "fsync a.json.tmp",
        "rename a.json.tmp",
        "fsync home",
    ]


def test_the_name_of_a_folder_that_is_there_already_is_synced_once_a_handle(
    folder: Folder, tmp_path: Path, calls: Calls
) -> None:
    another = Folder(folder.home, "power")

    replace(another, b"new")
    replace(another, b"newer")

    of_home = ["fsync a.json.tmp", "fsync home"]
    assert calls.of("fsync", "mkdir") == [f"fsync {tmp_path.name}", *of_home, *of_home]


def test_a_folder_whose_parent_could_not_be_synced_is_tried_again(home: Path, calls: Calls) -> None:
    folder = Folder(home, "power")
    calls.fail(f"fsync {home.parent.name}", OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        replace(folder, b"new")
    calls.start()

    replace(folder, b"new")

    above, parent = home.parent.parent.name, home.parent.name
    assert calls.of("mkdir", "fsync") == [
        f"fsync {above}",
        "mkdir home",
        f"fsync {parent}",
        "fsync a.json.tmp",
        "fsync home",
    ]


def test_a_parent_that_could_not_be_synced_is_changed_so_that_the_next_fsync_writes_it(
    folder: Folder, calls: Calls
) -> None:
    parent = folder.home.parent
    calls.fail(f"fsync {parent.name}", OSError(errno.EIO, "broken"))

    with pytest.raises(OSError, match="broken"):
        replace(Folder(folder.home, "power"), b"new")

    assert calls.all == [f"fsync {parent.name}", "mkdir .wfstate.retry"]
    assert os.listdir(parent) == ["home"]


@pytest.fixture
def closed_to_us(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Forbids to open a folder: root is not kept out by its mode."""

    def close(folder: Path) -> None:
        real = os.open

        def opening(path: str | Path, flags: int, mode: int = 0o777) -> int:
            if Path(path) == folder:
                raise PermissionError(errno.EACCES, "not yours", str(path))
            return real(path, flags, mode)

        monkeypatch.setattr(os, "open", opening)

    return close


def test_the_parent_of_an_existing_folder_need_not_be_ours_to_open(
    folder: Folder, closed_to_us: Callable[[Path], None]
) -> None:
    closed_to_us(folder.home.parent)

    replace(Folder(folder.home, "power"), b"new")

    assert contents(folder.home) == {"a.json": b"new"}


@pytest.mark.parametrize("tries", [1, 2])
def test_a_folder_whose_name_cannot_be_made_durable_is_never_used(
    home: Path, closed_to_us: Callable[[Path], None], tries: int
) -> None:
    closed_to_us(home.parent)
    for _ in range(tries - 1):
        with contextlib.suppress(PermissionError):
            replace(Folder(home, "power"), b"new")

    with pytest.raises(PermissionError):
        replace(Folder(home, "power"), b"new")

    assert not home.exists()


def test_a_folder_whose_name_cannot_be_made_durable_is_left_to_its_users(
    home: Path, closed_to_us: Callable[[Path], None]
) -> None:
    closed_to_us(home.parent)
    mkdir = os.mkdir

    def meanwhile(*args: Any) -> None:
        mkdir(*args)
        replace(Folder(home, "process"), b"of another")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", meanwhile)
        with pytest.raises(PermissionError):
            replace(Folder(home, "power"), b"new")

    assert contents(home) == {"a.json": b"of another"}


def test_a_folder_that_was_removed_is_made_again(folder: Folder) -> None:
    folder.path("a.json").unlink()
    folder.home.rmdir()

    replace(folder, b"new")

    assert contents(folder.home) == {"a.json": b"new"}


@pytest.mark.parametrize("call", ["locked", "os.listdir"])
def test_a_folder_that_vanishes_while_it_is_listed_holds_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = FilePausedStore(home, "process")
    store.save(samples.paused("a"))
    real = operator.attrgetter(call)(folder_module)

    def too_late(*args: Any) -> Any:
        shutil.rmtree(home)
        return real(*args)

    monkeypatch.setattr(f"{folder_module.__name__}.{call}", too_late)

    assert store.list() == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_file_in_the_place_of_the_folder_is_an_error(home: Path, kind: Kind) -> None:
    home.write_text("a file")

    with pytest.raises((NotADirectoryError, FileExistsError)):
        kind.change(kind.open(home), "a", 1)
    with pytest.raises(NotADirectoryError):
        kind.load(kind.open(home), "a")
    if kind.delete is not None:
        with pytest.raises((NotADirectoryError, FileExistsError)):
            kind.delete(kind.open(home), "a")


def modes(folder: Path) -> dict[str, str]:
    return {path.name: stat.filemode(path.stat().st_mode) for path in (folder, *folder.iterdir())}


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_files_and_new_folders_are_private(tmp_path: Path, kind: Kind) -> None:
    home = tmp_path / "new" / "home"
    store = kind.open(home)

    for n in range(70):  # past a compaction
        kind.change(store, "a", n)
    if kind is PAUSED:
        store.claim("a")

    assert stat.filemode(home.parent.stat().st_mode) == "drwx------"
    assert set(modes(home).values()) == {"drwx------", "-rw-------"}


@pytest.mark.parametrize(
    ("mode", "umask", "file", "folder"),
    [
        (0o660, 0o000, "-rw-rw----", "drwxrwx---"),
        (0o640, 0o000, "-rw-r-----", "drwxr-x---"),
        (0o666, 0o022, "-rw-r--r--", "drwxr-xr-x"),
        (0o660, 0o077, "-rw-------", "drwx------"),
    ],
    indirect=["umask"],
    ids=["group", "group reads", "everyone", "umask"],
)
@pytest.mark.usefixtures("umask")
def test_permissions_are_a_setting(tmp_path: Path, mode: int, file: str, folder: str) -> None:
    home = tmp_path / "home"
    FilePausedStore(home, mode=mode).save(samples.paused("a"))

    assert modes(home)["a.json"] == file
    assert modes(home)["home"] == folder


def test_a_folder_that_exists_keeps_its_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    FilePausedStore(tmp_path).save(samples.paused("a"))

    assert stat.filemode(tmp_path.stat().st_mode) == "drwxr-xr-x"


@pytest.mark.parametrize("mode", [0o400, 0o700, 0o1600, -1, "0600", None, True])
def test_permissions_that_lock_out_the_store_are_refused(tmp_path: Path, mode: Any) -> None:
    with pytest.raises(ValueError, match=r"^mode is .* It must be the permissions of files, which their owner can"):
        FilePausedStore(tmp_path, mode=mode)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_process_durability_syncs_nothing(home: Path, calls: Calls, kind: Kind) -> None:
    store = kind.open(home, "process")

    for n in range(70):
        kind.change(store, "a", n)
    if kind.delete is not None:
        kind.delete(store, "a")

    assert calls.of("fsync") == []


def test_an_unknown_durability_is_refused(home: Path) -> None:
    wrong: Durability = "disk"  # type: ignore[assignment]

    with pytest.raises(ValueError, match=r"durability is 'disk', .* Use 'power' .* or 'process'"):
        Folder(home, wrong)


def test_a_relative_home_stays_where_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Folder("home", "process")
    monkeypatch.chdir("/")

    replace(folder, b"new")

    assert contents(tmp_path / "home") == {"a.json": b"new"}


def test_no_temporary_file_is_left_after_a_save(home: Path) -> None:
    """Seed 000: fs_atomic_write_produces_no_tmp_file_after_save."""
    EFFECTS.open(home).save_checkpoint(samples.checkpoint("atomic-task"))
    assert list(contents(home)) == ["atomic-task.json"]


def test_the_default_path_is_in_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = FileEffectStore.at_default_path()
    assert list(tmp_path.iterdir()) == []
    as_sync(store).save_checkpoint(samples.checkpoint())
    assert list(contents(tmp_path / ".wfstate" / "effects")) == ["task-1.json"]
    assert as_sync(FileEffectStore.at_default_path()).load_checkpoint("task-1") == samples.checkpoint()


def test_a_fork_of_a_missing_source_writes_nothing(home: Path) -> None:
    home.mkdir()
    with pytest.raises(NotFound):
        SNAPSHOTS.open(home).fork(samples.key())
    assert contents(home) == {}
