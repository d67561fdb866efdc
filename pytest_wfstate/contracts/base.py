"""A contract as data: its operations, and the reference that defines what they do.

Everything that tests a store works from this alone, so your own contracts are tested like those of this package: write
a plain class that does in memory what your store should do, list its methods, and hand both to a suite.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_wfstate.errors import InvalidSetting

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["ANY_TIME", "Call", "Contract", "GeneratedValues", "Ids", "Operation", "PossibleEffect", "ResultOf"]

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
    """Stands for an argument that only an earlier call can provide, such as a token.

    It is a text or a number that a method returned, or the `token` of a record that it returned.
    """

    name: str
    nth: int = -1
    """Which of those that it returned: 0 is the first, -1 the last."""
    of: tuple[Any, ...] = ()
    """Only calls count whose arguments begin with these. Tokens that count up are the same for different ids."""


class GeneratedValues:
    """What a reference cannot know by itself: the time, and the ids and tokens that a store generates."""

    _UNSEEN = "never-seen-"

    def __init__(self) -> None:
        self._id: str | int | None = None
        self._unseen = 0
        self.is_used = False
        """Whether the last call has generated an id or a token."""
        self.must_be_new = False
        """Whether what it has generated must be new to the store."""

    def time(self) -> datetime.datetime:
        """Return the time that stands for any time."""
        return ANY_TIME

    def id(self) -> Any:
        """Return the id that the store returned; if it died before that, one that is never asked for."""
        self.is_used = self.must_be_new = True
        return self._id if self._id is not None else self._never_seen()

    def token_after(self, last: Any) -> Any:
        """Return the token that the store returned, if it is greater than `last`; else one that is never returned."""
        self.is_used = True
        token: Any = self._id
        if token is None or last is None or self.is_unseen(last):
            return self._never_seen() if token is None else token
        return token if type(token) is type(last) and token > last else self._never_seen()

    def use(self, id_: str | int | None) -> None:
        """Have the next call generate the id or token that a store returned, if it did."""
        self._id = id_
        self.is_used = self.must_be_new = False

    def _never_seen(self) -> str:
        self._unseen += 1
        return f"{self._UNSEEN}{self._unseen}"

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
    keys: Callable[..., Iterable[Hashable] | None] | None = None
    """Given the arguments, the ids that the call reads or changes, or None for all. Without it, every call is about
    all ids."""
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
    at_random: bool = True
    """Whether random calls and storms make it. One that is left out is called by scripts, scenarios and races alone."""
    returns_nothing: bool = False
    """Whether the contract says nothing of what it returns: then a store may return anything."""
    ordered: bool = True
    """Whether the contract promises the order of a list that it returns."""
    result: Callable[[Any], Any] | None = None
    """Given what a store returned, the result to compare with that of the reference. It may be async. What it is given,
    and what it returns, is read to the end if that is an iterator."""
    unspecified: Callable[..., bool] | None = None
    """Given a handle of the reference before the call and the arguments, whether the contract leaves open what it
    returns. A store may then return anything, or refuse the call, which then has no effect."""
    may_raise: tuple[type[Exception], ...] = ()
    """Errors that it may raise at any time, such as that a lock is held. The call then has no effect."""
    async_name: str = ""
    """The name of the same method as a coroutine, such as `aget` of `get`. A store may have either or both."""
    values: Callable[[str], SearchStrategy[tuple[Any, ...]]] | None = None
    """Given an id, a strategy for arguments with every value that has to be kept. By default, the operation that
    `Contract.write` calls has those of `arguments`, with every value in each field of a pydantic model."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing.

        Raises:
            InvalidSetting: `may_raise` is not a tuple of errors, or `async_name` is the name itself.
        """
        if not isinstance(self.may_raise, tuple) or not all(map(is_refusal, self.may_raise)):
            raise InvalidSetting(
                f"may_raise of operation {self.name!r} is {self.may_raise!r}. It must be a tuple of error classes, "
                "such as (MyError,): neither Exception nor OSError, which other problems raise, too."
            )
        if self.async_name == self.name:
            raise InvalidSetting(
                f"async_name of operation {self.name!r} is its own name. A method of one name may be sync or async: "
                "omit async_name unless stores have a second method."
            )

    def __call__(self, *args: Any) -> Call:
        """Return a call of this method."""
        return Call(self.name, args, self.keywords[: max(0, len(args) - self.positional)])

    def keys_of(self, args: tuple[Any, ...]) -> list[Hashable] | None:
        """Return the ids that a call reads or changes, or None for all."""
        keys = self.keys(*args) if self.keys else None
        return None if keys is None else list(keys)

    def possible_effects(self, handle: Any, args: tuple[Any, ...], *, died: bool) -> list[PossibleEffect]:
        """Return everything that a call may have done, if it did anything."""
        whole: list[PossibleEffect] = [lambda store: getattr(store, self.name)(*args)]
        return [*whole, *self.partial_effects(handle, *args)] if died and self.partial_effects else whole


def is_refusal(error: Any) -> bool:
    """Whether a value is a class of errors that can be told from those that other problems raise."""
    return isinstance(error, type) and issubclass(error, Exception) and not issubclass(OSError, error)


@dataclasses.dataclass(frozen=True, slots=True)
class Ids:
    """The ids that clauses about ids use. None means those that the contracts of this package are asked with."""

    good: Sequence[str] | None = None
    """Ids that every store must take, unless its suite declares otherwise in `accepts`."""
    bad: Sequence[str] | None = None
    """Ids with which every store does what the reference does, which is most often to refuse them."""
    pairs: Sequence[tuple[str, str]] | None = None
    """Ids that are different, however similar they look."""


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
    remove: Callable[[str], Call] | None = None
    """Returns a call that removes the record with this id, if there is such a method: clauses about it follow."""
    ids: Ids = Ids()
    """The ids that clauses about ids use."""
    same: Callable[[Any, Any], bool] | None = None
    """Whether a result, the second, is the one that the reference returns, the first: `exactly`, or a function of your
    own. Both are as they were returned. By default a list and a tuple are the same, as are 0.0 and -0.0."""
    show: Callable[[Any], str | None] | None = None
    """Formats an argument or a result for reports. None means as usual."""

    def __getitem__(self, name: str) -> Operation:
        """Return the operation with this name."""
        return next(operation for operation in self.operations if operation.name == name)

    @property
    def methods(self) -> list[str]:
        """The names of all methods that a store may have."""
        return [name for each in self.operations for name in (each.name, each.async_name) if name]

    def reads_of(self, call: Call) -> list[Call]:
        """Return calls that show what a call changes."""
        keys = self[call.name].keys_of(call.args)
        ids = [id_ for id_ in (call.args if keys is None else keys) if isinstance(id_, str)]
        return list(self.reads(ids or ["a"]))

    def observe(self, ids: Sequence[str]) -> list[Call]:
        """Return the calls that show everything, including what only a recovery reveals."""
        reads = list(self.reads(ids))
        return [*reads, self.recovery, *reads] if self.recovery else reads
