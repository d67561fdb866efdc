"""Random calls, made on a store and on the reference; hypothesis finds the shortest script that tells them apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.script import RESTART, ScriptRun, Step, ViaHandle
from pytest_wfstate.errors import StoreTimeout

__tracebackhide__ = True

IDS = ("a", "b")
EXAMPLES = {"quick": 20, "default": 50, "thorough": 1000}
_LENGTH = 25
_LISTS = 8  # of calls, of which those of a storm are chosen: to make them takes longer than most calls do


def play_random_calls(
    contract: Contract,
    begin: Callable[[], ScriptRun],
    handles: Callable[[], Handles],
    profile: str,
    *,
    shrinks: bool = True,
) -> None:
    """Make random calls.

    Raises:
        Violation: the store gave a result that the reference does not.
    """
    with handles() as probed:
        operations = [one for one in contract.operations if hasattr(probed[FIRST], one.name)]

    @settings(
        max_examples=EXAMPLES[profile],
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
    )
    @given(scripts(operations))
    def play(lines: Sequence[Step]) -> None:
        with handles() as played:
            whole = begin()

            def script() -> Iterator[Step]:
                yield from [*lines, RESTART]
                yield from contract.observe([*IDS, *whole.made])

            for line in script():
                try:
                    whole.all(played, [line])
                except pytest.skip.Exception:
                    continue  # not offered
                except StoreTimeout as hangs:
                    raise _Hung from hangs

    try:
        play()
    except _Hung as hung:
        raise hung.__cause__ or hung from None


class _Hung(BaseException):
    """Ends it all: to look for a shorter script would be to wait again and again."""


def scripts(operations: Sequence[Operation]) -> st.SearchStrategy[list[Step]]:
    """Give scripts of calls through several handles, with restarts.

    They are all of the same length, for hypothesis likes lists short, and lines that are left out shrink them.
    """
    on_handles = st.builds(ViaHandle, st.sampled_from([FIRST, FIRST, "second", "third"]), calls(operations, IDS))
    kinds = {"": st.none(), "call": on_handles, RESTART: st.just(RESTART)}
    lines = st.sampled_from(["", *["call"] * 14, RESTART]).flatmap(kinds.__getitem__)
    return st.lists(lines, min_size=_LENGTH, max_size=_LENGTH).map(lambda some: [line for line in some if line])


def calls(operations: Sequence[Operation], ids: Sequence[str]) -> st.SearchStrategy[Call]:
    """Give calls about some ids; those that change something come more often."""
    often = [*operations, *(one for one in operations if one.mutates)]
    each = {one.name: one.arguments(ids).map(functools.partial(_call, one)) for one in often}
    return st.sampled_from([one.name for one in often]).flatmap(each.__getitem__)


def chosen_calls(operations: Sequence[Operation], ids: Sequence[str], number: int, seed: int) -> list[Call]:
    """Choose random calls, with hypothesis, from what the operations take: several lists, as the first is simple."""
    found: list[Call] = []

    @seeded(seed)
    @settings(
        max_examples=_LISTS,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(calls(operations, ids), min_size=number, max_size=number))
    def choose(some: list[Call]) -> None:
        found.extend(some)

    choose()
    return found


def _call(operation: Operation, args: tuple[Any, ...]) -> Call:
    return operation(*args)
