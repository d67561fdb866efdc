"""Pickling between a process and its fork: classes and functions that are local to a test can cross, too.

pickle finds a class by its name, which is no way to find one that a function has made. But what was there before the
fork has the same address on both sides.
"""

from __future__ import annotations

import gc
import io
import pickle
import types
from typing import Any


def dumps(value: Any) -> bytes:
    """Pickle a value.

    Raises:
        Exception: it cannot be pickled.
    """
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def loads(data: bytes) -> Any:
    """Give what was pickled on the other side.

    Raises:
        Exception: it cannot be made here.
    """
    return _Unpickler(io.BytesIO(data)).load()


def _is_local(value: object) -> bool:
    return isinstance(value, (type, types.FunctionType)) and "<locals>" in value.__qualname__


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return (id(value), value.__qualname__) if _is_local(value) else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, wanted: Any) -> Any:
        for value in gc.get_objects():
            if id(value) == wanted[0] and _is_local(value) and value.__qualname__ == wanted[1]:
                return value
        raise pickle.UnpicklingError(f"{wanted[1]} is not known to the other process")
