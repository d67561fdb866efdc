"""Every known-bad store fails the clauses that it names, and keeps the other core clauses.

`wfstate zoo --full`, which takes longer, shows that it breaks no others.
"""

from __future__ import annotations

from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.cli.zoo import BY_CHANCE
from pytest_wfstate.suites import SUITES, Suite
from pytest_wfstate.suites.clauses import clauses
from pytest_wfstate.zoo import KNOWN_BAD_STORES, KnownBadStore
from pytest_wfstate.zoo.suites import suite_of


def _smaller_suite(store: KnownBadStore) -> type[Suite]:
    """Return a suite of the clauses that a store breaks and the core ones: collecting all of them is slow."""
    suite = suite_of(store, SUITES)
    suite.explains = False  # only whether they fail matters here
    others = [clause.test for clause in clauses(suite) if clause.level != "core" and clause.id not in store.breaks]
    for test in [*others, "test_suite_is_whole"]:
        setattr(suite, test, None)
    return suite


globals().update((suite.__name__, suite) for suite in map(_smaller_suite, KNOWN_BAD_STORES))


def test_known_bad_stores_and_clauses_name_each_other() -> None:
    broken = {clause for store in KNOWN_BAD_STORES for clause in store.breaks}
    assert broken == {clause.id for clause in all_clauses()}


def test_a_known_bad_store_names_no_clause_twice() -> None:
    assert [store.name for store in KNOWN_BAD_STORES if len(set(store.breaks)) < len(store.breaks)] == []


def test_every_known_bad_store_has_a_name_and_a_story_of_its_own() -> None:
    assert len({store.name for store in KNOWN_BAD_STORES}) == len(KNOWN_BAD_STORES)
    assert len({(store.contract, store.story) for store in KNOWN_BAD_STORES}) == len(KNOWN_BAD_STORES)
    assert all(len(store.story) > 40 for store in KNOWN_BAD_STORES)


def test_clauses_that_find_bugs_by_chance_are_named_only_where_they_cannot_miss() -> None:
    values = ".values.any"
    others = tuple(clause for clause in BY_CHANCE if clause != values)
    named = {store.name for store in KNOWN_BAD_STORES if any(clause.endswith(others) for clause in store.breaks)}
    certain = ("missing-is-an-error", "kept-in-memory")
    assert named == {f"{contract}.{name}" for contract in SUITES for name in certain}
    losing = {store.name for store in KNOWN_BAD_STORES if any(clause.endswith(values) for clause in store.breaks)}
    assert {name.partition(".")[2] for name in losing} == {"floats-are-rounded", "text-is-trimmed", "name-is-ascii"}
