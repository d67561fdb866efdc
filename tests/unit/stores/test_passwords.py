"""Passwords are hidden wherever a text may have one."""

from __future__ import annotations

import pytest

from pytest_wfstate.stores.passwords import hide_passwords


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me:s3cret@host/base", "postgresql://me:***@host/base"),
        ("redis://:s3cret@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql://me:s3cret@s3cret/s3cret@host/base", "postgresql://me:***@host/base"),
        ("postgresql://host/base?password=s3cret&user=me", "postgresql://host/base?password=***&user=me"),
        ("postgresql://host/base?sslpassword=s3cret", "postgresql://host/base?sslpassword=***"),
        ("host=there PASSWORD = s3cret user=me", "host=there PASSWORD = *** user=me"),
        ("password='s3cret s3cret' user=me", "password=*** user=me"),
        ("paused.redis:redis://host", "paused.redis:redis://host"),
        ("sqlite:////folder/state.db?timeout=60", "sqlite:////folder/state.db?timeout=60"),
    ],
)
def test_passwords_are_hidden_and_nothing_else(text: str, expected: str) -> None:
    assert hide_passwords(text) == expected
