"""The examples of the documents: each Python block is run, each journal is opened, each link is followed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import tests.plugin.conftest  # noqa: F401 - loads once what every inner run needs
from pytest_wfstate import FileEffectStore, as_sync

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
TIME = re.compile(r"in [\d.]+ s")
BUG = re.compile(r"^pytest_wfstate\.(Crash|Race)Bug: ")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    """A fenced block, and where it stands."""

    place: str
    code: str


def blocks(language: str) -> list[Block]:
    return [
        Block(f"{document.name}:{text.count(chr(10), 0, match.start()) + 1}", match[2])
        for document in DOCUMENTS
        for text in [document.read_text()]
        for match in BLOCK.finditer(text)
        if match[1] == language
    ]


def by_place(block: Block) -> str:
    return block.place


def failing() -> list[tuple[Block, str]]:
    """The tests that are followed by what they find."""
    text = "".join(document.read_text() for document in DOCUMENTS)
    found = [(match[1], match[2]) for match in BLOCK.finditer(text)]
    shown = {code: output for (_, code), (language, output) in itertools.pairwise(found) if language == "text"}
    return [(block, shown[block.code]) for block in blocks("python") if block.code in shown]


SUITES = [(block, output) for block, output in failing() if "Suite):" in block.code]
FAILING = [block for block, _ in failing()]
IS_TEST = re.compile(r"^ *(def test_|class Test)", flags=re.MULTILINE)
TESTS = [block for block in blocks("python") if IS_TEST.search(block.code) and block not in FAILING]
SCRIPTS = [block for block in blocks("python") if not IS_TEST.search(block.code)]


QUICK = " and ".join(f"not wfstate(fault='{fault}')" for fault in ("kill", "race", "errors", "server"))
"""What is asked of suites: what takes longer is asked of the same stores elsewhere."""
INI = "[pytest]\nwfstate_profile = quick\nasyncio_default_fixture_loop_scope = function"


@pytest.mark.parametrize("block", TESTS, ids=by_place)
def test_a_test_in_the_documents_passes(pytester: pytest.Pytester, block: Block) -> None:
    pytester.makeini(INI)
    pytester.path.joinpath("test_example.py").write_text(block.code)
    outcomes = pytester.runpytest_inprocess("-m", QUICK).parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped", "xfailed", "deselected"}


@pytest.mark.parametrize(("block", "output"), SUITES, ids=[block.place for block, _ in SUITES])
def test_a_suite_in_the_documents_says_what_it_is_said_to(pytester: pytest.Pytester, block: Block, output: str) -> None:
    """The document shows some of it, in order."""
    name = block.code.partition("\n")[0].removeprefix("# ")
    pytester.makeini(INI)
    pytester.path.joinpath(name).write_text(block.code)
    result = pytester.runpytest_inprocess()
    wanted = [re.sub(r"([][])", r"[\1]", TIME.sub("in * s", line)) for line in output.splitlines() if line]
    result.stdout.fnmatch_lines(wanted)


FAILING_TESTS = [pair for pair in failing() if pair not in SUITES]


@pytest.mark.parametrize(("block", "output"), FAILING_TESTS, ids=[block.place for block, _ in FAILING_TESTS])
def test_a_test_in_the_documents_finds_what_it_is_said_to(pytester: pytest.Pytester, block: Block, output: str) -> None:
    name = block.code.partition("\n")[0].removeprefix("# ")
    pytester.makeini(INI)
    pytester.path.joinpath(name).write_text(block.code)
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = [line.removeprefix("E").removeprefix("       ") for line in result.outlines if line.startswith("E  ")]
    wanted = [TIME.sub("in 0 s", line) for line in output.splitlines()]
    assert [TIME.sub("in 0 s", BUG.sub("", line)).rstrip() for line in said] == wanted


@pytest.mark.parametrize("block", SCRIPTS, ids=by_place)
def test_a_script_in_the_documents_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: Block) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block.code, block.place, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", blocks("journal"), ids=by_place)
def test_a_journal_in_the_documents_can_be_opened(tmp_path: Path, block: Block) -> None:
    (tmp_path / "task-1.json").write_text(block.code)
    checkpoint = as_sync(FileEffectStore(tmp_path)).load_checkpoint("task-1")
    assert checkpoint.completed_tool_ids == {"use-1", "use-2"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_a_link_in_the_documents_leads_somewhere(document: Path) -> None:
    missing = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("language", ["python", "journal"])
def test_there_are_examples(language: str) -> None:
    assert blocks(language)
