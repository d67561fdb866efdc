"""Where a test keeps a store: a new SQLite file, or tables of their own in PostgreSQL."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from sqlalchemy import Engine, create_engine


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A URL and a prefix."""

    url: str
    prefix: str

    def open(self, kind: Any, **arguments: Any) -> Any:
        """Open a handle."""
        return kind(self.url, prefix=self.prefix, **arguments)

    def engine(self, **arguments: Any) -> Engine:
        """Make an engine, as a user does."""
        return create_engine(self.url.replace("postgresql:", "postgresql+psycopg:", 1), **arguments)

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")


def new_prefix() -> str:
    return f"p{uuid.uuid4().hex[:15]}"
