"""A contract as data: its operations, and the reference that defines what they do.

Everything that tests a store works from this alone, so your own contracts are tested like those of this package: write
a plain class that does in memory what your store should do, list its methods, and hand both to a suite.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["ANY_TIME", "Call", "Contract", "GeneratedValues", "Operation", "PossibleEffect", "ResultOf"]

ANY_TIME = datetime.datetime(2001, 2, 3, 4, 5, 6, 789000, tzinfo=datetime.UTC)
"""The time that the reference writes. In a comparison, it equals whatever time a store has written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of a store's method."""

    name: str
    args: tuple[Any, ...] = ()
    keywords: tuple[str, ...] = ()
    """The names of the last arguments, if those are passed by name."""

    def split(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments."""
        first = len(self.args) - len(self.keywords)
        return self.args[:first], dict(zip(self.keywords, self.args[first:], strict=True))

    @property
    def needs_results(self) -> bool:
        """Whether an argument stands for the result of an earlier call."""
        return any(isinstance(arg, ResultOf) for arg in self.args)


@dataclasses.dataclass(frozen=True, slots=True)
class ResultOf:
    """Stands for an argument that only an earlier call can provide, such as a token: text that a method returned."""

    name: str
    nth: int = -1
    """Which of the texts that it returned: 0 is the first, -1 the last."""


class GeneratedValues:
    """What a reference cannot know by itself: the time, and the ids and tokens that a store generates."""

    _UNSEEN = "never-seen-"

    def __init__(self) -> None:
        self._id: str | None = None
        self._unseen = 0
        self.is_used = False
        """Whether the last call has generated an id."""

    def time(self) -> datetime.datetime:
        """Return the time that stands for any time."""
        return ANY_TIME

    def id(self) -> str:
        """Return the id that the store returned; if it died before that, one that is never asked for."""
        self._unseen += 1
        self.is_used = True
        return self._id if self._id is not None else f"{self._UNSEEN}{self._unseen}"

    def use(self, id_: str | None) -> None:
        """Have the next call generate the id that a store returned, if it did."""
        self._id = id_
        self.is_used = False

    def is_unseen(self, value: Any) -> bool:
        """Whether a value stands for any id that a store could have generated."""
        return isinstance(value, str) and value.startswith(self._UNSEEN)

    def __deepcopy__(self, _: Any) -> GeneratedValues:
        return self  # shared by all copies of a reference


PossibleEffect = Callable[[Any], Any]
"""One thing that a call may do: applied to a handle of the reference, it does so and returns the result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One method of a contract."""

    name: str
    arguments: Callable[[Sequence[str]], SearchStrategy[tuple[Any, ...]]]
    """Given some ids, a strategy for the arguments."""
    mutates: bool = False
    """Whether it can change anything."""
    keywords: tuple[str, ...] = ()
    """The names of the last arguments, which are passed by name and may be left out."""
    positional: int = 1
    """How many arguments are passed by position."""
    required: bool = False
    """Whether every store must have it."""
    keys: Callable[..., Iterable[Hashable]] | None = None
    """Given the arguments, the ids that the call reads or changes. None means all."""
    project: Callable[[Any, Container[Any]], Any] | None = None
    """For an operation that reads all ids: given its result and some ids, the part about those, or `...` if none. With
    this, long histories are judged in parts, as if the operation were called once for each part."""
    partial_effects: Callable[..., Iterable[PossibleEffect]] | None = None
    """Given a handle of the reference and the arguments, what a call that dies may have done other than nothing or
    everything. None means that the call is atomic."""
    generates_id: bool = False
    """Whether it returns the id of a record that the store generates, which must be new."""
    in_storms: bool = True
    """Whether storms call it. They cannot pass what it returns to another call."""
    returns_nothing: bool = False
    """Whether the contract says nothing of what it returns: then a store may return anything."""
    ordered: bool = True
    """Whether the contract promises the order of a list that it returns."""
    values: Callable[[str], SearchStrategy[tuple[Any, ...]]] | None = None
    """Given an id, a strategy for arguments with every value that has to be kept. By default, the operation that
    `Contract.write` calls has those of `arguments`, with every value in each field of a pydantic model."""

    def __call__(self, *args: Any) -> Call:
        """Return a call of this method."""
        return Call(self.name, args, self.keywords[: max(0, len(args) - self.positional)])

    def possible_effects(self, handle: Any, args: tuple[Any, ...], *, died: bool) -> list[PossibleEffect]:
        """Return everything that a call may have done, if it did anything."""
        whole: list[PossibleEffect] = [lambda store: getattr(store, self.name)(*args)]
        return [*whole, *self.partial_effects(handle, *args)] if died and self.partial_effects else whole


@dataclasses.dataclass(frozen=True, slots=True)
class Contract:
    """What every store of one kind promises."""

    name: str
    operations: Sequence[Operation]
    reference: Callable[[GeneratedValues], Any]
    """Returns an empty reference: plain, correct and in memory. Its `handle()`, if any, opens another handle."""
    write: Callable[[str, int], Call]
    """Returns a call that saves a record with this id; different numbers give different records."""
    reads: Callable[[Sequence[str]], Sequence[Call]]
    """Returns the calls that show everything about these ids."""
    recovery: Call | None = None
    """The call that a worker makes first when it starts, if any."""
    replaced: Callable[[Call], Sequence[Call]] | None = None
    """Given a call that saves a record, the calls that show the record that it would replace. By default, those of
    `reads` for its ids."""

    def __getitem__(self, name: str) -> Operation:
        """Return the operation with this name."""
        return next(operation for operation in self.operations if operation.name == name)

    def reads_of(self, call: Call) -> list[Call]:
        """Return calls that show what a call changes."""
        keys = self[call.name].keys
        ids = [id_ for id_ in (keys(*call.args) if keys else call.args) if isinstance(id_, str)]
        return list(self.reads(ids or ["a"]))

    def observe(self, ids: Sequence[str]) -> list[Call]:
        """Return the calls that show everything, including what only a recovery reveals."""
        reads = list(self.reads(ids))
        return [*reads, self.recovery, *reads] if self.recovery else reads
