"""How pytest sees a suite: the marks of a clause, the levels that are asked for, and what became of each clause."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate.engine.driver import NOT_OFFERED
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.faults.source import is_installed, is_users
from pytest_wfstate.labs.crash import CrashBug, ErrorBug, NotMeasured
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import LEVELS, Clause, clause_of

Report = pytest.TestReport

_SPEAK_FOR_THEMSELVES = (Violation, CrashBug, ErrorBug, RaceBug, NotMeasured)


def clause_of_item(item: Any) -> Clause | None:
    """Give the clause that an item tests, if it is one of a suite."""
    if not issubclass(item.cls, Suite):
        return None
    return clause_of(item.cls, getattr(item.cls, item.originalname, None), item.originalname)


def collected(item: pytest.Function) -> None:
    """Give an item the marks and properties of its clause."""
    clause = clause_of_item(item)
    if clause is None or item.cls is None:
        return
    suite: type[Suite] = item.cls
    item.extra_keyword_matches.add(clause.id)
    item.add_marker(pytest.mark.wfstate(contract=suite.contract.name, level=clause.level, fault=clause.fault))
    item.user_properties += [("wfstate_clause", clause.id), ("wfstate_level", clause.level)]
    if clause.id in suite.known_failures:
        item.add_marker(pytest.mark.xfail(reason=suite.known_failures[clause.id], strict=True))


def is_asked(item: pytest.Function) -> bool:
    """Tell whether an item is of a level that its suite asks for. What it is known to break is always asked."""
    clause, suite = clause_of_item(item), item.cls
    if clause is None or suite is None or clause.id in suite.known_failures:
        return True
    return LEVELS.index(clause.level) <= LEVELS.index(suite.level)


def pointed_at_users_code(call: pytest.CallInfo[None]) -> None:
    """Have an error show the lines of the user's that it came through, if there are any, and not those of asyncio."""
    if call.excinfo is not None and isinstance(call.excinfo.value, _SPEAK_FOR_THEMSELVES):
        call.excinfo.traceback = call.excinfo.traceback[-1:]  # none is shown, and to format it all takes its time
    elif call.excinfo is not None:
        lines = call.excinfo.traceback.filter(lambda line: is_users(str(line.path)))
        own = lines.filter(lambda line: not is_installed(str(line.path)))
        call.excinfo.traceback = own or lines or call.excinfo.traceback


def reported(item: Any, call: pytest.CallInfo[None], report: Report) -> None:
    """Have a report say what became of a clause, in the words of the suite and not of pytest."""
    clause = clause_of_item(item)
    if clause is None or (report.passed and call.when != "call"):
        return
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, NotMeasured):  # that is no success, and no failure that was known either
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)
    if report.failed:
        report.longrepr = _told(item, clause, error) or report.longrepr
    elif isinstance(report.longrepr, tuple):  # of a skipped item; it should not point into pytest
        path, line, _ = item.parent.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    result = ("wfstate_result", _result(report, error))
    item.user_properties.append(result)
    report.user_properties.append(result)


def _told(item: Any, clause: Clause, error: BaseException | None) -> str | None:
    """Give what a failure has to say, where there is no line of the user's code to show."""
    if isinstance(error, _SPEAK_FOR_THEMSELVES):
        text = str(error)
        return text if text.startswith(clause.id) else f"{clause.id}: {clause.promise}\n\n{text}"
    reason = item.cls.known_failures.get(clause.id)
    if error is None and reason is not None:
        return (
            f"{clause.id} passes, but known_failures of {item.cls.__name__} says that it fails: {reason!r}. "
            "Take the entry out of known_failures."
        )
    return None


def _result(report: Report, error: BaseException | None) -> str:
    """Name what became of a clause: passed, failed, known, not measured, not offered, does not apply, or skipped."""
    if isinstance(error, NotMeasured):
        return "not measured"
    if not report.skipped:
        return report.outcome
    if hasattr(report, "wasxfail"):
        return "known"
    reason = str(error)
    return next((kind for kind in (NOT_OFFERED, "does not apply") if reason.startswith(kind)), "skipped")
