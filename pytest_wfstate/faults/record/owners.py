"""Owners: which code can use an object that something deep in the heap holds."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import types
from collections.abc import Collection, Iterator
from typing import Any

from pytest_wfstate.faults.record.references import is_a

OURS = "pytest_wfstate.faults."

_CONTAINERS = (dict, list, tuple, set, frozenset)
_HIGHEST = 8  # steps from an object to who owns it
_TEST_TOOLS = {
    *("_pytest", "pytest", "pluggy", "xdist", "execnet", "coverage", "unittest", "mock"),
    *("hypothesis", "freezegun", "pyfakefs", "pytest_wfstate"),
}
"""Packages whose objects serve the test. What only they hold, the code under test cannot call."""
_UNDER_TEST = ("pytest_wfstate.stores", "pytest_wfstate.zoo")


def module_of(owner: Any) -> str:
    """Return the name of the module that defines a class or function, or ""."""
    name = getattr(owner, "__module__", None)
    return name if isinstance(name, str) else ""


def our_containers() -> set[int]:
    """Return the ids of the containers in which this package keeps the real calls."""
    ids: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(OURS) and is_a(module, types.ModuleType):
            ids.add(id(vars(module)))
            for value in vars(module).values():
                if type(value) in _CONTAINERS:
                    ids.add(id(value))
                    ids.update(id(item) for item in value if type(item) is tuple)
    return ids


def cached_by_freezegun() -> list[tuple[str, Any]]:
    """Return the names and objects of modules that freezegun keeps, to find what it has to replace.

    It calls none of them, and would not know a stand-in.
    """
    api = sys.modules.get("freezegun.api")
    cache = getattr(api, "_GLOBAL_MODULES_CACHE", {})
    return [pair for _, pairs in list(cache.values()) for pair in pairs]


def owners_of(dicts: list[dict[Any, Any]]) -> dict[int, Any]:
    """Return the class or object whose `__dict__` each of these is, or the function's frame whose locals, by its id.

    Loaded modules are left out.
    """
    wanted = set(map(id, dicts)).difference(id(_own_names(module)) for module in list(sys.modules.values()))
    dicts = [names for names in dicts if id(names) in wanted]
    owners: dict[int, Any] = {}
    for owner in gc.get_referrers(*dicts) if dicts else ():
        if type(owner) not in _CONTAINERS:
            if is_a(owner, type):
                names = gc.get_referents(vars(owner))[0]
            elif is_a(owner, types.FrameType):  # in a module or an exec, its locals are the globals of functions
                names = owner.f_locals if owner.f_code.co_flags & inspect.CO_OPTIMIZED else None
            else:
                names = _own_names(owner)
            if id(names) in wanted:
                owners[id(names)] = owner
    return owners


def _own_names(owner: Any) -> Any:
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None


def owner_under_test(holder: Any) -> str | None:
    """Return the name of a module that can reach an object and is not a tool of the test, or None if there is none.

    What only frames refer to belongs to nobody: a function that is running or has ended will not call it.
    """
    level, seen = [holder], {id(holder)}
    for _ in range(_HIGHEST):
        above = gc.get_referrers(*level)
        ignored = {id(level), id(above)}
        level = []
        for owner in above:
            if id(owner) in seen or id(owner) in ignored or is_a(owner, types.FrameType):
                continue
            seen.add(id(owner))
            name = _owning_module(owner)
            if name is None:
                level.append(owner)
            elif _is_under_test(name):
                return name
        if not level:
            break
    return None


def _owning_module(owner: Any) -> str | None:
    """Return the module that an object belongs to, or None if it depends on who holds the object."""
    if is_a(owner, dict) and "__name__" in owner:
        module = sys.modules.get(str(owner["__name__"]))
        return str(owner["__name__"]) if module is not None and vars(module) is owner else None
    if type(owner) in _CONTAINERS or is_a(owner, types.ModuleType):
        return None
    is_definition = is_a(owner, (type, types.FunctionType))
    name = module_of(owner if is_definition else type(owner))
    root = name.partition(".")[0]
    return None if root in sys.stdlib_module_names and root not in _TEST_TOOLS else name


def _is_under_test(module: str) -> bool:
    return module.partition(".")[0] not in _TEST_TOOLS or module.startswith(_UNDER_TEST)


def running_locals(wanted: Collection[int]) -> Iterator[tuple[int, str, str | None]]:
    """Yield each local variable of a running function that is one of the objects with these ids.

    With the id come the function, and the name of its thread, or None if that is this thread: its functions wait for
    the recording to end.
    """
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, top in sys._current_frames().items():
        frame: types.FrameType | None = top
        while frame is not None:
            code = frame.f_code
            if code.co_flags & inspect.CO_OPTIMIZED:
                values = frame.f_locals
                for name in set(code.co_varnames).difference(code.co_cellvars):
                    if name in values and id(values[name]) in wanted:
                        other = None if ident == threading.get_ident() else threads.get(ident, str(ident))
                        yield id(values[name]), code.co_qualname, other
            frame = frame.f_back
