"""How much the suites of the stores explore here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.labs import storm
from pytest_wfstate.suites.faults import server


@pytest.fixture(scope="package", autouse=True)
def _a_part_of_the_bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Explore a twentieth of what the quick profile allows, and kill a server in short rounds.

    CI explores these stores further, by `wfstate check`. A --wfstate-profile on the command line counts as it is.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--wfstate-profile") is None:
            patch.setitem(PROFILES, "quick", PROFILES["quick"].share(20))
            patch.setattr(storm, "ROUND", 60)
            patch.setitem(server._CALLS, "quick", 180)
        yield
