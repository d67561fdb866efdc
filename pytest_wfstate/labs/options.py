"""The plugin's options: what each may be, read from the command line or the ini file, and checked.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import pytest

from pytest_wfstate.faults.bounds import MODELS, PROFILES, Model
from pytest_wfstate.stores.backends import BACKENDS

if TYPE_CHECKING:
    from pytest_wfstate.faults.replay_id import ReplayId

CHOICES: dict[str, tuple[str, ...]] = {
    "profile": tuple(PROFILES),
    "model": MODELS,
    "servers": ("optional", "required"),
}
DEFAULTS = {"backends": "memory,file", "profile": "default", "model": "posix", "servers": "optional", "timeout": "30"}


def check(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` if an option has a value that means nothing."""
    backends(config)
    for name in CHOICES:
        _choice(config, name)
    timeout(config)
    replay_id(config)


def backends(config: pytest.Config) -> list[str]:
    """Return the names of the chosen backends, each once."""
    text, source = _text(config, "backends")
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in BACKENDS]
    if unknown or not names:
        problem = f"names the unknown backend {unknown[0]!r}" if unknown else "names no backend"
        raise pytest.UsageError(f"{source} {problem}. It was {text!r}. Choose from: {', '.join(BACKENDS)}.")
    return names


def profile(config: pytest.Config) -> str:
    """Return the name of the profile, a key of `PROFILES`."""
    return _choice(config, "profile")


def model(config: pytest.Config) -> Model:
    """Return the disk model for tests that do not name one."""
    return cast(Model, _choice(config, "model"))


def needs_servers(config: pytest.Config) -> bool:
    """Whether a test that finds no server fails. Otherwise it is skipped."""
    return _choice(config, "servers") == "required"


def timeout(config: pytest.Config) -> float:
    """Return how many seconds one store call in a suite may take."""
    text, source = _text(config, "timeout")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise pytest.UsageError(
            f"{source} is {text!r}, which is not a positive number of seconds. It limits each store call in a suite. "
            "Give a number such as 30."
        )
    return seconds


def replay_id(config: pytest.Config) -> ReplayId | None:
    """Return the id of the violation to replay, if there is one."""
    text = config.getoption("--wfstate-replay")
    if text is None:
        return None
    from pytest_wfstate.faults.replay_id import NoReplayId, ReplayId

    try:
        return ReplayId.read(text)
    except NoReplayId as error:
        raise pytest.UsageError(f"--wfstate-replay: {error}") from None


def _choice(config: pytest.Config, name: str) -> str:
    text, source = _text(config, name)
    if text not in CHOICES[name]:
        raise pytest.UsageError(f"{source} is {text!r}, which is unknown. Choose from: {', '.join(CHOICES[name])}.")
    return text


def _text(config: pytest.Config, name: str) -> tuple[str, str]:
    """Return an option's value and where it was set. The command line overrides the ini file."""
    option = config.getoption(f"--wfstate-{name}")
    if option is not None:
        return str(option), f"--wfstate-{name}"
    return str(config.getini(f"wfstate_{name}")), f"the ini setting wfstate_{name}"
