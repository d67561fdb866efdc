"""`python -m pytest_wfstate`: a demonstration that no configuration around it can disturb."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_wfstate


def run(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_wfstate"]
    return subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def test_it_passes_in_an_empty_folder_and_leaves_it_empty(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 0, result.stdout
    assert "12 passed" in result.stdout
    assert "demo.py::test_a_paused_run_is_claimed_once[file] PASSED" in result.stdout
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


def test_it_passes_whatever_the_folder_is_configured_to(hostile: Path) -> None:
    result = run(hostile)
    assert result.returncode == 0, result.stdout
    assert "12 passed" in result.stdout


def test_it_passes_where_it_is_installed_below_that_folder(hostile: Path) -> None:
    """A project's virtual environment is often inside the project."""
    packages = hostile / ".venv" / "site-packages"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pytest_wfstate.__file__).parent, packages / "pytest_wfstate", ignore=ignored)
    result = run(hostile, PYTHONPATH=str(packages))
    assert result.returncode == 0, result.stdout
    assert "12 passed" in result.stdout


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-k nothing_of_that_name", pytest.ExitCode.NO_TESTS_COLLECTED),
        ("--no-such-option", pytest.ExitCode.USAGE_ERROR),
    ],
)
def test_its_exit_code_is_that_of_the_run(tmp_path: Path, options: str, code: int) -> None:
    assert run(tmp_path, PYTEST_ADDOPTS=options).returncode == code
