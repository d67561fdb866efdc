"""The heap search: who refers to a real call, besides what the loaded modules define.

Anything can hold `os.fsync`: a dictionary, an object, a queue. The garbage collector finds them all, but has to look at
every object for it. So references are counted first (`ReferenceCount`): if modules and this package explain how often
a call is referred to, nobody else holds it, and there is nothing to search.
"""

from __future__ import annotations

import collections
import gc
import sys
import sysconfig
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pytest_wfstate.faults.record.owners import (
    OURS,
    cached_by_freezegun,
    module_of,
    our_containers,
    owner_under_test,
    owners_of,
    running_locals,
)
from pytest_wfstate.faults.record.references import (
    ReferenceHolder,
    Swap,
    Swaps,
    copied,
    is_a,
    references_in,
)

_COUNTED = (types.BuiltinFunctionType, types.MethodType)
_COUNTS_ARE_EXACT = not sysconfig.get_config_var("Py_GIL_DISABLED")
_DEEPEST = 4  # a tuple in a tuple in a tuple


class ReferenceCount:
    """How often each real call is referred to, and how many of these references are in known places."""

    def __init__(self, swaps: Swaps, known: Iterable[ReferenceHolder], ours: Mapping[int, int]) -> None:
        self._calls = [swap.old for swap in swaps.values() if type(swap.old) in _COUNTED]
        self._known = collections.Counter(ours)
        self._known.update(id(held) for _, held in cached_by_freezegun())
        copies: set[int] = set()
        for place in known:
            old = place.swap.old
            if not place.holds(old):
                continue
            if id(old) in swaps:
                self._known[id(old)] += 1
            elif id(old) not in copies:  # such as a tuple of defaults, which two functions may share
                copies.add(id(old))
                self._known.update(map(id, gc.get_referents(old)))

    def unexplained(self) -> dict[int, int]:
        """Return how many other references there are to each call that has any, by its id."""
        more: dict[int, int] = {}
        for index in range(len(self._calls)):
            key = id(self._calls[index])
            count = _references(self._calls, index) - self._known[key]
            if count > 0 or not _COUNTS_ARE_EXACT:
                more[key] = count
        return more


def _references(calls: list[Any], index: int, overhead: int | None = None) -> int:
    """Count the references to a call in a list, without that of the list."""
    return sys.getrefcount(calls[index]) - (_OVERHEAD if overhead is None else overhead)


_OVERHEAD = _references([object()], 0, 0)


