"""Values that a store does not take, or takes although the contract refuses them: declared, they hide nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st

from pytest_wfstate import ResumePoint
from pytest_wfstate.suites import ResumeSuite, Scenario
from tests.unit.suites.only import only
from tests.unit.suites.shelves import PUT, FileShelf, ShelfSuite, contract


class NoSpecials(FileShelf):
    """Keeps neither a NUL nor what JSON has no number for."""

    def put(self, key: str, thing: Any) -> None:
        if "\\u0000" in json.dumps(thing, allow_nan=False):
            raise ValueError("there is a NUL in it")
        super().put(key, thing)


class LosesSpecials(FileShelf):
    def put(self, key: str, thing: Any) -> None:
        super().put(key, thing.replace("\0", "").replace("é", "e") if isinstance(thing, str) else thing)


SPECIALS = {
    "unicode": [PUT("a", "nul\0"), PUT("a", {"deep": ["é\0"]}), PUT("a", "é")],
    "falsy": [PUT("a", [math.inf])],
    "large": [PUT("a", "x" * 10_000)],
}
NUL_AND_HAT = [Scenario([PUT("a", "nul\0")]), Scenario([PUT("a", "hat")], before=[PUT("b", "coat")])]
VALUE_CLAUSES = ("test_kill_put", "test_values_unicode", "test_values_falsy", "test_values_large", "test_random_calls")


class SpecialSuite(ShelfSuite):
    contract = contract(
        dataclasses.replace(PUT, arguments=lambda ids: st.tuples(st.sampled_from(ids), st.sampled_from(["\0", "hat"])))
    )
    values: ClassVar = SPECIALS
    scenarios: ClassVar = {"put": NUL_AND_HAT}


def takes(value: Any) -> bool:
    return not (isinstance(value, str) and "\0" in value) and value not in (math.inf, -math.inf)


@only(*VALUE_CLAUSES)
class TestUndeclaredValues(SpecialSuite):
    store = NoSpecials
    known_failures: ClassVar = {
        "shelf.kill.put": "NOT_MEASURED: no NUL",
        "shelf.values.unicode": "no NUL",
        "shelf.values.falsy": "no infinity",
        "shelf.random.calls": "no NUL",
    }


@only(*VALUE_CLAUSES)
class TestDeclaredValues(SpecialSuite):
    store = NoSpecials

    def accepts_value(self, value: Any) -> bool | None:
        return takes(value)


@only(*VALUE_CLAUSES)
class TestOtherValuesAreStillAsked(SpecialSuite):
    store = LosesSpecials
    known_failures: ClassVar = {"shelf.values.unicode": "é is e"}

    def accepts_value(self, value: Any) -> bool | None:
        return takes(value)


class PickledPoints:
    """Keeps any number, which the contract refuses."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def save(self, point: ResumePoint) -> None:
        (self.home / point.run_id).write_bytes(pickle.dumps(point))

    def load(self, run_id: str) -> ResumePoint | None:
        path = self.home / run_id
        return pickle.loads(path.read_bytes()) if path.exists() else None


class LosesStep(PickledPoints):
    def save(self, point: ResumePoint) -> None:
        super().save(point.model_copy(update={"step": 0}))


class PointSuite(ResumeSuite):
    store: ClassVar[type[PickledPoints]] = PickledPoints

    def open(self, home: Path) -> Any:
        return self.store(home)


@only("test_save_unsound", "test_save_load")
class TestTakesMoreUndeclared(PointSuite):
    known_failures: ClassVar = {"resume.save.unsound": "it takes NaN"}


class TakesMore(PointSuite):
    def accepts_value(self, value: Any) -> bool | None:
        return True if isinstance(value, float) else None


@only("test_save_unsound", "test_save_load")
class TestTakesMore(TakesMore):
    pass


@only("test_save_unsound", "test_save_load")
class TestTakesMoreAndLosesSteps(TakesMore):
    store = LosesStep
    known_failures: ClassVar = {"resume.save.load": "the step is 0", "resume.save.unsound": "the step is 0"}
