"""What all suites share: how a store is opened and driven, and the clauses that hold for every contract."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase
from pydantic import BaseModel

from pytest_wfstate.contracts.base import Call, Contract, Invented
from pytest_wfstate.contracts.clock import now
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.crash import Crash, NotMeasured
from pytest_wfstate.faults.frozen_clock import START, frozen_clock
from pytest_wfstate.faults.violation import said
from pytest_wfstate.oracle.history import Returned
from pytest_wfstate.oracle.specification import Specification, World, plain
from pytest_wfstate.suites import corruption, inputs
from pytest_wfstate.suites.clauses import Fault, Level, Medium, clause, clause_of, clauses
from pytest_wfstate.suites.crashes import Scenario, Trial, crashed
from pytest_wfstate.suites.handles import Driver
from pytest_wfstate.suites.play import FIRST, RESTART, Later, Line, Play, Stage, Tick, second
from pytest_wfstate.suites.random_calls import play_random_calls
from pytest_wfstate.suites.settings import check_settings
from pytest_wfstate.suites.words import call_in_words, outcome_in_words

__tracebackhide__ = True


class Suite:
    """Holds a store to a contract. Subclass the suite of one contract, and write `open`.

    A clause of the contract is a test method; nothing else of a suite is meant to be overridden but what is listed
    here.
    """

    medium: ClassVar[Medium] = "disk"
    """Where the store keeps its state, which tells what can be done to it."""
    level: ClassVar[Level] = "hardened"
    """The highest level of clauses that the store is held to."""
    known_failures: ClassVar[Mapping[str, str]] = {}
    """Clauses that the store is known to break, by id, each with the reason. One that passes is an error."""

    def open(self, home: Path) -> Any:
        """Open a new handle on whatever is kept at `home`, a folder. It is called again after each crash.

        The folder's name is letters and digits, unique, and the same each time: a store on a server can use it as a
        prefix.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no method open(self, home). Write one: it opens the store."
        )

    def close(self, store: Any) -> Any:
        """Let go of a handle: call its `aclose()` or `close()`, if it has one."""
        close = getattr(store, "aclose", None) or getattr(store, "close", None)
        return close() if close else None

    def encode(self, record: Any) -> Any:
        """Make the store's own record of one of this package."""
        return record

    def decode(self, value: Any) -> Any:
        """Make a record of this package of the store's own."""
        return value

    def normalise(self, record: Any) -> Any:
        """Forget what the store does not keep."""
        return record

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002 - the name that the contracts use
        """Damage the record of an id, so that it cannot be read. By default the one file that holds it is cut short."""
        raise NotImplementedError

    # What follows is for the suites of this package.

    contract: ClassVar[Contract]
    random_phases: ClassVar[Sequence[Phase]] = (Phase.generate, Phase.shrink)
    """What hypothesis does with random calls. Who only wants to know whether they fail can do without the second."""
    scenarios: ClassVar[Mapping[str, Sequence[Scenario]]] = {}
    """For each method that changes something, what a crash comes in the middle of."""
    afterwards: ClassVar[Sequence[Call]] = ()
    """Calls that work after any crash."""
    heals: ClassVar[Sequence[Call]] = ()
    """Calls that make a record of id `a` whole again, or be gone, if it cannot be read."""
    values: ClassVar[Mapping[str, Sequence[Call]]] = {}
    """Saves of records that are easily lost: `falsy`, `unicode`, `large`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "heals" in vars(cls):
            cls.test_corrupt_heals = _heals  # type: ignore[attr-defined]
        check_settings(cls)
        for name in vars(cls).get("scenarios", {}):
            for fault, make in _CRASHES.items():
                setattr(cls, f"test_{fault}_{name}", make(name))

    @pytest.fixture(autouse=True)
    def _wfstate_item(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        self._request = request
        clause = clause_of(type(self), request.function, request.node.originalname)
        self._title = f"{clause.id}: {clause.promise}" if clause else ""
        self._topic = clause.id.split(".")[1] if clause else ""
        self._base = tmp_path_factory.mktemp("wfstate")
        required = [one.name for one in self.contract.operations if one.required]
        self._driver = Driver(_timeout(request.config), self.encode, self.decode, self.normalise, required)
        self._specification = Specification(self.contract, self.normalise)
        yield
        self._driver.close()

    @clause("core", "A record that was never saved is not there.")
    def test_load_missing(self) -> None:
        self._play(self._looks("a"))

    @clause("core", "What was saved is loaded equal.")
    def test_save_load(self) -> None:
        self._play([self.contract.record("a", 1), *self._looks("a", "b")])

    @clause("core", "Saving again replaces the record.")
    def test_save_replaces(self) -> None:
        record = self.contract.record
        self._play([record("a", 1), record("b", 1), record("a", 2), *self._looks("a", "b")])

    @clause("core", "A restart loses nothing.")
    def test_save_survives_restart(self) -> None:
        record = self.contract.record
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
        record, looks = self.contract.record, self._looks("a")
        seen = [second(look) for look in looks]
        # Each handle has looked, and changed nothing since, when the other one saves.
        self._play([record("a", 1), *seen, record("a", 2), *looks, *seen, second(record("a", 3)), *looks, *seen])

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
        for one in inputs.GOOD_IDS:
            self._play([self.contract.record(one, 1), *self._looks(one), RESTART, *self._looks(one)])

    @clause("safe", "Two ids never share a record, whatever characters they hold.", "input")
    def test_ids_never_collide(self) -> None:
        record = self.contract.record
        for one, other in inputs.PAIRS:
            looks = self._looks(one, other)
            self._play([record(one, 1), *looks, record(other, 2), *looks, RESTART, *looks])

    @clause("safe", "An id cannot reach outside the store.", "input")
    def test_ids_stay_inside(self) -> None:
        self._need_files("there is no folder to leave")
        for one in inputs.CLIMBING_IDS:
            home = self._home()
            outside = inputs.everything_beside(home)
            with self._stage(home) as stage:
                for call in [self.contract.record(one, 1), *self.contract.looks([one])]:
                    stage.outcome(FIRST, call)
            new = sorted(inputs.everything_beside(home) - outside)
            if new:
                name = new[0].relative_to(home.parent)
                raise Violation(
                    f"{self._title}\n\n{call_in_words(self.contract.record(one, 1))} wrote outside of home: ../{name}"
                )

    @clause("safe", "What cannot be an id is refused.", "input")
    def test_ids_refused(self) -> None:
        for one in inputs.BAD_IDS:
            self._play([self.contract.looks([one])[-1], self.contract.record("a", 1), *self._looks("a")])

    @clause("safe", "What the caller does to a record after saving it does not change what is stored.")
    def test_aliasing_saved(self) -> None:
        with self._stage(self._home()) as stage:
            play = self._begin()
            call = self.contract.record("a", 1)
            play.all(stage, [call])
            expected = [self._specification.restart(world) for world in play.worlds]
            inputs.disturb(call.args)
            looks = self._looks("a")
            self._begin(expected).all(stage, [*(second(look) for look in looks), *looks])

    @clause("safe", "What the caller does to a record that was loaded does not change what is stored.")
    def test_aliasing_loaded(self) -> None:
        with self._stage(self._home()) as stage:
            play, looks = self._begin(), self.contract.looks(["a"])
            play.all(stage, [self.contract.record("a", 1)])
            for look in looks:
                inputs.disturb(self._driver.call(stage[FIRST], look))
            play.all(stage, [*looks, *(second(look) for look in looks)])

    @clause("safe", "A record that cannot be read is an error: it is not taken to be missing, or empty.", "input")
    def test_corrupt_is_loud(self) -> None:
        with self._corrupted() as (stage, play):
            for look in self.contract.looks(["a"]):
                if look.args and play.shows(look):  # else it does not ask for this record alone
                    self._must_raise(stage, look)

    @clause("safe", "A record that cannot be read hides no other.", "input")
    def test_corrupt_stays_local(self) -> None:
        with self._corrupted() as (stage, play):
            play.all(stage, self._looks("b"))

    @clause("safe", "Any calls in any order, through several handles and restarts, do what they do in memory.")
    def test_random_calls(self) -> None:
        play_random_calls(
            self.contract, self._begin, lambda: self._stage(self._home()), self._profile, phases=self.random_phases
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
        records = [one for one in self.contract.record("a", 1).args if isinstance(one, BaseModel)]
        pairs = [(plain(one), plain(one, self.normalise)) for one in records]
        return [name for whole, rest in pairs for name in whole if name not in rest or whole[name] != rest[name]]

    def _need_files(self, why: str) -> None:
        if self.medium != "disk":
            pytest.skip(f"does not apply to medium {self.medium!r}: {why}")

    def _looks(self, *ids: str) -> list[Call]:
        return list(self.contract.looks(ids))

    @contextlib.contextmanager
    def _corrupted(self) -> Iterator[tuple[Stage, Play]]:
        """Give a store that holds records of `a` and `b`, of which that of `a` cannot be read.

        In the script that goes on there, `a` may be there or not, as long as nobody asks for it.
        """
        home, record = self._home(), self.contract.record
        with self._stage(home) as stage:
            play, without = self._begin(), self._begin()
            empty = corruption.files(home)
            without.all(stage, [record("b", 1), RESTART])
            play.worlds = without.worlds
            others = corruption.files(home)
            play.all(stage, [record("a", 1), RESTART])
            self._damage(home, empty, others)
            play.worlds = (*play.worlds, *without.worlds)
            yield stage, play

    def _damage(self, home: Path, empty: dict[Path, bytes], others: dict[Path, bytes]) -> None:
        try:
            self.corrupt(home, "a")
        except NotImplementedError:
            self._need_files("write corrupt(self, home, id), which damages the record of one id")
            corruption.cut(corruption.own_file(empty, others, corruption.files(home)))

    def _must_raise(self, stage: Stage, look: Call) -> None:
        try:
            value = self._driver.call(stage[FIRST], look)
        except Exception:
            return
        raise Violation(
            f"{self._title}\n\n{call_in_words(look)} -> {outcome_in_words(Returned(plain(value)))}\n"
            "    expected: an error, for the record cannot be read"
        )

    def _play_values(self, kind: str) -> None:
        if kind not in self.values:
            pytest.skip(f"the {self.contract.name} contract has no such values")
        for call in self.values[kind]:
            self._play([call, *self._looks("a"), RESTART, *self._looks("a")])

    def _play(self, lines: Sequence[Line | Later]) -> None:
        """Make calls on the store and on the reference."""
        with self._stage(self._home()) as stage:
            play = self._begin()
            play.all(stage, lines)
        self._say_what_was_left_out(play)

    def _begin(self, worlds: Sequence[World] | None = None) -> Play:
        """Begin a script, on an empty store or on one in which things are as in these worlds."""
        start = worlds or [self._specification.start()]
        return Play(self._specification, start, title=self._title, is_aside=self._is_aside)

    def _is_aside(self, call: Call) -> bool:
        """Tell whether a script makes a call only to see what others did. If it is not offered, it can be left out."""
        operation = self.contract[call.name]
        only_looks = not operation.changes or call is self.contract.recovery
        return only_looks and self._topic not in operation.name.split("_")

    def _say_what_was_left_out(self, play: Play) -> None:
        if play.left_out and not play.has_looked:
            pytest.skip(play.left_out[0])
        self._tell("left_out", dict.fromkeys(play.left_out))

    def _tell(self, name: str, texts: Iterable[str]) -> None:
        """Add to the properties of the test, which reports are made of."""
        properties = self._request.node.user_properties
        new = ((f"wfstate_{name}", text) for text in texts)
        properties.extend(pair for pair in new if pair not in properties)

    def _play_in_time(self, lines: Sequence[Line | Later | Tick]) -> None:
        """Make calls while the clock stands still: then every time stamp is known."""
        specification = Specification(self.contract, self.normalise, _Clock())
        with frozen_clock(START) as clock, self._stage(self._home()) as stage:
            play = Play(specification, [specification.start()], title=self._title, is_aside=self._is_aside)
            for line in lines:
                if isinstance(line, Tick):
                    clock.tick(line.seconds)
                else:
                    play.all(stage, [line])
        self._say_what_was_left_out(play)

    def _crashed(self, name: str, fault: Fault) -> None:
        self._need_files("what its process writes cannot be seen")
        lab: Crash = self._request.getfixturevalue("_wfstate_crash")
        unmeasured: list[Exception] = []
        not_offered: list[str] = []
        for scenario in [one for one in self.scenarios[name] if fault in one.faults]:
            trial = Trial(
                self._stage,
                self.contract,
                self.normalise,
                scenario,
                self.afterwards,
                lab.ack,
            )
            try:
                trial.rehearse(self._home)
            except pytest.skip.Exception as skipped:
                not_offered.append(str(skipped))
            except Exception as error:
                if _FAILS_TO_OPEN in vars(type(self)):
                    raise
                unmeasured.append(error)
            else:
                crashed(trial, lab, fault)
        if unmeasured:
            raise NotMeasured(
                f"{self._title}\n\nNOT_MEASURED: without any fault the store already does what its contract does not "
                f"allow. Mend that first:\n{_told(unmeasured[0])}"
            )
        if len(not_offered) == len(self.scenarios[name]):
            pytest.skip(not_offered[0])
        self._tell("left_out", dict.fromkeys(not_offered))

    def _home(self) -> Path:
        """Make a new home."""
        name = f"h{uuid.uuid4().hex[:15]}"
        home = self._base / f"of-{name}" / name  # so that nothing else is beside it
        home.mkdir(parents=True)
        return home

    def _stage(self, home: Path) -> Stage:
        return Stage(lambda: self._open(home), self._close, self._driver)

    def _open(self, home: Path) -> Any:
        is_new = not any(home.iterdir())
        try:
            return self._driver.run(lambda: self.open(home), "open")
        except Exception as error:
            if is_new:
                _tell_once(type(self), error)
            raise

    def _close(self, store: Any) -> None:
        self._driver.run(lambda: self.close(store), "close")

    @property
    def _profile(self) -> str:
        return str(
            self._request.config.getoption("--wfstate-profile") or self._request.config.getini("wfstate_profile")
        )


_FAILS_TO_OPEN = "_wfstate_fails_to_open"
"""Of a suite whose store cannot be opened, and that has said why."""


class _Clock(Invented):
    """The time as it is, frozen."""

    def time(self) -> Any:
        return now()


def script(level: Level, promise: str, *lines: Line | Later, fault: Fault = "none") -> Callable[[Suite], None]:
    """Make a clause of calls: whatever they come to in memory, they must come to in every store."""

    @clause(level, promise, fault)
    def test(self: Suite) -> None:
        self._play(lines)

    return test


def timed(level: Level, promise: str, *lines: Line | Later | Tick) -> Callable[[Suite], None]:
    """Make a clause of calls in time that is frozen."""

    @clause(level, promise)
    def test(self: Suite) -> None:
        self._play_in_time(lines)

    return test


@clause("safe", "Saving or deleting a record that cannot be read heals it.", "input")
def _heals(self: Suite) -> None:
    for call in self.heals:
        with self._corrupted() as (stage, play):
            play.all(stage, [call, *self._looks("a", "b"), RESTART, *self._looks("a", "b")])


def _crash(level: Level, fault: Fault, promise: str) -> Callable[[str], Callable[[Suite], None]]:
    def make(name: str) -> Callable[[Suite], None]:
        @clause(level, promise.format(name.replace("_", " ")), fault)
        def test(self: Suite) -> None:
            self._crashed(name, fault)

        return test

    return make


_CRASHES = {
    "kill": _crash(
        "safe",
        "kill",
        "A process that is killed in {0} leaves all that was acknowledged, and {0} in full or not at all.",
    ),
    "power": _crash(
        "hardened", "power", "A power cut in {0} leaves all that was acknowledged, and {0} in full or not at all."
    ),
    "errors": _crash(
        "hardened", "errors", "An I/O error in {0} is raised, and leaves {0} in full or not at all; the store goes on."
    ),
}


def _timeout(config: pytest.Config) -> float:
    return float(config.getoption("--wfstate-timeout") or config.getini("wfstate_timeout"))


def _tell_once(suite: type[Suite], error: Exception) -> None:
    """Let the first test of a suite show why its store cannot be opened; the others say so in a line."""
    if _FAILS_TO_OPEN in vars(suite):
        pytest.fail(f"open() raises {type(error).__name__}, as the first failure of this class shows", pytrace=False)
    setattr(suite, _FAILS_TO_OPEN, True)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, Violation) else "\n".join(said(error))