class HeapSearch:
    """One search for all references to some calls, by id. `silent` names those whose use raises no audit event.

    Objects that are frozen are not searched, unless they are unfrozen before.
    """

    def __init__(self, swaps: Swaps, wanted: Collection[int], silent: Mapping[int, str]) -> None:
        self.places: list[ReferenceHolder] = []
        self.unseen: list[str] = []
        """Why calls through some references cannot be seen."""
        self.ours: collections.Counter[int] = collections.Counter()
        """References in this package, by the id of the call."""
        self._hidden: dict[int, int] = {}
        """References that are in no object, by the id of the call: those of native code and of running functions."""
        self._swaps = swaps
        self._names = dict(silent)
        self._our_containers = our_containers()
        self._cached = set(map(id, cached_by_freezegun()))
        self._stuck: list[tuple[Any, str]] = []
        self._search([swaps[key].old for key in wanted])

    def _search(self, calls: list[Any]) -> None:
        holders = gc.get_referrers(*calls)
        found = self._count(holder for holder in holders if holder is not calls)
        for index in range(len(calls)):
            self._hidden[id(calls[index])] = _references(calls, index) - found[id(calls[index])]
        swaps = self._swaps
        for _ in range(_DEEPEST):
            swaps = self._follow(holders, swaps, calls)
            holders.clear()  # it holds them, too
            if not swaps:
                break
            calls = [swap.old for swap in swaps.values()]
            holders = gc.get_referrers(*calls)
            self._count_our_copies(calls, holders)

    def _count(self, holders: Iterable[Any]) -> collections.Counter[int]:
        """Return how often these refer to each call, by its id, and take note of those that are ours."""
        found: collections.Counter[int] = collections.Counter()
        for holder in holders:
            counts = collections.Counter(key for key in map(id, gc.get_referents(holder)) if key in self._swaps)
            found += counts
            if self._is_ours(holder) and id(holder) not in self._cached:  # that changes, so it is counted each time
                self.ours += counts
        return found

    def _count_our_copies(self, containers: list[Any], holders: list[Any]) -> None:
        """Count what immutable containers refer to as ours if nothing but this package holds them.

        Such are the copies that another rebinding keeps for the next time.
        """
        held = collections.Counter(
            key for holder in holders if self._is_ours(holder) for key in map(id, gc.get_referents(holder))
        )
        for index in range(len(containers)):
            if held[id(containers[index])] == _references(containers, index):
                calls = (key for key in map(id, gc.get_referents(containers[index])) if key in self._swaps)
                self.ours.update(calls)

    def _follow(self, holders: list[Any], swaps: Swaps, calls: list[Any]) -> Swaps:
        """Sort holders into places, immutable containers to be replaced by a copy, and what cannot be changed."""
        copies: Swaps = {}
        # A frame will not run again, or waits for this one, or is that of another thread: see `_explain`.
        holders = [
            holder
            for holder in holders
            if holder is not calls and not self._is_ours(holder) and not is_a(holder, types.FrameType)
        ]
        owners = owners_of([holder for holder in holders if type(holder) is dict])
        for holder in holders:
            owner = owners.get(id(holder))
            if is_a(owner, types.FrameType):
                continue
            places = list(references_in(holder, swaps, owner))
            copy = None if places else copied(holder, swaps)
            name = next((self._names[key] for key in map(id, gc.get_referents(holder)) if key in self._names), None)
            if places:
                self.places += places
                if name is not None and _refers_otherwise(holder, places):
                    self._stuck.append((holder, name))
            elif copy is not None:
                copies[id(holder)] = Swap(holder, copy)
                if name is not None:
                    self._names[id(holder)] = name
            elif name is not None:
                self._stuck.append((holder, name))
        return copies

    def _is_ours(self, holder: Any) -> bool:
        is_container = id(holder) in self._our_containers or id(holder) in self._cached
        return is_container or f"{module_of(type(holder))}.".startswith(OURS)

    @property
    def replaces_all(self) -> bool:
        """Whether everything that it found can be replaced."""
        return not self._stuck

    def explain(self) -> None:
        """Report which references to silent calls the code under test may use without being seen.

        All objects must have been searched: what is not found counts as held by native code.
        """
        for holder, name in self._stuck:
            owner = owner_under_test(holder)
            if owner is not None:
                self._cannot_replace(name, f"{_described(holder)}, in {owner}")
        hidden = {key: count for key, count in self._hidden.items() if count > 0 and key in self._names}
        if not hidden:
            return
        for key, function, thread in running_locals(hidden):
            hidden[key] -= 1
            if thread is not None:
                self._cannot_replace(
                    self._names[key], f"a variable of {function}, which the thread {thread!r} is running"
                )
        for key in (key for key, count in hidden.items() if count > 0):
            self._cannot_replace(self._names[key], "native code, or a call that is under way")

    def _cannot_replace(self, name: str, where: str) -> None:
        self.unseen.append(
            f"{name} is held by {where}, where it cannot be replaced: calls through it cannot be seen. Hold it in an "
            f"attribute, a dict or a list, or call it by its name, {name}."
        )


def _refers_otherwise(holder: Any, places: list[ReferenceHolder]) -> bool:
    """Whether an object refers to a call in native code as well: tried out, since only it can tell."""
    olds = {id(place.swap.old) for place in places}
    for place in places:
        place.put(place.swap.new)
    try:
        return any(id(value) in olds for value in gc.get_referents(holder))
    finally:
        for place in places:
            place.put(place.swap.old)


def _described(holder: Any) -> str:
    code = next(
        (getattr(holder, name) for name in ("gi_code", "cr_code", "ag_code") if hasattr(type(holder), name)), None
    )
    if code is not None:
        return f"{code.co_qualname}, which is suspended at {code.co_filename}:{code.co_firstlineno}"
    kind = type(holder)
    return f"an object of type {module_of(kind)}.{kind.__qualname__}".replace("builtins.", "")
