"""Which ids are valid: one rule for every contract and every backend."""

from __future__ import annotations

from pytest_wfstate.errors import InvalidId

MAX_ID_LENGTH = 1024
_RULE = "An id is text of 1 to 1,024 characters without NUL or lone surrogates."


def check_id(what: str, value: object) -> str:
    """Return `value` if it is a valid id; `what` names it in the error ("run id").

    Raises:
        InvalidId: it is not text, is empty or too long, or contains a NUL or a lone surrogate.

    """
    if not isinstance(value, str):
        raise InvalidId(f"{what} {value!r} is of type {type(value).__name__}. {_RULE}")
    if not value:
        raise InvalidId(f"{what} '' is empty. {_RULE}")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidId(f"{what} {value[:24] + '...'!r} is {len(value):,} characters long. {_RULE}")
    if "\0" in value:
        raise InvalidId(f"{what} {value!r} contains a NUL. {_RULE}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidId(f"{what} {value!r} contains a lone surrogate. {_RULE}") from None
    return value


def is_id(value: object) -> bool:
    """Whether `value` is a valid id."""
    try:
        check_id("id", value)
    except InvalidId:
        return False
    return True
