"""`fake_disk`: a disk that can be full, read-only or case-insensitive, and is gone after the test."""

from __future__ import annotations

import builtins
import io
import os
from pathlib import Path

import pytest
from pyfakefs import helpers

from tests.plugin.conftest import ALONE, Run

IMPORTS = """
import os
import pytest
from pathlib import Path
from pytest_wfstate import FileEffectStore, FilePausedStore, as_sync, samples
"""


BEHAVIOUR = {
    "a full disk keeps what it had": """
    store = FilePausedStore(fake_disk.home)
    store.save(samples.paused("run-1"))
    fake_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        store.save(samples.paused("run-1", iterations=2))
    with pytest.raises(OSError, match="No space left"):
        store.save(samples.paused("run-2"))
    assert store.list() == ["run-1"]
    assert store.load("run-1") == samples.paused("run-1")

    fake_disk.free_up()
    store.save(samples.paused("run-2"))
    assert store.list() == ["run-1", "run-2"]
""",
    "a disk can have a few bytes left": """
    fake_disk.fill(free=10)
    (fake_disk.home / "ten").write_bytes(b"0123456789")
    with pytest.raises(OSError, match="No space left"):
        (fake_disk.home / "eleventh").write_bytes(b"0")
""",
    "a read-only folder can be read but not changed": """
    store = FilePausedStore(fake_disk.home / "store")
    store.save(samples.paused("run-1"))
    fake_disk.read_only(store.directory)
    for change in (lambda: store.save(samples.paused("run-1", iterations=2)),
                   lambda: store.claim("run-1"),
                   lambda: store.remove("run-1")):
        with pytest.raises(PermissionError):
            change()
    assert store.list() == ["run-1"]
    assert store.load("run-1") == samples.paused("run-1")
    FilePausedStore(fake_disk.home / "neighbour").save(samples.paused("run-1"))
""",
    "a folder can be made writable again": """
    store = as_sync(FileEffectStore(fake_disk.home / "store"))
    store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
    fake_disk.read_only(fake_disk.home / "store")
    with pytest.raises(PermissionError):
        store.delete_checkpoint("task-1")

    fake_disk.writable(fake_disk.home / "store")
    store.mark_step_complete("task-1", "use-2", samples.effect("use-2"))
    assert store.load_checkpoint("task-1").completed_tool_ids == {"use-1", "use-2"}
    store.delete_checkpoint("task-1")
    assert store.load_checkpoint("task-1") is None
""",
    "ids that differ only in case stay apart on a disk that ignores case": """
    fake_disk.ignore_case()
    (fake_disk.home / "NAME").write_text("the same file")
    assert (fake_disk.home / "name").read_text() == "the same file"

    store = FilePausedStore(fake_disk.home / "store")
    store.save(samples.paused("run", iterations=1))
    store.save(samples.paused("RUN", iterations=2))
    assert store.list() == ["RUN", "run"]
    assert store.load("run").iterations == 1
""",
}


@pytest.mark.parametrize("body", BEHAVIOUR.values(), ids=BEHAVIOUR)
def test_it_behaves_as_such_a_disk(pytester: pytest.Pytester, run: Run, body: str) -> None:
    pytester.makepyfile(f"{IMPORTS}\ndef test_it(fake_disk):{body}")
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize("options", [(), ("-p", "no:fakefs", "-p", "no:pytest_fakefs")], ids=["with", "without"])
def test_it_works_with_and_without_the_pyfakefs_plugin(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        IMPORTS
        + """
def test_passes(fake_disk):
    FilePausedStore(fake_disk.home).save(samples.paused("run-1"))

def test_fails(fake_disk):
    assert os.listdir(fake_disk.home) == ["nothing"]
"""
    )
    result = run(*options)
    result.assert_outcomes(passed=1, failed=1)
    assert "E       AssertionError: assert [] == ['nothing']" in result.outlines


def test_the_real_disk_is_back_after_the_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        IMPORTS
        + """
def test_passes(fake_disk):
    assert not Path(__file__).exists()
    fake_disk.read_only(fake_disk.home)
    fake_disk.fill()

def test_fails(fake_disk):
    fake_disk.ignore_case()
    assert False

def test_real(tmp_path):
    assert Path(__file__).exists()
    assert not Path("/wfstate").exists()
    FilePausedStore(tmp_path).save(samples.paused("RUN"))
    assert sorted(os.listdir(tmp_path)) == ["%52%55%4E.json", ".wfstate"]

def test_the_next_one_is_new(fake_disk):
    assert os.listdir(fake_disk.home) == []
    (fake_disk.home / "name").touch()
    assert not (fake_disk.home / "NAME").exists()
"""
    )
    run().assert_outcomes(passed=3, failed=1)


def test_nothing_stays_patched_after_the_run(pytester: pytest.Pytester, run: Run) -> None:
    before = (builtins.open, io.open, os.open, os.listdir, os.fsync, Path, helpers.get_uid(), helpers.get_gid())
    pytester.makepyfile("def test_it(fake_disk): fake_disk.read_only(fake_disk.home)")
    run().assert_outcomes(passed=1)
    assert before == (
        (builtins.open, io.open, os.open, os.listdir, os.fsync, Path, helpers.get_uid(), helpers.get_gid())
    )


def test_it_works_in_its_own_process_without_the_pyfakefs_plugin(pytester: pytest.Pytester) -> None:
    """Without that plugin, only ours keeps pytest's own files real."""
    pytester.makepyfile("def test_it(fake_disk): (fake_disk.home / 'x').write_text('1'); print('captured')")
    pytester.runpytest_subprocess(*ALONE).assert_outcomes(passed=1)


@pytest.mark.parametrize("arguments", ["fake_disk, tmp_path", "tmp_path, fake_disk"])
def test_tmp_path_is_an_empty_folder_on_it(pytester: pytest.Pytester, run: Run, arguments: str) -> None:
    pytester.makepyfile(
        IMPORTS
        + f"""
def test_it({arguments}):
    assert os.listdir(tmp_path) == []
    FilePausedStore(tmp_path).save(samples.paused("run-1"))
    fake_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        FilePausedStore(tmp_path).save(samples.paused("run-2"))

def test_the_next_one_is_real(tmp_path):
    assert not list(tmp_path.parent.glob("test_it*/*"))
"""
    )
    run().assert_outcomes(passed=2)
