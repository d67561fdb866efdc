"""The model of a contract: its reference, one call at a time, with every outcome that the contract allows."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract, GeneratedValues, PossibleEffect
from pytest_wfstate.errors import AdapterError, CannotCompare, CorruptRecord
from pytest_wfstate.oracle.history import Entry, Forgotten, Outcome, Refused, Returned
from pytest_wfstate.oracle.partition import parts
from pytest_wfstate.oracle.values import alike, frozen, match, plain

REFUSALS = (CorruptRecord, LookupError, ValueError, TypeError)
"""How a call can be refused. An error of a store counts as the first of these that it is an instance of."""

_TRIALS = 5
_OWN = (
    "What is in a closure, on a class or in a module is not copied, so no call can be tried. State of a reference "
    "belongs in its instance."
)


class ReferenceState:
    """A reference with its handles, at one moment. It never changes; two that no call can tell apart are equal."""

    def __init__(self, handles: dict[str, Any]) -> None:
        self.handles = dict(sorted(handles.items()))

    @functools.cached_property
    def _frozen(self) -> Hashable:
        try:
            return frozen(list(self.handles.values())), tuple(self.handles)
        except CannotCompare:
            for handle in self.handles.values():
                _check(handle)
            raise

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
        """Return handles that may be changed.

        Raises:
            CannotCompare: the reference keeps something that cannot be copied, let alone compared.
        """
        try:
            return copy.deepcopy(self.handles)
        except Exception as error:
            hash(self)  # which may say where it is
            name = type(self.handles[""]).__name__
            raise CannotCompare(
                f"The reference {name} cannot be copied: {error}. Keep only plain data in it."
            ) from error

    def knows(self, id_: Any) -> bool:
        """Whether this id is in it."""
        return _holds(self._frozen, frozen(id_))


Transition = tuple[Outcome, ReferenceState]
"""What a call returns, and the state after it."""


class ReferenceModel:
    """A contract's reference, as the checker needs it: for any call, the states that it can lead to.

    Unless `in_order`, a returned list may be in any order. Unless it `replaces` records, a save may be refused where
    there is one. `trials` is for models of one contract to share.
    """

    def __init__(
        self,
        contract: Contract,
        normalise: Callable[[Any], Any] = lambda record: record,
        generated: GeneratedValues | None = None,
        *,
        in_order: bool = True,
        replaces: bool = True,
        trials: Counter[str] | None = None,
    ) -> None:
        self.contract = contract
        self._in_order = in_order
        self._replaces = replaces
        self._normalise = normalise
        self._generated = generated or GeneratedValues()
        self._trials = Counter[str]() if trials is None else trials
        """How often each operation was tried to see whether copies of the reference are independent."""

    def start(self) -> ReferenceState:
        """Return an empty store without handles."""
        return ReferenceState({"": self.contract.reference(self._generated)})

    def restart(self, state: ReferenceState) -> ReferenceState:
        """Return the state after every process has ended: only what was stored is left."""
        return ReferenceState({"": state.handles[""]})  # not a copy: a state never changes

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Errors that are outcomes like others, besides refusals: none, as the reference raises no others."""
        return ()

    def close(self) -> None:
        """Close what was opened to try calls: nothing, as the reference is in memory."""

    def parts(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        """Split a history into parts that can be judged one by one."""
        return parts(entries, self.contract)

    def with_handles_of(self, state: ReferenceState, clients: Container[str]) -> ReferenceState:
        """Return the state in which only these clients still have their handles."""
        return ReferenceState({name: handle for name, handle in state.handles.items() if not name or name in clients})

    def step(self, state: ReferenceState, entry: Entry) -> Iterator[ReferenceState]:
        """Yield every state that a call can lead to with its outcome."""
        return self.explained(self.transitions(state, entry), entry)

    def explained(self, transitions: Iterable[Transition], entry: Entry) -> Iterator[ReferenceState]:
        """Yield where those transitions lead that have the outcome of a call, if it has any."""
        for outcome, after in transitions:
            if not entry.has_result or self.is_alike(outcome, entry.outcome, entry.name):
                yield after

    def transitions(self, state: ReferenceState, entry: Entry) -> Iterator[Transition]:
        """Yield what a call can do. Of what it returned in reality, only an id that the store generated matters."""
        operation = self.contract[entry.name]
        for error in operation.may_raise:
            yield Refused(error), state
        is_open = operation.unspecified is not None and self._is_unspecified(state, entry)
        if is_open:
            yield Refused(Exception, declared=True), state
        if not operation.mutates:
            yield Forgotten() if is_open else self._outcome(dict(state.handles), entry), state
            return
        if self._trials[entry.name] < _TRIALS:
            self._need_independent_copies(state, entry)
        if self.would_replace(state, entry):
            yield Refused(Exception, declared=True), state
        seen = entry.token
        for effect in self._effects(state, entry):
            self._generated.use(seen)
            handles = state.copy()
            outcome = self._outcome(handles, entry, effect)
            if not self._generated.must_be_new or seen is None or not state.knows(seen):
                yield Forgotten() if is_open else outcome, ReferenceState(handles)

    def expected(self, state: ReferenceState, entry: Entry) -> Outcome:
        """Return the outcome that a call should have, with the token of the record that it returned, if that is new."""
        is_new = isinstance(entry.outcome, Returned) and isinstance(entry.outcome.value, dict)
        self._generated.use(entry.token if is_new and not state.knows(entry.token) else None)
        return Forgotten() if self._is_unspecified(state, entry) else self._outcome(state.copy(), entry)

    def refuses(self, call: Call) -> bool:
        """Whether a call is refused by an empty store."""
        return isinstance(self.expected(self.start(), self._entries("", [call])[0]), Refused)

    def is_generated(self, outcome: Outcome) -> bool:
        """Whether an expected outcome is a value that the store generates, which may be any new one."""
        return isinstance(outcome, Returned) and self._generated.is_unseen(outcome.value)

    def mutates(self, call: Call) -> bool:
        """Whether a call can change anything."""
        return self.contract[call.name].mutates

    def generates_id(self, call: Call) -> bool:
        """Whether a call returns an id that the store generates."""
        return self.contract[call.name].generates_id

    def may_refuse(self, call: Call) -> bool:
        """Whether a call is refused if there is a record already."""
        return not self._replaces and call.name == self.contract.write("a", 1).name

    def would_replace(self, state: ReferenceState, entry: Entry) -> bool:
        """Whether a call replaces a record, which the store does not support."""
        return self.may_refuse(Call(entry.name, entry.args)) and self.has_record(state, entry)

    def has_record(self, state: ReferenceState, entry: Entry) -> bool:
        """Whether there is a record already where a call saves one."""
        contract, call = self.contract, Call(entry.name, entry.args)
        if call.name != contract.write("a", 1).name:
            return False
        reads = contract.replaced(call) if contract.replaced else contract.reads_of(call)
        handles, empty = state.copy(), self.start().copy()
        return any(
            not self._agree(self._outcome(empty, read), self._outcome(handles, read))
            for read in self._entries(entry.client, reads)
        )

    def is_alike(self, expected: Outcome, seen: Outcome, name: str) -> bool:
        """Whether an outcome of a method is the expected one."""
        if isinstance(expected, Returned) and isinstance(seen, Returned):
            in_order = self._in_order and self.contract[name].ordered
            if self.contract.same is None:
                return alike(expected.value, seen.value, in_order=in_order)
            both = expected.value, seen.value
            is_any_order = not in_order and all(isinstance(value, list) for value in both)
            return match(*both, self._is_same) if is_any_order else self._is_same(*both)
        if isinstance(expected, Forgotten):
            return isinstance(seen, Returned)
        if isinstance(expected, Refused) and isinstance(seen, Refused) and (expected.declared or seen.declared):
            return True
        return expected == seen  # neither holds a value

    @staticmethod
    def _agree(one: Outcome, other: Outcome) -> bool:
        """Whether two outcomes of the reference are the same, whatever the contract takes for the same."""
        if isinstance(one, Returned) and isinstance(other, Returned):
            return alike(one.value, other.value)
        return one == other

    def _is_same(self, expected: Any, seen: Any) -> bool:
        same = self.contract.same
        assert same is not None
        try:
            return bool(same(expected, seen))
        except Exception as error:
            raise AdapterError(
                f"same= of the {self.contract.name} contract raises {type(error).__name__}: {error}. It was called "
                f"with {expected!r} and {seen!r}. It must say whether the second is the first, whatever that is."
            ) from error

    def _is_unspecified(self, state: ReferenceState, entry: Entry) -> bool:
        unspecified = self.contract[entry.name].unspecified
        return unspecified is not None and bool(unspecified(self._handle(state.copy(), entry.client), *entry.args))

    def _effects(self, state: ReferenceState, entry: Entry) -> list[PossibleEffect]:
        operation, died = self.contract[entry.name], not entry.must_have_happened
        handle = self._handle(state.copy(), entry.client) if died and operation.partial_effects else None
        return operation.possible_effects(handle, entry.args, died=died)

    def _need_independent_copies(self, state: ReferenceState, entry: Entry) -> None:
        """Try a call on copies of a state. An operation is tried until it has changed one, and a few times at most.

        Raises:
            CannotCompare: a copy is not complete, or the call shows elsewhere than in the copy that it was made on.
        """
        name, reads, handles = type(state.handles[""]).__name__, self._reads_of(entry), state.copy()
        hash(state)
        before = [self._outcome(dict(state.handles), read) for read in reads]
        self._generated.use(None)
        first = self._outcome(handles, entry)
        is_generated = self._generated.is_used
        second = first if is_generated else self._outcome(state.copy(), entry)
        after = [self._outcome(dict(state.handles), read) for read in reads]
        shared = f"The reference {name} shares state with its copies: after {entry.name} was called on one of them"
        for call, one, other in zip([*reads, entry], [*before, first], [*after, second], strict=True):
            if not self._agree(one, other):
                args, on = ", ".join(map(repr, call.args)), "another copy" if call is entry else "the original"
                raise CannotCompare(
                    f"{shared}, {call.name}({args}) on {on} {_ended(other)}, before {_ended(one)}. {_OWN}"
                )
        if ReferenceState(state.handles) != state:
            raise CannotCompare(f"{shared}, the original is not what it was. {_OWN}")
        changed = ReferenceState(handles)
        if any(ReferenceState(one.copy()) != one for one in (state, changed)):
            raise CannotCompare(
                f"The reference {name} is not copied in full by copy.deepcopy(). Keep plain data in it."
            )
        has_changed = frozen(handles[""]) != frozen(state.handles[""])
        self._trials[entry.name] += _TRIALS if has_changed else 1

    def _reads_of(self, entry: Entry) -> list[Entry]:
        """Return calls that show what a call changes."""
        return self._entries(entry.client, self.contract.reads_of(Call(entry.name, entry.args)))

    @staticmethod
    def _entries(client: str, calls: Iterable[Call]) -> list[Entry]:
        return [Entry(client, call.name, call.args, 0, 0, Forgotten()) for call in calls]

    def _outcome(self, handles: dict[str, Any], entry: Entry, effect: PossibleEffect | None = None) -> Outcome:
        handle, operation = self._handle(handles, entry.client), self.contract[entry.name]
        refusals: tuple[type[Exception], ...] = (*operation.may_raise, *REFUSALS)
        try:
            value = _now(effect(handle) if effect else getattr(handle, entry.name)(*entry.args))
        except refusals as error:
            return refused(error, operation.may_raise)
        if operation.returns_nothing:
            return Returned(None)
        return Returned(plain(value, self._normalise, keeps_tuples=self.contract.same is not None))

    def _handle(self, handles: dict[str, Any], client: str) -> Any:
        if client not in handles:
            first = handles[""]
            handles[client] = first.handle() if hasattr(first, "handle") else first
        return handles[client]


def _check(handle: Any) -> None:
    try:
        frozen(handle)
    except CannotCompare as error:
        text = f"The reference {type(handle).__name__} keeps what cannot be compared: {error}"
        raise CannotCompare(text) from error.__cause__


def _ended(outcome: Outcome) -> str:
    return f"returned {outcome.value!r}" if isinstance(outcome, Returned) else f"was {outcome}"


def refused(error: BaseException, may_raise: tuple[type[Exception], ...] = ()) -> Refused:
    """Return the refusal that an error counts as, whatever its own class: one that the call may raise, or another."""
    kinds: tuple[type[Exception], ...] = (*may_raise, *REFUSALS)
    return Refused(next(kind for kind in kinds if isinstance(error, kind)))


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


def _holds(form: Any, wanted: Hashable) -> bool:
    if form == wanted:
        return True
    return isinstance(form, (tuple, frozenset)) and any(_holds(part, wanted) for part in form)
