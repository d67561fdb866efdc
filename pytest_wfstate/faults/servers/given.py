"""A server that somebody else runs: the tests were given its URL."""

from __future__ import annotations

from typing import NoReturn

from pytest_wfstate.errors import WfstateError


class NotOurs(WfstateError, AttributeError):
    """The server was given by its URL: it is not for the tests to end it."""

    __module__ = "pytest_wfstate"


class GivenServer:
    """A server that was given by its URL. It has no `kill`, `restart` or `stop`."""

    def __init__(self, url: str, source: str) -> None:
        """Take the server at `url`, which `source` gave."""
        self.url = url
        self._source = source

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # what copy and pickle ask for, before there is a source
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NotOurs(
            f"this server has no {name!r}. It was given by {self._source}, so the tests did not start it and do not "
            "end it. Leave that out to have one started that they can."
        )
