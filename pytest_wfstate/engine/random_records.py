"""Records with every value that their fields can have: saved, and read again before and after a restart.

Many are saved in one store first. Only if that fails is each field tried alone, while the others are as usual: so no
field that is lost hides another, and hypothesis has little to shrink.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from pydantic import BaseModel

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.engine.script import RESTART, Step
from pytest_wfstate.engine.search import search
from pytest_wfstate.errors import InvalidSetting
from pytest_wfstate.specs.random_values import EDGES, any_record_like, at_edge, texts_in

__tracebackhide__ = True

EXAMPLES = {"quick": 10, "default": 40, "thorough": 400}
_MOST_FIELDS = 4  # that are shrunk and shown


def _id(index: int) -> str:
    return f"value-{index}"


EDGE_IDS = [_id(nth) for nth in range(EDGES)]
"""The ids of records that have an edge in every field."""

Play = Callable[[Sequence[Step]], None]
"""Runs a script on a new store."""

Saved = tuple[Call, Call]
"""A call that saves a record, and one that saves a usual record instead."""

Reads = Callable[[Sequence[str]], Sequence[Call]]

Accepts = Callable[[Call], bool]
"""Whether a store takes the values of a call, as its suite declares."""


def operations_with_values(contract: Contract) -> list[Operation]:
    """Return the operations whose arguments hold values that a store has to keep."""
    first = contract.write("a", 1).name
    return [operation for operation in contract.operations if operation.values or operation.name == first]


def play_values(
    contract: Contract, operation: Operation, play: Play, profile: str, *, accepts: Accepts, shrinks: bool
) -> list[Exception]:
    """Have stores keep records with every value, saved by one operation. Return how they failed, a field at a time."""
    number = EXAMPLES[profile]
    chosen = chosen_values(operation, contract.reads, number)
    pairs = [pair for pair in chosen if accepts(pair[0])] or chosen[:1]  # which says why there is no other
    error = _failure(contract, play, [call for call, _ in pairs])
    if error is None:
        return []
    return (_each_field(contract, operation, play, number, pairs, accepts) if shrinks else []) or [error]


def chosen_values(operation: Operation, reads: Reads, number: int) -> list[Saved]:
    """Choose calls that save records, each with an id of its own, at edges and elsewhere: the same for every store."""
    chosen = [*_edges(operation, reads), *_others(operation, reads, number)]
    if not chosen:
        raise InvalidSetting(
            f"no arguments of {operation.name} could be generated: the models refuse all that were tried. Write "
            "`values` of the operation, a strategy for arguments that are valid."
        )
    return copy.deepcopy(chosen)  # a store may change them


@functools.lru_cache(64)
def _edges(operation: Operation, reads: Reads) -> list[Saved]:
    edges: list[Saved] = []
    for nth in range(EDGES):
        with at_edge(nth):
            edges += _drawn(operation, reads, len(edges), 1)
    return edges


@functools.lru_cache(64)
def _others(operation: Operation, reads: Reads, number: int) -> list[Saved]:
    return _drawn(operation, reads, len(_edges(operation, reads)), number)


def _drawn(operation: Operation, reads: Reads, first: int, number: int) -> list[Saved]:
    """Generate calls with ids from the first of these indices on. There are fewer if models refuse what was tried."""
    drawn: list[Saved] = []
    with contextlib.suppress(Unsatisfiable):
        search(lambda data: drawn.append(data.draw(_saves(operation, reads, _id(first + len(drawn))))), number)
    return drawn


def edge_calls(contract: Contract, id_: str) -> list[Call]:
    """Return calls that save a record with unusual values, if that is what an id of `EDGE_IDS` stands for."""
    if id_ not in EDGE_IDS:
        return []
    index = EDGE_IDS.index(id_)
    edges = [_edges(operation, contract.reads) for operation in operations_with_values(contract)]
    return [copy.deepcopy(pairs[index][0]) for pairs in edges if index < len(pairs)]


def _each_field(
    contract: Contract, operation: Operation, play: Play, number: int, pairs: Sequence[Saved], accepts: Accepts
) -> list[Exception]:
    """Return how a store fails for each field that has unusual values alone, shrunk."""
    records = [arg for arg in pairs[0][1].args if isinstance(arg, BaseModel)] if not operation.values else []
    fields = list(dict.fromkeys(name for record in records for name in type(record).model_fields))
    failures: list[Exception] = []
    for name in fields:
        if len(failures) < _MOST_FIELDS:
            calls = [call for pair in pairs if accepts(call := _only(name, *pair))]
            error = _failure(contract, play, calls)
            others = [other for other in fields if other != name]
            failures += [_shrunk(contract, operation, play, number, accepts, others) or error] if error else []
    shrunk = None if failures else _shrunk(contract, operation, play, number, accepts)
    return failures or ([shrunk] if shrunk else [])


def _shrunk(
    contract: Contract,
    operation: Operation,
    play: Play,
    number: int,
    accepts: Accepts,
    usual: Collection[str] = (),
) -> Exception | None:
    """Search for a record that is not kept, and return how the simplest that is found fails."""

    def attempt(data: st.DataObject) -> None:
        call, _ = data.draw(_saves(operation, contract.reads, "a", usual))
        if accepts(call):
            play(_script(contract, [call], ["a"]))

    try:
        search(attempt, number)
    except Exception as error:
        return error
    return None


def _failure(contract: Contract, play: Play, calls: Sequence[Call]) -> Exception | None:
    """Return how a store fails that keeps all these records."""
    try:
        play(_script(contract, calls, [_id(index) for index in range(len(calls))]))
    except Exception as error:
        return error
    return None


def _saves(operation: Operation, reads: Reads, id_: str, usual: Collection[str] = ()) -> st.SearchStrategy[Saved]:
    """Generate calls that save a record with any values, except in the fields that shall be `usual`."""
    if operation.values:
        values = operation.values
        return st.just(id_).flatmap(lambda id_: values(id_).map(lambda args: (operation(*args), operation(*args))))
    shown = set(texts_in([list(read.args) for read in reads([id_])]))

    def like(args: tuple[Any, ...]) -> st.SearchStrategy[Saved]:
        kept = shown.union(arg for arg in args if isinstance(arg, str))  # by which the record is found
        others = (any_record_like(arg, kept, usual) if isinstance(arg, BaseModel) else st.just(arg) for arg in args)
        return st.tuples(*others).map(lambda made: (operation(*made), operation(*args)))

    # Hypothesis may format a strategy, which for one that has a strategy for each field takes long.
    return st.just([id_]).flatmap(lambda ids: operation.arguments(ids).flatmap(like))


def _only(name: str, call: Call, usual: Call) -> Call:
    """Return a call that saves a record which is as usual but for one field."""
    args = [
        other.model_copy(update={name: getattr(arg, name)}, deep=True)
        if isinstance(arg, BaseModel) and isinstance(other, BaseModel) and name in type(other).model_fields
        else other
        for arg, other in zip(call.args, usual.args, strict=True)
    ]
    return Call(call.name, tuple(args), call.keywords)


def _script(contract: Contract, calls: Sequence[Call], ids: Sequence[str]) -> list[Step]:
    """Make the calls, each on a record that exists if it does not save one itself, and read everything."""
    write = contract.write
    makes = [call.name == write("a", 1).name for call in calls]
    before = [write(id_, 1) for id_, makes_one in zip(ids, makes, strict=True) if not makes_one]
    replaced = [read for call in calls for read in (contract.replaced(call) if contract.replaced else [])]
    reads = [*contract.reads(ids), *(replaced if all(makes) else [])]
    return [*before, *calls, *reads, RESTART, *reads]
