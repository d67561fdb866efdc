"""Fork a process, and pickle between it and its fork.

pickle finds a class by name, which fails for one made inside a test function. But whatever existed before the fork
has the same address on both sides, so such classes and functions cross by address.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import types
import warnings
from typing import Any


def fork() -> int:
    """Fork, whatever threads there are: the child only does what it was made for, and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        return os.fork()


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
