"""Passwords are hidden wherever a text may have one."""

from __future__ import annotations

import time

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
        (r"password='it\'s s3cret' user=me", "password=*** user=me"),
        (r"password='s3cret\\' user=me", "password=*** user=me"),
        (r"password=s3\ cret user=me", "password=*** user=me"),
        ("user=me password='s3cret s3cret", "user=me password=***"),
        ("postgresql://me:s3 cret@s3 cret@host/base", "postgresql://me:***@host/base"),
        ("redis://host; tried redis://:s3\ncret@host", "redis://host; tried redis://:***@host"),
        ("redis://:@host", "redis://:@host"),
        ("paused.redis:redis://host", "paused.redis:redis://host"),
        ("sqlite:////folder/state.db?timeout=60", "sqlite:////folder/state.db?timeout=60"),
    ],
)
def test_passwords_are_hidden_and_nothing_else(text: str, expected: str) -> None:
    assert hide_passwords(text) == expected


@pytest.mark.parametrize("part", ["//a:", "//", "//:", "pwd=", "pwd ", "pwd='", "pwd='\\"])
def test_a_long_text_takes_little_time(part: str) -> None:
    """A crafted one of 500 kB took five seconds."""
    begin = time.process_time()
    hide_passwords(part * 100_000)
    assert time.process_time() - begin < 1
