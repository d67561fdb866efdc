"""Suites of known-bad stores: each knows which of its clauses must fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_wfstate.suites.base import Suite
from pytest_wfstate.zoo import KnownBadStore


def suite_of(store: KnownBadStore, suites: Mapping[str, type[Suite]]) -> type[Suite]:
    """Return a suite that holds a known-bad store to its contract, with what it breaks as known failures."""

    def in_home(_: Suite, home: Path) -> Any:
        return store.open(home)

    def on_server(suite: Suite, home: Path) -> Any:
        return store.open(suite.url, prefix=home.name)

    name = "Test" + "".join(part.capitalize() for part in store.name.replace(".", "-").split("-"))
    known = dict.fromkeys(store.breaks, store.story)
    place = {"open": on_server, "medium": "server", "server": store.server} if store.server else {"open": in_home}
    return type(name, (suites[store.contract],), {"known_failures": known, "__doc__": store.story, **place})
