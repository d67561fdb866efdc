"""Rebinding: replace references to real calls by stand-ins wherever something holds one, and restore them.

`from os import replace`, `sync_open = open` and a decorator around `os.rename` (aiofiles has all three) each keep the
real call under a name, in a closure, a default or a partial. Everything that a module defines is searched; the result
is cached while the module has the same number of names. Other objects are searched only if there are references that
the modules do not explain.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import operator
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from pytest_wfstate.faults.record.heap_search import HeapSearch, ReferenceCount
from pytest_wfstate.faults.record.owners import OURS
from pytest_wfstate.faults.record.references import (
    ReferenceHolder,
    Swap,
    Swaps,
    attribute,
    class_attribute,
    copied,
    is_a,
    item,
    references_in,
)

_DEEPEST = 3
_PLAIN = {str, int, bool, float, bytes, dict, list, tuple, set, frozenset, type(None), property, types.ModuleType}


@dataclasses.dataclass(frozen=True, slots=True)
class References:
    """Pairs of real calls and stand-ins, and the places that hold the real ones.

    They are valid in forks of the process too, which then need not search.
    """

    pairs: list[tuple[Any, Any]]
    places: list[ReferenceHolder]
    unseen: list[str]
    """Why calls through some references cannot be seen."""


@dataclasses.dataclass(slots=True)
class FoundReferences:
    """What searches beyond modules found, for as long as one exploration runs: it keeps objects alive."""

    places: list[ReferenceHolder] = dataclasses.field(default_factory=list)
    hidden: dict[int, int] = dataclasses.field(default_factory=dict)
    """How many references cannot be replaced, by the id of the call: a function that waits for the exploration to end
    may have one, or a tool of the test."""
    unseen: list[str] = dataclasses.field(default_factory=list)
    """Why calls through some references cannot be seen."""


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
        self._swaps: Swaps = {}
        self._known: dict[str, _KnownModule] = {}
        self._searched = _SearchedModules([], [], [])
        self._places: list[ReferenceHolder] = []
        self._kept: list[ReferenceHolder] = []
        """Places in objects and in containers of modules, which can be kept without keeping anything alive."""
        self._ours: collections.Counter[int] = collections.Counter()
        self._hidden: dict[int, int] = {}
        self._passing: set[int] = set()
        """The ids of what the last search found places in that cannot be kept."""
        self._alive: set[int] = set()
        """The ids of what was still there after garbage was collected."""
        self._done: list[ReferenceHolder] = []
        self._back: Swaps = {}

    def find(
        self,
        pairs: Iterable[tuple[Any, Any]],
        silent: Mapping[int, str] | None = None,
        known: FoundReferences | None = None,
        incidental: Set[int] = frozenset(),
    ) -> References:
        """Find all references, without replacing them.

        `silent` names the calls, by id, that raise no audit event: a reference to one that cannot be replaced is
        something that cannot be seen. What is in `known` is not searched for again. References to the calls in
        `incidental`, by id, are found in modules, and otherwise only if another call needs a search.
        """
        pairs = list(pairs)
        swaps: Swaps = {}
        for real, new in pairs:
            swaps[id(real)] = self._swaps.setdefault(id(real), Swap(real, new))
        is_current = self._searched.is_current()
        places = self._places if is_current else self._search(swaps)
        if not is_current:
            self._kept = self._keepable(self._kept)
        found, unseen = self._search_heap(swaps, places, silent or {}, known or FoundReferences(), incidental)
        return References(pairs, [*places, *found], unseen)

    def has_seen_all_modules(self) -> bool:
        """Whether no module was loaded or changed since the last search."""
        return self._searched.is_current()

    def do(self, references: References) -> None:
        """Replace these references."""
        self._back = {id(new): Swap(new, real) for real, new in references.pairs}
        for place in references.places:
            if place.holds(place.swap.old):  # else it was changed since
                place.put(place.swap.new)
                self._done.append(place)

    def undo(self) -> None:
        """Restore everything, including the references of modules that were imported meanwhile."""
        for place in reversed(self._done):
            if place.holds(place.swap.new):
                place.put(place.swap.old)
        self._done.clear()
        if not self._searched.is_current():
            for name, module in list(sys.modules.items()):
                if self._is_new(name, module):
                    for place in _places(name, _names(module), self._back):
                        place.put(place.swap.new)
        self._back = {}

    def _search_heap(
        self,
        swaps: Swaps,
        places: list[ReferenceHolder],
        silent: Mapping[int, str],
        known: FoundReferences,
        incidental: Set[int],
    ) -> tuple[list[ReferenceHolder], list[str]]:
        """Find the references that modules do not explain."""
        wanted = self._unexplained(swaps, places, silent, known)
        search = None if incidental >= wanted else self._heap_searched(swaps, wanted, places, silent, known)
        if search is not None and self._may_be_garbage(search):
            search = None  # it keeps alive what it found
            gc.collect()
            wanted = self._unexplained(swaps, places, silent, known)
            search = None if incidental >= wanted else self._heap_searched(swaps, wanted, places, silent, known)
            self._alive = set() if search is None else {place.key[0] for place in search.places}
        found = [*self._kept, *known.places]
        if search is None:
            return found, known.unseen
        new = _new_places(search, [*places, *found])
        keepable = self._keepable(new)
        self._kept += keepable
        passing = [place for place in new if place not in keepable]
        self._passing = {place.key[0] for place in passing}
        known.places += passing
        rest = ReferenceCount(swaps, [*places, *found, *new], self._ours).unexplained()
        for key in wanted:
            self._hidden[key] = known.hidden[key] = rest.get(key, 0)
        known.unseen += search.unseen
        return [*found, *new], known.unseen

    def _heap_searched(
        self,
        swaps: Swaps,
        wanted: set[int],
        places: list[ReferenceHolder],
        silent: Mapping[int, str],
        known: FoundReferences,
    ) -> HeapSearch:
        """Search the heap, including what is frozen only if the rest does not explain all references."""
        if gc.get_freeze_count():
            search = HeapSearch(swaps, wanted, silent)
            if search.replaces_all and self._explains(search, swaps, wanted, places, silent, known):
                return search
            del search  # it keeps alive what it found
            gc.unfreeze()  # for good: what is frozen now may be objects of the test, which would never be collected
        search = HeapSearch(swaps, wanted, silent)
        search.explain()
        for key in wanted:
            self._ours[key] = search.ours[key]
        return search

    def _explains(
        self,
        search: HeapSearch,
        swaps: Swaps,
        wanted: set[int],
        places: list[ReferenceHolder],
        silent: Mapping[int, str],
        known: FoundReferences,
    ) -> bool:
        """Whether a search found every reference that was not known."""
        found = [*places, *self._kept, *known.places]
        count = ReferenceCount(swaps, [*found, *_new_places(search, found)], self._ours)
        return wanted.isdisjoint(self._more_than_hidden(count, silent, known))

    def _may_be_garbage(self, search: HeapSearch) -> bool:
        """Whether a search found what cannot be replaced, or found something again that may not be needed any more."""
        again = self._passing.intersection(place.key[0] for place in search.places)
        return bool(search.unseen) or not again <= self._alive

    def _unexplained(
        self, swaps: Swaps, places: list[ReferenceHolder], silent: Mapping[int, str], known: FoundReferences
    ) -> set[int]:
        """Return the calls, by id, that have more references than are known."""
        self._kept = [place for place in self._kept if place.holds(place.swap.old)]
        known.places = [place for place in known.places if place.holds(place.swap.old)]
        count = ReferenceCount(swaps, [*places, *self._kept, *known.places], self._ours)
        unexplained = count.unexplained()
        for counts in (self._hidden, known.hidden):
            counts.update({key: min(count, unexplained.get(key, 0)) for key, count in counts.items()})
        return self._more_than_hidden(count, silent, known)

    def _more_than_hidden(self, count: ReferenceCount, silent: Mapping[int, str], known: FoundReferences) -> set[int]:
        """Return the calls, by id, to which there are more references than the known and the hidden ones.

        Native code may have a reference for good. If its use raises an audit event, that suffices to notice it.
        """
        more = count.unexplained()
        hidden = {key: known.hidden.get(key, 0 if key in silent else self._hidden.get(key, 0)) for key in more}
        return {key for key in more if more[key] > hidden[key]}

    def _keepable(self, places: list[ReferenceHolder]) -> list[ReferenceHolder]:
        """Return the places that can be kept: those in containers of modules, and those that keep nothing alive."""
        held = {place.key[0] for place in places if not place.is_weak}
        if not held:
            return places
        containers = held.intersection(id(value) for names in self._searched.names for value in names.values())
        return [place for place in places if place.is_weak or place.key[0] in containers]

    def _search(self, swaps: Swaps) -> list[ReferenceHolder]:
        """Find the places in all modules, searching only those that are new or have changed."""
        known = {}
        for name, module in list(sys.modules.items()):
            if self._is_new(name, module):
                names = _names(module)
                known[name] = _KnownModule(module, len(names), list(_places(name, names, swaps)))
            elif name in self._known:
                known[name] = self._known[name]
        self._known = known
        # Two modules may define the same function; a place that is counted twice would hide another one.
        self._places = list({place.key: place for module in known.values() for place in module.places}.values())
        self._searched = _SearchedModules.now()
        return self._places

    def _is_new(self, name: str, module: Any) -> bool:
        if not _is_module(module) or name.startswith(OURS):
            return False
        known = self._known.get(name)
        return known is None or known.module is not module or known.names != len(_names(module))


def _new_places(search: HeapSearch, known: Iterable[ReferenceHolder]) -> list[ReferenceHolder]:
    """Return each place that a search found and that is not known, once."""
    keys = {place.key for place in known}
    return list({place.key: place for place in search.places if place.key not in keys}.values())


def _is_module(module: Any) -> bool:
    return is_a(module, types.ModuleType)


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
            yield item(names, key, swaps[id(value)])
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
        elif held is value:
            yield class_attribute(owner, key, swaps[id(held)])
        else:
            yield class_attribute(owner, key, Swap(value, copied(value, swaps)))


def _places_in(value: Any, swaps: Swaps, seen: set[int], depth: int = 0) -> Iterable[ReferenceHolder]:
    """Return the places in a function or partial, and in those that it holds."""
    kind = type(value)
    if kind is types.FunctionType:
        closure, defaults, keywords = value.__closure__, value.__defaults__, value.__kwdefaults__
        if (closure or defaults or keywords) and id(value) not in seen:
            seen.add(id(value))
            return _places_in_function(value, swaps, seen, depth)
    elif kind is functools.partial:
        return _places_in_partial(value, swaps, seen, depth)
    return ()


def _places_in_function(function: Any, swaps: Swaps, seen: set[int], depth: int) -> Iterator[ReferenceHolder]:
    defaults = function.__defaults__
    if defaults and not swaps.keys().isdisjoint(map(id, defaults)):
        yield attribute(function, "__defaults__", Swap(defaults, copied(defaults, swaps)))
    yield from references_in(function.__kwdefaults__ or {}, swaps)
    for cell in function.__closure__ or ():
        yield from references_in(cell, swaps)
        yield from _places_in_cell(cell, swaps, seen, depth)


def _places_in_cell(cell: Any, swaps: Swaps, seen: set[int], depth: int) -> Iterable[ReferenceHolder]:
    try:
        held = cell.cell_contents
    except ValueError:  # an empty cell
        return ()
    return _places_in(held, swaps, seen, depth + 1) if depth < _DEEPEST else ()


def _places_in_partial(partial: Any, swaps: Swaps, seen: set[int], depth: int) -> Iterator[ReferenceHolder]:
    args = partial.args
    held = {id(args): Swap(args, copied(args, swaps))} if not swaps.keys().isdisjoint(map(id, args)) else {}
    yield from references_in(partial, swaps | held)
    if depth < _DEEPEST:
        yield from _places_in(partial.func, swaps, seen, depth + 1)
