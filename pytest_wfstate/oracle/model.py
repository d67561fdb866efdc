"""The specification of a contract: its reference, as something that calls can be checked against one by one."""

from __future__ import annotations

import copy
import datetime
import functools
import inspect
import json
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter

from pytest_wfstate.contracts.base import ANY_TIME, Call, Contract, GeneratedValues, PossibleEffect
from pytest_wfstate.contracts.clock import milliseconds, seconds
from pytest_wfstate.contracts.records import Moment
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.oracle.history import Entry, Outcome, Refused, Returned

REFUSALS = (CorruptRecord, LookupError, ValueError, TypeError)
"""How a call can be refused. Whatever a store raises counts as the first of these that it is."""

_ROUTINES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, GeneratedValues)


class ReferenceState:
    """A reference with its handles, at one moment. It is never changed; two that no call can tell apart are equal."""

    def __init__(self, handles: dict[str, Any]) -> None:
        self.handles = dict(sorted(handles.items()))

    @functools.cached_property
    def _frozen(self) -> Hashable:
        return _frozen(self.handles, {})

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._frozen)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ReferenceState) and self._hash == other._hash and self._frozen == other._frozen
        )

    def __hash__(self) -> int:
        return self._hash

    def copy(self) -> dict[str, Any]:
        """Give handles that may be changed."""
        return copy.deepcopy(self.handles)

    def knows(self, text: str) -> bool:
        """Tell whether some id in it is this."""
        return _holds(self._frozen, text)


class ReferenceModel:
    """A contract's reference, which tells for any call what it may come to. It is the `Reference` of the checker.

    If not `in_order`, a list that is returned may be in any order.
    """

    def __init__(
        self,
        contract: Contract,
        normalise: Callable[[Any], Any] = lambda record: record,
        generated: GeneratedValues | None = None,
        *,
        in_order: bool = True,
    ) -> None:
        self._contract = contract
        self._in_order = in_order
        self._normalise = normalise
        self._generated = generated or GeneratedValues()

    def start(self) -> ReferenceState:
        """Give an empty store that nobody has opened."""
        return ReferenceState({"": self._contract.reference(self._generated)})

    def restart(self, world: ReferenceState) -> ReferenceState:
        """Give the world after every process has ended: what was stored is all that is left."""
        return ReferenceState({"": world.handles[""]})  # not a copy: a world is never changed

    def step(self, world: ReferenceState, entry: Entry) -> Iterator[ReferenceState]:
        """Give every world that a call can lead to with the outcome it had."""
        operation = self._contract[entry.name]
        if not operation.mutates:
            if not entry.has_result or self._is_alike(self._outcome(dict(world.handles), entry), entry.outcome):
                yield world
            return
        seen = entry.outcome.value if isinstance(entry.outcome, Returned) else None
        if operation.generates_id and seen is not None and world.knows(seen):
            return
        for way in self._ways(world, entry):
            self._generated.use(seen)
            handles = world.copy()
            outcome = self._outcome(handles, entry, way)
            if not entry.has_result or self._is_alike(outcome, entry.outcome):
                yield ReferenceState(handles)

    def expected(self, world: ReferenceState, entry: Entry) -> Outcome:
        """Tell what should have come of a call."""
        self._generated.use(None)
        return self._outcome(world.copy(), entry)

    def mutates(self, call: Call) -> bool:
        """Tell whether a call can change anything."""
        return self._contract[call.name].mutates

    def generates_id(self, call: Call) -> bool:
        """Tell whether a call returns an id that the store makes up."""
        return self._contract[call.name].generates_id

    def _ways(self, world: ReferenceState, entry: Entry) -> list[PossibleEffect]:
        operation, died = self._contract[entry.name], not entry.must_have_happened
        handle = self._handle(world.copy(), entry.client) if died and operation.partial_effects else None
        return operation.possible_effects(handle, entry.args, died=died)

    def _outcome(self, handles: dict[str, Any], entry: Entry, way: PossibleEffect | None = None) -> Outcome:
        handle = self._handle(handles, entry.client)
        try:
            value = _now(way(handle) if way else getattr(handle, entry.name)(*entry.args))
        except REFUSALS as error:
            return refused(error)
        return Returned(plain(value, self._normalise))

    def _handle(self, handles: dict[str, Any], client: str) -> Any:
        if client not in handles:
            first = handles[""]
            handles[client] = first.handle() if hasattr(first, "handle") else first
        return handles[client]

    def _is_alike(self, expected: Outcome, seen: Outcome) -> bool:
        if isinstance(expected, Returned) and isinstance(seen, Returned):
            return alike(expected.value, seen.value, in_order=self._in_order)
        return expected == seen


