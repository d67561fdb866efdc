"""`open` and `FileIO`, rebuilt so that every write is seen where the kernel sees it.

Python's own `open` puts buffers in front of a `FileIO` and writes through it from C, past anything in `os`. Here the
same buffers are put in front of a subclass, whose `write` they call when they flush.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from pytest_wfstate.faults.record import os_calls, quiet_calls
from pytest_wfstate.faults.record.active import active, announced
from pytest_wfstate.faults.record.file_call import FileCall
from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.trace.ops import Op, Truncate

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

real_open = builtins.open
RealFileIO = io.FileIO

_FLAGS = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "x": os.O_CREAT | os.O_EXCL,
    "a": os.O_CREAT | os.O_APPEND,
}


class IsFileIO(type(RealFileIO)):  # type: ignore[misc]  # the type of a class is a class
    """Counts every real `FileIO` as an instance: files opened before the recorder must still pass isinstance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, RealFileIO) if cls.__base__ is RealFileIO else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, RealFileIO) if cls.__base__ is RealFileIO else super().__subclasscheck__(subclass)


class FileIO(RealFileIO, metaclass=IsFileIO):
    """A raw file whose writes are recorded, and whose reads a gate may fail, while a recorder is active."""

    def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
        recorder = active.recorder
        named = isinstance(file, (str, bytes, os.PathLike)) and closefd
        if recorder is None or not named or _flags(mode) is None:
            announced(super().__init__, file, mode, closefd, opener)
        elif opener is not None:
            self._open_by(opener, file, mode)
        else:
            announced(self._open, recorder, file, mode)

    def _open(self, recorder: Recorder, file: Any, mode: str) -> None:
        flags = _flags(mode)
        assert flags is not None
        initialize = super().__init__

        def make() -> None:
            initialize(file, mode)

        if flags & os_calls.CHANGING:
            os_calls.opening(recorder, file, flags, None, make, lambda _: self.fileno())
        else:
            make()

    def _open_by(self, opener: Any, file: Any, mode: str) -> None:
        # The opener is the user's code: call it without our lock, and visible to the audit hook.
        fd = opener(file, _flags(mode))
        if not isinstance(fd, int):
            raise TypeError("expected integer from opener")
        if fd < 0:
            raise ValueError(f"opener returned {fd}")
        try:
            os.set_inheritable(fd, False)
            announced(super().__init__, fd, mode, True)
        except BaseException:
            os.close(fd)
            raise
        self.name = file

    def write(self, data: Any, /) -> Any:
        """Write, and record what the kernel took."""
        recorder = active.recorder
        if recorder is None or not self.writable():
            return super().write(data)
        return recorder.write(os_calls.BufferWrite(fd=self.fileno(), data=data, real=super().write))

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size, and record it."""
        recorder = active.recorder
        if recorder is None or not self.writable():
            return super().truncate(size)
        fd, length = self.fileno(), self.tell() if size is None else size
        resize = super().truncate

        def expected() -> Op | None:
            return Truncate(recorder.log.node(os.fstat(fd), fd), length, causing_line())

        return recorder.make(FileCall(expected, lambda: resize(length)))

    def readinto(self, buffer: Any, /) -> Any:
        """Read, unless the gate fails it."""
        self._ask_read()
        return super().readinto(buffer)

    def read(self, size: int | None = -1, /) -> Any:
        """Read, unless the gate fails it."""
        self._ask_read()
        return super().read(-1 if size is None else size)

    def readall(self) -> Any:
        """Read, unless the gate fails it."""
        self._ask_read()
        return super().readall()

    def close(self) -> None:
        """Close, or fail to if the gate says so."""
        recorder = active.recorder
        if recorder is None or not recorder.injects_errors or self.closed or not self.closefd:
            super().close()
        else:
            quiet_calls.closing(recorder, self.fileno(), super().close)

    def _ask_read(self) -> None:
        recorder = active.recorder
        if recorder is not None and recorder.injects_errors and not self.closed:
            quiet_calls.reading(recorder, self.fileno())


def open_file(
    recorder: Recorder,
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """Open a file as `open` does; a writable one, or one whose reads may fail, is built on our raw file."""
    reads = recorder.injects_errors
    return built(FileIO, file, mode, buffering, encoding, errors, newline, closefd, opener, reads=reads)


def built(
    raw_class: type[io.FileIO],
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
    *,
    reads: bool = True,
) -> Any:
    """Put the buffers of `open` in front of a raw file of this class; without `reads`, only of a writable one."""
    binary = isinstance(mode, str) and "b" in mode
    raw_mode = mode.replace("b", "").replace("t", "") if isinstance(mode, str) else ""
    if (
        (raw_mode == "r" and not reads)
        or _flags(raw_mode) is None
        or len(set(mode)) < len(mode)
        or (binary and ("t" in mode or not encoding is errors is newline is None))
    ):
        return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)  # read-only, or an error
    if binary and buffering == 1:
        message = "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    result: Any = raw_class(file if isinstance(file, int) else os.fspath(file), raw_mode, closefd, opener)
    try:
        line_buffering = buffering == 1 or (buffering < 0 and result.isatty())
        size = _buffer_size(result) if buffering < 0 or buffering == 1 else buffering
        if size == 0:
            if binary:
                return result
            raise ValueError("can't have unbuffered text I/O")
        result = _buffered(raw_mode)(result, size)
        if binary:
            return result
        result = io.TextIOWrapper(result, encoding, errors, newline, line_buffering)
        result.mode = mode
        return result
    except BaseException:
        result.close()
        raise


def _buffered(raw_mode: str) -> Any:
    if "+" in raw_mode:
        return io.BufferedRandom
    return io.BufferedReader if raw_mode == "r" else io.BufferedWriter


def _flags(mode: str) -> int | None:
    """Return the flags of open(2) that a raw mode means, or None if the mode is invalid."""
    kind = mode.replace("b", "").replace("+", "")
    if kind not in _FLAGS or mode.count("+") > 1 or mode.count("b") > 1:
        return None
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if kind == "r" else os.O_WRONLY
    return _FLAGS[kind] | access | os.O_CLOEXEC


def _buffer_size(raw: Any) -> int:
    size: int = raw._blksize
    return max(min(size, 8 * 2**20), io.DEFAULT_BUFFER_SIZE) if sys.version_info >= (3, 14) else size
