"""What the repository may contain, and what its README promises."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# In two pieces, so that this file does not contain what it searches for.
NOT_FOR_FILES = ["/" + "root/", "/" + "home/", "/" + "opt/", "/" + "Users/", "pypi" + ".org", "files." + "pythonhosted"]


def tracked() -> list[Path]:
    """List the repository's files: by git if there is one, else all that .gitignore does not name."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    ignored = (ROOT / ".gitignore").read_text().split()
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not any(parent.match(rule.rstrip("/")) for parent in path.parents for rule in ignored)
    ]


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


@pytest.mark.parametrize("unwanted", NOT_FOR_FILES)
def test_no_file_names_a_machine_or_a_registry(unwanted: str) -> None:
    assert [path.name for path in tracked() if unwanted.encode() in path.read_bytes()] == []


def test_the_readme_has_two_commands_to_try_it() -> None:
    section = (ROOT / "README.md").read_text().partition("## Try it\n")[2]
    assert section.partition("```sh\n")[2].partition("```")[0].splitlines() == [
        "python3 -m venv .venv && .venv/bin/python -m pip install . && .venv/bin/python -m pytest_wfstate check",
        ".venv/bin/python -m pip install -e '.[test]' && .venv/bin/python -m pytest -n auto --dist worksteal",
    ]


def test_the_core_dependencies_are_five_without_upper_limits() -> None:
    bounds = [re.fullmatch(r"([a-z]+)>=[\d.]+", dependency) for dependency in project()["dependencies"]]
    assert [bound and bound[1] for bound in bounds] == ["pytest", "pydantic", "hypothesis", "freezegun", "pyfakefs"]


def test_the_readme_names_the_same_dependencies_and_python() -> None:
    readme = (ROOT / "README.md").read_text().replace("\n", " ")
    assert f"It needs Python {project()['requires-python'].removeprefix('>=')} or newer" in readme
    assert "brings pytest, pydantic, hypothesis, freezegun and pyfakefs" in readme


def test_the_command_is_called_wfstate() -> None:
    assert project()["scripts"] == {"wfstate": "pytest_wfstate.cli.main:main"}


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_a_document_is_linked_from_the_readme(name: str) -> None:
    assert f"(docs/{name})" in (ROOT / "README.md").read_text()
