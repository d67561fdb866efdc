"""The `wfstate` command: what it prints, what it exits with, and that no configuration around it can disturb it."""

from __future__ import annotations

import dataclasses
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

import pytest_wfstate
from pytest_wfstate import Server
from pytest_wfstate.cli.check import all_clauses, shipped
from pytest_wfstate.cli.main import main
from pytest_wfstate.suites import SUITES
from pytest_wfstate.zoo import KNOWN_BAD_STORES

HEAD = ["store", "core", "safe", "hardened", "failed", "skipped", "not measured", "not asked"]
FEW = ("check", "resume.file", "-k", "resume.save.load")

STORES = """
from pytest_wfstate import FilePausedStore, MemoryPausedStore
from pytest_wfstate.suites import PausedSuite

class Unsorted(FilePausedStore):
    def list(self):
        return super().list()[::-1]

class NoRemove(FilePausedStore):
    remove = None

class Dies(FilePausedStore):
    def list(self):
        import os
        os._exit(3)

def broken(home):
    raise OSError("no disk today")

class TestMine(PausedSuite):
    known_failures = {"paused.list.sorted": "see #12"}
    def open(self, home):
        return Unsorted(home)
    def normalise(self, record):
        return record.model_copy(update={"prompt": ""})

number = 12
"""


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_wfstate", *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with stores of its own."""
    (tmp_path / "mine.py").write_text(STORES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


# check


def test_it_prints_a_scorecard_and_leaves_an_empty_folder_empty(tmp_path: Path) -> None:
    result = run(tmp_path, *FEW)
    assert result.returncode == 0, result.stdout + result.stderr
    head, row = result.stdout.splitlines()
    assert cells(head) == HEAD
    assert cells(row) == ["resume.file", "1/1", "-", "-", "0", "0", "0", "0"]
    assert os.listdir(tmp_path) == []


HOSTILE = {
    "pytest.ini": "[pytest]\naddopts = --no-such-option\nwfstate_backends = none\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--no-such-option'\n",
    "tox.ini": "[pytest]\naddopts = --no-such-option\n",
    "conftest.py": "raise RuntimeError('this is not for you')\n",
    "test_mine.py": "def test_it(): assert False\n",
}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Make a project whose configuration fits no run but its own."""
    for name, content in HOSTILE.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_no_configuration_disturbs_it(hostile: Path) -> None:
    result = run(hostile, *FEW, PYTEST_ADDOPTS="--no-such-option", PYTEST_PLUGINS="no_such_plugin")
    assert result.returncode == 0, result.stdout + result.stderr


def test_it_works_where_it_is_installed_below_that_folder(hostile: Path) -> None:
    """A project's virtual environment is often inside the project."""
    packages = hostile / ".venv" / "site-packages"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pytest_wfstate.__file__).parent, packages / "pytest_wfstate", ignore=ignored)
    result = run(hostile, *FEW, PYTHONPATH=str(packages))
    assert result.returncode == 0, result.stdout + result.stderr


def test_without_a_target_it_checks_all_stores_on_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-k", "load.missing or run.missing", "--level", "core"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [cells(row)[0] for row in rows] == [f"{contract}.file" for contract in SUITES]


def test_a_contract_alone_chooses_its_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--contract", "paused", "-k", "paused.save.load"]) == 0
    assert cells(capsys.readouterr().out.splitlines()[1])[:2] == ["paused.file", "1/1"]


def test_what_is_not_asked_is_counted_and_what_does_not_apply_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "paused.kill.save or paused.power or paused.save.load"
    assert main(["check", "paused.memory", "--level", "safe", "-k", chosen]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert cells(row) == ["paused.memory", "1/1", "-", "-", "0", "0", "0", "5"]


@pytest.mark.usefixtures("project")
def test_a_violation_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "paused.list.sorted or paused.save.load"
    assert main(["check", "mine:Unsorted", "--contract", "paused", "-k", chosen]) == 1
    _, row, _, title, promise, *case = capsys.readouterr().out.splitlines()
    assert cells(row) == ["mine:Unsorted", "1/2", "-", "-", "1", "0", "0", "0"]
    assert title == "--- mine:Unsorted: paused.list.sorted fails ---"
    assert promise == "paused.list.sorted: All paused runs are listed in sorted order."
    assert case[1].startswith("store.save(samples.paused(")
    assert any(line.startswith("    expected: [") for line in case)


@pytest.mark.usefixtures("project")
def test_a_suite_can_be_checked_with_all_that_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mine:TestMine", "-k", "paused.list.sorted or paused.save.load or whole"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "mine:TestMine   1/2     -         -       0        0             0          0",
        "",
        "mine:TestMine: paused.list.sorted is known to fail: see #12",
        "mine:TestMine: not compared: prompt",
    ]


