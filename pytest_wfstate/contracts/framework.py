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
    _shadowed: dict[str, Any] = PrivateAttr(default_factory=dict)
    """Unknown fields with the name that Python has for a field of another name in JSON, such as `from_`. Among the
    other unknown fields, pydantic would take them for that field when it validates the object again."""

    @model_validator(mode="wrap")
    @classmethod
    def _remember_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if isinstance(value, dict):
            return cls._from_object(value, handler, is_json=info.mode == "json")
        made = handler(value)
        if isinstance(value, cls) and made is not value:
            made._keys = value._keys
            made._shadowed = plain_json(value._shadowed)
        return made

    @classmethod
    def _from_object(cls, value: dict[str, Any], handler: ModelWrapValidatorHandler[Self], *, is_json: bool) -> Self:
        # Python may use either name of a field, JSON only one.
        shadowed = {
            name: plain_json(value[name]) for name, key in _renamed(cls) if name in value and (is_json or key in value)
        }
        fields = {key: field for key, field in value.items() if key not in shadowed} if shadowed else value
        # A framework may not write what it is expected to write.
        missing = {key: None for key in _required(cls) if key not in fields} if is_json else {}
        made = handler({**missing, **fields} if missing else fields)
        made._keys = tuple(value) if is_json else None
        made._shadowed = shadowed
        return made

    @model_serializer(mode="wrap")
    def _write_as_read(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = {**handler(self), **self._shadowed}
        keys = self._keys
        if keys is None or keys == tuple(written):
            return written
        names = _json_names(type(self))
        known = {key for _, key in names}
        unwritten = {key for name, key in names if key not in keys and self._is_default(name)}
        kept = {key: written.pop(key, None) for key in keys if key in written or key in known}
        return {**kept, **{key: value for key, value in written.items() if key not in unwritten}}

    def __delattr__(self, name: str) -> None:
        """Delete a field. If the object was read from JSON text, a known field is as if it had not been there."""
        if self._keys is None or name not in type(self).model_fields:
            super().__delattr__(name)
            return
        setattr(self, name, _default(type(self), name))
        deleted = dict(_json_names(type(self)))[name]
        self._keys = tuple(key for key in self._keys if key != deleted)

    def _is_default(self, name: str) -> bool:
        """Whether a field is as it is where a framework does not write it."""
        return bool(getattr(self, name) == _default(type(self), name))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.model_dump() == other.model_dump()


@functools.cache
def _json_names(kind: type[FrameworkType]) -> list[tuple[str, str]]:
    """Return the names of the fields in Python and in JSON."""
    return [(name, field.serialization_alias or name) for name, field in kind.model_fields.items()]


@functools.cache
def _renamed(kind: type[FrameworkType]) -> list[tuple[str, str]]:
    return [(name, key) for name, key in _json_names(kind) if name != key]


def _default(kind: type[FrameworkType], name: str) -> Any:
    """Return the value of a field that a framework did not write."""
    field = kind.model_fields[name]
    return None if field.is_required() else field.get_default(call_default_factory=True)


@functools.cache
def _required(kind: type[FrameworkType]) -> list[str]:
    return [key for name, key in _json_names(kind) if kind.model_fields[name].is_required()]
