"""Random records: every field of every model has unusual values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pytest_wfstate.contracts.base import Contract, Operation
from pytest_wfstate.engine.random_records import chosen_values, operations_with_values, play_values
from pytest_wfstate.engine.search import search
from pytest_wfstate.specs import CONTRACTS
from pytest_wfstate.specs.random_values import any_record, at_edge

RECORDS = [
    pytest.param(contract, operation, id=f"{contract.name}-{operation.name}")
    for contract in CONTRACTS.values()
    for operation in operations_with_values(contract)
]


@pytest.mark.parametrize(("contract", "operation"), RECORDS)
def test_every_field_has_many_values(contract: Contract, operation: Operation) -> None:
    calls = [call for call, _ in chosen_values(operation, contract.reads, 1)]
    records = [arg for call in calls for arg in call.args if isinstance(arg, BaseModel)]
    found_by = {"tool_use_id", "step_id"}
    for name in type(records[0]).model_fields if records else ():
        assert len({repr(getattr(record, name)) for record in records}) >= 2 or name in found_by


class Thing(BaseModel):
    key: str
    small: int = Field(default=3, ge=0, lt=8)
    ratio: float = 0.5


LOAD = Operation("load", lambda ids: st.tuples(st.sampled_from(ids)), required=True)
SAVE = Operation("save", lambda _: st.just((Thing(key="abc"),)), mutates=True)


def test_the_field_that_a_record_is_found_by_stays() -> None:
    write = SAVE(Thing(key="abc"))
    contract = Contract("things", [SAVE, LOAD], lambda _: None, lambda *_: write, lambda _: [LOAD("abc")])
    played: list[Any] = []

    def play(steps: Sequence[Any]) -> None:
        played.extend(steps)

    assert play_values(contract, SAVE, play, "quick", accepts=lambda _: True, shrinks=True) == []
    records = [step.args[0] for step in played if getattr(step, "name", "") == "save"]
    assert {record.key for record in records} == {"abc"}
    assert {record.small for record in records} <= set(range(8))
    assert len({record.ratio for record in records}) > 3


def test_the_documents_name_the_strategies() -> None:
    text = (Path(__file__).parents[3] / "docs" / "suites.md").read_text()
    assert all(name in text for name in ("any_record(", "any_json()", "any_text()", "any_value("))


class Tree(BaseModel):
    """Contains itself in four ways."""

    name: str
    first: Tree | None = None
    second: Tree | None = None
    branches: list[Tree] = Field(default_factory=list)
    by_name: dict[str, Tree] = Field(default_factory=dict)


def test_a_model_that_contains_itself_has_records_of_several_depths() -> None:
    depths: set[int] = set()

    def depth(tree: Tree) -> int:
        inner = [tree.first, tree.second, *tree.branches, *tree.by_name.values()]
        return 1 + max((depth(each) for each in inner if each is not None), default=0)

    search(lambda data: depths.add(depth(data.draw(any_record(Tree)))), 60)
    with at_edge(3):
        search(lambda data: depths.add(depth(data.draw(any_record(Tree)))), 1)
    assert {1, 2} <= depths
