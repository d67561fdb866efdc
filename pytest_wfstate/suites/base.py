"""What all suites share: what a user overrides, and the clauses that hold for every contract."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel

from pytest_wfstate.contracts.base import Call, Contract
from pytest_wfstate.engine.handles import FIRST, close
from pytest_wfstate.engine.script import RESTART, second_handle
from pytest_wfstate.errors import Violation
from pytest_wfstate.labs.storm import Medium
from pytest_wfstate.oracle.render import call_in_words
from pytest_wfstate.oracle.values import alike, plain
from pytest_wfstate.suites import inputs, removal
from pytest_wfstate.suites.clauses import ClockSource, Level, check_settings, clause, clauses
from pytest_wfstate.suites.context import ASYNC_NAMES, NAMES, ClauseContext
from pytest_wfstate.suites.faults import GENERATORS, DerivedRoles, RaceRole, Scenario, race_roles_of
from pytest_wfstate.suites.faults.corruption import block, corrupted, must_raise, truncate

__tracebackhide__ = True


class Suite:
    """Checks a store against a contract. Subclass the suite of one contract, and write `open`.

    A clause of the contract is a test method. Override what comes first here, up to `corrupt`, and nothing else.
    """

    medium: ClassVar[Medium] = "disk"
    """Where the store keeps its state, which decides how it can be hurt."""
    server: ClassVar[str | None] = None
    """The name of a fixture that returns the server, with its `.url`, and `.kill()` and `.restart()` if it has them."""
    url: str
    """Where `open` should connect to: a proxy before the server, which can cut connections."""
    level: ClassVar[Level] = "hardened"
    """The highest level of clauses to check."""
    known_failures: ClassVar[Mapping[str, str]] = {}
    """Clauses that the store is known to break, by id, each with the reason. One that passes is an error.

    A clause that cannot be measured has a reason that begins with NOT_MEASURED; one that a slow machine may not
    complete, with INCOMPLETE.
    """
    clock: ClassVar[ClockSource] = "process"
    """Where the store reads the time. If it is `"foreign"`, clauses that freeze the clock are not applicable."""
    crashes_recovery: ClassVar[bool] = False
    """Whether the quick profile crashes the recovery from a crash as well. The other profiles always do."""

    unsupported: ClassVar[Mapping[str, str]] = {}
    """What the store does not do by design, of `FEATURES`, each with the reason. Clauses that need it are not asked."""
    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors of the store's own by which it refuses a call, besides ValueError, LookupError and TypeError."""

    def open(self, home: Path) -> Any:  # noqa: ARG002
        """Open a new handle on whatever is kept at `home`, a folder. It is called again after each crash.

        The folder's name is letters and digits, unique, and the same each time: a store on a server can use it as a
        prefix. A context manager that gives the store is entered here, and left when the handle is closed.
        """
        text = f"{type(self).__name__} has no method open(self, home). Write one: it opens the store."
        raise pytest.fail.Exception(text, pytrace=False)

    def close(self, store: Any) -> Any:
        """Close a handle: call its `aclose()` or `close()`, if it has one."""
        return close(store)

    def adapt(self, store: Any) -> Any:
        """Wrap what was opened, if its methods have other names or arguments than those of the contract."""
        return store

    def prepare(self, home: Path) -> Any:
        """Make schemas or tables, once for each home, before anything is crashed or raced."""

    def accepts(self, id: str) -> bool | None:  # noqa: A002, ARG002 - the name that the contracts use
        """Whether the store takes this id, of those that are valid. Unless that is declared, it has to take each."""
        return None

    def accepts_value(self, value: Any) -> bool | None:  # noqa: ARG002
        """Whether the store takes this value, of those that calls pass, and of all that is in them.

        Unless that is declared, a store has to do with each value what the contract does. Clauses leave out calls that
        pass a value which the store does not take, or which it takes although the contract refuses it, such as NaN.
        """
        return None

    def encode(self, record: Any) -> Any:
        """Convert a record of this package to the store's own."""
        return record

    def decode(self, value: Any) -> Any:
        """Convert a record of the store to one of this package."""
        return value

    def normalise(self, record: Any) -> Any:
        """Drop what the store does not keep."""
        return record

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002 - the name that the contracts use
        """Damage the record of an id, so that it cannot be read. By default the one file that holds it is truncated."""
        raise NotImplementedError

    # What follows is for the suites of contracts.

    context: ClauseContext
    """What a clause works with."""
    contract: ClassVar[Contract]
    explains: ClassVar[bool] = True
    """Whether random calls that fail are shrunk, and an fsync that is missing is searched for. A suite whose clauses
    are expected to fail can save the time."""
    scenarios: ClassVar[Mapping[str, Sequence[Scenario]]] = {}
    """For each method that changes something, calls to crash."""
    lists: ClassVar[Sequence[Scenario]] = ()
    """Calls that return a list of at least two items; `then` is what others do while it is being read."""
    race_roles: ClassVar[Mapping[str, RaceRole]] = {}
    """For each method, what a worker does with it in a race with another. By default `race_roles_of` the contract."""
    kills_racers: ClassVar[bool] = False
    """Whether one of two workers is also killed while the other is at work. By default so with `race_roles_of`."""
    storms: ClassVar[bool] = False
    """Whether several workers make random calls at once. By default so with `race_roles_of`."""
    afterwards: ClassVar[Sequence[Call]] = ()
    """Calls that work after any crash."""
    heals: ClassVar[Sequence[Call]] = ()
    """Calls that repair or delete an unreadable record of id `a`."""
    values: ClassVar[Mapping[str, Sequence[Call]]] = {}
    """Saves of records that are easily lost: `falsy`, `unicode`, `large`."""

    def add_listed(self, number: int) -> Call:
        """Return a call that adds one, with this number, to what the reads of `a` list. By default it adds a record."""
        return self.contract.write(f"record-{number}", 1)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_settings(cls)
        if "contract" in vars(cls) and "race_roles" not in vars(cls):
            cls.race_roles = race_roles_of(cls.contract)
        if isinstance(vars(cls).get("race_roles"), DerivedRoles):
            cls.kills_racers = vars(cls).get("kills_racers", True)
            cls.storms = vars(cls).get("storms", True)
        if "contract" in vars(cls) and (cls.add_listed is not Suite.add_listed or inputs.lists_all(cls.contract)):
            cls.test_list_thousand = _list_thousand  # type: ignore[attr-defined]
        for clauses_for in (*GENERATORS, removal.clauses_for):
            for name, test in clauses_for(cls).items():
                setattr(cls, name, test)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each clause by both names of the methods, if the contract has two."""
        if any(operation.async_name for operation in self.contract.operations):
            metafunc.parametrize("_wfstate_item", [NAMES, ASYNC_NAMES], indirect=True, ids=["by-name", "by-async-name"])

    @pytest.fixture(autouse=True)
    def _wfstate_item(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with ClauseContext(self, request, tmp_path_factory.mktemp("wfstate")).running() as self.context:
            if self.context.proxy is not None:
                self.url = self.context.proxy.url
            yield
        del self.context  # pytest keeps this object for as long as it runs

    @clause("core", "A record that was never saved is not found.")
    def test_load_missing(self) -> None:
        self.context.play(self.context.reads("a"))

    @clause("core", "A loaded record equals the one that was saved.")
    def test_save_load(self) -> None:
        self.context.play([self.contract.write("a", 1), *self.context.reads("a", "b")])

    @clause("core", "Saving again replaces the record.")
    def test_save_replaces(self) -> None:
        write = self.contract.write
        self.context.play([write("a", 1), write("b", 1), write("a", 2), *self.context.reads("a", "b")])

    @clause("core", "A restart loses nothing.")
    def test_save_survives_restart(self) -> None:
        write, reads = self.contract.write, self.context.reads
        self.context.play(
            [write("a", 1), write("b", 2), RESTART, *reads("a", "b"), write("a", 3), RESTART, *reads("a")]
        )

    @clause("safe", "A record saved through one handle is visible through every other at once.")
    def test_handles_see_each_other(self) -> None:
        write, reads = self.contract.write, self.context.reads("a")
        seen = [second_handle(read) for read in reads]
        # Each handle has read, and changed nothing since, when the other one saves.
        self.context.play(
            [write("a", 1), *seen, write("a", 2), *reads, *seen, second_handle(write("a", 3)), *reads, *seen]
        )

    @clause("safe", "False and empty values are kept.")
    def test_values_falsy(self) -> None:
        self._play_values("falsy")

    @clause("safe", "Unicode text is kept unchanged.")
    def test_values_unicode(self) -> None:
        self._play_values("unicode")

    @clause("safe", "Large records are kept in full.")
    def test_values_large(self) -> None:
        self._play_values("large")

    @clause(
        "safe",
        "Every field keeps every value: floats to the last bit, integers of 64 bits and more, any text, deep JSON.",
    )
    def test_values_any(self) -> None:
        from pytest_wfstate.engine.random_records import EXAMPLES, operations_with_values, play_values

        context, failures = self.context, list[Exception]()
        for operation in operations_with_values(self.contract):
            with context.leaving_out():
                failures += play_values(
                    self.contract,
                    operation,
                    context.play,
                    context.profile,
                    accepts=context.accepts,
                    shrinks=self.explains,
                )
        context.fail(failures)
        context.report("bounded_to", [f"{EXAMPLES[context.profile]:,} random records"])

    @clause("safe", "Any text can be an id.", "input")
    def test_ids_any_text(self) -> None:
        write, reads = self.contract.write, self.context.reads
        accepted = [id_ for id_ in self._ids("good") if self.accepts(id_) is not False]
        self.context.play_each(([write(id_, 1), *reads(id_), RESTART, *reads(id_)] for id_ in accepted), any_ids=True)

    @clause("safe", "Two ids never share a record, whatever characters they hold.", "input")
    def test_ids_never_collide(self) -> None:
        write = self.contract.write
        self.context.play_each(
            [write(first, 1), *reads, write(second, 2), *reads, RESTART, *reads]
            for first, second in self._ids("pairs")
            for reads in [self.context.reads(first, second)]
        )

    @clause("safe", "An id cannot reach outside the store.", "input")
    def test_ids_stay_inside(self) -> None:
        self.context.need_files("it has no folder to leave")
        for id_ in inputs.CLIMBING_IDS:
            home, write = self.context.home(), self.contract.write(id_, 1)
            outside = inputs.everything_beside(home)
            with self.context.handles(home) as handles:
                for call in [write, *self.contract.reads([id_])]:
                    with contextlib.suppress(Exception):  # however it is refused
                        handles.outcome(FIRST, call)
            new = sorted(inputs.everything_beside(home) - outside)
            if new:
                raise Violation(f"{call_in_words(write)} wrote outside of home: ../{new[0].relative_to(home.parent)}")

    @clause("safe", "An invalid id is refused.", "input")
    def test_ids_refused(self) -> None:
        for id_ in self._ids("bad"):
            self.context.play([self.contract.reads([id_])[-1], self.contract.write("a", 1), *self.context.reads("a")])

    @clause("safe", "Changing a record after saving it does not change what is stored.")
    def test_aliasing_saved(self) -> None:
        with self.context.handles(self.context.home()) as handles:
            script, call, reads = self.context.begin(), self.contract.write("a", 1), self.context.reads("a")
            script.run(handles, [call])
            inputs.disturb(call.args)
            script.run(handles, [*(second_handle(read) for read in reads), *reads])

    @clause("safe", "Changing a loaded record does not change what is stored.")
    def test_aliasing_loaded(self) -> None:
        with self.context.handles(self.context.home()) as handles:
            script, reads = self.context.begin(), self.context.reads("a")
            script.run(handles, [self.contract.write("a", 1)])
            for read in reads:
                inputs.disturb(self.context.driver.call(handles[FIRST], read))
            script.run(handles, [*reads, *(second_handle(read) for read in reads)])

    @clause("safe", "An unreadable record is an error: it is never taken to be missing or empty.", "input")
    def test_corrupt_is_loud(self) -> None:
        for damage in (truncate, block):
            with corrupted(self.context, damage) as (handles, script):
                for read in self.context.reads("a"):
                    if read.args and script.timeline.shows(read):  # else it does not ask for this record alone
                        must_raise(handles, read)

    @clause("safe", "An unreadable record hides no other.", "input")
    def test_corrupt_stays_local(self) -> None:
        with corrupted(self.context) as (handles, script):
            script.run(handles, self.context.reads("b"))

    @clause("safe", "Any sequence of calls, through several handles and restarts, behaves as it does in memory.")
    def test_random_calls(self) -> None:
        from pytest_wfstate.engine.random_calls import EXAMPLES, play_random_calls  # and hypothesis, which is slow

        context = self.context
        play_random_calls(
            self.contract,
            context.begin,
            lambda: context.handles(context.home()),
            context.profile,
            shrinks=self.explains,
            accepts=context.accepts,
        )
        context.report("bounded_to", [f"{EXAMPLES[context.profile]:,} random scripts"])

    def test_suite_is_whole(self) -> None:
        """No clause was overridden or removed, and `known_failures` names clauses."""
        suite = type(self)
        self.context.report("forgets", self._forgotten())
        shipped = next(base for base in suite.__mro__ if "contract" in vars(base))
        tests = {clause.id: clause.test for clause in clauses(shipped)}
        changed = [id_ for id_, test in tests.items() if getattr(suite, test, None) is not getattr(shipped, test)]
        if changed:
            pytest.fail(
                f"{suite.__name__} overrides or removes clauses of {shipped.__name__}: {', '.join(changed)}. If the "
                "store breaks one, name it in known_failures. If it lacks a method, its clauses are skipped anyway.",
                pytrace=False,
            )
        unknown = [id_ for id_ in self.known_failures if id_ not in tests]
        if unknown:
            pytest.fail(
                f"known_failures of {suite.__name__} names {unknown[0]!r}, which is not a clause of the "
                f"{self.contract.name} contract. `wfstate clauses {self.contract.name}` lists them.",
                pytrace=False,
            )

    def _forgotten(self) -> list[str]:
        """Name the fields that `normalise` drops."""
        records = [arg for arg in self.contract.write("a", 1).args if isinstance(arg, BaseModel)]
        pairs = [(dict(plain(record)), dict(plain(record, self.normalise))) for record in records]
        return [
            name for whole, rest in pairs for name in whole if name not in rest or not alike(whole[name], rest[name])
        ]

    def _ids(self, kind: Literal["good", "bad", "pairs"]) -> Sequence[Any]:
        ids: Sequence[Any] = getattr(self.context.ids, kind)
        if not ids:
            pytest.skip(f"the {self.contract.name} contract has no such ids")
        return ids

    def _play_values(self, kind: str) -> None:
        if not self.values.get(kind):
            pytest.skip(f"the {self.contract.name} contract has no such values")
        reads, skipped = self.context.reads("a"), []
        write = self.contract.write("a", 1)
        for call in self.values[kind]:
            before = [] if call.name == write.name else [write]
            try:
                self.context.play([*before, call, *reads, RESTART, *reads])
            except pytest.skip.Exception as not_supported:
                skipped.append(str(not_supported))
        if len(skipped) == len(self.values[kind]):
            pytest.skip(skipped[0])
        self.context.report("left_out", dict.fromkeys(skipped))


@clause("safe", "However many there are, all are listed: a thousand, for instance.")
def _list_thousand(self: Suite) -> None:
    adds = [self.add_listed(number) for number in range(inputs.MANY[self.context.profile])]
    reads = self.context.reads("a")
    self.context.play([self.contract.write("a", 1), *adds, *reads, RESTART, *reads])
