"""Animals of the zoo before their suites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_wfstate.suites.base import Suite
from pytest_wfstate.zoo import Animal


def suite_of(animal: Animal, suites: dict[str, type[Suite]]) -> type[Suite]:
    """Make a suite that holds an animal to its contract, and knows what it breaks."""

    def at_home(_: Suite, home: Path) -> Any:
        return animal.open(home)

    def on_server(suite: Suite, home: Path) -> Any:
        return animal.open(suite.url, prefix=home.name)

    name = "Test" + "".join(part.capitalize() for part in animal.name.replace(".", "-").split("-"))
    known = dict.fromkeys(animal.breaks, animal.story)
    place = {"open": on_server, "medium": "server", "server": animal.server} if animal.server else {"open": at_home}
    return type(name, (suites[animal.contract],), {"known_failures": known, "__doc__": animal.story, **place})
