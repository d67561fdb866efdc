"""A contract as data: its operations, and the reference that says what they do.

Whatever tests a store works from this alone, so that it serves the contracts of this package and those of others:
write a plain class that does in memory what your store should do, name its methods, and hand both to a suite.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["ANY_TIME", "Call", "Contract", "Invented", "Operation"]

ANY_TIME = datetime.datetime(2001, 2, 3, 4, 5, 6, 789000, tzinfo=datetime.UTC)
"""What the reference takes the time to be. In its records it stands for whatever time a store has written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of a store's method."""

    name: str
    args: tuple[Any, ...] = ()
    keywords: tuple[str, ...] = ()
    """Names for the last arguments, if they are given by name."""

    def split(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments as they are passed: by place, and by name."""
        first = len(self.args) - len(self.keywords)
        return self.args[:first], dict(zip(self.keywords, self.args[first:], strict=True))


class Invented:
    """What a reference cannot know by itself: the time, and the ids that a store has made up."""

    def __init__(self) -> None:
        self._given: str | None = None
        self._made = 0

    def time(self) -> datetime.datetime:
        """Give the time that stands for any."""
        return ANY_TIME

    def id(self) -> str:
        """Give the id that the store has returned; if it died before it could, one that nobody will ever ask for."""
        self._made += 1
        return self._given if self._given is not None else f"never-seen-{self._made}"

    def give(self, result: Any) -> None:
        """Have the next call make up what a store returned, if that can be an id."""
        self._given = result if isinstance(result, str) else None

    def __deepcopy__(self, _: Any) -> Invented:
        return self  # all copies of a reference ask the same one


Way = Callable[[Any], Any]
"""One thing that a call may do: called with a handle of the reference, it does it and gives the result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One method of a contract."""

    name: str
    arguments: Callable[[Sequence[str]], SearchStrategy[tuple[Any, ...]]]
    """Given some ids, arguments for hypothesis to choose from."""
    mutates: bool = False
    """Whether it changes anything."""
    keywords: tuple[str, ...] = ()
    """Arguments that are given by name, and may be left out: they are the last ones."""
    positional: int = 1
    """How many arguments are given by place."""
    required: bool = False
    """Whether there is no store without it."""
    keys: Callable[..., Iterable[Hashable]] | None = None
    """Given the arguments, the ids that the call depends on or changes. None means all."""
    project: Callable[[Any, Container[Any]], Any] | None = None
    """Of an operation that depends on all ids: given its result and some ids, what the result tells of those, or `...`
    if nothing. With this, long histories are judged in parts, as if it were a call for each."""
    partial_effects: Callable[..., Iterable[Way]] | None = None
    """Given a handle of the reference and the arguments, what the call may come to if it dies, other than nothing or
    all of it. None means that there is nothing else: the call is atomic."""
    generates_id: bool = False
    """Whether it returns an id that the store makes up, which must be new."""

    def __call__(self, *args: Any) -> Call:
        """Give a call of this method."""
        return Call(self.name, args, self.keywords[: max(0, len(args) - self.positional)])

    def ways(self, handle: Any, args: tuple[Any, ...], *, died: bool) -> list[Way]:
        """Give all that a call may do, if it does anything."""
        whole: list[Way] = [lambda store: getattr(store, self.name)(*args)]
        return [*whole, *self.partial_effects(handle, *args)] if died and self.partial_effects else whole


@dataclasses.dataclass(frozen=True, slots=True)
class Contract:
    """What stores of one kind promise."""

    name: str
    operations: Sequence[Operation]
    reference: Callable[[Invented], Any]
    """Makes an empty reference: in memory, plain, and right. Its `handle()`, if it has one, opens another handle."""
    write: Callable[[str, int], Call]
    """Saves a record of this id; records of different numbers differ."""
    reads: Callable[[Sequence[str]], Sequence[Call]]
    """Shows all that can be seen of these ids."""
    recovery: Call | None = None
    """What a worker does first when it starts, if anything."""

    def __getitem__(self, name: str) -> Operation:
        """Give the operation of this name."""
        return next(one for one in self.operations if one.name == name)

    def observe(self, ids: Sequence[str]) -> list[Call]:
        """Give the calls that show all there is: what only a recovery brings to light, too."""
        looks = list(self.reads(ids))
        return [*looks, self.recovery, *looks] if self.recovery else looks
