"""The zoo: stores that are known to be bad, each with its story and the clauses it breaks.

It shows that the suites have teeth. Every animal is a few lines over a store that is right.
"""

from pytest_wfstate.zoo import claims, effects, forks, paused, races, recoveries, resume, runs, snapshots, traits
from pytest_wfstate.zoo.base import ANIMALS, Animal

__all__ = [
    "ANIMALS",
    "Animal",
    "claims",
    "effects",
    "forks",
    "paused",
    "races",
    "recoveries",
    "resume",
    "runs",
    "snapshots",
    "traits",
]
