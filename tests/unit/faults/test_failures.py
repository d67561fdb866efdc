"""A failure is what the code under test raises; what a signal handler raises in the middle of it is not."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest

from pytest_wfstate.faults.failures import CatchFailure


def fail(*_: Any) -> NoReturn:
    pytest.fail("the time is up")


class Handler:
    def time_out(self, number: int, frame: FrameType | None) -> None:
        fail(number, frame)

    def exit(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        sys.exit(number)

    def raise_(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        raise TimeoutError


HANDLERS = [fail, Handler().time_out, Handler().exit, Handler().raise_, functools.partial(Handler.time_out, Handler())]


@pytest.fixture(params=HANDLERS)
def signalled(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    """The error that a handler raises on SIGUSR1."""
    before = signal.signal(signal.SIGUSR1, request.param)
    kinds = {"exit": SystemExit, "raise_": TimeoutError}
    yield kinds.get(getattr(request.param, "__name__", ""), pytest.fail.Exception)
    signal.signal(signal.SIGUSR1, before)


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def interrupted_in_a_task() -> None:
    async def work() -> None:
        interrupted()

    async def wait() -> None:
        await asyncio.create_task(work())

    asyncio.run(wait())


@pytest.mark.parametrize("work", [interrupted, interrupted_in_a_task])
def test_what_a_signal_handler_raises_passes_through(work: Callable[[], None], signalled: type[BaseException]) -> None:
    with pytest.raises(signalled), CatchFailure():
        work()


def wrapped() -> None:
    try:
        interrupted()
    except BaseException as error:
        raise RuntimeError("wrapped") from error


def hidden() -> None:
    try:
        interrupted()
    except BaseException:
        raise RuntimeError("hidden") from None


def cleaned_up() -> None:
    try:
        interrupted()
    finally:
        raise RuntimeError("cannot be cleaned up")


def grouped() -> None:
    try:
        interrupted()
    except BaseException as error:
        raise BaseExceptionGroup("tasks", [BaseExceptionGroup("inner", [error]), ValueError()]) from None


@pytest.mark.usefixtures("signalled")
@pytest.mark.parametrize("work", [wrapped, hidden, cleaned_up, grouped])
def test_an_error_that_an_interruption_led_to_passes_through(work: Callable[[], None]) -> None:
    with pytest.raises((RuntimeError, BaseExceptionGroup)), CatchFailure():
        work()


def with_a_frame() -> None:
    """Call something with the arguments of a trace function, not of a signal handler."""
    Handler().raise_("call", sys._getframe())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (fail, pytest.fail.Exception),
        (sys.exit, SystemExit),
        (lambda: 1 / 0, ZeroDivisionError),
        (with_a_frame, OSError),
    ],
)
def test_the_codes_own_errors_are_failures(work: Callable[[], Any], kind: type[BaseException]) -> None:
    with CatchFailure() as caught:
        work()
    assert isinstance(caught.error, kind)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), pytest.skip.Exception(), pytest.exit.Exception()])
def test_what_ends_a_test_or_all_tests_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)), CatchFailure():
        raise error


def test_a_block_that_raises_nothing_has_no_error() -> None:
    with CatchFailure() as caught:
        pass
    assert caught.error is None
