"""The recorder sees every way in which Python code changes files, as the kernel sees it."""

from __future__ import annotations

import builtins
import concurrent.futures
import contextlib
import gzip
import importlib
import inspect
import io
import os
import shutil
import sys
import tempfile
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

import aiofiles
import aiofiles.os
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.folders import read_content
from pytest_wfstate.faults.record.recorder import AlreadyRecording, Recorder
from pytest_wfstate.faults.trace.ops import Ack
from tests.unit.faults.record import library_ways
from tests.unit.faults.record.recording import record
from tests.unit.faults.record.ways import WAYS, Way
from tests.unit.faults.trace.texts import in_words


@pytest.mark.parametrize("way", [pytest.param(way, id=way.__name__) for way in WAYS])
def test_each_way_of_writing_yields_its_ops(way: Way, home: Path) -> None:
    expected: list[str] = []
    recorded = record(lambda home: expected.append(way(home)), home)
    assert ["; ".join(recorded)] == expected


def test_archives_are_recorded(home: Path) -> None:
    def workload(home: Path) -> None:
        with gzip.open(home / "a", "wb") as packed:
            packed.write(b"1")
        with zipfile.ZipFile(home / "b", "w") as archive:
            archive.write(home / "a")
        shutil.make_archive(str(home / "c"), "tar", home / "folder")

    created = [op for op in record(workload, home) if op.startswith("create")]
    assert created == ["create a", "create b", "create c.tar"]


def test_the_content_of_a_file_from_outside_is_known_once_it_is_moved_below_home(home: Path) -> None:
    outside = home.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "file").write_bytes(b"1")
    (outside / "gone").write_bytes(b"2")
    (home.parent / "single").write_bytes(b"3")

    def workload(home: Path) -> None:
        (outside / "gone").unlink()
        (outside / "new").write_bytes(b"4")
        with open(home.parent / "single", "ab") as file:
            file.write(b"5")
        os.rename(outside, home / "in")
        os.link(home.parent / "single", home / "linked")

    with Recorder(home) as recorder:
        workload(home)
    trace = recorder.trace()
    assert recorder.unmeasured == []
    assert trace.end().content() == read_content(home)
    assert read_content(home)["in/deep/file"] == b"1"
    assert read_content(home)["linked"] == b"35"
    assert {name for _, name in trace.start.entries} == {"old", "folder", "deep", "file"}


def test_the_content_behind_an_older_descriptor_is_known(home: Path) -> None:
    (home.parent / "outside").write_bytes(b"123")
    fd = os.open(home.parent / "outside", os.O_RDWR)

    def workload(home: Path) -> None:
        os.pwrite(fd, b"X", 1)
        os.rename(home.parent / "outside", home / "a")

    assert record(workload, home) == ["write (outside) 1 b'X'", "rename (outside)/outside a"]
    assert read_content(home)["a"] == b"1X3"
    os.close(fd)


def test_references_in_a_function_of_the_test_are_replaced(home: Path) -> None:
    from os import fsync, replace

    plain = open

    def workload(home: Path) -> None:
        with plain(home / "a", "w") as file:
            fsync(file)
        replace(home / "a", home / "b")

    assert record(workload, home) == ["create a", "fsync a", "rename a b"]


def test_recording_leaves_no_file_open(home: Path) -> None:
    def open_files() -> set[str]:
        return set(os.listdir("/proc/self/fd"))

    def workload(home: Path) -> None:
        before = open_files()
        for number in range(20):
            shutil.copyfile(home / "old", home / str(number))
        assert open_files() == before

    before = open_files()
    record(workload, home)
    assert open_files() == before


def test_markers_and_ops_are_in_order(home: Path) -> None:
    with Recorder(home) as recorder:
        (home / "a").touch()
        recorder.log.add(Ack("a"))
        (home / "b").touch()
    assert in_words(recorder.trace()) == ["create a", "ack", "create b"]


def test_a_file_that_stays_outside_home_is_not_in_the_trace(home: Path) -> None:
    assert record(lambda home: (home.parent / "elsewhere").write_bytes(b"1"), home) == []


# Random sequences


NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/a", "link"])
DATA = st.binary(min_size=1, max_size=6)


def write_file(home: Path, name: str, mode: str, data: bytes) -> None:
    with open(home / name, mode, buffering=len(data) % 4 + (len(data) % 4 == 1)) as file:
        file.write(data)
        file.seek(2)
        file.write(data)


