"""Suites that are left with a few clauses, to try what those find."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pytest_wfstate.suites.clauses import clauses

S = TypeVar("S", bound=type)


def only(*tests: str) -> Callable[[S], S]:
    """Remove the other clauses of a suite."""

    def remove_others(suite: S) -> S:
        for name in [*(clause.test for clause in clauses(suite)), "test_suite_is_whole"]:
            if name not in tests:
                setattr(suite, name, None)
        return suite

    return remove_others
