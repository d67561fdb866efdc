"""Strategies of hypothesis, which is loaded when one is made: it takes longer than all else that a suite loads.

Only random calls need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis import strategies as st
else:

    class _WhenAsked:
        def __getattr__(self, name: str) -> Any:
            from hypothesis import strategies

            return getattr(strategies, name)

    st = _WhenAsked()

__all__ = ["st"]
