"""A server that the tests did not start: they were given its URL."""

from __future__ import annotations

from typing import NoReturn

from pytest_wfstate.errors import WfstateError


class NotOurs(WfstateError, AttributeError):
    """The server was given by its URL, so the tests cannot stop it."""


class GivenServer:
    """A server that was given by its URL. It has no `kill`, `restart` or `stop`."""

    def __init__(self, url: str, source: str) -> None:
        """Use the server at `url`; `source` says where the URL is from."""
        self.url = url
        self._source = source

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # copy and pickle look these up before there is a source
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NotOurs(
            f"this server has no {name!r}. Its URL is from {self._source}, so the tests did not start it and cannot "
            "stop it. Omit the URL to have the tests start their own server."
        )
