"""Inputs that stores easily get wrong: ids, and records that the caller changes later."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.contracts.records import plain_json

GOOD_IDS = [
    "with space",
    "Ünïcödé-漢字-🙂",
    "slash/back\\slash",
    "per%cent%2F",
    "colon:star*question?",
    "quote'\"`$(x)",
    "line\nbreak\ttab",
    ".",
    "..",
    "-rf",
    "nul",
    "a" * 300,
    "é" * 1024,
]

PAIRS = [
    ("run", "Run"),
    ("run", "run "),
    ("a/b", "a_b"),
    ("a/b", "a\\b"),
    ("a b", "a_b"),
    ("a:b", "a-b"),
    ("run", "run.json"),
    ("run", "run.tmp"),
    ("run-1", "run-10"),
    ("a%2Fb", "a/b"),
    ("é", "e\u0301"),
    ("x" * 300 + "1", "x" * 300 + "2"),
    ("a*", "ab"),
    ("a_", "ab"),
    ("a%", "ab"),
]

GOOD_IDS += [id_ for pair in PAIRS for id_ in pair]

CLIMBING_IDS = ["../outside", "../../outside", "a/../../outside", "..\\outside", "nested/inside"]

MANY = {"quick": 250, "default": 1_001, "thorough": 5_001}
"""How many records are listed: more than a store, or a library below it, returns at once unless asked for more."""

BAD_IDS = ["", "nul\0byte", "x" * 1025, "half \ud800 pair"]


def lists_all(contract: Contract) -> bool:
    """Whether a read of one id is one of any other as well: then it lists the records of all."""
    return any(read in contract.reads(["b"]) for read in contract.reads(["a"]))


def everything_beside(home: Path) -> set[Path]:
    """Return all paths around a home, but not in it."""
    return {path for path in home.parent.rglob("*") if home not in path.parents}


def values_in(value: Any) -> Iterator[Any]:
    """Yield everything that a value holds, at any depth, before what is in it."""
    pending, seen = _held(value), set[int]()
    while pending:
        held = pending.pop(0)
        yield held
        if id(held) not in seen:  # it may hold itself
            seen.add(id(held))
            pending += _held(held)


def _held(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, BaseModel):
        return [*value.__dict__.values(), *(value.__pydantic_extra__ or {}).values()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return list(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else []


def has_json(value: Any) -> bool:
    """Whether a value can be written as JSON, and read back."""
    try:
        plain_json(value)
    except ValueError:
        return False
    return True


def disturb(value: Any) -> None:
    """Change everything that can be changed in a value, as a careless caller would."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            disturb(getattr(value, name))
    elif isinstance(value, (dict, list, tuple)):
        for item in list(value.values() if isinstance(value, dict) else value):
            disturb(item)
        if isinstance(value, dict):
            value["disturbed"] = True
        elif isinstance(value, list):
            value.append("disturbed")
    elif isinstance(value, set):
        value.add("disturbed")
    elif hasattr(value, "__dict__"):
        disturb(vars(value))
