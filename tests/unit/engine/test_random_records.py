"""Random records: every field of every model has unusual values, whatever it is made of."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from pytest_wfstate.contracts.base import Contract, Operation
from pytest_wfstate.engine.random_records import chosen_values, operations_with_values, play_values
from pytest_wfstate.errors import InvalidSetting, Violation
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.specs import CONTRACTS
from pytest_wfstate.suites import any_json, any_record, any_value

RECORDS = [
    pytest.param(contract, operation, id=f"{contract.name}-{operation.name}")
    for contract in CONTRACTS.values()
    for operation in operations_with_values(contract)
]


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return what is in a record at each place, items of a list together."""
    if isinstance(value, BaseModel):
        return {place: leaf for name, part in value for place, leaf in leaves(part, f"{path}.{name}").items()} or {
            path: value
        }
    if isinstance(value, list) and value:
        return leaves(value[0], f"{path}[]")
    return {path: value}


@pytest.mark.parametrize(("contract", "operation"), RECORDS)
def test_every_field_is_different_from_the_usual_record_at_least_once(contract: Contract, operation: Operation) -> None:
    pairs = chosen_values(operation, contract.reads, 0)
    keys = ids_of(pairs)
    seen: dict[str, set[str]] = {}
    for call, _ in pairs:
        for number, arg in enumerate(call.args):
            for place, leaf in leaves(arg, str(number)).items():
                seen.setdefault(place, set()).add(repr(leaf))
    assert {place for place, values in seen.items() if len(values) < 2} <= keys


def ids_of(pairs: Sequence[Any]) -> set[str]:
    """Return the places of what a record is found by, which stays as it is."""
    fixed = {"use-1", "fetch", "wf"}
    return {
        place
        for call, _ in pairs
        for number, arg in enumerate(call.args)
        for place, leaf in leaves(arg, str(number)).items()
        if leaf in fixed
    }


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=lambda contract: contract.name)
def test_the_same_records_are_saved_in_every_store(contract: Contract) -> None:
    operation = operations_with_values(contract)[0]
    first, second = (chosen_values(operation, contract.reads, 5) for _ in range(2))
    assert plain([list(call.args) for call, _ in first]) == plain([list(call.args) for call, _ in second])


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Part(BaseModel):
    size: float
    parts: list[Part] = []
    whole: Part | None = None


class Everything(BaseModel):
    model_config = ConfigDict(extra="allow")
    key: Annotated[str, StringConstraints(min_length=1, max_length=8, pattern="^[a-z]+$")]
    short: Annotated[str, Field(max_length=3)] = "abc"
    small: int = Field(default=3, ge=0, lt=8)
    even: Annotated[int, Field(multiple_of=4, ge=1, le=30)] = 4
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5
    color: Color = Color.RED
    kind: Literal["a", "b"] = "a"
    tags: set[str] = set()
    by_name: Mapping[str, Sequence[int]] = {}
    pair: tuple[int, str] = (1, "a")
    at: datetime.datetime | None = None
    part: Part | None = None
    other: Any = Field(default=None, alias="else")

    @model_validator(mode="after")
    def _agrees(self) -> Everything:
        if self.kind == "b" and self.small == 0:
            raise ValueError("b is never small")
        return self


def can_be(strategy: st.SearchStrategy[Any], condition: Any) -> bool:
    """Whether a strategy yields what meets a condition."""
    find(
        strategy,
        condition,
        settings=settings(max_examples=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck)),
    )
    return True


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(lambda record: record.key != "a" and record.key.isalpha(), id="pattern"),
        pytest.param(lambda record: record.short == "", id="empty-text"),
        pytest.param(lambda record: record.small == 7, id="limit"),
        pytest.param(lambda record: record.even == 28, id="multiple"),
        pytest.param(lambda record: len(repr(record.ratio)) > 17, id="all-digits"),
        pytest.param(lambda record: record.color is Color.BLUE and record.kind == "b", id="enum-and-literal"),
        pytest.param(lambda record: record.tags and record.by_name, id="collections"),
        pytest.param(lambda record: record.at and record.at.microsecond == 999_999, id="microseconds"),
        pytest.param(lambda record: record.part and record.part.parts, id="list-of-itself"),
        pytest.param(lambda record: record.part and record.part.whole and record.part.whole.size, id="itself"),
        pytest.param(lambda record: record.other, id="alias"),
        pytest.param(lambda record: record.model_extra, id="extra"),
    ],
)
def test_a_record_of_a_users_model_has_every_value_that_it_takes(condition: Any) -> None:
    assert can_be(any_record(Everything), condition)


def test_a_field_can_be_given_a_value_or_a_strategy() -> None:
    strategy = any_record(Everything, key="abc", small=st.sampled_from([5, 6]))
    assert can_be(strategy, lambda record: record.key == "abc" and record.small == 6)


@pytest.mark.parametrize("value", [2**64, 10**30, 0.1 + 0.2, "e\u0301", "", [], {}])
def test_json_has_the_values_that_stores_lose(value: Any) -> None:
    assert can_be(any_json(), lambda found: type(found) is type(value) and found == value)


def test_json_is_nested_deeply() -> None:
    assert can_be(any_json(), lambda found: repr(found).count("{'in'") > 40)


def test_a_type_that_nothing_is_known_of_says_what_to_do() -> None:
    class Odd:
        def __init__(self, what: Any) -> None:
            self.what = what

    with pytest.raises(InvalidSetting, match="Odd is known"):
        any_value(Odd).example()


LOAD = Operation("load", lambda ids: st.tuples(st.sampled_from(ids)), required=True)


def test_the_field_that_a_record_is_found_by_stays() -> None:
    played: list[Any] = []

    def play(steps: Sequence[Any]) -> None:
        played.extend(steps)

    usual = Operation("save", lambda _: st.just((Everything(key="abc"),)), mutates=True)
    kept = Contract("things", [usual], lambda _: None, lambda *_: usual(Everything(key="abc")), lambda _: [LOAD("abc")])
    assert play_values(kept, usual, play, "quick", shrinks=True) == []
    records = [step.args[0] for step in played if getattr(step, "name", "") == "save"]
    assert {record.key for record in records} == {"abc"}
    assert len({record.small for record in records}) > 3


def test_each_field_that_is_lost_is_reported_shrunk_and_by_itself() -> None:
    def play(steps: Sequence[Any]) -> None:
        for step in steps:
            if getattr(step, "name", "") == "save":
                record = step.args[0]
                lost = [name for name in ("ratio", "short") if getattr(record, name) != getattr(usual_record, name)]
                if lost:
                    raise Violation(f"{lost} {record.ratio!r} {record.short!r}")

    usual_record = Everything(key="abc")
    usual = Operation("save", lambda _: st.just((Everything(key="abc"),)), mutates=True)
    contract = Contract("things", [usual], lambda _: None, lambda *_: usual(usual_record), lambda _: [LOAD("abc")])
    failures = play_values(contract, usual, play, "quick", shrinks=True)
    assert [str(failure) for failure in failures] == ["['short'] 0.5 ''", failures[1].args[0]]
    assert str(failures[1]).startswith("['ratio'] 0.")
    assert len(play_values(contract, usual, play, "quick", shrinks=False)) == 1


def test_documents_name_the_strategies() -> None:
    text = (Path(__file__).parents[3] / "docs" / "suites.md").read_text()
    assert all(name in text for name in ("any_record(", "any_json()", "any_text()", "any_value("))
