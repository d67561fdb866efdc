"""What is asked of stores in databases and on servers, where each fault takes its time."""

from __future__ import annotations

import pytest

_SLOW = {"kill", "power", "errors", "race", "server"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ask one method of each for all that can be done to it, and all of them if there is a --wfstate-profile."""
    if config.getoption("--wfstate-profile") is not None:
        return
    left_out = [item for item in items if _is_on_server(item) and _fault(item) in _SLOW]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_on_server(item: pytest.Item) -> bool:
    is_suite = item.path.parent.name in ("sql", "redis") and item.path.name.startswith("test_suites")
    return is_suite and ("TestResume" not in item.nodeid or "delete" in item.name)


def _fault(item: pytest.Item) -> object:
    mark = item.get_closest_marker("wfstate")
    return mark.kwargs.get("fault") if mark else None
