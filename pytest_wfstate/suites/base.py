"""What all suites share: the clauses that hold for every contract."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.render import call_in_words
from pytest_wfstate.engine.script import RESTART, second_handle
from pytest_wfstate.errors import Violation
from pytest_wfstate.oracle.model import plain
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.clauses import clause, clauses
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.corruption import block, corrupted, cut, must_raise
from pytest_wfstate.suites.faults.generated import generated
from pytest_wfstate.suites.settings import check_settings

__tracebackhide__ = True


class Suite(ClauseContext):
    """Holds a store to a contract. Subclass the suite of one contract, and write `open`.

    A clause of the contract is a test method; nothing of a suite is meant to be overridden but what `ClauseContext` lists
    first.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_settings(cls)
        for name, test in generated(cls).items():
            setattr(cls, name, test)

    @clause("core", "A record that was never saved is not there.")
    def test_load_missing(self) -> None:
        self._play(self._looks("a"))

    @clause("core", "What was saved is loaded equal.")
    def test_save_load(self) -> None:
        self._play([self.contract.write("a", 1), *self._looks("a", "b")])

    @clause("core", "Saving again replaces the record.")
    def test_save_replaces(self) -> None:
        record = self.contract.write
        self._play([record("a", 1), record("b", 1), record("a", 2), *self._looks("a", "b")])

    @clause("core", "A restart loses nothing.")
    def test_save_survives_restart(self) -> None:
        record = self.contract.write
        self._play(
            [
                record("a", 1),
                record("b", 2),
                RESTART,
                *self._looks("a", "b"),
                record("a", 3),
                RESTART,
                *self._looks("a"),
            ]
        )

    @clause("safe", "What one handle saved, every other handle sees at once.")
    def test_handles_see_each_other(self) -> None:
        record, looks = self.contract.write, self._looks("a")
        seen = [second_handle(look) for look in looks]
        # Each handle has looked, and changed nothing since, when the other one saves.
        self._play([record("a", 1), *seen, record("a", 2), *looks, *seen, second_handle(record("a", 3)), *looks, *seen])

    @clause("safe", "Values that are false, and empty ones, are kept.")
    def test_values_falsy(self) -> None:
        self._play_values("falsy")

    @clause("safe", "Text in any script is kept.")
    def test_values_unicode(self) -> None:
        self._play_values("unicode")

    @clause("safe", "Large records are kept whole.")
    def test_values_large(self) -> None:
        self._play_values("large")

    @clause("safe", "A record may have any text for an id.", "input")
    def test_ids_any_text(self) -> None:
        record = self.contract.write
        self._play_each([record(one, 1), *self._looks(one), RESTART, *self._looks(one)] for one in inputs.GOOD_IDS)

    @clause("safe", "Two ids never share a record, whatever characters they hold.", "input")
    def test_ids_never_collide(self) -> None:
        record = self.contract.write
        self._play_each(
            [record(one, 1), *looks, record(other, 2), *looks, RESTART, *looks]
            for one, other in inputs.PAIRS
            for looks in [self._looks(one, other)]
        )

    @clause("safe", "An id cannot reach outside the store.", "input")
    def test_ids_stay_inside(self) -> None:
        self._need_files("there is no folder to leave")
        for one in inputs.CLIMBING_IDS:
            home = self._home()
            outside = inputs.everything_beside(home)
            with self._handles(home) as handles:
                for call in [self.contract.write(one, 1), *self.contract.reads([one])]:
                    handles.outcome(FIRST, call)
            new = sorted(inputs.everything_beside(home) - outside)
            if new:
                name = new[0].relative_to(home.parent)
                raise Violation(
                    f"{self._title}\n\n{call_in_words(self.contract.write(one, 1))} wrote outside of home: ../{name}"
                )

    @clause("safe", "What cannot be an id is refused.", "input")
    def test_ids_refused(self) -> None:
        for one in inputs.BAD_IDS:
            self._play([self.contract.reads([one])[-1], self.contract.write("a", 1), *self._looks("a")])

    @clause("safe", "What the caller does to a record after saving it does not change what is stored.")
    def test_aliasing_saved(self) -> None:
        with self._handles(self._home()) as handles:
            play = self._begin()
            call = self.contract.write("a", 1)
            play.all(handles, [call])
            expected = [self._model.restart(world) for world in play.worlds]
            inputs.disturb(call.args)
            looks = self._looks("a")
            self._begin(expected).all(handles, [*(second_handle(look) for look in looks), *looks])

    @clause("safe", "What the caller does to a record that was loaded does not change what is stored.")
    def test_aliasing_loaded(self) -> None:
        with self._handles(self._home()) as handles:
            play, looks = self._begin(), self.contract.reads(["a"])
            play.all(handles, [self.contract.write("a", 1)])
            for look in looks:
                inputs.disturb(self._driver.call(handles[FIRST], look))
            play.all(handles, [*looks, *(second_handle(look) for look in looks)])

    @clause("safe", "A record that cannot be read is an error: it is not taken to be missing, or empty.", "input")
    def test_corrupt_is_loud(self) -> None:
        for harm in (cut, block):
            with corrupted(self, harm) as (handles, play):
                for look in self.contract.reads(["a"]):
                    if look.args and play.shows(look):  # else it does not ask for this record alone
                        must_raise(self, handles, look)

    @clause("safe", "A record that cannot be read hides no other.", "input")
    def test_corrupt_stays_local(self) -> None:
        with corrupted(self) as (handles, play):
            play.all(handles, self._looks("b"))

    @clause("safe", "Any calls in any order, through several handles and restarts, do what they do in memory.")
    def test_random_calls(self) -> None:
        from pytest_wfstate.engine.random_calls import play_random_calls  # and hypothesis: see strategies

        play_random_calls(
            self.contract, self._begin, lambda: self._handles(self._home()), self._profile, shrinks=self.random_shrinks
        )

    def test_suite_is_whole(self) -> None:
        """No clause was overridden or removed, and `known_failures` names clauses."""
        suite = type(self)
        self._tell("forgets", self._forgotten())
        shipped = next(base for base in suite.__mro__ if "contract" in vars(base))
        whole = {one.id: one.test for one in clauses(shipped)}
        changed = [id_ for id_, test in whole.items() if getattr(suite, test, None) is not getattr(shipped, test)]
        if changed:
            pytest.fail(
                f"{suite.__name__} overrides or removes clauses of {shipped.__name__}: {', '.join(changed)}. A store "
                "that breaks one names it in known_failures; one that does not offer a method need not do anything.",
                pytrace=False,
            )
        unknown = [id_ for id_ in self.known_failures if id_ not in whole]
        if unknown:
            pytest.fail(
                f"known_failures of {suite.__name__} names {unknown[0]!r}, which is no clause of the "
                f"{self.contract.name} contract. `wfstate clauses {self.contract.name}` lists them.",
                pytrace=False,
            )

    def _forgotten(self) -> list[str]:
        """Name the fields that `normalise` forgets."""
        records = [one for one in self.contract.write("a", 1).args if isinstance(one, BaseModel)]
        pairs = [(plain(one), plain(one, self.normalise)) for one in records]
        return [name for whole, rest in pairs for name in whole if name not in rest or whole[name] != rest[name]]

    def _play_values(self, kind: str) -> None:
        if kind not in self.values:
            pytest.skip(f"the {self.contract.name} contract has no such values")
        for call in self.values[kind]:
            self._play([call, *self._looks("a"), RESTART, *self._looks("a")])
