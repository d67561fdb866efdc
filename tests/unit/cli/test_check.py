"""`wfstate check`: what it prints, what it exits with, and that your own pytest configuration is ignored."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

import pytest_wfstate
from pytest_wfstate import Server
from pytest_wfstate.cli.check import targets
from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.cli.main import main
from pytest_wfstate.suites import SUITES
from tests.unit.cli.conftest import cells

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


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the cells of the printed scorecard, without its head."""
    head, *lines = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert cells(head) == HEAD
    return [cells(line) for line in lines]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with its own stores."""
    (tmp_path / "mine.py").write_text(STORES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def test_a_scorecard_is_printed_and_an_empty_folder_stays_empty(tmp_path: Path) -> None:
    result = run(tmp_path, *FEW)
    head, row = result.stdout.splitlines()
    assert cells(head) == HEAD
    assert cells(row) == ["resume.file", "1/1", "-", "-", "0", "0", "0", "0"]
    assert os.listdir(tmp_path) == []


HOSTILE = {
    "pytest.ini": "[pytest]\naddopts = --no-such-option\nwfstate_backends = none\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--no-such-option'\n",
    "tox.ini": "[pytest]\naddopts = --no-such-option\n",
    "conftest.py": "raise RuntimeError('loaded')\n",
    "test_mine.py": "def test_it(): assert False\n",
}


def test_your_own_pytest_configuration_is_ignored_even_around_the_installed_package(tmp_path: Path) -> None:
    """A project's virtual environment is often inside the project."""
    for name, content in HOSTILE.items():
        (tmp_path / name).write_text(content)
    packages = tmp_path / ".venv" / "site-packages"
    shutil.copytree(Path(pytest_wfstate.__file__).parent, packages / "pytest_wfstate")
    variables = {"PYTEST_ADDOPTS": "--no-such-option", "PYTEST_PLUGINS": "no_such_plugin"}
    result = run(tmp_path, *FEW, **variables, PYTHONPATH=str(packages))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("contract", [None, *SUITES])
def test_without_a_target_the_file_stores_are_checked(tmp_path: Path, contract: str | None) -> None:
    suites = {name: source.build() for name, source in targets([], contract, {}).items()}
    assert list(suites) == [f"{name}.file" for name in SUITES if contract in (None, name)]
    for name, suite in suites.items():
        assert issubclass(suite, SUITES[name.partition(".")[0]])
        assert type(suite().open(tmp_path / name)).__name__ == f"File{suite.__mro__[1].__name__[:-5]}Store"


SHIPPED = {
    "several stores": (
        "resume.file runs.memory -k 'load.missing or run.missing'",
        ["resume.file  1/1  -  -  0  0  0  0", "runs.memory  1/1  -  -  0  0  0  0"],
    ),
    "generic stores": (
        "history.file queue.memory -k 'load.missing'",
        ["history.file  1/1  -  -  0  0  0  0", "queue.memory  1/1  -  -  0  0  0  0"],
    ),
    "a contract: its file store": ("--contract paused -k paused.save.load", ["paused.file  1/1  -  -  0  0  0  0"]),
    "clauses above the level are counted, and not those that are not applicable": (
        "paused.memory --level safe -k 'paused.kill.save or paused.power or paused.save.load'",
        ["paused.memory  1/1  -  -  0  0  0  8"],
    ),
    "SQLite": ("paused.sqlite -k paused.save.load", ["paused.sqlite  1/1  -  -  0  0  0  0"]),
    "a server": ("resume.redis -k 'resume.save.load or resume.cut.save'", ["resume.redis  1/1  1/1  -  0  0  0  0"]),
}


@pytest.mark.parametrize(("arguments", "expected"), SHIPPED.values(), ids=SHIPPED)
def test_shipped_stores_are_checked(capsys: pytest.CaptureFixture[str], arguments: str, expected: list[str]) -> None:
    assert main(["check", *shlex.split(arguments)]) == 0
    assert rows(capsys) == [cells(line) for line in expected]


def test_a_password_in_the_query_of_a_url_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "paused.file:postgresql://host/base?password=s3cret"]) != 0
    assert "password=***" in capsys.readouterr().err


def test_a_store_on_a_given_server_is_checked_and_leaves_no_key(
    capsys: pytest.CaptureFixture[str], redis_server: Server
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        before = client.dbsize()
        assert main(["check", f"paused.redis:{redis_server.url}", "-k", "paused.claim or paused.cut.claim"]) == 0
        assert client.dbsize() == before
    ((name, core, *_),) = rows(capsys)
    assert re.fullmatch(r"paused\.redis:redis://:\*\*\*@127\.0\.0\.1:\d+/0", name)  # the password is hidden
    assert core == "2/2"


@pytest.mark.usefixtures("project")
def test_a_violation_is_reported_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "paused.list.sorted or paused.save.load"
    assert main(["check", "mine:Unsorted", "--contract", "paused", "-k", chosen]) == 1
    _, row, _, title, promise, *case = capsys.readouterr().out.splitlines()
    assert cells(row) == ["mine:Unsorted", "1/2", "-", "-", "1", "0", "0", "0"]
    assert title == "--- mine:Unsorted: paused.list.sorted fails ---"
    assert promise.startswith("paused.list.sorted: ")
    assert case[1].startswith("store.save(samples.paused(")
    assert any(line.startswith("    expected: [") for line in case)


@pytest.mark.usefixtures("project")
def test_a_suite_keeps_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mine:TestMine", "-k", "paused.list.sorted or paused.save.load or whole"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "mine:TestMine   1/2     -         -       0        0             0          0",
        "",
        "mine:TestMine: paused.list.sorted is known to fail: see #12",
        "mine:TestMine: not compared: prompt",
    ]


