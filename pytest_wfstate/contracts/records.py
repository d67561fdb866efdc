"""What every record is made of: its field types, and its conversion to and from JSON.

A record's JSON is what the store that it was modelled on writes: the same names in the same order, an empty field
left out only where that store leaves it out, and times in the same unit.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
)

from pytest_wfstate.errors import CorruptRecord

MAX_DEPTH = 128  # as many as serde_json reads and writes
_MAX_INT_BITS = 14_000  # Python reads and writes at most 4,300 digits


def plain_json(value: Any) -> Any:
    """Return a copy of `value` made of plain None, bool, int, float, str, list and dict.

    Raises:
        ValueError: something in it has no JSON equivalent, or would not be equal when read back.

    """
    return _plain(value, MAX_DEPTH)


def _plain(value: Any, room: int) -> Any:
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, (list, tuple, dict)):
        if room == 0:
            raise ValueError(f"the value is nested more than {MAX_DEPTH} levels deep, or contains itself. Flatten it")
        if isinstance(value, dict):
            return {_plain_key(key): _plain(item, room - 1) for key, item in value.items()}
        return [_plain(item, room - 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _plain_int(int(value))
    if isinstance(value, float):
        return _finite(float(value))
    raise ValueError(
        f"{value!r} of type {type(value).__name__} has no JSON equivalent. "
        "Convert it to None, bool, int, float, str, list or dict"
    )


def _plain_text(value: str) -> str:
    if type(value) is str and value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the text {value!r} contains a lone surrogate, which UTF-8 cannot encode. Remove it"
        ) from None
    return str.__str__(value)


def _plain_key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} is of type {type(key).__name__}. Keys of a JSON object must be text")
    return _plain_text(key)


def _plain_int(value: int) -> int:
    if value.bit_length() > _MAX_INT_BITS:
        raise ValueError("an integer of more than 4,200 digits cannot be read back. Save it as text")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON equivalent. Save None or text instead")
    return value


Text = Annotated[str, Strict(), AfterValidator(_plain_text)]
Flag = Annotated[bool, Strict()]
U32 = Annotated[int, Strict(), Field(ge=0, lt=2**32)]
U64 = Annotated[int, Strict(), Field(ge=0, lt=2**64)]
I64 = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Strict(), AfterValidator(_finite)]
Json = Annotated[Any, PlainValidator(plain_json)]


def left_out() -> Any:
    """Declare a field that defaults to None and is left out of the JSON while it is None."""
    return Field(default=None, exclude_if=lambda value: value is None)


class Record(BaseModel):
    """A record of this package: it refuses unknown fields and is validated again whenever it is stored."""

    model_config = ConfigDict(
        extra="forbid",
        revalidate_instances="always",
        validate_assignment=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )

    @classmethod
    def checked(cls, record: object) -> Self:
        """Return a copy of `record`, fully validated again: it may have changed since it was created.

        Raises:
            TypeError: it is not a record of this type.
            pydantic.ValidationError: it contains something that cannot be stored.

        """
        if not isinstance(record, cls):
            raise TypeError(
                f"expected a {cls.__name__}, got {record!r} of type {type(record).__name__}. "
                f"Build one with {cls.__name__}(...) or {cls.__name__}.model_validate(...)"
            )
        return cls.model_validate(record)

    def to_json(self, indent: int | None = None) -> str:
        """Return this record as JSON text."""
        return self.model_dump_json(indent=indent)

    @classmethod
    def from_json(cls, text: str | bytes, where: object) -> Self:
        """Return the record in `text`; an error names `where` it was read from.

        Raises:
            CorruptRecord: the text is not the complete JSON of such a record.

        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise CorruptRecord(where, explain(error)) from error


def explain(error: ValidationError) -> str:
    """Return in one line what is wrong with a record."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f", and {error.error_count() - 1} more" if error.error_count() > 1 else ""
    return f"{place + ': ' if place else ''}{first['msg']}{more}"
