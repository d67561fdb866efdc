"""References: where an object refers to another, in a way that can be changed and changed back.

A dictionary, a list, a set, a cell of a closure, a function's defaults, a partial and an attribute can be changed in
place. A tuple, a frozenset, a method and a static method cannot: they are replaced by a copy wherever they are held.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Swap:
    """An object, and what replaces it."""

    old: Any
    new: Any


Swaps = dict[int, Swap]
"""What to replace, by id."""

_PLAIN = {dict, list, tuple, set, frozenset, types.CellType, types.FunctionType, functools.partial}
"""Types whose objects have no attributes of their own that matter."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReferenceHolder:
    """A place that holds a reference. It refers to the object by its swap, so that counts of references stay exact."""

    key: tuple[Any, ...]
    """Identifies it: the id of what it is in, and where in it."""
    get: Callable[[], Any]
    put: Callable[[Any], None]
    swap: Swap
    is_weak: bool = False
    """Whether it keeps nothing alive."""

    def holds(self, value: Any) -> bool:
        """Whether it refers to this object now."""
        try:
            return self.get() is value
        except (AttributeError, ValueError):  # a slot or a cell that was emptied
            return False


def is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether a value is an instance; unlike `isinstance`, this neither loads a lazy object nor believes a mock."""
    return issubclass(type(value), kind)


def references_in(holder: Any, swaps: Swaps, owner: Any = None) -> Iterator[ReferenceHolder]:
    """Yield the references of an object to what is to be replaced, as far as they can be changed in place.

    `owner` is whose `__dict__` the holder is, if that is known.
    """
    if is_a(owner, type):
        names = [(name, swaps[id(value)]) for name, value in holder.items() if id(value) in swaps]
        yield from (class_attribute(owner, name, swap) for name, swap in names)
    elif owner is not None:
        names = [(name, swaps[id(value)]) for name, value in holder.items() if id(value) in swaps]
        yield from (_instance_attribute(owner, name, swap) for name, swap in names)
    elif is_a(holder, dict):
        yield from _in_dict(holder, swaps)
    elif is_a(holder, (list, collections.deque)):
        yield from _in_sequence(holder, swaps)
    elif is_a(holder, set):
        yield from (_element(holder, swaps[id(value)]) for value in list(holder) if id(value) in swaps)
    elif is_a(holder, types.CellType):
        yield from _in_cell(holder, swaps)
    elif is_a(holder, types.FunctionType):
        if id(holder.__defaults__) in swaps:
            yield attribute(holder, "__defaults__", swaps[id(holder.__defaults__)])
    elif is_a(holder, functools.partial):
        yield from _in_partial(holder, swaps)
    if owner is None and type(holder) not in _PLAIN and not is_a(holder, (type, types.ModuleType)):
        yield from _in_instance(holder, swaps)  # classes and modules hold everything in their dictionaries


def copied(value: Any, swaps: Swaps) -> Any:
    """Return a copy of an immutable container with its items replaced, or None if it cannot be copied."""
    kind = type(value)
    if kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return tuple.__new__(kind, (_new(item, swaps) for item in value))
    if kind is frozenset:
        return frozenset(_new(item, swaps) for item in value)
    if kind in (staticmethod, classmethod):
        return kind(_new(value.__func__, swaps))
    if kind is types.MethodType:
        return kind(_new(value.__func__, swaps), _new(value.__self__, swaps))
    return None


def _new(value: Any, swaps: Swaps) -> Any:
    return swaps[id(value)].new if id(value) in swaps else value


def item(names: dict[Any, Any], key: Any, swap: Swap) -> ReferenceHolder:
    """Return the place of a value in a dictionary."""
    get, put = functools.partial(dict.get, names, key), functools.partial(dict.__setitem__, names, key)
    return ReferenceHolder((id(names), key), get, put, swap)


def attribute(owner: Any, name: str, swap: Swap) -> ReferenceHolder:
    """Return the place of an attribute that `setattr` can set."""
    get, put = functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)
    return ReferenceHolder((id(owner), name), get, put, swap)


def class_attribute(owner: type, name: str, swap: Swap) -> ReferenceHolder:
    """Return the place of an attribute in a class, whose dictionary must be changed through the class."""
    alive = weakref.ref(owner)

    def get() -> Any:
        found = alive()
        return None if found is None else vars(found).get(name)

    def put(value: Any) -> None:
        found = alive()
        if found is not None:
            setattr(found, name, value)

    return ReferenceHolder((id(owner), name), get, put, swap, is_weak=True)


def _in_dict(names: Any, swaps: Swaps) -> Iterator[ReferenceHolder]:
    for key, value in list(dict.items(names)):
        if id(value) in swaps:
            yield item(names, key, swaps[id(value)])
        if id(key) in swaps and type(names) in (dict, collections.defaultdict):
            yield _key(names, swaps[id(key)])


def _in_sequence(values: Any, swaps: Swaps) -> Iterator[ReferenceHolder]:
    for index, value in enumerate(list(values)):
        if id(value) in swaps:
            get, put = functools.partial(_value_at, values, index), functools.partial(values.__setitem__, index)
            yield ReferenceHolder((id(values), index), get, put, swaps[id(value)])


def _value_at(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else None


def _element(values: set[Any], swap: Swap) -> ReferenceHolder:
    def put(value: Any) -> None:
        values.difference_update((swap.old, swap.new))
        values.add(value)

    return ReferenceHolder((id(values), id(swap)), functools.partial(_found, values, swap), put, swap)


def _key(names: dict[Any, Any], swap: Swap) -> ReferenceHolder:
    def put(value: Any) -> None:
        pairs = [(value if key is swap.old or key is swap.new else key, held) for key, held in names.items()]
        names.clear()
        names.update(pairs)

    return ReferenceHolder((id(names), id(swap), "key"), functools.partial(_found, names, swap), put, swap)


def _found(values: Any, swap: Swap) -> Any:
    return next((value for value in (swap.old, swap.new) if value in values), None)


def _in_cell(cell: Any, swaps: Swaps) -> Iterator[ReferenceHolder]:
    try:
        held = id(cell.cell_contents)
    except ValueError:  # an empty cell
        return
    if held in swaps:
        yield attribute(cell, "cell_contents", swaps[held])


def _in_partial(partial: Any, swaps: Swaps) -> Iterator[ReferenceHolder]:
    def put(func: Any, args: Any) -> None:
        partial.__setstate__((func, args, partial.keywords, partial.__dict__))

    func, args = swaps.get(id(partial.func)), swaps.get(id(partial.args))
    if func is not None:
        yield ReferenceHolder((id(partial), "func"), lambda: partial.func, lambda new: put(new, partial.args), func)
    if args is not None:
        yield ReferenceHolder((id(partial), "args"), lambda: partial.args, lambda new: put(partial.func, new), args)


def _in_instance(instance: Any, swaps: Swaps) -> Iterator[ReferenceHolder]:
    try:
        names = object.__getattribute__(instance, "__dict__")
    except AttributeError:
        names = {}
    if names:
        yield from references_in(names, swaps, instance)
    for owner in type(instance).__mro__:
        for slot in vars(owner).values():
            if type(slot) is types.MemberDescriptorType:
                yield from _in_slot(instance, slot, swaps)


def _instance_attribute(instance: Any, name: str, swap: Swap) -> ReferenceHolder:
    try:
        owner = weakref.ref(instance)
    except TypeError:
        return item(object.__getattribute__(instance, "__dict__"), name, swap)

    def names() -> dict[str, Any]:
        alive = owner()
        return {} if alive is None else object.__getattribute__(alive, "__dict__")

    def put(value: Any) -> None:
        names()[name] = value

    return ReferenceHolder((id(instance), name), lambda: names().get(name), put, swap, is_weak=True)


def _in_slot(instance: Any, slot: Any, swaps: Swaps) -> Iterator[ReferenceHolder]:
    try:
        held = id(slot.__get__(instance))
        if held not in swaps:
            return
        slot.__set__(instance, slot.__get__(instance))
    except (AttributeError, TypeError):  # it is empty, or read-only
        return
    get, put = functools.partial(slot.__get__, instance), functools.partial(slot.__set__, instance)
    yield ReferenceHolder((id(instance), id(slot)), get, put, swaps[held])
