"""The state of a world: how it is copied, and put back in place, so that whoever holds the object sees it too."""

from __future__ import annotations

import copy
import threading
import types
from collections.abc import Callable
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.forking import dumps

_CONTAINERS = (list, dict, set, bytearray)
_PLAIN = (*_CONTAINERS, int, float, str, bytes, bool, tuple, frozenset, type(None))
# A lock is no state, and cannot be copied.
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore)


class CannotCopy(WfstateError, TypeError):
    """The state of a world cannot be kept and put back."""

    __module__ = "pytest_wfstate"


class WorldState:
    """How to keep the state of an object: by `save` and `load` if they are given, else by copying what it holds.

    An object holds its attributes. A bound method stands for its object; a function holds the plain values of its
    closure.
    """

    def __init__(self, target: Any, save: Callable[[], Any] | None, load: Callable[[Any], None] | None) -> None:
        self._target = target
        self._save = save
        self._load = load
        self.copy()  # so that what cannot be copied is found now, and not in the middle of a run

    def copy(self) -> Any:
        """Copy the state.

        Raises:
            CannotCopy: it cannot be copied.
        """
        if self._save is not None:
            return self._save()
        try:
            return copy.deepcopy(_held(self._target))
        except Exception as error:
            raise CannotCopy(
                f"the state of {self._target!r} cannot be copied: {error}. crash.world keeps a copy after each effect, "
                "to put it back. Give crash.world(..., save=..., load=...) for what cannot be copied."
            ) from error

    def portable(self) -> bytes | None:
        """Pickle the state for a forked child, if that can be done and the state is not kept elsewhere."""
        if self._save is not None:
            return None
        try:
            return dumps(_held(self._target))
        except Exception:
            return None

    def put_back(self, state: Any) -> None:
        """Put a copy back in place."""
        if self._load is not None:
            self._load(state)
        else:
            _put_back(self._target, copy.deepcopy(state))


def _held(target: Any) -> Any:
    owner = _owner(target)
    if isinstance(owner, _CONTAINERS):
        return owner
    if isinstance(owner, types.FunctionType):
        return {number: cell.cell_contents for number, cell in _cells(owner)}
    return {name: value for name, value in vars(owner).items() if not isinstance(value, _LOCKS)}


def _put_back(target: Any, state: Any) -> None:
    owner = _owner(target)
    if isinstance(owner, _CONTAINERS):
        _refill(owner, state)
    elif isinstance(owner, types.FunctionType):
        for number, cell in enumerate(owner.__closure__ or ()):
            if number in state:
                cell.cell_contents = _same(_content(cell), state[number])
    else:
        held = vars(owner)
        locks = {name: value for name, value in held.items() if isinstance(value, _LOCKS)}
        state = {name: _same(held.get(name), value) for name, value in state.items()}
        held.clear()
        held.update(state | locks)


def _owner(target: Any) -> Any:
    """Give the object of a bound method, and anything else as it is."""
    owner = getattr(target, "__self__", None)
    return target if owner is None or isinstance(owner, types.ModuleType) else owner


def _cells(function: types.FunctionType) -> list[tuple[int, types.CellType]]:
    """Give the closure of a function, as far as it is plain values: the rest is no state of its own."""
    return [(number, cell) for number, cell in enumerate(function.__closure__ or ()) if _is_plain(_content(cell))]


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _content  # an empty cell holds nothing plain


def _same(old: Any, new: Any) -> Any:
    """Give `new`, in the place of `old` if that is a container of the same type: others may hold it."""
    if type(old) is type(new) and issubclass(type(old), _CONTAINERS):  # by type: a stand-in passes for a container
        _refill(old, new)
        return old
    return new


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, (list, bytearray)):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def alike(one: Any, other: Any) -> bool:
    """Tell whether two copies of a state say the same; what cannot be compared is taken to."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    compares: object = type(one).__eq__
    if compares is object.__eq__:
        return alike(vars(one), vars(other)) if hasattr(one, "__dict__") else True
    return bool(one == other)
