"""The arguments of random calls: hypothesis strategies, and the ids in them.

Hypothesis is imported on first use: it takes longer than everything else that a suite imports, and only random calls
need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis import strategies as st
else:

    class _LazyStrategies:
        def __getattr__(self, name: str) -> Any:
            from hypothesis import strategies

            return getattr(strategies, name)

    st = _LazyStrategies()

__all__ = ["first_id", "only_an_id", "st"]


def only_an_id(ids: Sequence[str]) -> Any:
    """Return a strategy for the arguments of a call that takes nothing but an id."""
    return st.tuples(st.sampled_from(ids))


def first_id(record_id: str, *_: Any) -> list[str]:
    """Return the ids of a call whose first argument is its only id."""
    return [record_id]
