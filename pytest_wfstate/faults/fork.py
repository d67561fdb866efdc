"""Forks: how the labs make a process that remembers all that the test knows."""

from __future__ import annotations

import os
import warnings


def fork() -> int:
    """Fork, whatever threads there are: the child only does what it was made for, and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        return os.fork()
