"""Every animal of the zoo is caught by the clauses that it names, and does what is asked at the core otherwise.

That it breaks no others either is what `wfstate zoo --full` shows, which takes its time.
"""

from __future__ import annotations

from pytest_wfstate.cli.check import all_clauses
from pytest_wfstate.cli.zoo import BY_CHANCE
from pytest_wfstate.suites import SUITES, Suite
from pytest_wfstate.suites.clauses import clauses
from pytest_wfstate.zoo import ANIMALS, Animal
from pytest_wfstate.zoo.suites import suite_of


def _asked(animal: Animal) -> type[Suite]:
    """Make a suite of the clauses that an animal breaks, and those of the core: to collect all takes its time."""
    suite = suite_of(animal, SUITES)
    suite.random_shrinks = False  # that they fail is all there is to know here
    others = [one.test for one in clauses(suite) if one.level != "core" and one.id not in animal.breaks]
    for test in [*others, "test_suite_is_whole"]:
        setattr(suite, test, None)
    return suite


for _animal in ANIMALS:
    _suite = _asked(_animal)
    globals()[_suite.__name__] = _suite
del _animal, _suite


def test_every_animal_names_clauses_that_exist() -> None:
    known = {clause.id for clause in all_clauses()}
    assert {clause for animal in ANIMALS for clause in animal.breaks} <= known


def test_every_clause_has_an_animal() -> None:
    broken = {clause for animal in ANIMALS for clause in animal.breaks}
    assert [clause.id for clause in all_clauses() if clause.id not in broken] == []


def test_an_animal_names_no_clause_twice() -> None:
    assert [animal.name for animal in ANIMALS if len(set(animal.breaks)) < len(animal.breaks)] == []


def test_every_animal_has_a_name_and_a_story_of_its_own() -> None:
    assert len({animal.name for animal in ANIMALS}) == len(ANIMALS)
    assert len({(animal.contract, animal.story) for animal in ANIMALS}) == len(ANIMALS)
    assert all(len(animal.story) > 40 for animal in ANIMALS)


def test_what_finds_by_chance_is_named_only_where_it_cannot_miss() -> None:
    """Elsewhere it is a matter of luck whether a bug is found, and luck is no test."""
    named = {animal.name for animal in ANIMALS if any(one.endswith(BY_CHANCE) for one in animal.breaks)}
    certain = ("missing-is-an-error", "kept-in-memory")
    assert named == {f"{contract}.{name}" for contract in SUITES for name in certain}
