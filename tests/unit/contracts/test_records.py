from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

import pytest_wfstate
from pytest_wfstate import (
    ApprovalField,
    CorruptRecord,
    Edge,
    PausedWorkflow,
    QueueItem,
    ResumePoint,
    SideEffectRecord,
    Snapshot,
    StageStep,
    TakenItem,
    TaskStatus,
    Workflow,
    WorkflowCheckpoint,
    WorkflowDefinition,
    WorkflowExecutionState,
    WorkflowStepState,
    samples,
)
from pytest_wfstate.contracts.framework import FrameworkType
from pytest_wfstate.contracts.records import Record, plain_json
from tests.unit.values import JSON_VALUES, NO_JSON, RECORDS, json_values, label, nested

OURS = {
    "SideEffectRecord": samples.effect(),
    "WorkflowCheckpoint": samples.checkpoint(),
    "PausedWorkflow": samples.paused(),
    "ResumePoint": samples.resume_point(),
    "CheckpointKey": samples.key(),
    "CheckpointMeta": samples.snapshot().meta(),
    "Snapshot": samples.snapshot(),
    "WorkflowExecutionState": samples.run(),
    "WorkflowStepState": samples.step(),
    "QueueItem": QueueItem(id="order-17", value={"amount": 12.5}),
    "TakenItem": TakenItem(id="order-17", value={"amount": 12.5}, attempts=1, token="token-1"),
}
FRAMEWORKS: dict[str, FrameworkType] = {
    "Workflow": samples.paused().workflow,
    "Stage": samples.paused().workflow.stages[0],
    "StageStep": samples.paused().workflow.stages[0].step,
    "Edge": samples.paused().workflow.edges[0],
    "ApprovalField": ApprovalField(name="approved"),
    "WorkflowDefinition": samples.definition(),
    "WorkflowStep": samples.definition().steps[0],
    "StepKind": samples.definition().steps[0].kind,
}
UNKNOWN = {"unheard_of": [None, 0, "", {"größe": [False, 1.5, {}]}], "another": None}


class TestPlainJson:
    @pytest.mark.parametrize("value", JSON_VALUES, ids=label)
    def test_json_is_copied_unchanged(self, value: Any) -> None:
        assert json.dumps(plain_json(value)) == json.dumps(value)

    @given(json_values)
    def test_any_json_is_copied_unchanged(self, value: Any) -> None:
        assert json.dumps(plain_json(value)) == json.dumps(value)

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (math.nan, "nan has no JSON equivalent. Save None or text instead"),
            (math.inf, "inf has no JSON equivalent. Save None or text instead"),
            (-math.inf, "-inf has no JSON equivalent. Save None or text instead"),
            ({1}, "{1} of type set has no JSON equivalent. Convert it to None, bool, int, float, str, list or dict"),
            (b"x", "b'x' of type bytes has no JSON equivalent"),
            (
                datetime.datetime(2026, 1, 1),
                "datetime.datetime(2026, 1, 1, 0, 0) of type datetime has no JSON equivalent",
            ),
            ({1: "one"}, "the key 1 is of type int. Keys of a JSON object must be text"),
            ({None: 1}, "the key None is of type NoneType. Keys of a JSON object must be text"),
            ("a\ud800", "the text 'a\\ud800' contains a lone surrogate, which UTF-8 cannot encode. Remove it"),
            ({"\udfff": 1}, "the text '\\udfff' contains a lone surrogate, which UTF-8 cannot encode. Remove it"),
            *(
                pytest.param(
                    number, "an integer of more than 4,200 digits cannot be read back. Save it as text", id=name
                )
                for name, number in {"long integer": 10**4300, "long negative integer": -(10**4300)}.items()
            ),
        ],
    )
    def test_a_value_without_json_is_refused_with_the_reason(self, bad: object, message: str) -> None:
        with pytest.raises(ValueError) as refused:
            plain_json({"deep": [bad]})

        assert str(refused.value).startswith(message)

    def test_128_nested_lists_are_not_too_deep(self) -> None:
        assert plain_json(nested(128, "leaf")) == nested(128, "leaf")

    @pytest.mark.parametrize("innermost", [["leaf"], [], {}, ()], ids=repr)
    def test_more_than_128_levels_are_refused(self, innermost: Any) -> None:
        with pytest.raises(ValueError, match="nested more than 128 levels deep, or contains itself"):
            plain_json(nested(128, innermost))

    def test_a_value_that_contains_itself_is_refused(self) -> None:
        cycle: dict[str, Any] = {}
        cycle["self"] = [cycle]

        with pytest.raises(ValueError, match="nested more than 128 levels deep, or contains itself"):
            plain_json(cycle)

    def test_the_longest_allowed_integer_is_read_back(self) -> None:
        point = samples.resume_point(scope_snapshot=10**4200)

        assert ResumePoint.from_json(point.to_json(), "here").scope_snapshot == 10**4200

    def test_the_copy_shares_nothing_with_the_original(self) -> None:
        value = {"list": [1], "dict": {"k": "v"}}

        copy = plain_json(value)
        copy["list"].append(2)
        copy["dict"]["k"] = "changed"

        assert value == {"list": [1], "dict": {"k": "v"}}

    def test_tuples_become_lists(self) -> None:
        assert plain_json({"pair": (1, (2,))}) == {"pair": [1, [2]]}

    @pytest.mark.parametrize("value", [TaskStatus.FAILED, type("Number", (int,), {})(3)])
    def test_subclasses_become_plain(self, value: Any) -> None:
        assert type(plain_json(value)) in (str, int)


