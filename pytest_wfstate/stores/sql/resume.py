"""The resume contract, in a database: a row per run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Column

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.resume import ResumePoint, ResumeStore
from pytest_wfstate.stores.sql import rows
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse
from pytest_wfstate.stores.sql.rows import of
from pytest_wfstate.stores.sql.schema import Json, Key, key


class _ResumeStatements(Statements):
    contract = "resume"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.points = self.schema.table(
            "resume", Column("run", Key, primary_key=True), Column("record", Json, nullable=False)
        )
        self.put = self._statement(rows.put(insert(self.points), "record"))
        self.get = self._statement(rows.get(self.points, "record"))
        self.drop = self._statement(rows.drop(self.points))


class SqlResumeStore(SqlStore[_ResumeStatements], ResumeStore):
    """Keeps resume points in the table `wfstate_resume`."""

    statements = _ResumeStatements

    def save(self, point: ResumePoint) -> None:
        point = ResumePoint.checked(point)
        check_id("run id", point.run_id)
        row = {**_row(point), "record": point.to_json()}
        self._database.change(self._sql.put, row)

    def load(self, run_id: str) -> ResumePoint | None:
        row = {"run": key(check_id("run id", run_id))}
        text = self._database.ask(self._sql.get, of(row)).value
        return None if text is None else parse(ResumePoint, text, self._sql.points, row, _row)

    def delete(self, run_id: str) -> None:
        row = {"run": key(check_id("run id", run_id))}
        self._database.change(self._sql.drop, of(row))


def _row(point: ResumePoint) -> dict[str, str]:
    return {"run": key(point.run_id)}
