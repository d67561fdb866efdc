"""The context of a clause: homes, handles, scripts and labs for one test of a suite."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_wfstate.contracts.base import Call, GeneratedValues, Ids
from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.ids import is_id
from pytest_wfstate.engine.driver import NOT_SUPPORTED, Driver
from pytest_wfstate.engine.handles import FIRST, Handles, OpenStore, open_store
from pytest_wfstate.engine.own_runs import OwnRuns
from pytest_wfstate.engine.script import Later, ScriptRun, Step, Tick, ViaHandle
from pytest_wfstate.errors import Violation, blamed, cause_of
from pytest_wfstate.faults.frozen_clock import START, frozen_clock
from pytest_wfstate.faults.report_text import failure_lines
from pytest_wfstate.faults.servers.proxy import Proxy
from pytest_wfstate.labs import options
from pytest_wfstate.labs.crash import Crash
from pytest_wfstate.labs.fixtures import unique_home
from pytest_wfstate.labs.race import Race
from pytest_wfstate.oracle.history import Returned
from pytest_wfstate.oracle.judge import Judge
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.render import short, shown_by
from pytest_wfstate.suites import inputs
from pytest_wfstate.suites.clauses import FEATURES, NOT_APPLICABLE, clause_of

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True


@dataclasses.dataclass(slots=True)
class SuiteFacts:
    """What the tests of one suite class have learned about their store."""

    has_opened: bool = False
    """Then a failure to open it says something about that test alone."""
    fails_to_open: bool = False
    """A test has shown why; the others say so in a line."""
    has_unseen_writes: bool | None = None
    """Whether it writes in ways that the race lab cannot interleave; None until a race has tried."""
    deviations: dict[str, str] = dataclasses.field(default_factory=dict)
    """For each deviation from the contract, the clause that has reported it first."""
    takes: dict[str, bool] = dataclasses.field(default_factory=dict)
    """Ids that the store was seen to take, or to refuse."""
    is_async: dict[str, bool] = dataclasses.field(default_factory=dict)
    """Methods that were seen to be async, or not."""
    trials: Counter[str] = dataclasses.field(default_factory=Counter)
    """How often each operation of the reference was tried to see whether its copies are independent."""


class NotOpened(pytest.fail.Exception):  # type: ignore[name-defined, misc]
    """The store cannot be opened, as another test of the class has shown."""


T = TypeVar("T")
NAMES, ASYNC_NAMES = "names", "async names"
"""By which a suite calls the methods of a store, if its contract has both."""
_USUAL = re.compile(r"[a-z0-9-]{1,32}")
"""Ids that every store takes."""
FACTS = pytest.StashKey[SuiteFacts]()


class ClauseContext:
    """What a clause works with, and what faults are injected through. Each test of a suite has its own."""

    def __init__(self, suite: Suite, request: pytest.FixtureRequest, folder: Path) -> None:
        config, contract = request.config, suite.contract
        self.suite = suite
        self.contract = contract
        self.medium = suite.medium
        self._declares_values = sum("accepts_value" in vars(base) for base in type(suite).__mro__) > 1
        self.profile = options.profile(config)
        self.timeout = options.timeout(config)
        self.variant: str = getattr(request, "param", "")
        self.driver = Driver(
            self.timeout,
            suite.encode,
            suite.decode,
            suite.normalise,
            contract.operations,
            suite.refusals,
            keeps_tuples=contract.same is not None,
            by_async_names=self.variant == ASYNC_NAMES,
        )
        self.server: Any = request.getfixturevalue(suite.server) if suite.server is not None else None
        self.proxy: Proxy | None = None
        self.facts: SuiteFacts = request.node.parent.stash.setdefault(FACTS, SuiteFacts())
        self.model = self.new_model()
        clause = clause_of(type(suite), request.function, request.node.originalname)
        self._topic = clause.id.split(".")[1] if clause else ""
        self._needs = clause.needs if clause else ""
        self.fault = clause.fault if clause else "none"
        self._folder = folder
        self._request = request
        self._deviations: list[str] = []
        """Why the store is judged by its own runs, if it is."""

    @contextlib.contextmanager
    def running(self) -> Iterator[ClauseContext]:
        """Start a proxy before the server, if there is one; stop it and close the driver at the end of the test."""
        if self._needs in self.suite.unsupported:
            pytest.skip(self.not_supported(self._needs))
        with contextlib.ExitStack() as stack:
            stack.callback(self.driver.close)
            stack.enter_context(shown_by(self.contract))
            if self.server is not None:
                self.proxy = stack.enter_context(Proxy(self.server.url))
            yield self

    def new_model(self, generated: GeneratedValues | None = None, *, in_order: bool = True) -> ReferenceModel:
        """Return a model of the contract."""
        unsupported = self.suite.unsupported
        return ReferenceModel(
            self.contract,
            self.suite.normalise,
            generated,
            in_order=in_order and "order" not in unsupported,
            replaces="replace" not in unsupported,
            trials=self.facts.trials,
        )

    def judges_by_own_runs(self, deviation: str) -> None:
        """Note that the store is judged by its own runs, and why."""
        self._deviations.append(deviation)
        self.report("own_runs", [deviation])

    @property
    def deviates(self) -> bool:
        """Whether the store was seen to deviate from its contract without any fault."""
        return bool(self._deviations)

    def judged_by(self) -> list[str]:
        """Return what a violation says of that."""
        if not self._deviations:
            return []
        deviation = self._deviations[0]
        clause = self.facts.deviations.get(deviation)
        see = f", as {clause} reports" if clause else ", which its own clauses report"
        return [
            "Judged against the store's own uninterrupted runs, since it deviates from its contract without any fault:",
            f"{deviation}{see}.",
            "",
        ]

    def own_judge(self, *, alone: Container[str] = ()) -> Judge:
        """Return a judge by the store's own runs. Each client that is `alone` works while no other has it open."""
        replaces = "replace" not in self.suite.unsupported
        own = OwnRuns(self.contract, self._handles_of_own_run, alone=alone, replaces=replaces)
        return Judge(own, remembers=True)

    @property
    def crash_lab(self) -> Crash:
        """The crash lab of this test."""
        lab: Crash = self._request.getfixturevalue("_wfstate_crash")
        lab.explains = self.suite.explains
        return lab

    @property
    def race_lab(self) -> Race:
        """The race lab of this test."""
        lab: Race = self._request.getfixturevalue("_wfstate_race")
        return lab

    def home(self) -> Path:
        """Make a new home that is prepared."""
        home = self.unprepared_home()
        self.prepare(home)
        return home

    def unprepared_home(self) -> Path:
        """Make a new home."""
        name = unique_home()
        home = self._folder / f"of-{name}" / name  # so that nothing else is beside it
        home.mkdir(parents=True)
        return home

    def prepare(self, home: Path) -> None:
        """Prepare a new home as the suite does."""
        self.driver.run(lambda: self.suite.prepare(home), "prepare")

    def handles(self, home: Path, errors: tuple[type[Exception], ...] = ()) -> Handles:
        """Return handles on the store at a home, each opened when it is first used. `errors` are outcomes, too."""
        return Handles(lambda: self._open(home), self.driver, errors)

    def open(self, home: Path) -> OpenStore:
        """Open the store at a home."""
        suite, methods = self.suite, self.contract.methods
        return open_store(self.driver, lambda: suite.open(home), suite.close, adapt=suite.adapt, methods=methods)

    @property
    def ids(self) -> Ids:
        """The ids that clauses about ids use."""
        ids = self.contract.ids
        return Ids(
            inputs.GOOD_IDS if ids.good is None else ids.good,
            inputs.BAD_IDS if ids.bad is None else ids.bad,
            inputs.PAIRS if ids.pairs is None else ids.pairs,
        )

    def not_supported(self, feature: str) -> str:
        """Return the reason for skipping what needs a feature that the store does not support."""
        return f"{NOT_SUPPORTED}: {FEATURES[feature]}: {self.suite.unsupported[feature]}"

    def reads(self, *ids: str) -> list[Call]:
        """Return the calls that show all that can be seen of these ids."""
        return list(self.contract.reads(ids))

    def begin(self) -> ScriptRun:
        """Begin a script on an empty store."""
        return self._begin(self.model)

    def play(self, steps: Sequence[Step | Later]) -> None:
        """Run a script on a new store, without calls on ids that the store does not take.

        Raises:
            Violation: the store returned what the reference does not.
        """
        accepted = self._accepted(steps)
        try:
            self.play_all(accepted)
        except Exception:
            taken = [step for step in accepted if self._is_taken(step)]
            if len(taken) == len(accepted):
                raise
            if any(map(self._mutates, taken)):
                self.play_all(taken)  # another clause, which asks for any text, reports the others

    def play_all(self, steps: Sequence[Step | Later]) -> None:
        """Run a script on a new store, whatever ids it takes.

        Raises:
            Violation: the store returned what the reference does not.
        """
        with self.handles(self.home()) as handles:
            script = self.begin()
            script.run(handles, steps)
        self._report_left_out(script)

    def play_each(self, scripts: Iterable[Sequence[Step | Later]], *, any_ids: bool = False) -> None:
        """Run scripts, each on a store of its own. With `any_ids`, the store has to take all ids.

        To save time, all run on one store first: if they are right there, they are right alone. The report has the
        first failure in full, and the first line of each other.

        Raises:
            Violation: the store returned what the reference does not.
        """
        each, play = list(scripts), self.play_all if any_ids else self.play
        try:
            play([step for steps in each for step in steps])
        except Exception:
            self.fail([failure for steps in each if (failure := _failure_of(play, steps)) is not None])

    def fail(self, failures: Sequence[Exception]) -> None:
        """Raise the first of these failures, if there is any. Its report has the first line of each other.

        What is due to a deviation that another clause has reported comes last, as a number.
        """
        new = [failure for failure in failures if cause_of(failure) not in self.facts.deviations]
        if failures:
            known = [failure for failure in failures if failure not in new] if new else []
            raise _with_the_others(new or failures, len(known)) from (new or failures)[0]

    @contextlib.contextmanager
    def leaving_out(self) -> Iterator[None]:
        """Go on without what the store does not offer, and report it, instead of skipping the test."""
        try:
            yield
        except pytest.skip.Exception as not_offered:
            self.report("left_out", [str(not_offered)])

    def play_in_time(self, steps: Sequence[Step | Later | Tick]) -> None:
        """Run a script while the clock is frozen: then every time stamp is known.

        Skips the test if the clock of the store cannot be frozen.
        """
        if self.suite.clock == "foreign":
            pytest.skip(f"{NOT_APPLICABLE}: the store's clock cannot be frozen")
        with frozen_clock(START) as clock, self.handles(self.home()) as handles:
            script = self._begin(self.new_model(_Clock()))
            for step in steps:
                if isinstance(step, Tick):
                    clock.tick(step.seconds)
                    script.timeline.wait(step.seconds)
                else:
                    script.run(handles, [step])
        self._report_left_out(script)

    def report(self, name: str, texts: Iterable[str]) -> None:
        """Add properties to the test: reports are made of them."""
        properties = self._request.node.user_properties
        new = ((f"wfstate_{name}", text) for text in texts)
        properties.extend(pair for pair in new if pair not in properties)

    def need_server(self) -> Any:
        """Return the server. Skip the test if the store is not on one, or the suite does not name it."""
        if self.medium != "server":
            pytest.skip(f"{NOT_APPLICABLE} to medium {self.medium!r}: it has no server")
        if self.server is None:
            pytest.skip("the suite does not name its server: set `server` to the name of a fixture that returns it")
        return self.server

    def need_files(self, why: str) -> None:
        """Skip the test unless the store is on disk."""
        if self.medium != "disk":
            pytest.skip(f"{NOT_APPLICABLE} to medium {self.medium!r}: {why}")

    def _handles_of_own_run(self) -> Handles:
        return self.handles(self.home(), (Exception,))

    def _begin(self, model: ReferenceModel) -> ScriptRun:
        return ScriptRun(Judge(model).begin(), may_skip=self._is_aside)

    def _is_aside(self, call: Call) -> bool:
        """Whether a script makes a call only to see what others did, so that it can do without."""
        operation = self.contract[call.name]
        only_reads = not operation.mutates or call is self.contract.recovery
        return only_reads and self._topic not in operation.name.split("_")

    def _report_left_out(self, script: ScriptRun) -> None:
        if script.left_out and not script.has_read:
            pytest.skip(script.left_out[0])
        if script.could_not_replace:
            pytest.skip(self.not_supported("replace"))
        self.report("left_out", dict.fromkeys(script.left_out))

    def _open(self, home: Path) -> OpenStore:
        try:
            opened = self.open(home)
        except Exception as error:
            what = f"raises {type(error).__name__}"
            self._need_first_failure(what)
            blamed(error, f"open() {what}")
            raise
        if opened.store is None:
            self._need_first_failure("returned None")
            pytest.fail(f"{type(self.suite).__name__}.open() returned None. It must return the store.", pytrace=False)
        self.facts.has_opened = True
        if self.variant and self.driver.has_other_names(opened.store):
            opened.close()
            pytest.skip(f"{NOT_APPLICABLE}: {type(opened.store).__name__} has no methods by their {self.variant}")
        return opened

    def accepts(self, step: Step | Later) -> bool:
        """Whether a store that takes what its suite declares does with a step what the reference does."""
        of_ids = all(self.suite.accepts(id_) in (None, self._is_id(id_)) for id_ in self._unusual_ids(step))
        return of_ids and self._value_not_taken(step) is None

    def taken(self, items: Sequence[T], steps: Callable[[T], Iterable[Step]]) -> list[T]:
        """Leave out items with steps that a store does not do as the reference does, as its suite declares.

        Skips the test if they are all.
        """
        taken = [item for item in items if all(map(self.accepts, steps(item)))]
        if items and not taken:
            step = next(step for step in steps(items[0]) if not self.accepts(step))
            pytest.skip(f"{NOT_SUPPORTED}: {self._value_not_taken(step) or 'the store does not take the id'}")
        return taken

    def _accepted(self, steps: Sequence[Step | Later]) -> list[Step | Later]:
        """Leave out steps that a store does not do as the reference does, as its suite declares.

        Skips the test if they are all that changes anything, for a value that the store does not take.
        """
        accepted = [step for step in steps if self.accepts(step)]
        values = [f"{NOT_SUPPORTED}: {why}" for step in steps if (why := self._value_not_taken(step))]
        if values and not any(map(self._mutates, accepted)):
            pytest.skip(values[0])
        self.report("left_out", dict.fromkeys(values))
        return accepted

    def _value_not_taken(self, step: Step | Later) -> str | None:
        """Return why a store does not do with the values of a call what the reference does, as its suite declares."""
        call = _call_of(step)
        if call is None or not self._declares_values:
            return None
        ids = self.contract[call.name].keys_of(call.args) or ()
        for value in inputs.values_in(call.args):
            takes = None if value in ids else self.suite.accepts_value(value)
            if takes is False:
                return f"the store does not take {short(repr(value))}"
            if takes and not inputs.has_json(value) and self.model.refuses(call):
                return f"the store takes {short(repr(value))}, which the contract refuses"
        return None

    def _is_id(self, id_: str) -> bool:
        """Whether an id is valid in the contract."""
        ids = self.contract.ids
        is_named = id_ in (ids.good or ()) or any(id_ in pair for pair in ids.pairs or ())
        return is_named or (is_id(id_) and id_ not in (ids.bad or ()))

    def _is_taken(self, step: Step | Later) -> bool:
        """Whether the store takes the valid ids of a step: one save of each shows it."""
        return all(self._takes(id_) for id_ in self._unusual_ids(step) if self._is_id(id_))

    def _mutates(self, step: Step | Later) -> bool:
        call = _call_of(step)
        return call is not None and self.contract[call.name].mutates

    def _takes(self, id_: str) -> bool:
        if id_ not in self.facts.takes:
            try:
                with self.handles(self.home()) as handles:
                    outcome = handles.outcome(FIRST, self.contract.write(id_, 1))
                self.facts.takes[id_] = isinstance(outcome, Returned)
            except Exception:
                self.facts.takes[id_] = False
        return self.facts.takes[id_]

    def _unusual_ids(self, step: Step | Later) -> list[str]:
        """Return the ids of a step of which some stores take other ones than the reference does."""
        call = _call_of(step)
        ids = self.contract[call.name].keys_of(call.args) if call else None
        return [id_ for id_ in ids or () if isinstance(id_, str) and not _USUAL.fullmatch(id_)]

    def _need_first_failure(self, what: str) -> None:
        """Raise `NotOpened` if another test of the class has already shown why the store cannot be opened."""
        if self.facts.fails_to_open and not self.facts.has_opened:
            text = f"open() {what}: see the first failure of this class"
            raise blamed(NotOpened(text, pytrace=False), f"open() {what}") from None
        self.facts.fails_to_open |= not self.facts.has_opened


def _call_of(step: Step | Later) -> Call | None:
    call = step.call if isinstance(step, ViaHandle) else step
    return call if isinstance(call, Call) else None


def _failure_of(play: Callable[[Sequence[Step | Later]], None], steps: Sequence[Step | Later]) -> Exception | None:
    try:
        play(steps)
    except pytest.skip.Exception:
        return None  # there is nothing to see in it, which says nothing of the others
    except Exception as error:
        return error
    return None


def _with_the_others(failures: Sequence[Exception], known: int) -> Exception:
    """Return the first of some failures, the first line of each other below it, and how many more are known."""
    first, *others = failures
    if not others and not known:
        return first
    lines = [f"  {failure_lines(error)[0]}" for error in others]
    lines = ["", f"So do {len(others)} others, which begin:", *lines] if others else []
    lines += ["", f"{known} more fail for reasons that other clauses report."] if known else []
    return Violation("\n".join([*failure_lines(first), *lines]))


class _Clock(GeneratedValues):
    """The frozen time."""

    def time(self) -> Any:
        return now()