@pytest.mark.usefixtures("project")
def test_what_is_not_offered_is_counted_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "paused.remove.paused or paused.save.load"
    assert main(["check", "mine:NoRemove", "--contract", "paused", "-k", chosen]) == 0
    _, row, _, note = capsys.readouterr().out.splitlines()
    assert cells(row) == ["mine:NoRemove", "1/2", "-", "-", "0", "1", "0", "0"]
    assert note == "mine:NoRemove: 1 skipped: not offered: NoRemove has no method remove"


@pytest.mark.usefixtures("project")
def test_nothing_but_skips_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mine:NoRemove", "--contract", "paused", "-k", "paused.remove.paused"]) == 1
    assert cells(capsys.readouterr().out.splitlines()[1])[:2] == ["mine:NoRemove", "0/1"]


def test_what_was_not_measured_is_no_success(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.py").write_text("from pytest_wfstate import MemoryPausedStore\nstores = {}\n" + IN_MEMORY)
    assert main(["check", "mine:factory", "--contract", "paused", "-k", "paused.kill.save"]) == 1
    out = capsys.readouterr().out
    assert cells(out.splitlines()[1]) == ["mine:factory", "-", "0/1", "-", "0", "0", "1", "0"]
    assert "--- mine:factory: paused.kill.save was not measured ---" in out
    assert main(["check", "mine:factory", "--contract", "paused", "--medium", "memory", "-k", "paused.save"]) == 0


IN_MEMORY = "def factory(home): return stores.setdefault(home, MemoryPausedStore()).handle()"


@pytest.mark.usefixtures("project")
def test_a_factory_that_raises_is_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mine:broken", "--contract", "paused", "-k", "paused.save.load"]) == 1
    assert "OSError: no disk today" in capsys.readouterr().out


@pytest.mark.usefixtures("project")
def test_a_store_that_ends_the_process_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Only its own row suffers."""
    assert main(["check", "mine:Dies", "mine:NoRemove", "--contract", "paused", "-k", "paused.list.sorted"]) == 1
    _, dead, alive, *rest = capsys.readouterr().out.splitlines()
    assert cells(dead) == ["mine:Dies", "-", "-", "-", "0", "0", "1", "0"]
    assert cells(alive)[:2] == ["mine:NoRemove", "1/1"]
    assert any("the process that ran the suite ended with exit code 3" in line for line in rest)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["paused.oracle"], ["no store 'paused.oracle'", "paused.file", "give package.module:factory"]),
        (["mine:Unsorted"], ["does not say what it is a store of", "Give --contract", "paused"]),
        (["mine:Missing", "--contract", "paused"], ["mine has no Missing", "It has:", "Unsorted"]),
        (["mine:number", "--contract", "paused"], ["mine:number is 12", "cannot be called", "factory(home)"]),
        (["nowhere:x", "--contract", "paused"], ["nowhere cannot be imported", "looked for in", "Run the command in"]),
        (
            ["paused.sqlite:sqlite:///x.db"],
            ["'sqlite:///x.db'", "paused.postgres:postgresql:", "of their own"],
        ),
        (["paused.file:postgresql://x"], ["paused.file cannot be checked at", "leave it out"]),
        (["paused.file", "--contract", "runs"], ["--contract is runs", "paused contract", "Leave one of them out"]),
        (["resume.file", "-k", "nothing"], ["-k 'nothing' chooses no clause", "resume.file", "wfstate clauses"]),
    ],
)
def test_what_makes_no_sense_is_told_in_three_parts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    assert main(["check", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("wfstate check: ")
    assert [part for part in parts if part not in told.err] == []


@pytest.mark.parametrize(
    "arguments", [["check", "--level", "high"], ["check", "--contract", "x"], ["clauses", "x"], []]
)
def test_an_unknown_choice_is_a_usage_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: wfstate" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest_wfstate", "check", "resume.file", "--level", "core"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=subprocess.STDOUT)
    os.close(theirs)
    told = b""
    while True:
        try:
            told += os.read(ours, 4096)
        except OSError:  # there is nobody left to write
            break
    os.close(ours)
    assert process.wait() == 0
    assert re.search(rb"resume\.file  \d/\d", told)
    assert b"store" in told.rpartition(b"\x1b[J")[2]


# clauses


def test_clauses_are_listed_with_level_fault_and_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clauses", "paused"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["paused.claim.one-winner", "safe", "none", "Of several claims on a run, exactly one wins."] in map(
        cells, lines
    )
    assert all(line.startswith("paused.") for line in lines)


def test_clauses_of_all_contracts_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clauses"]) == 0
    assert {line.split(".")[0] for line in capsys.readouterr().out.splitlines()} == set(SUITES)


# zoo


def test_an_animal_is_shown_with_its_story_and_what_caught_it(capsys: pytest.CaptureFixture[str]) -> None:
    animal = next(one for one in KNOWN_BAD_STORES if one.name.startswith("resume.") and one.breaks)
    assert main(["zoo", animal.name]) == 0
    name, *rest, last = capsys.readouterr().out.splitlines()
    told = " ".join(" ".join(rest).split())
    assert name == animal.name
    assert animal.story in told
    assert all(clause in told.partition("caught by")[2] for clause in animal.breaks)
    assert re.fullmatch(r"(\d+) of \1 animals are caught by every clause they are said to break\.", last)


def test_the_full_zoo_is_a_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    animal = next(one for one in KNOWN_BAD_STORES if one.name.startswith("resume.") and one.breaks)
    assert main(["zoo", "--full", animal.name]) == 0
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if line.startswith(animal.name)]
    assert cells(row)[1].count("x") == len(animal.breaks)
    assert "break exactly what they are said to break" in out


def test_an_animal_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "unicorn"]) == 2
    assert "no animal's name begins with unicorn" in capsys.readouterr().err


def test_a_store_in_sqlite_can_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "paused.sqlite", "-k", "paused.claim"]) == 0
    assert cells(capsys.readouterr().out.splitlines()[1])[:2] == ["paused.sqlite", "2/2"]


def test_a_store_on_a_server_that_is_started_for_it_can_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "resume.redis", "-k", "resume.save.load or resume.cut.save"]) == 0
    assert cells(capsys.readouterr().out.splitlines()[1])[:3] == ["resume.redis", "1/1", "1/1"]


def test_a_store_on_a_server_that_was_given_is_checked_and_leaves_no_key(
    capsys: pytest.CaptureFixture[str], redis_server: Server
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        before = client.dbsize()
        assert main(["check", f"paused.redis:{redis_server.url}", "-k", "paused.claim or paused.cut.claim"]) == 0
        assert client.dbsize() == before
    name, core = cells(capsys.readouterr().out.splitlines()[1])[:2]
    assert re.fullmatch(r"paused\.redis:redis://:\*\*\*@127\.0\.0\.1:\d+/0", name)  # the password is nobody's business
    assert core == "2/2"


def test_animals_are_looked_for_in_one_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "--contract", "paused", "resume."]) == 2
    own = sum(animal.contract == "paused" for animal in KNOWN_BAD_STORES)
    assert f"no animal's name begins with resume.. There are {own}, of the contracts paused." in capsys.readouterr().err


def test_an_animal_that_is_not_what_it_is_said_to_be_fails_the_matrix(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    animal = next(one for one in KNOWN_BAD_STORES if one.name == "resume.takes-any-id")
    liar = dataclasses.replace(animal, breaks=("resume.save.load", "resume.ids.refused"))
    monkeypatch.setattr("pytest_wfstate.cli.main.KNOWN_BAD_STORES", [liar])
    quick = [one for one in all_clauses("resume") if one.fault not in ("kill", "power", "errors", "race")]
    monkeypatch.setattr("pytest_wfstate.cli.check.all_clauses", lambda _: quick)
    assert main(["zoo", "--full", "--contract", "resume"]) == 1
    *_, first, second, third = [line for line in capsys.readouterr().out.splitlines() if "no animal" not in line]
    assert (first, second, third) == (
        "",
        "resume.takes-any-id is said to break, and does not, resume.save.load",
        "resume.takes-any-id breaks, and is not said to, resume.save.bad-id",
    )


def test_every_shipped_store_can_be_named() -> None:
    assert len(shipped()) == 5 * len(SUITES)