@pytest.mark.usefixtures("project")
def test_clauses_that_are_not_offered_are_counted_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "paused.remove.paused or paused.save.load"
    assert main(["check", "mine:NoRemove", "--contract", "paused", "-k", chosen]) == 0
    _, row, _, note = capsys.readouterr().out.splitlines()
    assert cells(row) == ["mine:NoRemove", "1/2", "-", "-", "0", "1", "0", "0"]
    assert note == "mine:NoRemove: 1 skipped: not offered: NoRemove has no method remove"


def test_an_unmeasured_clause_is_not_a_success(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.py").write_text("from pytest_wfstate import MemoryPausedStore\nstores = {}\n" + IN_MEMORY)
    assert main(["check", "mine:factory", "--contract", "paused", "-k", "paused.kill.save"]) == 1
    out = capsys.readouterr().out
    assert cells(out.splitlines()[1]) == ["mine:factory", "-", "0/1", "-", "0", "0", "1", "0"]
    assert "--- mine:factory: paused.kill.save was not measured ---" in out
    assert main(["check", "mine:factory", "--contract", "paused", "--medium", "memory", "-k", "paused.save"]) == 0


UNSYNCED = """
import os

from pytest_wfstate import ResumePoint

class Store:
    def __init__(self, home):
        self.home = home

    def save(self, point):
        (self.home / "new").write_text(point.to_json())
        os.replace(self.home / "new", self.home / point.run_id)

    def load(self, run_id):
        path = self.home / run_id
        return ResumePoint.from_json(path.read_text(), path) if path.exists() else None

    def delete(self, run_id):
        (self.home / run_id).unlink(missing_ok=True)
"""


def test_the_command_in_a_report_replays_the_violation(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.py").write_text(UNSYNCED)
    command = ("check", "mine:Store", "--contract", "resume", "--profile", "quick")
    assert main([*command, "-k", "resume.power"]) == 1
    printed = re.findall(r"Replay it:  (wfstate .*)", capsys.readouterr().out)
    assert len(printed) > 1
    assert printed[0].startswith(f"wfstate {shlex.join(command)} -k resume.power.save --replay=posix-")
    assert main(shlex.split(printed[0])[1:]) == 1
    again = capsys.readouterr().out
    assert again.count("This is one disk, replayed.") == 1
    assert re.findall(r"Replay it:  (wfstate .*)", again) == printed[:1]


def test_a_replay_of_nothing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    option = "--replay=posix-1-0-83dea0de"
    for arguments, error in (
        ([*FEW, option], f"nothing was replayed. No clause that ran reached the exploration of {option}."),
        ([*FEW, "--replay=no"], "--replay: 'no' is not a replay id."),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"wfstate check: {error}")


@pytest.mark.usefixtures("project")
def test_the_id_of_a_clause_selects_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum("paused.ids.refused" in clause.id for clause in all_clauses("paused")) == 2
    assert main(["check", "paused.memory", "-k", "paused.ids.refused"]) == 0
    assert [row[1:4] for row in rows(capsys)] == [["-", "1/1", "-"]]


IN_MEMORY = "def factory(home): return stores.setdefault(home, MemoryPausedStore()).handle()"


@pytest.mark.usefixtures("project")
def test_a_factory_that_raises_is_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mine:broken", "--contract", "paused", "-k", "paused.save.load"]) == 1
    assert "OSError: no disk today" in capsys.readouterr().out


@pytest.mark.usefixtures("project")
def test_a_store_that_ends_its_process_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
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
        (["queue.sqlite"], ["no store 'queue.sqlite'", "of history, queue, lock only memory, file"]),
        (["mine:Unsorted"], ["the contract of mine:Unsorted is not known", "Add --contract", "paused"]),
        (["mine:Missing", "--contract", "paused"], ["mine has no 'Missing'", "It has:", "Unsorted"]),
        (["mine:number", "--contract", "paused"], ["mine:number is 12", "not callable", "f(home)"]),
        (["nowhere:x", "--contract", "paused"], ["nowhere cannot be imported", "Looked in", "Run the command in"]),
        (["paused.sqlite:sqlite:///x.db"], ["'sqlite:///x.db'", "paused.postgres:postgresql:", "new folders"]),
        (["paused.file:postgresql://x"], ["paused.file cannot be checked at", "omit the URL"]),
        (["paused.file", "--contract", "runs"], ["--contract is runs", "paused contract", "Omit one of them"]),
        (["resume.file", "-k", "nothing"], ["-k 'nothing' selects no clause", "resume.file", "wfstate clauses"]),
    ],
)
def test_an_unusable_argument_is_an_error_in_three_parts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    assert main(["check", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("wfstate check: ")
    assert [part for part in parts if part not in printed.err] == []


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest_wfstate", *FEW]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=subprocess.STDOUT)
    os.close(theirs)
    output = b""
    while True:
        try:
            output += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait() == 0
    assert re.search(rb"resume\.file  \d/\d", output)
    assert b"store" in output.rpartition(b"\x1b[J")[2]
