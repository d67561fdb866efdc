"""How pytest sees a suite: the marks of a clause, the levels that are asked for, and the report of each clause."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate.engine.driver import NOT_OFFERED
from pytest_wfstate.errors import Violation, cause_of
from pytest_wfstate.faults.source_lines import is_installed, is_users
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.labs.options import CAUSE, NOT_OPENED
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import LEVELS, NOT_APPLICABLE, NOT_SUPPORTED, Clause, clause_of
from pytest_wfstate.suites.context import FACTS, NotOpened, SuiteFacts

_WHOLE_REPORTS = (Violation, NotMeasured)
"""Errors whose text is the report: a traceback would add nothing."""

_UNMEASURED = {"NOT_MEASURED": "was not measured", "INCOMPLETE": "is incomplete"}
"""How the reason of a known failure begins if a clause cannot be measured, or not completed, and what that says."""
_HINT = (
    "Begin the reason with NOT_MEASURED if, and only if, the clause cannot be measured, and with INCOMPLETE if the "
    "safety net of time can stop it."
)

_IN_PART = ("wfstate_bounded_to", "wfstate_raced", "wfstate_calls")
"""Properties of a test that tried only a part of what can fail."""


def clause_of_item(item: Any) -> Clause | None:
    """Return the clause that an item tests, if it tests one."""
    if not issubclass(item.cls, Suite):
        return None
    return clause_of(item.cls, getattr(item.cls, item.originalname, None), item.originalname)


def collected(item: pytest.Function) -> None:
    """Add the marks and properties of its clause to an item."""
    clause = clause_of_item(item)
    item.user_properties.append(("wfstate_suite", True))
    if clause is None or item.cls is None:
        return
    suite: type[Suite] = item.cls
    item.extra_keyword_matches.add(clause.id)
    item.add_marker(pytest.mark.wfstate(contract=suite.contract.name, level=clause.level, fault=clause.fault))
    item.user_properties += [(f"wfstate_{name}", getattr(clause, name)) for name in ("level", "fault")]
    item.user_properties.append(("wfstate_clause", clause.id))
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
    reason = item.cls.known_failures.get(clause.id)
    unmeasured = str(error) if isinstance(error, NotMeasured) else None
    if hasattr(report, "wasxfail") and _verdict(unmeasured) != _verdict(reason):
        report.outcome = "failed"  # not as it is known to
        vars(report).pop("wasxfail", None)
    if report.failed and error is None and reason is not None and (why := _why_not_seen(item, reason)):
        report.outcome, report.longrepr = "skipped", None
        report.wasxfail = f"{reason} (it passed, but {why})"
    if report.failed:
        report.longrepr = _text(item, clause, error) or report.longrepr
    elif isinstance(report.longrepr, tuple):  # of a skipped item; it should not point into pytest
        path, line, _ = item.parent.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    results: list[tuple[str, Any]] = [("wfstate_result", _result(report, error))]
    results += [(NOT_OPENED, True)] if isinstance(error, NotOpened) else []
    results += [(CAUSE, _cause(item, clause, error))] if report.failed or hasattr(report, "wasxfail") else []
    item.user_properties += results
    report.user_properties += results


def _text(item: Any, clause: Clause, error: BaseException | None) -> str | None:
    """Return the report of a failure, unless it is to be shown at a line of the user's code."""
    reason = item.cls.known_failures.get(clause.id)
    says = f"known_failures of {item.cls.__name__} says that it {_known(reason)}: {reason!r}."
    if isinstance(error, _WHOLE_REPORTS):
        text = f"{clause.title}{_by_names(item)}\n\n{error}"
        if reason is None:
            return text
        return f"{text}\n\n{says} {_HINT}"
    if isinstance(error, NotOpened):
        return str(error)
    if error is None and reason is not None:
        return f"{clause.id} passes, but {says} Remove the entry from known_failures."
    return None


def _by_names(item: Any) -> str:
    """Return which names the methods of the store were called by, if its contract has two for some."""
    names = item.callspec.params.get("_wfstate_item") if hasattr(item, "callspec") else None
    return f" (methods called by their {names})" if names else ""


def _cause(item: Any, clause: Clause, error: BaseException | None) -> str:
    """Return what a failure is due to, or "". If no fault was injected, that is a deviation of the store by itself."""
    cause = cause_of(error)
    if cause and clause.fault in ("none", "input"):
        item.parent.stash.setdefault(FACTS, SuiteFacts()).deviations.setdefault(cause, clause.id)
    return cause


def _known(reason: str | None) -> str:
    return _UNMEASURED.get(_verdict(reason), "fails")


def _verdict(text: str | None) -> str:
    """Return how a text begins, if that says that a clause was not measured; else return ""."""
    return next((verdict for verdict in _UNMEASURED if (text or "").startswith(verdict)), "")


def _why_not_seen(item: Any, reason: str) -> str:
    """Return why a known failure may not show, or ""."""
    if _verdict(reason) == "INCOMPLETE":
        return "a slower machine may not complete it"
    is_in_part = any(name in _IN_PART for name, _ in item.user_properties)
    return "tried only a part of what can fail" if is_in_part else ""


def _result(report: pytest.TestReport, error: BaseException | None) -> str:
    """Name how a clause ended: passed, failed, known, not seen, not measured, skipped, or why it was not asked.

    Not seen is a known failure that a bound, luck or a fast machine kept from showing.
    """
    if isinstance(error, NotMeasured) and report.failed:
        return "not measured"
    if not report.skipped:
        return report.outcome
    if hasattr(report, "wasxfail"):
        return "known" if error is not None else "not seen"
    kinds = (NOT_OFFERED, NOT_SUPPORTED, NOT_APPLICABLE)
    return next((kind for kind in kinds if str(error).startswith(kind)), "skipped")
