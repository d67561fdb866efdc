"""Fork, and pickle between a process and its fork.

pickle finds a class by name, which fails for one defined inside a test function. But whatever existed before the fork
has the same address on both sides, so such classes and functions are passed by address.
"""

from __future__ import annotations

import ctypes
import gc
import io
import os
import pickle
import signal
import sys
import types
import warnings
from typing import Any

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
if _prctl is not None:
    _prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def fork() -> int:
    """Fork even with threads running: the child does only what it was forked for, and exits.

    Where the system can do that, the child dies with the thread that forks it, which is the one that talks to it and
    ends it. So none is left if the tests are killed.
    """
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a process with threads
        pid = os.fork()
    if pid == 0:
        die_with(parent)
    return pid


def die_with(parent: int) -> None:
    """Have this process killed when the thread that started it ends, in the process `parent`. Linux can do that."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before
        os.kill(os.getpid(), signal.SIGKILL)


def dumps(value: Any) -> bytes:
    """Pickle a value.

    Raises:
        Exception: it cannot be pickled.
    """
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def loads(data: bytes) -> Any:
    """Unpickle what the other side pickled.

    Raises:
        Exception: it cannot be built here.
    """
    return pickle.loads(data)


def _is_local(value: object) -> bool:
    return isinstance(value, (type, types.FunctionType)) and "<locals>" in value.__qualname__


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return (_at, (id(value), value.__qualname__)) if _is_local(value) else NotImplemented


def _at(address: int, name: str) -> Any:
    """Return the class or function at this address."""
    for value in gc.get_objects():
        if id(value) == address and _is_local(value) and value.__qualname__ == name:
            return value
    raise pickle.UnpicklingError(f"{name} does not exist in this process")
