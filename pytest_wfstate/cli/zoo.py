"""The zoo, told: each animal with its story and what caught it, and the matrix of animals and clauses."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_wfstate.suites.clauses import Clause
from pytest_wfstate.zoo import KnownBadStore

Results = Mapping[str, Mapping[str, str]]
"""What became of each clause, for each animal."""


class Tour:
    """Tells of each animal as soon as all clauses have seen it that should catch it."""

    def __init__(self, animals: Sequence[KnownBadStore], names: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._waiting = {animal.name: animal for animal in animals}
        self._names = names
        self._say = say
        self.results: dict[str, dict[str, str]] = {animal.name: {} for animal in animals}

    def heard(self, what: str, value: Any) -> None:
        """Take in what is heard from a session; `names` are those of its suites."""
        if what == "item" and value["level"]:
            name = self._names[value["suite"]]
            self.results[name][value["clause"]] = value["result"]
            if name in self._waiting and self.results[name].keys() >= set(self._waiting[name].breaks):
                self._tell(name)

    def end(self) -> None:
        """Tell of those that not all clauses have seen."""
        for name in list(self._waiting):
            self._tell(name)

    def _tell(self, name: str) -> None:
        self._say(caught(self._waiting.pop(name), self.results[name]) + "\n")


def caught(animal: KnownBadStore, results: Mapping[str, str]) -> str:
    """Tell an animal's story, and which clauses caught it."""
    by = [clause for clause in animal.breaks if results.get(clause) == "known"]
    others = {clause: results.get(clause, "not run") for clause in animal.breaks if clause not in by}
    missed = [f"  NOT caught by {clause}: {result}" for clause, result in others.items()]
    story = textwrap.wrap(animal.story, 116, initial_indent="  ", subsequent_indent="  ")
    told = textwrap.wrap(f"caught by {', '.join(by)}", 116, initial_indent="  ", subsequent_indent="    ") if by else []
    return "\n".join([animal.name, *story, *told, *missed])


def is_caught(animal: KnownBadStore, results: Mapping[str, str]) -> bool:
    """Tell whether all clauses caught it that should."""
    return bool(animal.breaks) and all(results.get(clause) == "known" for clause in animal.breaks)


def count(animals: Sequence[KnownBadStore], results: Results) -> tuple[str, bool]:
    """Say how many animals were caught, and tell whether none got away."""
    caught_ones = [animal for animal in animals if is_caught(animal, results[animal.name])]
    untried = [animal for animal in animals if _has_no_server(animal, results[animal.name])]
    lines = [f"{len(caught_ones)} of {len(animals)} animals are caught by every clause they are said to break."]
    if untried:
        lines.append(
            f"{len(untried)} were not tried, as there is no server for them: pip install 'pytest-wfstate[servers]'."
        )
    return "\n".join(lines), len(caught_ones) + len(untried) == len(animals)


def _has_no_server(animal: KnownBadStore, results: Mapping[str, str]) -> bool:
    return animal.server is not None and all(results.get(clause) == "skipped" for clause in animal.breaks)


def matrix(animals: Sequence[KnownBadStore], clauses: Sequence[Clause], results: Results) -> str:
    """Show animals against clauses: the clauses are numbered, as there is no room for their names."""
    width = max((len(animal.name) for animal in animals), default=0)
    legend = [f"{number:>3}  {clause.id}" for number, clause in enumerate(clauses, 1)]
    numbers = [f"{number:>3}" for number in range(1, len(clauses) + 1)]
    head = [f"{'':{width}}  {''.join(number[place] for number in numbers)}".rstrip() for place in range(3)]
    rows = [
        f"{animal.name:{width}}  "
        + "".join(_mark(animal, clause.id, results[animal.name].get(clause.id, "")) for clause in clauses)
        for animal in animals
    ]
    return "\n".join([*legend, "", *[line for line in head if line], *rows])


KEY = """x broken, as said   . kept   ! broken, and not said   o kept, and said to be broken
~ found by chance, as random calls and storms may or may not   ? not measured   - skipped"""


def _mark(animal: KnownBadStore, clause: str, result: str) -> str:
    problem = _problem(animal, clause, result)
    if problem:
        return problem
    if result == "failed":
        return "x" if clause in animal.breaks else "~"
    return {"passed": ".", "not measured": "?"}.get(result, "-")


def _problem(animal: KnownBadStore, clause: str, result: str) -> str:
    """Tell how what a clause came to differs from what is said of an animal, if it does.

    Whether random calls or a storm meet a bug is a matter of luck. So an animal names such a clause only if hardly
    any call goes well with it, and nobody is surprised if it is found where it is not named.
    """
    if clause in animal.breaks:
        is_untried = animal.server is not None and result == "skipped"
        return "" if result == "failed" or is_untried else "o"
    return "!" if result == "failed" and not clause.endswith(BY_CHANCE) else ""


BY_CHANCE = (".random.calls", ".server.killed")
"""How the ids of clauses end that find a bug by chance."""


def differences(animals: Sequence[KnownBadStore], results: Results) -> list[str]:
    """Tell where animals break other clauses than they say."""
    return [line for animal in animals for line in _differences(animal, results[animal.name])]


_PROBLEMS = {"o": "is said to break, and does not,", "!": "breaks, and is not said to,"}


def _differences(animal: KnownBadStore, found: Mapping[str, str]) -> list[str]:
    asked = dict.fromkeys([*animal.breaks, *found])
    problems = {clause: _problem(animal, clause, found.get(clause, "")) for clause in asked}
    return [f"{animal.name} {_PROBLEMS[problem]} {clause}" for clause, problem in problems.items() if problem]


def without_animal(animals: Sequence[KnownBadStore], clauses: Sequence[Clause]) -> list[str]:
    """Tell which clauses no animal is said to break."""
    broken = {clause for animal in animals for clause in animal.breaks}
    return [f"no animal breaks {clause.id}" for clause in clauses if clause.id not in broken]
