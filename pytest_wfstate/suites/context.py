"""The harness: how a suite opens a store, makes calls on it and on the reference, and keeps homes for it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate.contracts.base import Call, Contract, GeneratedValues
from pytest_wfstate.contracts.clock import now
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.engine.handles import Handles, close
from pytest_wfstate.engine.script import Later, ScriptRun, Step, Tick
from pytest_wfstate.faults.frozen_clock import START, frozen_clock
from pytest_wfstate.faults.servers.proxy import Proxy
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState
from pytest_wfstate.suites.clauses import Level, Medium, clause_of
from pytest_wfstate.suites.faults.crash import CrashRun, Scenario
from pytest_wfstate.suites.faults.race import RaceRole

__tracebackhide__ = True


class ClauseContext:
    """What a suite does with a store, but for its clauses. What can be overridden comes first."""

    medium: ClassVar[Medium] = "disk"
    """Where the store keeps its state, which tells what can be done to it."""
    server: ClassVar[str | None] = None
    """The name of a fixture that gives the server, with its `.url`, and `.kill()` and `.restart()` if it has them."""
    url: str
    """Where `open` should connect to: a proxy before the server, which can cut connections."""
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
        return close(store)

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
    random_shrinks: ClassVar[bool] = True
    """Whether random calls that fail are made as few as possible: nobody needs that who expects them to."""
    scenarios: ClassVar[Mapping[str, Sequence[Scenario]]] = {}
    """For each method that changes something, what a crash comes in the middle of."""
    racers: ClassVar[Mapping[str, RaceRole]] = {}
    """For each method, what a worker does with it in a race with another."""
    killed_racers: ClassVar[bool] = False
    """Whether one of two workers is also killed while the other is at work."""
    afterwards: ClassVar[Sequence[Call]] = ()
    """Calls that work after any crash."""
    heals: ClassVar[Sequence[Call]] = ()
    """Calls that make a record of id `a` whole again, or be gone, if it cannot be read."""
    values: ClassVar[Mapping[str, Sequence[Call]]] = {}
    """Saves of records that are easily lost: `falsy`, `unicode`, `large`."""

    @pytest.fixture(autouse=True)
    def _wfstate_item(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        self._request = request
        clause = clause_of(type(self), request.function, request.node.originalname)
        self._title = f"{clause.id}: {clause.promise}" if clause else ""
        self._topic = clause.id.split(".")[1] if clause else ""
        self._base = tmp_path_factory.mktemp("wfstate")
        required = [one.name for one in self.contract.operations if one.required]
        self._driver = Driver(self._timeout, self.encode, self.decode, self.normalise, required)
        self._model = ReferenceModel(self.contract, self.normalise)
        with contextlib.ExitStack() as stack:
            if self.server is not None:
                self._server = request.getfixturevalue(self.server)
                self._proxy = stack.enter_context(Proxy(self._server.url))
                self.url = self._proxy.url
            yield
        self._driver.close()
        del self._request, self._driver, self._model  # pytest keeps this object for as long as it runs

    def _need_server(self) -> Any:
        """Give the server, if the store is on one that can be reached."""
        if self.medium != "server":
            pytest.skip(f"does not apply to medium {self.medium!r}: it has no server")
        if self.server is None:
            pytest.skip("the suite does not say which server it is: `server` names a fixture that gives it")
        return self._server

    def _need_files(self, why: str) -> None:
        if self.medium != "disk":
            pytest.skip(f"does not apply to medium {self.medium!r}: {why}")

    def _looks(self, *ids: str) -> list[Call]:
        return list(self.contract.reads(ids))

    def _play(self, lines: Sequence[Step | Later]) -> None:
        """Make calls on the store and on the reference."""
        with self._handles(self._home()) as handles:
            play = self._begin()
            play.all(handles, lines)
        self._say_what_was_left_out(play)

    def _play_each(self, scripts: Iterable[Sequence[Step | Later]]) -> None:
        """Play scripts one after the other on one store: they do each other no harm unless something is wrong.

        Then each is played on a store of its own, so that what is told is short.
        """
        each = list(scripts)
        try:
            self._play([line for lines in each for line in lines])
        except Exception:
            for lines in each:
                self._play(lines)
            raise

    def _begin(self, worlds: Sequence[ReferenceState] | None = None) -> ScriptRun:
        """Begin a script, on an empty store or on one in which things are as in these worlds."""
        start = worlds or [self._model.start()]
        return ScriptRun(self._model, start, title=self._title, is_aside=self._is_aside)

    def _is_aside(self, call: Call) -> bool:
        """Tell whether a script makes a call only to see what others did. If it is not offered, it can be left out."""
        operation = self.contract[call.name]
        only_looks = not operation.mutates or call is self.contract.recovery
        return only_looks and self._topic not in operation.name.split("_")

    def _say_what_was_left_out(self, play: ScriptRun) -> None:
        if play.left_out and not play.has_looked:
            pytest.skip(play.left_out[0])
        self._tell("left_out", dict.fromkeys(play.left_out))

    def _tell(self, name: str, texts: Iterable[str]) -> None:
        """Add to the properties of the test, which reports are made of."""
        properties = self._request.node.user_properties
        new = ((f"wfstate_{name}", text) for text in texts)
        properties.extend(pair for pair in new if pair not in properties)

    def _play_in_time(self, lines: Sequence[Step | Later | Tick]) -> None:
        """Make calls while the clock stands still: then every time stamp is known."""
        model = ReferenceModel(self.contract, self.normalise, _Clock())
        with frozen_clock(START) as clock, self._handles(self._home()) as handles:
            play = ScriptRun(model, [model.start()], title=self._title, is_aside=self._is_aside)
            for line in lines:
                if isinstance(line, Tick):
                    clock.tick(line.seconds)
                else:
                    play.all(handles, [line])
        self._say_what_was_left_out(play)

    def _home(self) -> Path:
        """Make a new home."""
        name = f"h{uuid.uuid4().hex[:15]}"
        home = self._base / f"of-{name}" / name  # so that nothing else is beside it
        home.mkdir(parents=True)
        return home

    def _handles(self, home: Path) -> Handles:
        return Handles(lambda: self._open(home), self._close, self._driver)

    def _trial(self, scenario: Scenario, ack: Callable[[Any], None]) -> CrashRun:
        """Make a trial of a scenario on the store."""
        return CrashRun(self._handles, self.contract, self.normalise, scenario, self.afterwards, ack)

    def _open(self, home: Path) -> Any:
        try:
            store = self._driver.run(lambda: self.open(home), "open")
        except Exception as error:
            if _OPENS not in vars(type(self)):
                _tell_once(type(self), error)
            raise
        setattr(type(self), _OPENS, True)
        return store

    def _close(self, store: Any) -> None:
        self._driver.run(lambda: self.close(store), "close")

    @property
    def _timeout(self) -> float:
        return _timeout(self._request.config)

    @property
    def _profile(self) -> str:
        return str(
            self._request.config.getoption("--wfstate-profile") or self._request.config.getini("wfstate_profile")
        )

    @property
    def _fails_to_open(self) -> bool:
        return _FAILS_TO_OPEN in vars(type(self))


_FAILS_TO_OPEN = "_wfstate_fails_to_open"
"""Of a suite whose store cannot be opened, and that has said why."""
_OPENS = "_wfstate_opens"
"""Of a suite whose store was opened once, so that a failure to open it another time is a matter of that time."""


class _Clock(GeneratedValues):
    """The time as it is, frozen."""

    def time(self) -> Any:
        return now()


def _timeout(config: pytest.Config) -> float:
    return float(config.getoption("--wfstate-timeout") or config.getini("wfstate_timeout"))


def _tell_once(suite: type[ClauseContext], error: Exception) -> None:
    """Let the first test of a suite show why its store cannot be opened; the others say so in a line."""
    if _FAILS_TO_OPEN in vars(suite):
        pytest.fail(f"open() raises {type(error).__name__}, as the first failure of this class shows", pytrace=False)
    setattr(suite, _FAILS_TO_OPEN, True)
