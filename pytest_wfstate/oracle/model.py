"""The model of a contract: its reference, one call at a time, with every outcome that the contract allows."""

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
"""How a call can be refused. An error of a store counts as the first of these that it is an instance of."""

_ROUTINES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, GeneratedValues)


class ReferenceState:
    """A reference with its handles, at one moment. It never changes; two that no call can tell apart are equal."""

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
        """Return handles that may be changed."""
        return copy.deepcopy(self.handles)

    def knows(self, text: str) -> bool:
        """Whether this text is an id in it."""
        return _holds(self._frozen, text)


class ReferenceModel:
    """A contract's reference, as the checker needs it: for any call, the states that it can lead to.

    Unless `in_order`, a returned list may be in any order.
    """

    def __init__(
        self,
        contract: Contract,
        normalise: Callable[[Any], Any] = lambda record: record,
        generated: GeneratedValues | None = None,
        *,
        in_order: bool = True,
    ) -> None:
        self.contract = contract
        self._in_order = in_order
        self._normalise = normalise
        self._generated = generated or GeneratedValues()

    def start(self) -> ReferenceState:
        """Return an empty store without handles."""
        return ReferenceState({"": self.contract.reference(self._generated)})

    def restart(self, state: ReferenceState) -> ReferenceState:
        """Return the state after every process has ended: only what was stored is left."""
        return ReferenceState({"": state.handles[""]})  # not a copy: a state never changes

    def step(self, state: ReferenceState, entry: Entry) -> Iterator[ReferenceState]:
        """Yield every state that a call can lead to with its outcome."""
        operation = self.contract[entry.name]
        if not operation.mutates:
            if not entry.has_result or self._is_alike(self._outcome(dict(state.handles), entry), entry.outcome):
                yield state
            return
        seen = entry.outcome.value if isinstance(entry.outcome, Returned) else None
        if operation.generates_id and seen is not None and state.knows(seen):
            return
        for effect in self._effects(state, entry):
            self._generated.use(seen)
            handles = state.copy()
            outcome = self._outcome(handles, entry, effect)
            if not entry.has_result or self._is_alike(outcome, entry.outcome):
                yield ReferenceState(handles)

    def expected(self, state: ReferenceState, entry: Entry) -> Outcome:
        """Return the outcome that a call should have."""
        self._generated.use(None)
        return self._outcome(state.copy(), entry)

    def mutates(self, call: Call) -> bool:
        """Whether a call can change anything."""
        return self.contract[call.name].mutates

    def generates_id(self, call: Call) -> bool:
        """Whether a call returns an id that the store generates."""
        return self.contract[call.name].generates_id

    def _effects(self, state: ReferenceState, entry: Entry) -> list[PossibleEffect]:
        operation, died = self.contract[entry.name], not entry.must_have_happened
        handle = self._handle(state.copy(), entry.client) if died and operation.partial_effects else None
        return operation.possible_effects(handle, entry.args, died=died)

    def _outcome(self, handles: dict[str, Any], entry: Entry, effect: PossibleEffect | None = None) -> Outcome:
        handle = self._handle(handles, entry.client)
        try:
            value = _now(effect(handle) if effect else getattr(handle, entry.name)(*entry.args))
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
    """Return the refusal that an error counts as, whatever its own class."""
    return Refused(next(kind for kind in REFUSALS if isinstance(error, kind)))


def plain(value: Any, normalise: Callable[[Any], Any] = lambda record: record) -> Any:
    """Convert a result to JSON, so that it can be compared and kept."""
    if isinstance(value, BaseModel):
        return json.loads(normalise(value).model_dump_json(warnings=False))  # it may not be valid any more
    if isinstance(value, (list, tuple)):
        return [plain(item, normalise) for item in value]
    if isinstance(value, dict):
        return {key: plain(item, normalise) for key, item in value.items()}
    return value


def alike(expected: Any, seen: Any, *, in_order: bool = True) -> bool:
    """Whether a plain result is the expected one: 0, 0.0 and false differ; the reference's time equals any time."""
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
    """Return what the reference's time looks like in its records."""
    # Not when the module is imported: the clock may be frozen then, and pydantic does not know a frozen datetime.
    kinds: list[Any] = [Moment, datetime.datetime]
    written = (TypeAdapter(kind).dump_python(ANY_TIME, mode="json") for kind in kinds)
    return {seconds(ANY_TIME), milliseconds(ANY_TIME), *written}


def _now(result: Any) -> Any:
    """Return the result of a reference's method, which may be async but must not wait for anything."""
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)
    except StopIteration as done:
        return done.value
    result.close()
    raise TypeError("An async method of the reference waits for something. It must do all its work in memory, at once.")


def _holds(frozen: Any, text: str) -> bool:
    if isinstance(frozen, (tuple, frozenset)):
        return any(_holds(item, text) for item in frozen)
    return bool(frozen == text)


def _frozen(value: Any, numbers: dict[int, int]) -> Hashable:
    """Convert a reference to something hashable, with a number for an object that occurs again."""
    if value is None or isinstance(value, (str, bytes)):
        return value
    if isinstance(value, (bool, int, float, datetime.datetime)):
        return (type(value), value)  # 1, 1.0 and True are equal to Python
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, _ROUTINES):
        return None
    if isinstance(value, tuple):
        return tuple(_frozen(item, numbers) for item in value)
    if id(value) in numbers:
        return ("seen", numbers[id(value)])
    numbers[id(value)] = len(numbers)
    if isinstance(value, dict):
        return tuple((_frozen(key, numbers), _frozen(item, numbers)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return frozenset(_frozen(item, numbers) for item in value)
    if isinstance(value, list):
        return ("list", *(_frozen(item, numbers) for item in value))
    return (type(value), numbers[id(value)], _frozen(vars(value), numbers) if hasattr(value, "__dict__") else None)
