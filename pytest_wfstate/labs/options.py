"""The plugin's options: what each may be, read from the command line or the ini file, and checked.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
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
DEFAULTS = {
    "backends": "memory,file",
    "profile": "default",
    "model": "posix",
    "servers": "optional",
    "timeout": "30",
    "corpus": "",
}

OF_ITEMS = ("wfstate_suite", "wfstate_clause", "wfstate_level", "wfstate_fault")
"""Properties that an item has when it is collected; the others are of a run of it."""

CAUSE = "wfstate_cause"
"""The property of a test of a suite that names what its failure is due to; empty if that is not known."""

NOT_OPENED = "wfstate_not_opened"
"""A property of a test of a suite that fails because its store cannot be opened, which another test shows in full."""

COMMAND = pytest.StashKey[str]()
"""Set on an item that `wfstate check` runs: the command that runs it again."""


def check(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` if an option has a value that means nothing."""
    backends(config)
    for name in CHOICES:
        _choice(config, name)
    timeout(config)
    replay_id(config)
    corpus(config)


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


def replay_command(item: pytest.Item) -> str:
    """Return the command that replays a violation in a test, up to the replay id.

    It works in the folder where pytest was started, and has the options that choose the tests and their explorations.
    """
    if (command := item.stash.get(COMMAND, None)) is not None:
        return f"{command} --replay="
    config = item.config
    chosen = {name: config.getoption(f"--wfstate-{name}") for name in ("backends", "profile")}
    given = "".join(f" --wfstate-{name}={value}" for name, value in chosen.items() if value is not None)
    path, *names = item.nodeid.split("::")
    relative = os.path.relpath(config.rootpath / path, config.invocation_params.dir)
    return f"pytest {_quoted('::'.join([relative, *names]))}{given} --wfstate-replay="


def _quoted(text: str) -> str:
    """Quote a text for a shell, in double quotes if that is enough."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'


def corpus(config: pytest.Config) -> tuple[Path | None, Callable[[], object]]:
    """Return the folder of remembered failures, and what makes it. By default it is in pytest's cache, if there is one.

    A path on the command line is relative to the current folder, one in the ini file to that file.
    """
    text, source = _text(config, "corpus")
    if text == "none" or (not text and not hasattr(config, "cache")):
        return None, lambda: None
    if not text:
        cache, place = config.cache, os.path.expanduser(os.path.expandvars(config.getini("cache_dir")))
        assert cache is not None
        return config.rootpath / place / "d" / "wfstate", lambda: cache.mkdir("wfstate")
    is_option = source.startswith("--")
    base = config.invocation_params.dir if is_option else (config.inipath or config.rootpath / "ini").parent
    folder = base / text
    if folder.exists() and not folder.is_dir():
        raise pytest.UsageError(f"{source} is {text!r}, which is a file. Give a folder, or 'none'.")
    return folder, lambda: folder.mkdir(parents=True, exist_ok=True)


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
