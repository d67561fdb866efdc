from __future__ import annotations

import copy
import os
import pickle
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_wfstate.stores.file.cache import ByteBoundCache


def filled(limit: int, count: int, size: int = 1) -> ByteBoundCache[int]:
    cache: ByteBoundCache[int] = ByteBoundCache(limit)
    for n in range(count):
        cache.put(f"run-{n}", n, size)
    return cache


def hits(limit: int, count: int, rounds: int = 50) -> float:
    """Return how often what is used in turn is found in the cache."""
    cache, found = filled(limit, count), 0
    for n in range(rounds * count):
        name = f"run-{n % count}"
        found += cache.pop(name) is not None
        cache.put(name, n, 1)
    return found / (rounds * count)


def test_what_fits_is_kept() -> None:
    cache = filled(10, 10)

    assert [cache.pop(f"run-{n}") for n in range(10)] == list(range(10))
    assert len(cache) == 0


def test_a_value_is_taken_out_once() -> None:
    cache = filled(10, 1)

    assert (cache.pop("run-0"), cache.pop("run-0"), cache.pop("none")) == (0, None, None)


@pytest.mark.parametrize(("count", "least"), [(100, 1.0), (101, 0.98), (110, 0.85), (150, 0.5), (200, 0.3)])
def test_more_than_fits_is_found_less_often_and_never_at_once_not_at_all(count: int, least: float) -> None:
    assert hits(100, count) >= least


def test_what_nobody_uses_any_more_makes_room() -> None:
    cache = filled(100, 100)

    for n in range(100, 400):
        cache.put(f"run-{n}", n, 1)
    for _ in range(12):
        for n in range(1000, 1050):
            cache.pop(f"run-{n}")
            cache.put(f"run-{n}", n, 1)

    assert sum(f"run-{n}" in cache for n in range(1000, 1050)) >= 45


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 15)), max_size=50))
def test_it_is_bounded_by_bytes_and_keeps_the_last_in_any_case(puts: list[tuple[str, int]]) -> None:
    cache: ByteBoundCache[int] = ByteBoundCache(10)
    for name, size in puts:
        cache.put(name, size, size)

        kept = [value for value, _ in cache._entries.values()]
        assert name in cache
        assert sum(kept) == cache._bytes
        assert sum(kept) <= 10 or kept == [size]


def test_clearing_forgets_everything() -> None:
    cache = filled(10, 10)
    cache.clear()
    cache.put("a", 1, 10)

    assert (len(cache), cache.pop("a")) == (1, 1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_a_copy_starts_empty(copied: object) -> None:
    assert callable(copied)
    assert len(copied(filled(10, 10))) == 0


def test_a_child_forked_while_a_thread_uses_it_can_use_it() -> None:
    cache, held, done = filled(10, 1), threading.Event(), threading.Event()

    def hold() -> None:
        with cache._locked():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        cache.put("run-1", 1, 1)
        os._exit(0 if cache.pop("run-1") == 1 and cache.pop("run-0") is None else 1)
    done.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.pop("run-0") == 0
