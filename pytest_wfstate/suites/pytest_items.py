"""How pytest sees a suite: the marks of a clause, the levels that are asked for, and the report of each clause."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate.engine.driver import NOT_OFFERED
from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.source_lines import is_installed, is_users
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import LEVELS, NOT_APPLICABLE, Clause, clause_of

_WHOLE_REPORTS = (Violation, NotMeasured)
"""Errors whose text is the report: a traceback would add nothing."""


def clause_of_item(item: Any) -> Clause | None:
    """Return the clause that an item tests, if it tests one."""
    if not issubclass(item.cls, Suite):
        return None
    return clause_of(item.cls, getattr(item.cls, item.originalname, None), item.originalname)


def collected(item: pytest.Function) -> None:
    """Add the marks and properties of its clause to an item."""
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
    """Whether an item is of a level that its suite asks for. A known failure always is."""
    clause, suite = clause_of_item(item), item.cls
    if clause is None or suite is None or clause.id in suite.known_failures:
        return True
    return LEVELS.index(clause.level) <= LEVELS.index(suite.level)


def point_at_users_code(item: Any, call: pytest.CallInfo[None]) -> None:
    """Have an error show the clause, and the lines of the user's code that it passed through, not those of asyncio."""
    if call.excinfo is None:
        return
    if isinstance(call.excinfo.value, _WHOLE_REPORTS):
        call.excinfo.traceback = call.excinfo.traceback[-1:]  # none is shown, and formatting it all takes time
        return
    lines = call.excinfo.traceback.filter(lambda line: is_users(str(line.path)))
    own = lines.filter(lambda line: not is_installed(str(line.path)))
    call.excinfo.traceback = own or lines or call.excinfo.traceback
    clause, notes = clause_of_item(item), getattr(call.excinfo.value, "__notes__", None)
    if clause is not None and notes:  # which list the calls that led to the error
        notes[:0] = ["", clause.title, ""]


def reported(item: Any, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Have a report say how a clause ended, in the words of the suite and not of pytest."""
    clause = clause_of_item(item)
    if clause is None or (report.passed and call.when != "call"):
        return
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, NotMeasured):  # neither a success nor the failure that was known
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)
    if report.failed:
        report.longrepr = _text(item, clause, error) or report.longrepr
    elif isinstance(report.longrepr, tuple):  # of a skipped item; it should not point into pytest
        path, line, _ = item.parent.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    result = ("wfstate_result", _result(report, error))
    item.user_properties.append(result)
    report.user_properties.append(result)


def _text(item: Any, clause: Clause, error: BaseException | None) -> str | None:
    """Return the report of a failure, unless it is to be shown at a line of the user's code."""
    if isinstance(error, _WHOLE_REPORTS):
        return f"{clause.title}\n\n{error}"
    reason = item.cls.known_failures.get(clause.id)
    if error is None and reason is not None:
        return (
            f"{clause.id} passes, but known_failures of {item.cls.__name__} says that it fails: {reason!r}. "
            "Remove the entry from known_failures."
        )
    return None


def _result(report: pytest.TestReport, error: BaseException | None) -> str:
    """Name how a clause ended: passed, failed, known, not measured, not offered, not applicable, or skipped."""
    if isinstance(error, NotMeasured):
        return "not measured"
    if not report.skipped:
        return report.outcome
    if hasattr(report, "wasxfail"):
        return "known"
    return next((kind for kind in (NOT_OFFERED, NOT_APPLICABLE) if str(error).startswith(kind)), "skipped")