class TestJsonFields:
    @pytest.mark.parametrize("bad", NO_JSON.values(), ids=list(NO_JSON))
    def test_a_value_without_json_is_refused_in_known_and_unknown_fields(self, bad: Any) -> None:
        with pytest.raises(ValidationError):
            samples.resume_point(scope_snapshot=bad)
        with pytest.raises(ValidationError):
            StageStep.model_validate({"type": "dedup", "unheard_of": bad})

    def test_a_record_holds_copies_of_its_known_and_unknown_fields(self) -> None:
        value = [1]

        point = samples.resume_point(scope_snapshot=value)
        step = StageStep.model_validate({"type": "dedup", "unheard_of": value})
        value.append(2)

        assert point.scope_snapshot == [1]
        assert step.to_json() == '{"type":"dedup","unheard_of":[1]}'


class TestFields:
    @pytest.mark.parametrize(
        ("sample", "field", "bad"),
        [
            *((samples.checkpoint, "step_index", bad) for bad in (-1, 2**32, 1.0, "1", True)),
            *((samples.resume_point, "step", bad) for bad in (-1, 2**64, 1.0, "1", True)),
            *((samples.effect, "completed_at", bad) for bad in (-(2**63) - 1, 2**63, 1.0, "1", True)),
            *((samples.effect, "reversible", bad) for bad in (0, 1, "true", None)),
            *((samples.effect, "tool_name", bad) for bad in (1, None, b"x", "\ud800")),
            *((samples.paused, "prior_duration_ms", bad) for bad in (math.nan, math.inf, "1", None, True)),
            *((samples.step, "status", bad) for bad in ("done", "PENDING", "", None)),
        ],
        ids=lambda value: getattr(value, "__name__", None) or label(value),
    )
    def test_an_invalid_value_is_refused(self, sample: Callable[..., Record], field: str, bad: Any) -> None:
        with pytest.raises(ValidationError):
            sample(**{field: bad})

    def test_a_whole_float_is_written_with_its_decimal_point(self) -> None:
        assert '"prior_duration_ms":3.0,' in samples.paused(prior_duration_ms=3).to_json()

    def test_a_field_is_validated_on_assignment(self) -> None:
        point = samples.resume_point()

        with pytest.raises(ValidationError):
            point.step = -1

        assert point.step == 3