def write_fd(home: Path, name: str, flags: int, data: bytes) -> None:
    fd = os.open(home / name, os.O_RDWR | flags)
    try:
        os.write(fd, data)
        os.pwrite(fd, data, 1)
        os.fsync(fd)
    finally:
        os.close(fd)


MODES = st.sampled_from(["wb", "ab", "xb", "r+b", "w+b", "a+b"])
FLAGS = st.sampled_from([0, os.O_CREAT, os.O_CREAT | os.O_TRUNC, os.O_APPEND, os.O_CREAT | os.O_SYNC])
STEPS = st.one_of(
    st.tuples(st.just(write_file), NAMES, MODES, DATA),
    st.tuples(st.just(write_fd), NAMES, FLAGS, DATA),
    st.tuples(st.just(lambda home, a: os.mkdir(home / a)), NAMES),
    st.tuples(st.just(lambda home, a: os.unlink(home / a)), NAMES),
    st.tuples(st.just(lambda home, a: (home / a).rmdir()), NAMES),
    st.tuples(st.just(lambda home, a: shutil.rmtree(home / a)), NAMES),
    st.tuples(st.just(lambda home, a, b: os.rename(home / a, home / b)), NAMES, NAMES),
    st.tuples(st.just(lambda home, a, b: (home / a).replace(home.parent / b)), NAMES, st.just("outside")),
    st.tuples(st.just(lambda home, a, b: os.rename(home.parent / a, home / b)), st.just("outside"), NAMES),
    st.tuples(st.just(lambda home, a, b: os.link(home / a, home / b)), NAMES, NAMES),
    st.tuples(st.just(lambda home, a, b: (home / a).symlink_to(b)), NAMES, st.sampled_from(["a", "d", "no"])),
    st.tuples(st.just(lambda home, a, n: os.truncate(home / a, n)), NAMES, st.integers(0, 9)),
    st.tuples(st.just(lambda home, a, b: shutil.copyfile(home / a, home / b)), NAMES, NAMES),
    st.tuples(st.just(lambda home, a, b: shutil.copytree(home / a, home / b)), NAMES, NAMES),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_any_sequence_replays_to_the_real_content(steps: list[tuple[Any, ...]]) -> None:
    def workload(home: Path) -> None:
        for call, *args in steps:
            with contextlib.suppress(OSError, shutil.Error):
                call(home, *args)

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "a").write_bytes(b"12345")
        record(workload, home)


# Stand-ins, and how they are removed


def names_of_modules() -> dict[tuple[str, str], int]:
    return {
        (name, key): id(value)
        for name, module in list(sys.modules.items())
        for key, value in list(vars(module).items())
        if not name.startswith("pytest_wfstate.faults") and callable(value)
    }


def held() -> list[Any]:
    return [
        library_ways.rename_in_closure.__closure__[0].cell_contents,  # type: ignore[index]
        library_ways.bound_as_default.__defaults__,
        library_ways.bound_as_default.__kwdefaults__["sync"],  # type: ignore[index]
        library_ways.write_bound_at_import.func,
        library_ways.write_bound_at_import.args,
        *vars(library_ways.Bound).values(),
        aiofiles.os.rename.__closure__[0].cell_contents,
        threading.Thread.start,
        concurrent.futures.ThreadPoolExecutor.submit,
        *sorted(map(repr, os.supports_dir_fd | os.supports_fd | os.supports_follow_symlinks)),
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_restored(fails: bool, home: Path) -> None:
    names, others = names_of_modules(), held()
    with contextlib.suppress(KeyError), Recorder(home):
        assert vars(library_ways)["replace_bound_at_import"] is os.replace
        assert os.unlink in os.supports_dir_fd
        assert builtins.open is io.open is library_ways.open_bound_at_import
        (home / "a").touch()
        if fails:
            raise KeyError("workload")
    now = names_of_modules()
    assert {key for key in names.keys() | now.keys() if names.get(key) != now.get(key)} == set()
    assert isinstance(os.rename, types.BuiltinFunctionType)
    assert inspect.getsourcefile(threading.Thread.start) == threading.__file__
    assert all(before is after or before == after for before, after in zip(others, held(), strict=True))


def test_a_module_imported_while_recording_is_restored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "imported_meanwhile.py").write_text(
        "from os import rename\nfrom io import FileIO\ndef move(a, b, rename=rename): rename(a, b)\n"
        "class Kept:\n    open = open\n    def again(self): return (lambda: rename)\n"
    )
    monkeypatch.syspath_prepend(home.parent)

    def workload(home: Path) -> None:
        module = importlib.import_module("imported_meanwhile")
        (home / "a").touch()
        module.move(home / "a", home / "b")
        module.Kept().open(home / "c", "w").close()

    assert record(workload, home) == ["create a", "rename a b", "create c"]
    module = sys.modules.pop("imported_meanwhile")
    assert module.rename is os.rename
    assert module.FileIO is io.FileIO
    assert module.move.__defaults__ == (os.rename,)
    assert module.Kept.open is open


