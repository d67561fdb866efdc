"""Types of the framework: kept as they were written, typed where they have the usual shape."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_wfstate import (
    ApprovalField,
    CorruptRecord,
    PausedWorkflow,
    Stage,
    Workflow,
    WorkflowDefinition,
    WorkflowExecutionState,
    WorkflowStep,
    samples,
)
from pytest_wfstate.contracts.framework import FrameworkType
from pytest_wfstate.contracts.moments import NanosecondTime
from tests.unit.values import json_values

KINDS: list[type[FrameworkType]] = [Workflow, Stage, ApprovalField, WorkflowDefinition, WorkflowStep]
ALL_KINDS = FrameworkType.__subclasses__()
RENAMED = [
    (kind, name, field.serialization_alias)
    for kind in ALL_KINDS
    for name, field in kind.model_fields.items()
    if field.serialization_alias
]
OBJECTS = {
    "nothing": "{}",
    "field": '{"name":"n","label":null,"field_type":{"select":["a"]},"required":"yes","hint":1,"options":{}}',
    "order": '{"name":"N","id":"i"}',
    "null": '{"id":"i","timeout_ms":null,"goal":null,"input_schema":null}',
    "other types": '{"id":1,"name":[],"start":{},"stages":"none","steps":{"a":1},"step":false,"edges":[1,{"from":2}]}',
    "nested": '{"stages":[{"step":{"type":"unheard of"},"id":"a"}],"steps":[{"kind":"api_call"},null]}',
    "unknown": '{"x":1,"id":"i","model_config":0,"":[]}',
}


def written(record: Any) -> str:
    return json.dumps(json.loads(record.to_json()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", OBJECTS.values(), ids=OBJECTS)
def test_an_object_of_any_shape_is_written_as_it_was_read(kind: type[FrameworkType], text: str) -> None:
    record = kind.from_json(text, "upstream")

    assert record.to_json() == text
    assert kind.checked(record).to_json() == text
    assert kind.from_json(record.to_json(), "store") == record == kind.checked(record)


@pytest.mark.parametrize("kind", KINDS)
@given(st.dictionaries(st.sampled_from(["id", "name", "steps", "stages", "kind", "step", "x"]), json_values))
def test_any_object_is_written_as_it_was_read(kind: type[FrameworkType], value: dict[str, Any]) -> None:
    record = kind.from_json(json.dumps(value), "upstream")

    assert written(kind.checked(record)) == json.dumps(value)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda it: it.model_copy(), lambda it: pickle.loads(pickle.dumps(it))],
    ids=["copy", "deepcopy", "model_copy", "pickle"],
)
def test_a_copy_is_written_as_the_original_was_read(copied: Callable[[Any], Any]) -> None:
    assert copied(Workflow.from_json(OBJECTS["nested"], "upstream")).to_json() == OBJECTS["nested"]


@pytest.mark.parametrize(("kind", "name", "key"), RENAMED)
class TestANameThatOnlyPythonUses:
    """`Edge.from_` is `from` in JSON, so a field `from_` in JSON is one that nobody knows."""

    @pytest.mark.parametrize("order", ["{key}{name}", "{name}{key}", "{name}"])
    def test_is_kept_in_json_beside_the_field(self, kind: type[FrameworkType], name: str, key: str, order: str) -> None:
        parts = order.replace("{key}", f'"{key}":"k",').replace("{name}", f'"{name}":["n"],')
        text = "{" + parts + '"to":"c"}'
        record = kind.from_json(text, "upstream")

        assert (record.to_json(), getattr(record, name)) == (text, "k" if "key" in order else None)
        for copied in (kind.checked(record), record.model_copy(deep=True), pickle.loads(pickle.dumps(record))):
            assert (kind.checked(copied).to_json(), copied) == (text, record)

    def test_is_kept_in_a_dict_beside_the_field(self, kind: type[FrameworkType], name: str, key: str) -> None:
        record = kind.model_validate({key: "k", name: "n", "to": "c"})

        assert getattr(record, name) == "k"
        assert json.loads(kind.checked(record).to_json()).items() >= {key: "k", name: "n"}.items()

    def test_still_changes_the_field(self, kind: type[FrameworkType], name: str, key: str) -> None:
        record = kind.from_json(f'{{"{key}":"k","{name}":"n","to":"c"}}', "upstream")

        setattr(record, name, "changed")

        assert kind.checked(record).to_json() == f'{{"{key}":"changed","{name}":"n","to":"c"}}'


def test_a_record_with_such_a_name_goes_through_a_store_untouched() -> None:
    edge = '{"from":"a","from_":"b","to":"c"}'
    workflow = Workflow.from_json(f'{{"edges":[{edge}]}}', "upstream")
    record = PausedWorkflow.checked(samples.paused(workflow=workflow))

    assert edge in record.to_json()
    assert edge in PausedWorkflow.checked(PausedWorkflow.from_json(record.to_json(), "store")).to_json()


@pytest.mark.parametrize("checked", [lambda it: it, Stage.checked], ids=["as it is", "checked"])
@pytest.mark.parametrize("name", ["x", "name", "timeout_ms", "step"])
def test_a_field_that_is_deleted_is_not_written(name: str, checked: Callable[[Stage], Stage]) -> None:
    fields = {"id": "i", "x": None, "name": "n", "step": {"type": "a"}, "timeout_ms": None}
    stage = Stage.from_json(json.dumps(fields), "upstream")

    delattr(stage, name)

    del fields[name]
    assert written(checked(stage)) == json.dumps(fields)
    assert getattr(stage, name, None) is None


def test_an_unknown_field_that_is_taken_out_is_not_written() -> None:
    stage = Stage.from_json('{"x":1,"id":"i"}', "upstream")

    assert stage.model_extra is not None
    stage.model_extra.pop("x")

    assert stage.to_json() == Stage.checked(stage).to_json() == '{"id":"i"}'


def test_what_has_the_usual_shape_is_typed() -> None:
    workflow = Workflow.from_json('{"stages":[{"id":"a","step":{"type":"approval"}},{"id":"b"}]}', "upstream")

    assert [type(stage) for stage in workflow.stages] == [Stage, Stage]
    assert workflow.stages[0].step.type == "approval"
    assert workflow.stages[1].step is None
    assert workflow.max_iterations == 100


def test_a_field_that_is_changed_is_written_after_those_that_were_read() -> None:
    workflow = Workflow.from_json('{"name":"N","id":"i"}', "upstream")

    workflow.id = "j"
    workflow.max_iterations = 7

    assert workflow.to_json() == '{"name":"N","id":"j","max_iterations":7}'


def test_what_is_made_in_python_is_written_in_full() -> None:
    step = WorkflowStep.checkpoint("c", "Checkpoint", "ok")

    assert list(json.loads(step.to_json())) == ["id", "label", "kind", "depends_on", "execution", "requires"]


@pytest.mark.parametrize("kind", KINDS)
def test_python_must_name_what_every_framework_writes(kind: type[FrameworkType]) -> None:
    with pytest.raises(ValidationError, match=r"(id|name)\n  Field required"):
        kind()


@pytest.mark.parametrize("bad", [math.nan, {1}, b"x", "\ud800", object()])
def test_what_is_no_json_is_refused(bad: Any) -> None:
    with pytest.raises(ValidationError):
        Workflow(id=bad, name="N", start="s")
    with pytest.raises(ValidationError):
        Workflow(id="i", name="N", start="s", stages=[bad])


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(CorruptRecord):
        Workflow.from_json(text, "upstream")


def test_our_own_records_stay_strict() -> None:
    fields = {**json.loads(samples.paused().to_json()), "iterations": "1"}
    with pytest.raises(CorruptRecord, match="iterations"):
        PausedWorkflow.from_json(json.dumps(fields), "here")
    fields = {**json.loads(samples.run().to_json()), "unheard_of": 1}
    with pytest.raises(CorruptRecord, match="unheard_of"):
        WorkflowExecutionState.from_json(json.dumps(fields), "here")


class TestNanoseconds:
    TEXT = "2026-01-02T03:04:05.123456789Z"

    def moment(self, text: str = TEXT) -> Any:
        fields = {**json.loads(samples.run().to_json()), "created_at": text}
        return WorkflowExecutionState.from_json(json.dumps(fields), "here").created_at

    def test_two_times_that_differ_in_nanoseconds_are_not_equal(self) -> None:
        other = self.moment(self.TEXT.replace("789Z", "788Z"))

        assert self.moment() == self.moment()
        assert hash(self.moment()) == hash(self.moment())
        assert self.moment() != other
        assert self.moment() != self.moment("2026-01-02T03:04:05.123456Z")

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
    def test_a_copy_keeps_them(self, copied: Callable[[Any], Any]) -> None:
        assert copied(self.moment()) == self.moment()
        assert type(copied(self.moment())) is NanosecondTime

    def test_they_survive_being_checked(self) -> None:
        state = samples.run(created_at=self.moment())

        assert json.loads(WorkflowExecutionState.checked(state).to_json())["created_at"] == self.TEXT
