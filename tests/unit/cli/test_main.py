"""The `wfstate` command: arguments that argparse rejects."""

from __future__ import annotations

import pytest

from pytest_wfstate.cli.main import main


@pytest.mark.parametrize(
    "arguments", [["check", "--level", "high"], ["check", "--medium", "tape"], ["check", "--profile", "slow"], []]
)
def test_an_unknown_choice_is_a_usage_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: wfstate" in capsys.readouterr().err
