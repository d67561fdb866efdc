"""Types that belong to the framework above the store: what it wrote is kept, and given back untouched.

A store has no say in what a workflow looks like. The fields that are declared here are those that frameworks are known
to write. Where one writes something else, a field that is missing, of another type or not known here, it is plain
JSON, which goes through a store as it came: no field is added, left out, or moved.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import core_schema

from pytest_wfstate.contracts.records import Json, Record, plain_json

T = TypeVar("T")


class _OrPlainJson:
    """Makes a type accept any JSON that it would refuse, and write it as it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.union_schema(
            [handler(source), core_schema.no_info_plain_validator_function(plain_json)],
            mode="left_to_right",
            serialization=core_schema.simple_ser_schema("any"),
        )


Open = Annotated[T, _OrPlainJson()]
"""A field of a framework: usually a T, and otherwise any JSON."""


class FrameworkType(Record):
    """A JSON object of the framework. What was read from JSON text is written with the same fields in that order."""

    model_config = ConfigDict(extra="allow")
    if TYPE_CHECKING:
        __pydantic_extra__: dict[str, Json] = Field(init=False)  # otherwise, type checkers see an argument
    else:
        __pydantic_extra__: dict[str, Json]

    _keys: tuple[str, ...] | None = PrivateAttr(None)
    """The fields that were in the JSON text, in their order; None if it was not made from text."""

    @model_validator(mode="wrap")
    @classmethod
    def _remember_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if info.mode == "json" and isinstance(value, dict):
            # A framework may not write what it is expected to write.
            missing = {key: None for key in _required(cls) if key not in value}
            made = handler({**missing, **value} if missing else value)
            made._keys = tuple(value)
            return made
        made = handler(value)
        if isinstance(value, cls) and made is not value:
            made._keys = value._keys
        return made

    @model_serializer(mode="wrap")
    def _write_as_read(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        keys = self._keys
        if keys is None or keys == tuple(written):
            return written
        unwritten = {key for name, key in _json_names(type(self)) if key not in keys and self._is_default(name)}
        kept = {key: written.pop(key, None) for key in keys}
        return {**kept, **{key: value for key, value in written.items() if key not in unwritten}}

    def _is_default(self, name: str) -> bool:
        """Whether a field is as it is where a framework does not write it."""
        field = type(self).model_fields[name]
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        return bool(getattr(self, name) == default)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.model_dump() == other.model_dump()


@functools.cache
def _json_names(kind: type[FrameworkType]) -> list[tuple[str, str]]:
    """Return the names of the fields in Python and in JSON."""
    return [(name, field.serialization_alias or name) for name, field in kind.model_fields.items()]


@functools.cache
def _required(kind: type[FrameworkType]) -> list[str]:
    return [key for name, key in _json_names(kind) if kind.model_fields[name].is_required()]