class TestChecked:
    @pytest.mark.parametrize("record", OURS.values(), ids=list(OURS))
    def test_returns_an_equal_copy(self, record: Record) -> None:
        copy = type(record).checked(record)

        assert copy == record
        assert copy is not record

    @pytest.mark.parametrize("record", OURS.values(), ids=list(OURS))
    def test_refuses_another_type(self, record: Record) -> None:
        other = samples.effect() if not isinstance(record, SideEffectRecord) else samples.key()

        with pytest.raises(TypeError, match=f"^expected a {type(record).__name__}, got .* of type "):
            type(record).checked(other)

    @pytest.mark.parametrize("not_a_record", [None, {"run_id": "run-1"}, "run-1"])
    def test_refuses_anything_but_a_record(self, not_a_record: object) -> None:
        with pytest.raises(TypeError, match=r"Build one with ResumePoint\(\.\.\.\) or ResumePoint\.model_validate"):
            ResumePoint.checked(not_a_record)

    @pytest.mark.parametrize("bad", NO_JSON.values(), ids=list(NO_JSON))
    def test_refuses_a_value_that_became_invalid_after_creation(self, bad: Any) -> None:
        point = samples.resume_point(scope_snapshot={"list": []})
        point.scope_snapshot["list"].append(bad)

        with pytest.raises(ValidationError):
            ResumePoint.checked(point)

    def test_refuses_an_unknown_field_that_became_invalid(self) -> None:
        workflow = Workflow.model_validate({"id": "wf", "name": "WF", "start": "s", "unheard_of": []})
        paused = samples.paused(workflow=workflow)
        assert paused.workflow.model_extra is not None
        paused.workflow.model_extra["unheard_of"].append(math.nan)

        with pytest.raises(ValidationError):
            PausedWorkflow.checked(paused)

    def test_refuses_a_nested_record_of_another_type(self) -> None:
        checkpoint = samples.checkpoint()
        checkpoint.side_effects_log.append(samples.step())  # type: ignore[arg-type]

        with pytest.raises(ValidationError):
            WorkflowCheckpoint.checked(checkpoint)

    def test_refuses_a_key_that_is_not_text(self) -> None:
        snapshot = samples.snapshot()
        snapshot.values[1] = "one"  # type: ignore[index]

        with pytest.raises(ValidationError):
            Snapshot.checked(snapshot)

    def test_refuses_a_record_that_was_never_validated(self) -> None:
        with pytest.raises(ValidationError):
            ResumePoint.checked(ResumePoint.model_construct(run_id="run-1"))

    def test_shares_nothing_with_the_original(self) -> None:
        paused = samples.paused()

        copy = PausedWorkflow.checked(paused)
        copy.workflow.edges[0].to = "changed"
        copy.fields[0].name = "changed"
        copy.wf_state["amount"] = "changed"
        copy.stage_results[0]["ok"] = "changed"
        copy.completed_stage_ids.append("changed")

        assert paused == samples.paused()


class TestUnknownFields:
    @pytest.mark.parametrize("record", OURS.values(), ids=list(OURS))
    def test_our_own_records_refuse_them(self, record: Record) -> None:
        fields = {**json.loads(record.to_json()), "unheard_of": 1}

        with pytest.raises(CorruptRecord, match="unheard_of"):
            type(record).from_json(json.dumps(fields), "here")

    @pytest.mark.parametrize("record", FRAMEWORKS.values(), ids=list(FRAMEWORKS))
    def test_types_of_the_framework_keep_them_untouched(self, record: Record) -> None:
        fields = {**json.loads(record.to_json()), **UNKNOWN}

        again = type(record).from_json(json.dumps(fields), "here")

        assert json.dumps(json.loads(again.to_json())) == json.dumps(fields)
        assert json.loads(type(record).checked(again).to_json()) == fields

    @pytest.mark.parametrize("name", ["from_", "model_config", "checked", "copy", "__dict__", "", "größe"])
    def test_they_may_have_any_name(self, name: str) -> None:
        fields = {"from": "a", "to": "b", "conditions": [], "label": "", name: "theirs"}

        checked = Edge.checked(Edge.model_validate(fields))

        assert json.loads(checked.to_json()) == fields

    def test_records_that_differ_in_them_are_not_equal(self) -> None:
        first, second = (StageStep.model_validate({"type": "dedup", "unheard_of": value}) for value in (1, 2))

        assert first != second


def test_these_tests_cover_every_record_of_the_contracts() -> None:
    records = {
        name
        for name in pytest_wfstate.__all__
        if isinstance(kind := getattr(pytest_wfstate, name), type) and issubclass(kind, Record)
    }

    assert records == {*OURS, *FRAMEWORKS} == set(RECORDS)