def test_a_stand_in_that_was_kept_makes_the_real_call_afterwards(home: Path) -> None:
    with Recorder(home) as recorder:
        kept, file_io = os.replace, io.FileIO
        late = open(home / "late", "wb")
        late.write(b"1")
    kept(home / "old", home / "new")
    with file_io(home / "raw", "w") as raw:
        raw.write(b"1")
    late.close()
    assert in_words(recorder.trace()) == ["create late"]
    assert record(lambda home: kept(home / "new", home / "old"), home) == ["rename new old"]


def test_older_files_still_pass_isinstance(home: Path) -> None:
    with open(home / "old", "rb", buffering=0) as before, Recorder(home):
        assert isinstance(before, io.FileIO)
        assert issubclass(type(before), io.FileIO)
        with open(home / "a", "wb", buffering=0) as now:
            assert isinstance(now, io.FileIO)
        assert not isinstance(io.BytesIO(), io.FileIO)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("w", -1, None, None, None, False), ValueError),
        (("wb", -1, "utf-8"), ValueError),
        (("w", 0), ValueError),
        (("wr",), ValueError),
        (("ww",), ValueError),
        (("wtb",), ValueError),
        (("+",), ValueError),
        ((3,), TypeError),
        (("w", -1, "no such encoding"), LookupError),
    ],
)
def test_open_raises_the_usual_errors(args: tuple[Any, ...], error: type[Exception], home: Path) -> None:
    with pytest.raises(error) as plain:
        open(home / "a", *args)
    (home / "a").unlink(missing_ok=True)
    with Recorder(home) as recorder, pytest.raises(error) as recorded:
        open(home / "a", *args)
    assert str(recorded.value) == str(plain.value)
    assert recorder.unmeasured == []


def test_a_file_object_has_the_usual_attributes(home: Path) -> None:
    def inheritable(path: str, flags: int) -> int:
        fd = os.open(path, flags)
        os.set_inheritable(fd, True)
        return fd

    def looks(name: str) -> list[Any]:
        attributes: list[Any] = []
        for mode, opener in (("w", None), ("wb", None), ("a+", None), ("r+b", None), ("w+b", inheritable)):
            with open(home / name, mode, opener=opener) as file:
                attributes += [type(file), file.mode, file.name, file.readable(), file.writable()]
                attributes.append(os.get_inheritable(file.fileno()))
        return attributes

    plain = looks("old")
    with Recorder(home):
        assert looks("old") == plain


def test_line_buffering_of_a_binary_file_warns_the_caller(home: Path) -> None:
    with Recorder(home), pytest.warns(RuntimeWarning, match="line buffering") as caught:
        open(home / "a", "wb", 1).close()
    assert caught[0].filename == __file__


def test_a_second_recorder_is_refused(home: Path) -> None:
    with Recorder(home) as recorder:
        with pytest.raises(AlreadyRecording, match=f"{home} is being recorded") as error, Recorder(home):
            pass
        (home / "a").touch()
    assert isinstance(error.value, WfstateError)
    assert in_words(recorder.trace()) == ["create a"]


def test_there_is_no_trace_before_the_end_of_the_block(home: Path) -> None:
    with Recorder(home) as recorder, pytest.raises(RuntimeError, match="still active"):
        recorder.trace()


def test_children_are_forbidden_or_readonly(home: Path) -> None:
    with pytest.raises(ValueError, match="children='maybe' is unknown"):
        Recorder(home, children="maybe")  # type: ignore[arg-type]


def test_an_error_in_the_block_surfaces_as_itself(home: Path) -> None:
    recorder = Recorder(home)

    def workload() -> None:
        with recorder:
            (home / "a").touch()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        workload()
    assert in_words(recorder.trace()) == ["create a"]


def test_threads_are_recorded_in_the_order_of_their_calls(home: Path) -> None:
    def work(number: int) -> None:
        for step in range(50):
            with open(home / "shared", "ab", buffering=0) as file:
                file.write(f"{number}.{step} ".encode())

    def workload(_: Path) -> None:
        with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(work, range(4)))

    assert len(record(workload, home)) == 201
