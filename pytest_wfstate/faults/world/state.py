"""The state of a world: how it is copied, and restored in place, so that every holder of the object sees it."""

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
# A lock is not state, and cannot be copied.
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore)


class CannotCopy(WfstateError, TypeError):
    """The state of a world cannot be copied."""


class WorldState:
    """Saves and restores the state of an object: by `save` and `load` if given, else by copying what it holds.

    An object holds its attributes. A bound method stands for its object; a function holds the plain values of its
    closure.
    """

    def __init__(self, target: Any, save: Callable[[], Any] | None, load: Callable[[Any], None] | None) -> None:
        self._target = target
        self._save = save
        self._load = load
        self.copy()  # so that what cannot be copied fails now, and not in the middle of a run

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
                f"The state of {self._target!r} cannot be copied: {error}. crash.world copies it after each effect, to "
                "restore it later. Pass crash.world(..., save=..., load=...) to do that yourself."
            ) from error

    def portable(self) -> bytes | None:
        """Pickle the state for a forked child, or return None if it cannot be pickled or `save` keeps it elsewhere."""
        if self._save is not None:
            return None
        try:
            return dumps(_held(self._target))
        except Exception:
            return None

    def restore(self, state: Any) -> None:
        """Restore a copy, in place."""
        if self._load is not None:
            self._load(state)
        else:
            _restore(self._target, copy.deepcopy(state))


def _held(target: Any) -> Any:
    owner = _owner(target)
    if isinstance(owner, _CONTAINERS):
        return owner
    if isinstance(owner, types.FunctionType):
        return {number: cell.cell_contents for number, cell in _cells(owner)}
    return {name: value for name, value in vars(owner).items() if not isinstance(value, _LOCKS)}


def _restore(target: Any, state: Any) -> None:
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
    """Return the object of a bound method, and anything else as it is."""
    owner = getattr(target, "__self__", None)
    return target if owner is None or isinstance(owner, types.ModuleType) else owner


def _cells(function: types.FunctionType) -> list[tuple[int, types.CellType]]:
    """Return the cells of a function's closure that hold plain values: the rest is not its own state."""
    return [(number, cell) for number, cell in enumerate(function.__closure__ or ()) if _is_plain(_content(cell))]


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _content  # an empty cell holds nothing plain


def _same(old: Any, new: Any) -> Any:
    """Return `new`, or `old` refilled with it if both are containers of one type: others may hold `old`."""
    if type(old) is type(new) and issubclass(type(old), _CONTAINERS):  # isinstance would accept a stand-in
        _refill(old, new)
        return old
    return new


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, (list, bytearray)):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def equal(left: Any, right: Any) -> bool:
    """Whether two copies of a state are equal. Objects that cannot be compared count as equal."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    compares: object = type(left).__eq__
    if compares is object.__eq__:
        return equal(vars(left), vars(right)) if hasattr(left, "__dict__") else True
    return bool(left == right)
