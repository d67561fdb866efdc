"""Rebinding: replace references to real calls by stand-ins wherever a loaded module holds one, and restore them.

`from os import replace`, `sync_open = open` and a decorator around `os.rename` (aiofiles has all three) each keep the
real call under a name, in a closure, a default or a partial. Everything that a module defines is searched; the result
is cached while the module has the same number of names.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pytest_wfstate.faults.source_lines import is_installed, is_users

Swaps = dict[int, Any]
"""The id of each object to replace, and its replacement."""

_OURS = "pytest_wfstate.faults."
_DEEPEST = 3
_PLAIN = {str, int, bool, float, bytes, dict, list, tuple, set, frozenset, type(None), property, types.ModuleType}
_SUPPORTS = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids)


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceHolder:
    """A place that holds a reference."""

    get: Callable[[], Any]
    put: Callable[[Any], None]
    old: Any
    new: Any


@dataclasses.dataclass(frozen=True, slots=True)
class References:
    """Pairs of real calls and stand-ins, and the places where modules hold the real ones.

    They are valid in forks of the process too, which then need not search.
    """

    pairs: list[tuple[Any, Any]]
    swaps: Swaps
    places: list[ReferenceHolder]


@dataclasses.dataclass(slots=True)
class _KnownModule:
    module: Any
    names: int
    places: list[ReferenceHolder]


@dataclasses.dataclass(slots=True)
class _SearchedModules:
    """The modules that were searched. Usually nothing has changed since, which this tells quickly."""

    modules: list[Any]
    names: list[dict[str, Any]]
    sizes: list[int]

    @classmethod
    def now(cls) -> _SearchedModules:
        modules = list(sys.modules.values())
        names = [_names(module) for module in modules if _is_module(module)]
        return cls(modules, names, list(map(len, names)))

    def is_current(self) -> bool:
        """Whether these are all loaded modules, with as many names as then."""
        now = list(sys.modules.values())
        same = len(now) == len(self.modules) and all(map(operator.is_, now, self.modules))
        return same and list(map(len, self.names)) == self.sizes


class Rebinding:
    """References to real calls: `find` finds them, `do` replaces them by stand-ins, and `undo` restores them."""

    def __init__(self) -> None:
        self._known: dict[str, _KnownModule] = {}
        self._searched = _SearchedModules([], [], [])
        self._places: list[ReferenceHolder] = []
        self._done: list[ReferenceHolder] = []
        self._added: list[tuple[set[Any], Any]] = []
        self._back: Swaps = {}

    def find(self, pairs: Iterable[tuple[Any, Any]]) -> References:
        """Find the references that modules hold, without replacing them."""
        pairs = list(pairs)
        swaps = {id(real): new for real, new in pairs}
        return References(pairs, swaps, self._search(swaps))

    def do(self, references: References, frame: types.FrameType | None) -> None:
        """Replace these references, and those of functions that are local to the callers of `frame`."""
        self._back = {id(new): real for real, new in references.pairs}
        self._replace(references.places)
        for place in _local_places(frame, references.swaps):
            self._replace([place])
        for real, new in references.pairs:
            for supporting in _SUPPORTS:
                if real in supporting:
                    supporting.add(new)
                    self._added.append((supporting, new))

    def undo(self) -> None:
        """Restore everything, including the references of modules that were imported meanwhile."""
        for supporting, new in self._added:
            supporting.discard(new)
        for place in reversed(self._done):
            if place.get() is place.new:
                place.put(place.old)
        self._added.clear()
        self._done.clear()
        if self._searched.is_current():
            return
        for name, module in list(sys.modules.items()):
            if self._is_new(name, module):
                for place in _places(name, _names(module), self._back):
                    place.put(place.new)

    def _replace(self, places: list[ReferenceHolder]) -> None:
        for place in places:
            if place.get() is place.old:  # else it was changed since
                place.put(place.new)
                self._done.append(place)

    def _search(self, swaps: Swaps) -> list[ReferenceHolder]:
        """Find the places in all modules, searching only those that are new or have changed."""
        if self._searched.is_current():
            return self._places
        known = {}
        for name, module in list(sys.modules.items()):
            if self._is_new(name, module):
                names = _names(module)
                known[name] = _KnownModule(module, len(names), list(_places(name, names, swaps)))
            elif name in self._known:
                known[name] = self._known[name]
        self._known = known
        self._places = [place for module in known.values() for place in module.places]
        self._searched = _SearchedModules.now()
        return self._places

    def _is_new(self, name: str, module: Any) -> bool:
        if not _is_module(module) or name.startswith(_OURS):
            return False
        known = self._known.get(name)
        return known is None or known.module is not module or known.names != len(_names(module))


def _is_module(module: Any) -> bool:
    return issubclass(type(module), types.ModuleType)  # isinstance would load a lazy module


def _names(module: Any) -> dict[str, Any]:
    """Return the names of a module, without loading it if it is lazy."""
    names: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return names


def _places(name: str, names: dict[str, Any], swaps: Swaps) -> Iterator[ReferenceHolder]:
    """Yield every place in what a module defines."""
    seen: set[int] = set()
    for key, value in list(names.items()):
        kind = type(value)
        if id(value) in swaps:
            yield _item(names, key, value, swaps[id(value)])
        elif kind in _PLAIN:
            continue
        elif kind is types.FunctionType or kind is functools.partial:
            yield from _places_in(value, swaps, seen)
        elif issubclass(kind, type) and value.__module__ == name:  # isinstance would load a lazy object
            yield from _places_in_class(value, swaps, seen)


def _places_in_class(owner: type, swaps: Swaps, seen: set[int]) -> Iterator[ReferenceHolder]:
    for key, value in list(vars(owner).items()):
        if type(value) in _PLAIN:
            continue
        held = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if id(held) not in swaps:
            yield from _places_in(held, swaps, seen)
        elif held is value or isinstance(value, staticmethod):
            new = swaps[id(held)] if held is value else staticmethod(swaps[id(held)])
            yield ReferenceHolder(
                functools.partial(_static, owner, key), functools.partial(setattr, owner, key), value, new
            )


def _places_in(value: Any, swaps: Swaps, seen: set[int], depth: int = 0) -> Iterable[ReferenceHolder]:
    """Return the places in a function or partial, and in those that it holds."""
    kind = type(value)
    if kind is types.FunctionType:
        closure, defaults, keywords = value.__closure__, value.__defaults__, value.__kwdefaults__
        if (closure or defaults or keywords) and id(value) not in seen:
            seen.add(id(value))
            return _places_in_function(value, swaps, seen, depth)
    elif kind is functools.partial:
        if id(value.func) in swaps or any(id(arg) in swaps for arg in value.args):
            return [_partial(value, swaps)]
        if depth < _DEEPEST:
            return _places_in(value.func, swaps, seen, depth + 1)
    return ()


def _places_in_function(function: Any, swaps: Swaps, seen: set[int], depth: int) -> Iterator[ReferenceHolder]:
    defaults, keywords = function.__defaults__, function.__kwdefaults__
    if defaults and not swaps.keys().isdisjoint(map(id, defaults)):
        yield _attribute(function, "__defaults__", defaults, _swapped(defaults, swaps))
    for key, default in (keywords or {}).items():
        if id(default) in swaps:
            yield _item(keywords, key, default, swaps[id(default)])
    for cell in function.__closure__ or ():
        yield from _places_in_cell(cell, swaps, seen, depth)


def _places_in_cell(cell: Any, swaps: Swaps, seen: set[int], depth: int) -> Iterator[ReferenceHolder]:
    try:
        held = cell.cell_contents
    except ValueError:  # an empty cell
        return
    if id(held) in swaps:
        yield _attribute(cell, "cell_contents", held, swaps[id(held)])
    elif depth < _DEEPEST:
        yield from _places_in(held, swaps, seen, depth + 1)


def _local_places(frame: types.FrameType | None, swaps: Swaps) -> Iterator[ReferenceHolder]:
    """Yield the places in functions that the user's running functions have defined, such as a workload in a test."""
    seen: set[int] = set()
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_users(filename) and not is_installed(filename):
            for value in list(frame.f_locals.values()):
                yield from _places_in(value, swaps, seen)
        frame = frame.f_back


def _swapped(values: tuple[Any, ...], swaps: Swaps) -> tuple[Any, ...]:
    return tuple(swaps.get(id(value), value) for value in values)


def _item(names: dict[Any, Any], key: Any, old: Any, new: Any) -> ReferenceHolder:
    return ReferenceHolder(functools.partial(names.get, key), functools.partial(names.__setitem__, key), old, new)


def _attribute(owner: Any, name: str, old: Any, new: Any) -> ReferenceHolder:
    return ReferenceHolder(functools.partial(getattr, owner, name), functools.partial(setattr, owner, name), old, new)


def _static(owner: type, name: str) -> Any:
    return vars(owner).get(name)


def _partial(value: functools.partial[Any], swaps: Swaps) -> ReferenceHolder:
    old = (value.func, value.args)
    new = (swaps.get(id(value.func), value.func), _swapped(value.args, swaps))
    now = [old]

    def put(parts: tuple[Any, Any]) -> None:
        value.__setstate__((*parts, value.keywords, value.__dict__))  # type: ignore[attr-defined]
        now[0] = parts

    return ReferenceHolder(lambda: now[0], put, old, new)
