from __future__ import annotations

import pytest
from hypothesis import given

from pytest_wfstate import InvalidId, WfstateError
from pytest_wfstate.contracts.ids import check_id
from tests.unit.values import TRICKY_IDS, ids, label

RULE = "An id is text of 1 to 1,024 characters without NUL or lone surrogates."


@pytest.mark.parametrize("valid", [*TRICKY_IDS, "🎉" * 1024], ids=label)
def test_any_text_of_up_to_1024_characters_is_returned_unchanged(valid: str) -> None:
    assert check_id("run id", valid) == valid


@given(ids)
def test_any_text_without_nul_is_a_valid_id(valid: str) -> None:
    assert check_id("run id", valid) == valid


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", f"run id '' is empty. {RULE}"),
        ("x" * 1025, f"run id '{'x' * 24}...' is 1,025 characters long. {RULE}"),
        ("a\0b", f"run id 'a\\x00b' contains a NUL. {RULE}"),
        ("a\ud800", f"run id 'a\\ud800' contains a lone surrogate. {RULE}"),
        (None, f"run id None is of type NoneType. {RULE}"),
        (7, f"run id 7 is of type int. {RULE}"),
        (b"run-1", f"run id b'run-1' is of type bytes. {RULE}"),
    ],
    ids=label,
)
def test_an_error_names_the_id_what_is_wrong_and_the_rule(bad: object, message: str) -> None:
    with pytest.raises(InvalidId) as refused:
        check_id("run id", bad)

    assert str(refused.value) == message


def test_an_error_names_the_kind_of_id() -> None:
    with pytest.raises(InvalidId, match=r"^step id '' is empty"):
        check_id("step id", "")


def test_an_error_is_caught_as_value_error_and_as_wfstate_error() -> None:
    assert issubclass(InvalidId, ValueError)
    assert issubclass(InvalidId, WfstateError)
