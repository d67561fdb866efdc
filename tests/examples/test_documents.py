"""The documents' examples: each Python block is run, each journal opened, each link and file name looked up."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

import tests.plugin.conftest  # noqa: F401 - loads once what every inner run needs
from pytest_wfstate import FileEffectStore, as_sync

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
DURATION = re.compile(r"in [\d.]+ s")
BUG = re.compile(r"^pytest_wfstate\.(Crash|Race)Bug: ")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
OPTIONS = re.compile(r"^# pytest (.*)$", flags=re.MULTILINE)
IS_TEST = re.compile(r"^ *(def test_|class Test)", flags=re.MULTILINE)
SLOW_FAULTS = ("kill", "race", "errors", "server")  # the same stores meet these in other tests
QUICK = " and ".join(f"not wfstate(fault='{fault}')" for fault in SLOW_FAULTS)
INI = "[pytest]\nwfstate_profile = quick\nasyncio_default_fixture_loop_scope = function"


class Block(NamedTuple):
    """A fenced block, where it stands, and the output that the document shows right after it."""

    place: str
    language: str
    code: str
    output: str | None = None


def blocks_of(document: Path) -> list[Block]:
    text = document.read_text()
    fenced = [
        Block(f"{document.name}:{text.count(chr(10), 0, match.start()) + 1}", match[1], match[2])
        for match in FENCED.finditer(text)
    ]
    followed = itertools.zip_longest(fenced, fenced[1:])
    return [
        block._replace(output=after.code) if after is not None and after.language == "text" else block
        for block, after in followed
    ]


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
TESTS = [block for block in PYTHON if IS_TEST.search(block.code)]
JOURNALS = [block for block in BLOCKS if block.language == "journal"]


def examples(blocks: list[Block]) -> pytest.MarkDecorator:
    assert blocks
    return pytest.mark.parametrize("block", blocks, ids=[block.place for block in blocks])


def run(pytester: pytest.Pytester, block: Block, *options: str) -> pytest.RunResult:
    name = re.match(r"# (test_\w+\.py)\n", block.code)
    pytester.makeini(INI)
    pytester.path.joinpath(name[1] if name else "test_example.py").write_text(block.code)
    return pytester.runpytest_inprocess(*options)


@examples([block for block in TESTS if block.output is None])
def test_an_example_passes(pytester: pytest.Pytester, block: Block) -> None:
    outcomes = run(pytester, block, "-m", QUICK).parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped", "xfailed", "deselected"}


@examples([block for block in TESTS if block.output and "Suite):" not in block.code])
def test_an_example_fails_with_the_output_shown(pytester: pytest.Pytester, block: Block) -> None:
    result = run(pytester, block)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    error = [line.removeprefix("E").removeprefix("       ") for line in result.outlines if line.startswith("E  ")]
    expected = [DURATION.sub("in 0 s", line) for line in str(block.output).splitlines()]
    assert [DURATION.sub("in 0 s", BUG.sub("", line)).rstrip() for line in error] == expected


def test_the_fix_in_the_readme_works(pytester: pytest.Pytester) -> None:
    (fix,) = re.findall(r"^With `(os\.fsync.*)` after the rename, the test", DOCUMENTS[0].read_text(), re.MULTILINE)
    fixed, renames = re.subn(r"^( *)(os\.replace.*)$", rf"\1\2; {fix}", TESTS[0].code, flags=re.MULTILINE)
    assert renames == 1
    run(pytester, TESTS[0]._replace(code=fixed)).assert_outcomes(passed=1)


@examples([block for block in TESTS if block.output and "Suite):" in block.code])
def test_a_suite_fails_with_the_output_shown(pytester: pytest.Pytester, block: Block) -> None:
    """The document shows part of the output, in order. A comment may say which clauses to run."""
    expected = [re.sub(r"([][])", r"[\1]", DURATION.sub("in * s", line)) for line in str(block.output).splitlines()]
    options = OPTIONS.search(block.code)
    result = run(pytester, block, *(shlex.split(options[1]) if options else []))
    result.stdout.fnmatch_lines([line for line in expected if line])


@examples([block for block in PYTHON if block not in TESTS])
def test_a_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: Block) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pytest_wfstate.zoo.base.KNOWN_BAD_STORES", [])  # an example adds to them
    exec(compile(block.code, block.place, "exec"), {"__name__": "__main__"})


@examples(JOURNALS)
def test_a_journal_can_be_opened(tmp_path: Path, block: Block) -> None:
    (tmp_path / "task-1.json").write_text(block.code)
    checkpoint = as_sync(FileEffectStore(tmp_path)).load_checkpoint("task-1")
    assert checkpoint.completed_tool_ids == {"use-1", "use-2"}


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda document: document.name)
def test_links_lead_somewhere(document: Path) -> None:
    assert [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_named_in_the_guides_exist(name: str) -> None:
    files = FILE.findall((ROOT / name).read_text())
    assert files
    assert [file for file in files if not any((root / file).exists() for root in (ROOT, ROOT / "pytest_wfstate"))] == []
