"""The clauses that hurt a store: crashes, cancelled calls, races, lost servers, corrupt records.

Each module makes clauses of what a suite says about its contract, its scenarios for instance: `clauses_for(suite)`
returns tests by name, of the suite's own attributes and not of inherited ones.
"""

from pytest_wfstate.suites.faults import cancel, corruption, crash, half_read, race, server
from pytest_wfstate.suites.faults.crash_run import Scenario
from pytest_wfstate.suites.faults.derived import DerivedRoles, race_roles_of
from pytest_wfstate.suites.faults.race_run import RaceRole, sized

__all__ = ["GENERATORS", "DerivedRoles", "RaceRole", "Scenario", "race_roles_of", "sized"]

GENERATORS = (
    corruption.clauses_for,
    crash.clauses_for,
    cancel.clauses_for,
    race.clauses_for,
    server.clauses_for,
    half_read.clauses_for,
)