class TestMoments:
    @pytest.mark.parametrize(
        ("moment", "text"),
        [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.000Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.6Z", "2026-01-02T03:04:05.600Z"),
            ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z"),
            ("2026-01-02T03:04:05.678900Z", "2026-01-02T03:04:05.678900Z"),
            ("2026-01-02T03:04:05.000001Z", "2026-01-02T03:04:05.000001Z"),
            ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456789Z"),
            ("2026-01-02T03:04:05.000000789Z", "2026-01-02T03:04:05.000000789Z"),
            ("2026-01-02T03:04:05.1234567Z", "2026-01-02T03:04:05.123456700Z"),
            ("2026-01-02T01:04:05.123456789+02:00", "2026-01-01T23:04:05.123456789Z"),
            ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05Z"),
            ("2026-01-02T01:04:05+02:00", "2026-01-01T23:04:05Z"),
            ("2026-01-02T01:04:05.5-09:30", "2026-01-02T10:34:05.500Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ],
    )
    def test_are_written_as_chrono_writes_them(self, moment: str, text: str) -> None:
        step = WorkflowStepState.from_json(json.dumps({"step_id": "s", "started_at": moment}), "here")

        assert json.loads(step.to_json())["started_at"] == text

    def test_are_converted_to_utc(self) -> None:
        zone = datetime.timezone(datetime.timedelta(hours=2))

        step = samples.step(started_at=datetime.datetime(2026, 1, 2, 1, 4, 5, tzinfo=zone))

        assert step.started_at is not None
        assert step.started_at.isoformat() == "2026-01-01T23:04:05+00:00"

    @pytest.mark.parametrize(
        "naive",
        [datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05", "2026-01-02", datetime.date(2026, 1, 2)],
    )
    def test_without_a_time_zone_are_refused(self, naive: object) -> None:
        with pytest.raises(ValidationError, match="timezone"):
            samples.step(started_at=naive)

    @pytest.mark.parametrize("number", [0, 1_767_323_045, 1.5, True, 10**400, "1767323045", "-1.5", "1.7e9"], ids=label)
    def test_as_numbers_are_refused(self, number: object) -> None:
        with pytest.raises(ValidationError, match="is a number"):
            samples.step(started_at=number)

    @pytest.mark.parametrize("beyond", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
    def test_out_of_range_in_utc_are_refused(self, beyond: str) -> None:
        with pytest.raises(ValidationError, match="has no equivalent in UTC"):
            samples.step(started_at=beyond)


class TestFromJson:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "EOF while parsing"),
            ('{"run_id": "run-1"', "EOF while parsing"),
            ("[]", "should be an object"),
            ("null", "should be an object"),
            (b"\xff", "Invalid JSON"),
            ('{"run_id": "run-1"}', "workflow_name: Field required, and 3 more"),
            (samples.resume_point().to_json() + "x", "trailing characters"),
            (samples.resume_point().to_json().replace("3", "-3"), "step: Input should be greater than or equal to 0"),
            (
                samples.resume_point().to_json().replace('"v"', "NaN"),
                "scope_snapshot: Value error, nan has no JSON equivalent",
            ),
        ],
    )
    def test_says_what_is_wrong_and_where(self, text: str | bytes, reason: str) -> None:
        with pytest.raises(CorruptRecord) as corrupt:
            ResumePoint.from_json(text, "/srv/run-1.json")

        assert reason in corrupt.value.reason
        assert corrupt.value.where == "/srv/run-1.json"
        assert str(corrupt.value).startswith("the record in /srv/run-1.json cannot be read: ")

    def test_reads_records_with_fields_left_out(self) -> None:
        """A serde default: the field may be missing."""
        fields = json.loads(samples.run().to_json())
        del fields["input"], fields["context"], fields["workspace_id"], fields["entry_point"]

        state = WorkflowExecutionState.from_json(json.dumps(fields), "here")

        assert (state.input, state.context, state.workspace_id, state.entry_point) == (None, None, None, None)

    def test_reads_a_step_with_only_its_id(self) -> None:
        assert WorkflowStepState.from_json('{"step_id": "s"}', "here").status is TaskStatus.PENDING

    def test_reads_a_snapshot_without_label(self) -> None:
        fields = json.loads(samples.snapshot().to_json())
        del fields["label"]

        assert Snapshot.from_json(json.dumps(fields), "here").label == ""

    def test_reads_a_missing_target_as_none_as_serde_does(self) -> None:
        fields = json.loads(samples.effect(target="order-17").to_json())
        del fields["target"]

        assert SideEffectRecord.from_json(json.dumps(fields), "here").target is None

    def test_accepts_a_field_by_its_python_or_its_json_name(self) -> None:
        assert Edge.model_validate({"from": "a", "to": "b"}) == Edge.model_validate({"from_": "a", "to": "b"})


class TestNewRecords:
    def test_a_new_definition_has_a_unique_id(self) -> None:
        assert WorkflowDefinition.new([]).id != WorkflowDefinition.new([]).id

    def test_a_new_run_has_empty_input_and_context(self) -> None:
        state = WorkflowExecutionState.new("run-1", "agent", "thread", "user", samples.definition(), entry_point="main")

        assert (state.input, state.context, state.entry_point) == ({}, {}, "main")
        assert state.created_at == state.updated_at

    def test_a_new_checkpoint_has_done_nothing(self) -> None:
        checkpoint = WorkflowCheckpoint.new("task-1", "agent-1")

        assert (checkpoint.step_index, checkpoint.completed_tool_ids, checkpoint.side_effects_log) == (0, set(), [])