def refused(error: BaseException) -> Refused:
    """Tell how a call was refused, whatever the store's own name for it is."""
    return Refused(next(kind for kind in REFUSALS if isinstance(error, kind)))


def plain(value: Any, normalise: Callable[[Any], Any] = lambda record: record) -> Any:
    """Make JSON of a result, so that it can be compared and kept."""
    if isinstance(value, BaseModel):
        return json.loads(normalise(value).model_dump_json(warnings=False))  # it may not be valid any more
    if isinstance(value, (list, tuple)):
        return [plain(one, normalise) for one in value]
    if isinstance(value, dict):
        return {key: plain(one, normalise) for key, one in value.items()}
    return value


def alike(expected: Any, seen: Any, *, in_order: bool = True) -> bool:
    """Tell whether a plain result is what was expected: 0, 0.0 and false differ; the time of a reference is any."""
    if type(expected) is not type(seen):
        return False
    if isinstance(expected, dict):
        return expected.keys() == seen.keys() and all(alike(expected[key], seen[key]) for key in expected)
    if isinstance(expected, list):
        if not in_order:
            expected, seen = sorted(expected, key=json.dumps), sorted(seen, key=json.dumps)
        return len(expected) == len(seen) and all(map(alike, expected, seen))
    return bool(expected == seen) or (isinstance(expected, Hashable) and expected in _any_times())


@functools.cache
def _any_times() -> set[Hashable]:
    """Give what the time of a reference looks like in its records."""
    # Not when the module is imported: the clock may be frozen then, and pydantic knows no frozen datetime.
    kinds: list[Any] = [Moment, datetime.datetime]
    written = (TypeAdapter(kind).dump_python(ANY_TIME, mode="json") for kind in kinds)
    return {seconds(ANY_TIME), milliseconds(ANY_TIME), *written}


def _now(result: Any) -> Any:
    """Give the result of a reference's method, which may be async, but has nothing to wait for."""
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)
    except StopIteration as done:
        return done.value
    result.close()
    raise TypeError("a reference waits for something in an async method. It should do all its work at once, in memory.")


def _holds(frozen: Any, text: str) -> bool:
    if isinstance(frozen, (tuple, frozenset)):
        return any(_holds(one, text) for one in frozen)
    return bool(frozen == text)


def _frozen(value: Any, numbers: dict[int, int]) -> Hashable:
    """Make something of a reference that can be compared: what is the same object is given as a number."""
    if value is None or isinstance(value, (str, bytes)):
        return value
    if isinstance(value, (bool, int, float, datetime.datetime)):
        return (type(value), value)  # 1, 1.0 and True are equal to Python
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, _ROUTINES):
        return None
    if isinstance(value, tuple):
        return tuple(_frozen(one, numbers) for one in value)
    if id(value) in numbers:
        return ("seen", numbers[id(value)])
    numbers[id(value)] = len(numbers)
    if isinstance(value, dict):
        return tuple((_frozen(key, numbers), _frozen(one, numbers)) for key, one in value.items())
    if isinstance(value, (set, frozenset)):
        return frozenset(_frozen(one, numbers) for one in value)
    if isinstance(value, list):
        return ("list", *(_frozen(one, numbers) for one in value))
    return (type(value), numbers[id(value)], _frozen(vars(value), numbers) if hasattr(value, "__dict__") else None)
